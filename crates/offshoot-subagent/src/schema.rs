//! What a structured answer has to be.

use std::fmt;
use std::sync::Arc;

use offshoot_core::text;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The tool with which a child of this process gives an answer that has a schema. No other tool may have
/// its name.
pub const ANSWER_TOOL: &str = "structured_output";

/// The most bytes that a schema may have, as JSON.
const SCHEMA_BYTES: usize = 64 * 1024;
/// How many violations are named at once, and how long each may be.
const NAMED: usize = 8;
const NAMED_BYTES: usize = 300;

/// A schema cannot be used for an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// It does not describe an object.
    #[error("expected a JSON schema of an object, with \"type\": \"object\" at its top")]
    NotAnObject,
    /// It combines schemas at its top, which models' interfaces refuse.
    #[error("{0} is not supported at the top of the schema: put it into a property")]
    Combinator(&'static str),
    /// It refers to another schema.
    #[error("{0} is not supported: write the schema out where it is used")]
    Reference(&'static str),
    /// It is too large.
    #[error("the schema has {bytes} bytes (limit: {SCHEMA_BYTES})")]
    TooLarge {
        /// Its size as JSON.
        bytes: usize,
    },
    /// It is no JSON schema.
    #[error("not a JSON schema: {0}")]
    Invalid(String),
}

struct Compiled {
    schema: Value,
    validator: jsonschema::Validator,
}

/// The schema of a structured answer, checked when it is made. Cheap to clone; two are equal when
/// their schemas are.
///
/// Only what stands for itself is supported: an object at the top, no references, nothing that would
/// have to be fetched.
///
/// ```
/// use offshoot_subagent::OutputSchema;
/// use serde_json::json;
///
/// let schema = OutputSchema::new(json!({
///     "type": "object",
///     "properties": { "files": { "type": "integer" } },
///     "required": ["files"],
/// }))?;
/// assert!(schema.check(&json!({ "files": 3 })).is_ok());
/// assert!(schema.check(&json!({ "files": "3" })).is_err());
/// # Ok::<(), offshoot_subagent::SchemaError>(())
/// ```
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub struct OutputSchema(Arc<Compiled>);

impl TryFrom<Value> for OutputSchema {
    type Error = SchemaError;

    fn try_from(schema: Value) -> Result<Self, SchemaError> {
        Self::new(schema)
    }
}

impl From<OutputSchema> for Value {
    fn from(schema: OutputSchema) -> Self {
        schema.0.schema.clone()
    }
}

impl fmt::Debug for OutputSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OutputSchema").field(&self.0.schema).finish()
    }
}

impl PartialEq for OutputSchema {
    fn eq(&self, other: &Self) -> bool {
        self.0.schema == other.0.schema
    }
}

impl Eq for OutputSchema {}

impl OutputSchema {
    /// Checks a schema.
    ///
    /// # Errors
    ///
    /// [`SchemaError`] when it is no schema, or needs what is not supported.
    pub fn new(schema: Value) -> Result<Self, SchemaError> {
        let object = schema.as_object().ok_or(SchemaError::NotAnObject)?;
        for key in ["anyOf", "oneOf", "allOf", "not", "if"] {
            if object.contains_key(key) {
                return Err(SchemaError::Combinator(key));
            }
        }
        if object.get("type").and_then(Value::as_str) != Some("object") {
            return Err(SchemaError::NotAnObject);
        }
        if let Some(key) = reference(&schema) {
            return Err(SchemaError::Reference(key));
        }
        let bytes = schema.to_string().len();
        if bytes > SCHEMA_BYTES {
            return Err(SchemaError::TooLarge { bytes });
        }
        let validator = jsonschema::options()
            .offline()
            .build(&schema)
            .map_err(|error| {
                let place = error.instance_path().to_string();
                let what = text::one_line(&format!("{place}: {error}"), NAMED_BYTES);
                SchemaError::Invalid(what)
            })?;
        Ok(Self(Arc::new(Compiled { schema, validator })))
    }

    /// The schema as it was given.
    #[must_use]
    pub fn schema(&self) -> &Value {
        &self.0.schema
    }

    /// Checks an answer.
    ///
    /// # Errors
    ///
    /// What does not fit, each with its place in the answer: bounded, one line.
    pub fn check(&self, answer: &Value) -> Result<(), String> {
        let mut errors = self.0.validator.iter_errors(answer);
        let mut named = Vec::new();
        for error in errors.by_ref().take(NAMED) {
            let place = error.instance_path().to_string();
            let place = if place.is_empty() {
                "the answer"
            } else {
                &place
            };
            named.push(text::one_line(
                &format!("{place}: {}", error.masked()),
                NAMED_BYTES,
            ));
        }
        if named.is_empty() {
            return Ok(());
        }
        let more = errors.count();
        if more > 0 {
            named.push(format!("and {more} more"));
        }
        Err(named.join("; "))
    }
}

/// A keyword that refers to another schema, wherever it stands as a keyword.
fn reference(schema: &Value) -> Option<&'static str> {
    const KEYS: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
    match schema {
        Value::Object(object) => {
            let here = KEYS
                .into_iter()
                .find(|key| object.get(*key).is_some_and(Value::is_string));
            here.or_else(|| {
                object
                    .iter()
                    // Not schemas, but values that an answer may have.
                    .filter(|(key, _)| {
                        !["enum", "const", "default", "examples"].contains(&key.as_str())
                    })
                    .find_map(|(_, value)| reference(value))
            })
        }
        Value::Array(items) => items.iter().find_map(reference),
        _ => None,
    }
}
