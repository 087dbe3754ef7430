//! Arguments, read leniently.
//!
//! For an optional argument `null` means absent; an integral number or a decimal text is taken for an
//! integer, `"true"` and `"false"` for a boolean; unknown names are ignored. Everything else is an
//! error that names the argument, what was expected, and what came.

use std::fmt;
use std::time::Duration;

use offshoot_core::text;
use serde_json::Value;

/// An argument that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentError {
    name: &'static str,
    expected: &'static str,
    got: String,
}

impl ArgumentError {
    /// The stable name of the error.
    pub const CODE: &'static str = "INVALID_ARGUMENTS";

    fn new(name: &'static str, expected: &'static str, got: &Value) -> Self {
        let got = match got {
            Value::Null => "null".to_owned(),
            Value::Array(_) => "an array".to_owned(),
            Value::Object(_) => "an object".to_owned(),
            Value::String(text) => format!("the text {:?}", text::one_line(text, 60)),
            other => text::one_line(&other.to_string(), 60),
        };
        Self {
            name,
            expected,
            got,
        }
    }

    /// The name of the argument.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            expected,
            got,
        } = self;
        write!(
            f,
            "invalid arguments: {name}: expected {expected}, got {got}"
        )
    }
}

impl std::error::Error for ArgumentError {}

/// The arguments of one call.
///
/// ```
/// use offshoot_tools::arguments::Arguments;
/// let args = serde_json::json!({"wait": "TRUE", "timeout_ms": "750"});
/// let args = Arguments::new(&args);
/// assert_eq!(args.optional_flag("wait"), Ok(Some(true)));
/// let timeout = args.optional_millis("timeout_ms").unwrap();
/// assert_eq!(timeout, Some(std::time::Duration::from_millis(750)));
/// assert!(args.text("task_id", "a task id").is_err());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a>(&'a Value);

impl<'a> Arguments<'a> {
    /// Reads from an object; anything else counts as the empty one.
    #[must_use]
    pub fn new(args: &'a Value) -> Self {
        Self(args)
    }

    fn present(self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// A text that must be there and say something. `expected` describes it in the error.
    ///
    /// # Errors
    ///
    /// [`ArgumentError`] when it is missing, empty, or not a text.
    pub fn text(
        self,
        name: &'static str,
        expected: &'static str,
    ) -> Result<&'a str, ArgumentError> {
        match self.0.get(name) {
            Some(Value::String(text)) if !text.trim().is_empty() => Ok(text),
            Some(other) => Err(ArgumentError::new(name, expected, other)),
            None => {
                let got = "nothing".to_owned();
                Err(ArgumentError {
                    name,
                    expected,
                    got,
                })
            }
        }
    }

    /// A text that may be absent; an empty one counts as absent.
    ///
    /// # Errors
    ///
    /// [`ArgumentError`] when it is not a text.
    pub fn optional_text(
        self,
        name: &'static str,
        expected: &'static str,
    ) -> Result<Option<&'a str>, ArgumentError> {
        match self.present(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|t| !t.trim().is_empty())),
            Some(other) => Err(ArgumentError::new(name, expected, other)),
        }
    }

    /// A boolean that may be absent.
    ///
    /// # Errors
    ///
    /// [`ArgumentError`] when it is neither a boolean nor the text of one.
    pub fn optional_flag(self, name: &'static str) -> Result<Option<bool>, ArgumentError> {
        let expected = "true or false";
        match self.present(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(Value::String(text)) if text.trim().eq_ignore_ascii_case("true") => Ok(Some(true)),
            Some(Value::String(text)) if text.trim().eq_ignore_ascii_case("false") => {
                Ok(Some(false))
            }
            Some(other) => Err(ArgumentError::new(name, expected, other)),
        }
    }

    /// A number of milliseconds, greater than zero, that may be absent. One that is too large to be
    /// counted is the largest one.
    ///
    /// # Errors
    ///
    /// [`ArgumentError`] when it is not a positive integer, nor the decimal text of one.
    pub fn optional_millis(self, name: &'static str) -> Result<Option<Duration>, ArgumentError> {
        let expected = "a number of milliseconds greater than 0";
        let Some(value) = self.present(name) else {
            return Ok(None);
        };
        let millis = match value {
            Value::Number(number) => number.as_u64().or_else(|| integral(number.as_f64()?)),
            Value::String(text) => decimal(text.trim()),
            _ => None,
        };
        match millis {
            Some(millis) if millis > 0 => Ok(Some(Duration::from_millis(millis))),
            _ => Err(ArgumentError::new(name, expected, value)),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the float is integral and not negative; `as` saturates at the top"
)]
fn integral(float: f64) -> Option<u64> {
    (float.is_finite() && float.fract() == 0.0 && float >= 0.0).then_some(float as u64)
}

fn decimal(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Only digits: what does not fit is too large, not wrong.
    Some(text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn b143_a_number_sent_as_text_is_a_number() {
        let rows = [
            (json!("750"), Some(750)),
            (json!(750), Some(750)),
            (json!(750.0), Some(750)),
            (json!(18_446_744_073_709_551_615_u64), Some(u64::MAX)),
            (json!("99999999999999999999999"), Some(u64::MAX)),
            (json!(1e300), Some(u64::MAX)),
        ];
        for (value, millis) in rows {
            let args = json!({"timeout_ms": value});
            let read = Arguments::new(&args).optional_millis("timeout_ms");
            assert_eq!(read, Ok(millis.map(Duration::from_millis)), "{value}");
        }
        for value in [
            json!("750ms"),
            json!(""),
            json!("1e9999"),
            json!(0),
            json!(-1),
            json!(1.5),
        ] {
            let args = json!({"timeout_ms": value});
            let error = Arguments::new(&args)
                .optional_millis("timeout_ms")
                .expect_err("a refusal");
            assert!(
                error
                    .to_string()
                    .starts_with("invalid arguments: timeout_ms: expected"),
                "{error}"
            );
        }
    }

    #[test]
    fn b142_a_boolean_sent_as_text_is_a_boolean() {
        for (value, flag) in [
            (json!("False"), false),
            (json!("true"), true),
            (json!(true), true),
        ] {
            let args = json!({"flag": value});
            assert_eq!(Arguments::new(&args).optional_flag("flag"), Ok(Some(flag)));
        }
        let args = json!({"flag": "yes"});
        let error = Arguments::new(&args)
            .optional_flag("flag")
            .expect_err("a refusal");
        assert_eq!(
            error.to_string(),
            "invalid arguments: flag: expected true or false, got the text \"yes\""
        );
    }

    #[test]
    fn b140_null_means_absent() {
        let args = json!({"flag": null, "text": null, "timeout_ms": null});
        let args = Arguments::new(&args);
        assert_eq!(args.optional_flag("flag"), Ok(None));
        assert_eq!(args.optional_text("text", "text"), Ok(None));
        assert_eq!(args.optional_millis("timeout_ms"), Ok(None));
    }

    #[test]
    fn b145_an_id_sent_as_a_number_is_an_error_that_shows_the_right_form() {
        let args = json!({"task_id": 17.0});
        let error = Arguments::new(&args).text("task_id", "a task id such as \"bash-1\"");
        assert_eq!(
            error.expect_err("a refusal").to_string(),
            "invalid arguments: task_id: expected a task id such as \"bash-1\", got 17.0"
        );
    }
}
