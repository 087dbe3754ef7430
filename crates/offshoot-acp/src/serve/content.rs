//! The blocks of a prompt as text.

use serde_json::Value;

/// The prompt that the parameters of a `session/prompt` have.
///
/// # Errors
///
/// What was expected, when there is a block that is no text, or no text at all.
pub(super) fn prompt(params: &Value) -> Result<String, String> {
    let blocks = params.get("prompt").and_then(Value::as_array);
    let blocks = blocks.ok_or("expected `prompt`, an array of content blocks")?;
    let parts: Result<Vec<String>, String> = blocks.iter().map(block).collect();
    let text = parts?.join("\n\n");
    if text.trim().is_empty() {
        return Err("the prompt is empty".to_owned());
    }
    Ok(text)
}

fn block(block: &Value) -> Result<String, String> {
    let text = |path: &str| block.pointer(path).and_then(Value::as_str);
    match text("/type") {
        Some("text") => Ok(text("/text").unwrap_or_default().to_owned()),
        Some("resource_link") => {
            let uri = text("/uri").unwrap_or_default();
            Ok(format!("[{}]({uri})", text("/name").unwrap_or(uri)))
        }
        Some("resource") => {
            let uri = text("/resource/uri").unwrap_or_default();
            match text("/resource/text") {
                Some(content) => Ok(format!("<resource uri=\"{uri}\">\n{content}\n</resource>")),
                None => Err(format!("the resource {uri} has no text")),
            }
        }
        kind => {
            let kind = kind.unwrap_or("(none)");
            Err(format!(
                "content of type {kind}: expected text, resource_link or resource"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn s122_text_and_resources_are_a_prompt_and_nothing_else_is() {
        let all = json!({ "prompt": [
            { "type": "text", "text": "Look at" },
            { "type": "resource_link", "name": "a.rs", "uri": "file:///a.rs" },
            { "type": "resource", "resource": { "uri": "file:///b", "text": "content" } },
        ]});
        assert_eq!(
            prompt(&all).unwrap(),
            "Look at\n\n[a.rs](file:///a.rs)\n\n<resource uri=\"file:///b\">\ncontent\n</resource>"
        );
        for bad in [
            json!({}),
            json!({ "prompt": [] }),
            json!({ "prompt": [{ "type": "text", "text": " " }] }),
            json!({ "prompt": [{ "type": "image", "data": "" }] }),
            json!({ "prompt": [{ "type": "resource", "resource": { "uri": "x", "blob": "" } }] }),
            json!({ "prompt": ["x"] }),
        ] {
            assert!(prompt(&bad).is_err(), "{bad}");
        }
    }
}
