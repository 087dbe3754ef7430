//! One source of a configuration, laid over what is there, and asked later what it said.

use serde_json::Value;

use super::error::{ConfigError, ConfigErrorKind};

/// What an override that was meant as JSON is told.
const HINT: &str = "; the value is not TOML, which has arrays of tables as [{ key = \"text\" }]";

/// What one source says.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// How errors name the source.
    pub(super) origin: String,
    /// What stands before its keys in the source's own file.
    pub(super) prefix: &'static str,
    pub(super) change: Change,
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Tables go over tables key by key; anything else replaces.
    Merge(Value),
    /// One value goes to one place.
    Set { path: Vec<String>, value: Value },
}

impl Source {
    pub(super) fn error(
        &self,
        kind: ConfigErrorKind,
        key: &str,
        what: impl std::fmt::Display,
    ) -> ConfigError {
        let dot = if self.prefix.is_empty() || key.is_empty() {
            ""
        } else {
            "."
        };
        let key = format!("{}{dot}{key}", self.prefix);
        let hint = match self.is_text_in_brackets() {
            true => HINT,
            false => "",
        };
        ConfigError::new(kind, &self.origin, key, format_args!("{what}{hint}"))
    }

    /// Whether this is an override that looks like an array or a table and was not TOML, so that it
    /// became a text.
    fn is_text_in_brackets(&self) -> bool {
        let Change::Set { value, .. } = &self.change else {
            return false;
        };
        let text = value.as_str().unwrap_or_default();
        text.starts_with(['[', '{'])
    }

    /// Lays this source over `base`.
    pub(super) fn apply(&self, base: &mut Value) -> Result<(), ConfigError> {
        let error = |key: &str, what: &str| self.error(ConfigErrorKind::Value, key, what);
        match &self.change {
            Change::Merge(value) => {
                merge(base, value, "").map_err(|(key, what)| error(&key, &what))
            }
            Change::Set { path, value } => {
                let mut at = &mut *base;
                for (i, segment) in path.iter().enumerate() {
                    let found = match at {
                        Value::Object(table) => Some(
                            table
                                .entry(segment)
                                .or_insert(Value::Object(<_>::default())),
                        ),
                        Value::Array(items) => {
                            let index = segment.parse::<usize>().ok();
                            let index = index.filter(|index| *index < items.len());
                            let index = index.ok_or_else(|| {
                                let what = no_entry(&path[..i], &path[i..], items.len());
                                error(&path[..=i].join("."), &what)
                            })?;
                            items.get_mut(index)
                        }
                        _ => None,
                    };
                    let what = "there is no such key, what is above it is no table";
                    at = found.ok_or_else(|| error(&path[..=i].join("."), what))?;
                }
                // A place that this override makes is an empty table until its value comes.
                if at.as_object().is_some_and(serde_json::Map::is_empty) {
                    *at = value.clone();
                    return Ok(());
                }
                let key = path.join(".");
                merge(at, value, &key).map_err(|(key, what)| error(&key, &what))
            }
        }
    }

    /// How much of `path` this source says, and whether what it says hides every source below.
    pub(super) fn depth(&self, path: &[&str]) -> (usize, bool) {
        match &self.change {
            Change::Merge(value) => resolve(value, path),
            Change::Set { path: own, value } => {
                let common = own.iter().zip(path).take_while(|(a, b)| a == b).count();
                if common < own.len() {
                    // Beside the place, or above it: then this source says something inside of it.
                    return (common, false);
                }
                let (depth, hides) = resolve(value, &path[common..]);
                (common + depth, hides)
            }
        }
    }
}

/// What an override that names an entry which is not there is told.
fn no_entry(array: &[String], rest: &[String], entries: usize) -> String {
    let array = array.join(".");
    let below = match rest {
        [number, below @ ..] if number.parse::<usize>().is_ok() => below.join("."),
        keys => keys.join("."),
    };
    let below = match below.is_empty() {
        true => "KEY".to_owned(),
        false => below,
    };
    let whole = format!("the whole array as {array}=[{{ {below} = VALUE }}]");
    match entries {
        0 => format!("`{array}` has no entries; expected {whole}"),
        1 => format!("`{array}` has one entry, number 0; expected {array}.0.{below}, or {whole}"),
        _ => {
            let last = entries - 1;
            format!(
                "`{array}` has {entries} entries, numbers 0 to {last}; expected one of them, or {whole}"
            )
        }
    }
}

/// Lays `over` over `base`; the error is a key and what is wrong there.
fn merge(base: &mut Value, over: &Value, key: &str) -> Result<(), (String, String)> {
    match (base, over) {
        (_, Value::Null) => Err((key.to_owned(), "expected a value, not null".to_owned())),
        (Value::Object(base), Value::Object(over)) => {
            for (name, value) in over {
                let dot = if key.is_empty() { "" } else { "." };
                let key = format!("{key}{dot}{name}");
                match base.get_mut(name) {
                    Some(base) => merge(base, value, &key)?,
                    None => {
                        base.insert(name.clone(), value.clone());
                    }
                }
            }
            Ok(())
        }
        (Value::Object(_), other) => Err((
            key.to_owned(),
            format!("expected a table, not {}", named(other)),
        )),
        (base, over) => {
            *base = over.clone();
            Ok(())
        }
    }
}

/// What a value is called in an error.
pub(super) fn named(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "a table".to_owned(),
        scalar => format!("`{scalar}`"),
    }
}

fn resolve(value: &Value, path: &[&str]) -> (usize, bool) {
    let mut at = value;
    let mut hides = false;
    for (depth, segment) in path.iter().enumerate() {
        let next = match at {
            Value::Object(table) => table.get(*segment),
            Value::Array(items) => {
                // An array replaces the array below it.
                hides = true;
                segment.parse::<usize>().ok().and_then(|i| items.get(i))
            }
            _ => None,
        };
        match next {
            Some(next) => at = next,
            None => return (depth, hides),
        }
    }
    (path.len(), true)
}
