//! A request of the loop in the words of the client crate.

use genai::chat::{
    ChatMessage, ChatRequest, ContentPart, MessageContent, Tool, ToolCall, ToolResponse,
};
use offshoot_agent::{
    AgentId, AssistantMessage, CallRequest, HistoryItem, ToolResultRecord, ToolSet,
};
use serde_json::{Map, Value, json};

use crate::Provider;
use crate::recall::Recall;

/// The longest name of a tool that every provider takes.
const MAX_NAME: usize = 64;

/// What a request is made of.
pub(crate) struct Asked<'a> {
    pub(crate) provider: Provider,
    pub(crate) agent: &'a AgentId,
    pub(crate) recall: &'a Recall,
}

impl Asked<'_> {
    pub(crate) fn request(
        &self,
        system: &str,
        history: &[HistoryItem],
        tools: &ToolSet,
    ) -> ChatRequest {
        let mut request = ChatRequest::new(self.messages(history));
        if !system.trim().is_empty() {
            request = request.with_system(system);
        }
        let tools: Vec<Tool> = tools
            .iter()
            .map(|tool| {
                Tool::new(tool.name())
                    .with_description(tool.description())
                    .with_schema(tool.input_schema().clone())
            })
            .collect();
        if tools.is_empty() {
            request
        } else {
            request.with_tools(tools)
        }
    }

    fn messages(&self, history: &[HistoryItem]) -> Vec<ChatMessage> {
        let mut messages = Vec::with_capacity(history.len());
        let mut results: Vec<ToolResponse> = Vec::new();
        let mut names: Vec<(String, String)> = Vec::new();
        for item in history {
            if let HistoryItem::ToolResult(result) = item {
                let response = response(result, &names);
                match self.provider {
                    // All results of one reply belong into one message.
                    Provider::Anthropic => results.push(response),
                    _ => messages.push(ChatMessage::from(response)),
                }
                continue;
            }
            flush(&mut results, &mut messages);
            match item {
                HistoryItem::User(message) => {
                    messages.push(ChatMessage::user(or_else(
                        message.to_text(),
                        "(empty message)",
                    )));
                }
                HistoryItem::Assistant(reply) => {
                    let called = |call: &CallRequest| (call.id.0.clone(), wire_name(&call.name));
                    names = reply.calls.iter().map(called).collect();
                    messages.extend(self.assistant(reply));
                }
                _ => {}
            }
        }
        flush(&mut results, &mut messages);
        messages
    }

    /// A reply as the model gave it; `None` when there is nothing in it that could be sent.
    fn assistant(&self, reply: &AssistantMessage) -> Option<ChatMessage> {
        let mut parts = Vec::new();
        if !reply.text.trim().is_empty() {
            parts.push(ContentPart::Text(reply.text.clone()));
        }
        for call in &reply.calls {
            let memory = self.recall.of(self.agent, &call.id.0);
            if let Some(reasoning) = memory.reasoning {
                parts.push(ContentPart::ReasoningContent(reasoning));
            }
            parts.push(ContentPart::ToolCall(ToolCall {
                call_id: wire_id(&call.id.0),
                fn_name: wire_name(&call.name),
                fn_arguments: object(&call.args),
                thought_signatures: (!memory.signatures.is_empty()).then_some(memory.signatures),
            }));
        }
        (!parts.is_empty()).then(|| ChatMessage::assistant(MessageContent::from_parts(parts)))
    }
}

fn flush(results: &mut Vec<ToolResponse>, messages: &mut Vec<ChatMessage>) {
    if !results.is_empty() {
        let results = std::mem::take(results);
        messages.push(ChatMessage::tool(MessageContent::from_tool_responses(
            results,
        )));
    }
}

fn response(result: &ToolResultRecord, names: &[(String, String)]) -> ToolResponse {
    let text = or_else(result.text.clone(), "(no output)");
    let response = ToolResponse::new(wire_id(&result.call_id.0), text);
    match names.iter().find(|(id, _)| *id == result.call_id.0) {
        Some((_, name)) => response.with_fn_name(name),
        None => response,
    }
}

