//! How a tool is told to the different kinds of clients.
//!
//! A tool has one schema, written for JSON Schema as it is. Some vendors take a dialect only; the
//! dialects are made from that schema, never written by hand:
//!
//! | variant | what it takes |
//! |---|---|
//! | `mcp` | the schema as it is, and what calls may change |
//! | `anthropic` | the schema as it is |
//! | `openai-strict` | each property is required; one that may be left out may be `null` instead; no object has room for other properties |
//! | `gemini` | the keys that its `Schema` type has; `nullable` instead of a second type; no parameters rather than an empty object |
//!
//! `null` for an optional parameter means absent, so that every dialect is read by the same code.

use std::fmt;
use std::str::FromStr;

use offshoot_agent::{Effects, Tool};
use serde_json::{Map, Value, json};

/// A kind of client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// An MCP client.
    Mcp,
    /// OpenAI's function tools in strict mode.
    OpenAiStrict,
    /// Anthropic's messages.
    Anthropic,
    /// Gemini's function declarations.
    Gemini,
}

impl Variant {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Mcp, Self::OpenAiStrict, Self::Anthropic, Self::Gemini];

    /// The name, as it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::OpenAiStrict => "openai-strict",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
        }
    }

    /// What such a client is told about a tool.
    ///
    /// ```
    /// use offshoot_tools::schema::Variant;
    /// assert_eq!("gemini".parse(), Ok(Variant::Gemini));
    /// assert!("gemeni".parse::<Variant>().is_err());
    /// ```
    #[must_use]
    pub fn describe(self, tool: &dyn Tool) -> Value {
        let (name, description) = (tool.name(), tool.description());
        let schema = tool.input_schema();
        match self {
            Self::Mcp => json!({
                "name": name,
                "description": description,
                "inputSchema": schema,
                "annotations": annotations(tool.effects()),
            }),
            Self::OpenAiStrict => json!({
                "type": "function",
                "name": name,
                "description": description,
                "strict": true,
                "parameters": openai_strict(schema),
            }),
            Self::Anthropic => json!({
                "name": name,
                "description": description,
                "input_schema": schema,
            }),
            Self::Gemini => {
                let mut declaration = json!({ "name": name, "description": description });
                if let Some(parameters) = gemini(schema) {
                    declaration["parameters"] = parameters;
                }
                declaration
            }
        }
    }
}

