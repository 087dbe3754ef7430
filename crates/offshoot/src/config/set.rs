//! Values that are not JSON to begin with: TOML text, and `KEY=VALUE` from a command line.

use offshoot_core::text::one_line;
use serde_json::Value;

use super::error::{ConfigError, ConfigErrorKind};

/// How far down a key may reach. What is read of a file has a like bound of its reader.
const MAX_PARTS: usize = 80;

/// Reads TOML text.
pub(super) fn toml_text(origin: &str, text: &str) -> Result<Value, ConfigError> {
    let table: toml::Table = toml::from_str(text).map_err(|error| {
        let place = error.span().map_or(String::new(), |span| {
            let before = text.get(..span.start).unwrap_or(text);
            let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
            let line = before.matches('\n').count() + 1;
            let column = before[line_start..].chars().count() + 1;
            // What stands before the fault on its line is mostly the key of a value.
            let key = before[line_start..]
                .split_once('=')
                .map(|(key, _)| key.trim());
            let key = key.filter(|key| !key.is_empty());
            let key = key.map_or(String::new(), |key| format!(", key {key}"));
            format!("line {line}, column {column}{key}")
        });
        let what = match error.message() {
            // What stands there is no value, and is not known to be meant as one of these.
            "string values must be quoted, expected literal string"
            | "invalid boolean, expected `true`"
            | "invalid boolean, expected `false`"
            | "invalid float, expected `nan`"
            | "invalid float, expected `inf`" => {
                "expected a value: \"text\", a number, true, false, an array or a table"
            }
            other => other,
        };
        ConfigError::new(ConfigErrorKind::Syntax, origin, place, what)
    })?;
    json(toml::Value::Table(table)).ok_or_else(|| {
        let what = "expected finite numbers";
        ConfigError::new(ConfigErrorKind::Value, origin, "", what)
    })
}

/// Reads an override: a dotted key, and a TOML value or else a plain text.
pub(super) fn assignment(origin: &str, text: &str) -> Result<(Vec<String>, Value), ConfigError> {
    let error = || {
        let what = format!("expected KEY=VALUE with a dotted key, not `{text}`");
        ConfigError::new(ConfigErrorKind::Syntax, origin, "", what)
    };
    let (key, value) = text.split_once('=').ok_or_else(error)?;
    let path: Vec<String> = key.split('.').map(|part| part.trim().to_owned()).collect();
    if path.iter().any(String::is_empty) {
        return Err(error());
    }
    if path.len() > MAX_PARTS {
        let what = format!("expected a key of at most {MAX_PARTS} parts");
        let key = one_line(key, 100);
        return Err(ConfigError::new(ConfigErrorKind::Syntax, origin, key, what));
    }
    let value = value.trim();
    let parsed = value.parse::<toml::Value>().ok().and_then(json);
    Ok((path, parsed.unwrap_or_else(|| Value::from(value))))
}

/// The same value as JSON; `None` when there is a number that JSON does not have. Dates are texts.
fn json(value: toml::Value) -> Option<Value> {
    Some(match value {
        toml::Value::String(text) => Value::from(text),
        toml::Value::Integer(number) => Value::from(number),
        toml::Value::Float(number) => Value::Number(serde_json::Number::from_f64(number)?),
        toml::Value::Boolean(flag) => Value::from(flag),
        toml::Value::Datetime(date) => Value::from(date.to_string()),
        toml::Value::Array(items) => items.into_iter().map(json).collect::<Option<_>>()?,
        toml::Value::Table(table) => {
            let fields = table.into_iter().map(|(key, v)| Some((key, json(v)?)));
            Value::Object(fields.collect::<Option<_>>()?)
        }
    })
}