/// Providers refuse messages without text.
fn or_else(text: String, instead: &str) -> String {
    if text.trim().is_empty() {
        instead.to_owned()
    } else {
        text
    }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

fn plain(text: &str) -> String {
    let plain = |c| if is_plain(c) { c } else { '_' };
    text.chars().map(plain).collect()
}

/// A tool's name as every provider takes it: what a model once made up must not spoil what follows.
fn wire_name(name: &str) -> String {
    let name: String = plain(name).chars().take(MAX_NAME).collect();
    or_else(name, "unnamed")
}

/// A call's id, likewise.
fn wire_id(id: &str) -> String {
    or_else(plain(id), "call")
}

/// Arguments as the object that every provider wants, whatever the model had sent.
fn object(args: &Value) -> Value {
    match args {
        Value::Object(_) => args.clone(),
        Value::Null => Value::Object(Map::new()),
        Value::String(text) => match serde_json::from_str(text) {
            Ok(object @ Value::Object(_)) => object,
            _ => json!({ "invalid_arguments": text }),
        },
        other => json!({ "invalid_arguments": other }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use offshoot_agent::{CallId, Finish, Message, Usage};

    use super::*;
    use crate::recall::Memory;

    fn reply(text: &str, calls: &[(&str, &str, Value)]) -> HistoryItem {
        let calls = calls.iter().map(|(id, name, args)| CallRequest {
            id: CallId((*id).to_owned()),
            name: (*name).to_owned(),
            args: args.clone(),
        });
        HistoryItem::Assistant(Arc::new(AssistantMessage {
            text: text.to_owned(),
            calls: calls.collect(),
            finish: Finish::Stop,
            usage: Usage::default(),
        }))
    }

    fn result(id: &str, text: &str) -> HistoryItem {
        HistoryItem::ToolResult(Arc::new(ToolResultRecord {
            call_id: CallId(id.to_owned()),
            text: text.to_owned(),
            value: None,
            is_error: false,
            code: None,
        }))
    }

    fn messages(
        provider: Provider,
        recall: &Recall,
        agent: &AgentId,
        history: &[HistoryItem],
    ) -> Value {
        let asked = Asked {
            provider,
            agent,
            recall,
        };
        serde_json::to_value(asked.messages(history)).unwrap()
    }

    fn history() -> Vec<HistoryItem> {
        vec![
            HistoryItem::User(Arc::new(Message::user("go"))),
            reply(
                "",
                &[
                    ("a", "bash", json!({"command": "ls"})),
                    ("b b", "no such tool!", json!("{\"x\":")),
                ],
            ),
            result("a", ""),
            result("b b", "Error: unknown"),
            reply(" ", &[]),
            HistoryItem::User(Arc::new(Message::user(""))),
        ]
    }

    #[test]
    fn what_a_model_made_up_is_sent_so_that_it_is_taken() {
        let (recall, agent) = (Recall::default(), AgentId::fresh());
        let all = messages(Provider::OpenAi, &recall, &agent, &history());
        let text = all.to_string();
        assert_eq!(all.as_array().unwrap().len(), 5, "{text}");
        for part in [
            "\"no_such_tool_\"",
            "\"b_b\"",
            "invalid_arguments",
            "(no output)",
            "(empty message)",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("no such tool!"), "{text}");
    }

    #[test]
    fn results_of_one_reply_are_one_message_where_they_have_to_be() {
        let (recall, agent) = (Recall::default(), AgentId::fresh());
        let count = |provider| {
            let all = messages(provider, &recall, &agent, &history());
            all.as_array().unwrap().len()
        };
        assert_eq!(count(Provider::Anthropic), 4);
        assert_eq!(count(Provider::Ollama), 5);
    }

    #[test]
    fn what_belongs_to_a_call_goes_back_with_it() {
        let (recall, agent) = (Recall::default(), AgentId::fresh());
        let memory = Memory {
            signatures: vec!["sig".to_owned()],
            reasoning: Some("because".to_owned()),
        };
        recall.keep(&agent, "a", memory);
        let text = messages(Provider::DeepSeek, &recall, &agent, &history()).to_string();
        assert!(
            text.contains("\"sig\"") && text.contains("because"),
            "{text}"
        );
        let other =
            messages(Provider::DeepSeek, &recall, &AgentId::fresh(), &history()).to_string();
        assert!(!other.contains("\"sig\""), "{other}");
    }

    #[test]
    fn arguments_are_an_object() {
        let cases = [
            (json!({"a": 1}), json!({"a": 1})),
            (Value::Null, json!({})),
            (json!("{\"a\":1}"), json!({"a": 1})),
            (json!("[1]"), json!({"invalid_arguments": "[1]"})),
            (json!([1]), json!({"invalid_arguments": [1]})),
        ];
        for (args, expected) in cases {
            assert_eq!(object(&args), expected);
        }
    }
}