/// What a tool may change, in the words of the Model Context Protocol.
fn annotations(effects: Effects) -> Value {
    json!({
        "readOnlyHint": effects.is_read_only(),
        "destructiveHint": effects.is_destructive(),
        "idempotentHint": effects.is_idempotent(),
        "openWorldHint": effects.is_open_world(),
    })
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no such variant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown variant; expected mcp, openai-strict, anthropic or gemini")]
pub struct UnknownVariant;

impl FromStr for Variant {
    type Err = UnknownVariant;

    fn from_str(name: &str) -> Result<Self, UnknownVariant> {
        let known = Self::ALL.into_iter().find(|known| known.name() == name);
        known.ok_or(UnknownVariant)
    }
}

/// A schema in OpenAI's strict mode: what a model may leave out, it may say `null` for.
#[must_use]
pub fn openai_strict(schema: &Value) -> Value {
    let mut strict = schema.clone();
    make_strict(&mut strict);
    strict
}

fn make_strict(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    for key in ["anyOf", "items"] {
        match object.get_mut(key) {
            Some(Value::Array(schemas)) => schemas.iter_mut().for_each(make_strict),
            Some(schema) => make_strict(schema),
            None => {}
        }
    }
    if object.get("type").is_none_or(|kind| kind != "object") {
        return;
    }
    let required = names(object.get("required"));
    let properties = object
        .entry("properties")
        .or_insert_with(|| Map::new().into());
    let mut all = Vec::new();
    for (name, property) in properties.as_object_mut().into_iter().flatten() {
        make_strict(property);
        if !required.contains(name) {
            make_nullable(property);
        }
        all.push(Value::from(name.as_str()));
    }
    for key in ["required", "additionalProperties"] {
        object.shift_remove(key);
    }
    object.insert("required".to_owned(), all.into());
    object.insert("additionalProperties".to_owned(), false.into());
}

fn names(list: Option<&Value>) -> Vec<String> {
    let names = list.and_then(Value::as_array).into_iter().flatten();
    names.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Lets a schema take `null` as well.
fn make_nullable(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    let null = || Value::from("null");
    match object.get_mut("type") {
        Some(kind @ Value::String(_)) if *kind != "null" => {
            *kind = vec![kind.take(), null()].into();
        }
        Some(Value::Array(kinds)) if !kinds.contains(&null()) => kinds.push(null()),
        Some(_) => {}
        None => {
            if let Some(Value::Array(schemas)) = object.get_mut("anyOf") {
                schemas.push(json!({ "type": "null" }));
            }
        }
    }
    if let Some(Value::Array(values)) = object.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
}

/// The keys of Gemini's `Schema` type that a tool may use.
const GEMINI_KEYS: [&str; 17] = [
    "type",
    "description",
    "nullable",
    "enum",
    "items",
    "properties",
    "required",
    "anyOf",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minProperties",
    "maxProperties",
    "pattern",
    "minimum",
    "maximum",
];

/// A schema in Gemini's subset; `None` for an object without properties, which it does not take.
#[must_use]
pub fn gemini(schema: &Value) -> Option<Value> {
    let mut schema = schema.clone();
    let properties = schema.get("properties").and_then(Value::as_object);
    if properties.is_none_or(Map::is_empty) {
        return None;
    }
    narrow(&mut schema);
    Some(schema)
}

fn narrow(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    if let Some(value) = object.shift_remove("const") {
        object.insert("enum".to_owned(), vec![value].into());
    }
    object.retain(|key, _| GEMINI_KEYS.contains(&key.as_str()));
    if let Some(Value::Array(kinds)) = object.get_mut("type") {
        let is_null = |kind: &Value| kind == "null";
        let nullable = kinds.iter().any(is_null);
        kinds.retain(|kind| !is_null(kind));
        let mut kinds = std::mem::take(kinds);
        if kinds.len() == 1 {
            object.insert("type".to_owned(), kinds.remove(0));
        } else {
            object.shift_remove("type");
            let each = |kind: Value| json!({ "type": kind });
            let any: Vec<Value> = kinds.into_iter().map(each).collect();
            object.insert("anyOf".to_owned(), any.into());
        }
        if nullable {
            object.insert("nullable".to_owned(), true.into());
        }
    }
    if let Some(Value::Array(values)) = object.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    match object.get_mut("properties") {
        Some(Value::Object(properties)) => properties.values_mut().for_each(narrow),
        _ => {
            object.shift_remove("properties");
        }
    }
    if let Some(items) = object.get_mut("items") {
        narrow(items);
    }
    if let Some(Value::Array(schemas)) = object.get_mut("anyOf") {
        schemas.iter_mut().for_each(narrow);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "Who."},
                "scope": {"type": "string", "enum": ["a", "b"]},
                "count": {"type": "integer", "minimum": 1},
                "list": {"type": "array", "items": {
                    "type": "object",
                    "properties": {"x": {"type": ["string", "null"]}},
                    "additionalProperties": true,
                }},
                "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            },
            "required": ["name"],
            "additionalProperties": false,
        })
    }

    #[test]
    fn strict_requires_everything_and_takes_null_for_what_is_optional() {
        let expected = json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "Who."},
                "scope": {"type": ["string", "null"], "enum": ["a", "b", null]},
                "count": {"type": ["integer", "null"], "minimum": 1},
                "list": {"type": ["array", "null"], "items": {
                    "type": "object",
                    "properties": {"x": {"type": ["string", "null"]}},
                    "additionalProperties": false,
                    "required": ["x"],
                }},
                "either": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
            },
            "required": ["name", "scope", "count", "list", "either"],
            "additionalProperties": false,
        });
        assert_eq!(openai_strict(&schema()), expected);
        assert_eq!(
            openai_strict(&expected),
            expected,
            "once strict, always strict"
        );
    }

    #[test]
    fn an_object_without_properties_is_strict_too() {
        let expected = json!({
            "type": "object",
            "properties": {},
            "required": [],
            "additionalProperties": false,
        });
        assert_eq!(openai_strict(&json!({"type": "object"})), expected);
    }

    #[test]
    fn gemini_has_its_own_keys_only() {
        let expected = json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "Who."},
                "scope": {"type": "string", "enum": ["a", "b"]},
                "count": {"type": "integer", "minimum": 1},
                "list": {"type": "array", "items": {
                    "type": "object",
                    "properties": {"x": {"type": "string", "nullable": true}},
                }},
                "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            },
            "required": ["name"],
        });
        assert_eq!(gemini(&schema()), Some(expected.clone()));
        assert_eq!(gemini(&expected), Some(expected));
        assert_eq!(gemini(&json!({"type": "object", "properties": {}})), None);
    }

    #[test]
    fn gemini_says_several_types_as_alternatives() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": ["string", "integer", "null"]},
            "b": {"const": "x", "title": "B", "$comment": "c"},
        }});
        let expected = json!({"type": "object", "properties": {
            "a": {"anyOf": [{"type": "string"}, {"type": "integer"}], "nullable": true},
            "b": {"enum": ["x"]},
        }});
        assert_eq!(gemini(&schema), Some(expected));
    }

    #[test]
    fn each_variant_has_a_name() {
        for variant in Variant::ALL {
            assert_eq!(variant.to_string().parse(), Ok(variant));
        }
    }
}
