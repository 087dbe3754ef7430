//! A path of fields into a JSON value.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

/// A text that is no path of fields.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected names of fields with dots between")]
pub struct BadFieldPath;

/// Names of fields with dots between; a number is also the place of an item in an array.
///
/// ```
/// use offshoot_process::FieldPath;
/// let path: FieldPath = "choices.0.text".parse()?;
/// let line = serde_json::json!({"choices": [{"text": "yes"}]});
/// assert_eq!(path.find(&line).and_then(|value| value.as_str()), Some("yes"));
/// assert!("a..b".parse::<FieldPath>().is_err());
/// # Ok::<(), offshoot_process::BadFieldPath>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath(Vec<String>);

impl FieldPath {
    /// What is at the path.
    #[must_use]
    pub fn find<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(value, |value, name| match value {
            Value::Array(items) => items.get(name.parse::<usize>().ok()?),
            value => value.get(name),
        })
    }
}

impl FromStr for FieldPath {
    type Err = BadFieldPath;

    fn from_str(text: &str) -> Result<Self, BadFieldPath> {
        let names: Vec<String> = text.split('.').map(|name| name.trim().to_owned()).collect();
        if names.iter().any(String::is_empty) {
            return Err(BadFieldPath);
        }
        Ok(Self(names))
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}
