//! What a request says, whatever its format.

use serde_json::Value;

/// The format of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `POST …/chat/completions`
    Chat,
    /// `POST …/responses`
    Responses,
    /// `POST …/messages`
    Messages,
    /// `POST …/models/MODEL:generateContent` and `:streamGenerateContent`
    Gemini,
    /// `POST …/api/chat`
    Ollama,
}

impl Format {
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or(path);
        if path.ends_with("/chat/completions") {
            Some(Self::Chat)
        } else if path.ends_with("/responses") {
            Some(Self::Responses)
        } else if path.ends_with("/messages") {
            Some(Self::Messages)
        } else if path.contains(":generateContent") || path.contains(":streamGenerateContent") {
            Some(Self::Gemini)
        } else if path.ends_with("/api/chat") {
            Some(Self::Ollama)
        } else {
            None
        }
    }
}

/// What the rules judge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversation {
    /// The system prompt.
    pub system: String,
    /// The last text of a user that is no tool result.
    pub last_user: String,
    /// The tool results after it, oldest first.
    pub results: Vec<String>,
    /// Whether the answer is to be streamed.
    pub stream: bool,
}

#[derive(Debug)]
enum Item {
    User(String),
    Result(String),
}

impl Conversation {
    pub(crate) fn read(format: Format, path: &str, body: &Value) -> Self {
        let (mut system, items) = match format {
            Format::Chat | Format::Ollama => of_chat(body),
            Format::Responses => of_responses(body),
            Format::Messages => of_messages(body),
            Format::Gemini => of_gemini(body),
        };
        let mut conversation = Self {
            system: std::mem::take(&mut system),
            stream: match format {
                Format::Gemini => path.contains(":streamGenerateContent"),
                _ => body["stream"].as_bool().unwrap_or(false),
            },
            ..Self::default()
        };
        for item in items {
            match item {
                Item::User(text) if text.trim_start().starts_with("<system-reminder>") => {}
                Item::User(text) => {
                    conversation.last_user = text;
                    conversation.results.clear();
                }
                Item::Result(text) => conversation.results.push(text),
            }
        }
        conversation
    }
}

/// A text, or the texts of parts.
fn texts(content: &Value) -> Vec<String> {
    match content {
        Value::String(text) => vec![text.clone()],
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str().map(str::to_owned))
            .collect(),
        _ => Vec::new(),
    }
}

fn joined(content: &Value) -> String {
    texts(content).join("\n")
}

fn of_chat(body: &Value) -> (String, Vec<Item>) {
    let mut system = String::new();
    let mut items = Vec::new();
    for message in body["messages"].as_array().into_iter().flatten() {
        let content = &message["content"];
        match message["role"].as_str() {
            Some("system" | "developer") => system.push_str(&joined(content)),
            Some("user") => items.extend(texts(content).into_iter().map(Item::User)),
            Some("tool") => items.push(Item::Result(joined(content))),
            _ => {}
        }
    }
    (system, items)
}

fn of_responses(body: &Value) -> (String, Vec<Item>) {
    let mut system = body["instructions"].as_str().unwrap_or_default().to_owned();
    let mut items = Vec::new();
    if let Some(text) = body["input"].as_str() {
        items.push(Item::User(text.to_owned()));
    }
    for item in body["input"].as_array().into_iter().flatten() {
        match (item["type"].as_str(), item["role"].as_str()) {
            (_, Some("system" | "developer")) => system.push_str(&joined(&item["content"])),
            (_, Some("user")) => items.extend(texts(&item["content"]).into_iter().map(Item::User)),
            (Some("function_call_output" | "custom_tool_call_output"), _) => {
                items.push(Item::Result(joined(&item["output"])));
            }
            _ => {}
        }
    }
    (system, items)
}

fn of_messages(body: &Value) -> (String, Vec<Item>) {
    let system = joined(&body["system"]);
    let mut items = Vec::new();
    for message in body["messages"].as_array().into_iter().flatten() {
        if message["role"] != "user" {
            continue;
        }
        match &message["content"] {
            Value::Array(blocks) => {
                for block in blocks {
                    match block["type"].as_str() {
                        Some("tool_result") => items.push(Item::Result(joined(&block["content"]))),
                        _ => items.extend(block["text"].as_str().map(|t| Item::User(t.to_owned()))),
                    }
                }
            }
            content => items.extend(texts(content).into_iter().map(Item::User)),
        }
    }
    (system, items)
}

fn of_gemini(body: &Value) -> (String, Vec<Item>) {
    let instruction = body
        .get("systemInstruction")
        .or_else(|| body.get("system_instruction"));
    let system = instruction.map_or_else(String::new, |content| joined(&content["parts"]));
    let mut items = Vec::new();
    for content in body["contents"].as_array().into_iter().flatten() {
        if content["role"] == "model" {
            continue;
        }
        for part in content["parts"].as_array().into_iter().flatten() {
            if let Some(response) = part.get("functionResponse") {
                items.push(Item::Result(gemini_result(&response["response"])));
            } else if let Some(text) = part["text"].as_str() {
                items.push(Item::User(text.to_owned()));
            }
        }
    }
    (system, items)
}

/// The text in a function's response, which may be wrapped in an object.
fn gemini_result(response: &Value) -> String {
    let nested = ["content", "output", "result"]
        .iter()
        .find_map(|key| response.get(key));
    match nested.unwrap_or(response) {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(format: Format, body: Value) -> (String, String, Vec<String>) {
        let conversation = Conversation::read(format, "", &body);
        (
            conversation.system,
            conversation.last_user,
            conversation.results,
        )
    }

    #[test]
    fn each_format_says_the_same() {
        let expected = ("S".to_owned(), "two".to_owned(), vec!["r".to_owned()]);
        let chat = json!({"messages": [
            {"role": "system", "content": "S"},
            {"role": "user", "content": "one"},
            {"role": "tool", "content": "old"},
            {"role": "user", "content": [{"type": "text", "text": "two"}]},
            {"role": "assistant", "tool_calls": []},
            {"role": "tool", "content": "r"},
            {"role": "user", "content": "<system-reminder>x</system-reminder>"},
        ]});
        assert_eq!(read(Format::Chat, chat), expected);
        let responses = json!({"instructions": "S", "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "two"}]},
            {"type": "function_call", "name": "f"},
            {"type": "function_call_output", "output": "r"},
        ]});
        assert_eq!(read(Format::Responses, responses), expected);
        let messages = json!({"system": [{"type": "text", "text": "S"}], "messages": [
            {"role": "user", "content": "two"},
            {"role": "assistant", "content": [{"type": "tool_use"}]},
            {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": "r"}]}]},
        ]});
        assert_eq!(read(Format::Messages, messages), expected);
        let gemini = json!({"systemInstruction": {"parts": [{"text": "S"}]}, "contents": [
            {"role": "user", "parts": [{"text": "two"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f"}}]},
            {"role": "user", "parts": [{"functionResponse": {"response": {"content": "r"}}}]},
        ]});
        assert_eq!(read(Format::Gemini, gemini), expected);
    }
}
