//! Argument schemas, written strictly: a plain object without references or combinators, without
//! formats and defaults, and without room for other properties. A [`Variant`] is how a vendor wants it.

mod variant;

pub use variant::{UnknownVariant, Variant, gemini, openai_strict};

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// The schema of the arguments `T`.
///
/// ```
/// use schemars::JsonSchema;
///
/// #[derive(JsonSchema)]
/// struct Reminder {
///     /// When.
///     at: String,
/// }
///
/// let schema = offshoot_tools::schema::of::<Reminder>();
/// assert_eq!(schema["additionalProperties"], false);
/// assert_eq!(schema["properties"]["at"]["description"], "When.");
/// ```
#[must_use]
pub fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let mut schema = Value::from(schema);
    clean(&mut schema);
    let mut root = Map::new();
    root.insert("type".to_owned(), "object".into());
    let properties = schema
        .get("properties")
        .cloned()
        .unwrap_or_else(|| Map::new().into());
    root.insert("properties".to_owned(), properties);
    if let Some(required) = schema.get("required") {
        root.insert("required".to_owned(), required.clone());
    }
    root.insert("additionalProperties".to_owned(), false.into());
    Value::Object(root)
}

/// The schema without a property: for a parameter that a configuration switches off.
#[must_use]
pub fn without(mut schema: Value, property: &str) -> Value {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.shift_remove(property);
    }
    schema
}

/// The schema with another description of one property.
#[must_use]
pub fn describe(mut schema: Value, property: &str, description: &str) -> Value {
    if let Some(property) = schema.pointer_mut(&format!("/properties/{property}")) {
        property["description"] = description.into();
    }
    schema
}

/// Takes out what some clients refuse and none needs.
fn clean(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            for key in ["$schema", "$id", "title", "format", "default"] {
                object.shift_remove(key);
            }
            if let Some(Value::String(text)) = object.get_mut("description") {
                // A doc comment's line breaks are the source's, not the text's.
                *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            }
            object.values_mut().for_each(clean);
        }
        Value::Array(items) => items.iter_mut().for_each(clean),
        _ => {}
    }
}
