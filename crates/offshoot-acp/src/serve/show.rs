//! Events of agents as updates for a client.
//!
//! The root's words are the agent's message. Its calls are tool calls; so are its children and its
//! background commands, for as long as they live: a client shows them as work under way.

use offshoot_agent::{Event, Extension};
use offshoot_core::text;
use serde_json::{Map, Value, json};

/// Longest text of a tool call's content.
const MAX_CONTENT: usize = 16 * 1024;

const MAX_TITLE: usize = 200;

/// Whose event it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Who<'a> {
    /// The agent of the session.
    Root,
    /// A child of this id, near or far.
    Child(&'a str),
}

/// The update that an event is for a client, if it is one.
pub(super) fn update(who: Who<'_>, event: &Event) -> Option<Value> {
    match (who, event) {
        (Who::Root, Event::MessageAssistant { message, .. }) => {
            said("agent_message_chunk", &message.text)
        }
        (
            Who::Root,
            Event::ToolCall {
                turn,
                call_id,
                name,
                args,
                ..
            },
        ) => Some(json!({
            "sessionUpdate": "tool_call",
            "toolCallId": call(*turn, &call_id.0),
            "title": title(name, args),
            "kind": kind(name),
            "status": "in_progress",
            "rawInput": args,
        })),
        (Who::Root, Event::ToolResult { turn, result, .. }) => {
            let status = if result.is_error {
                "failed"
            } else {
                "completed"
            };
            let mut update = ended(&call(*turn, &result.call_id.0), status, &result.text);
            if let (Some(update), Some(value)) = (update.as_object_mut(), &result.value) {
                update.insert("rawOutput".to_owned(), value.clone());
            }
            Some(update)
        }
        (Who::Child(id), Event::MessageAssistant { message, .. }) if !message.text.is_empty() => {
            Some(json!({
                "sessionUpdate": "tool_call_update",
                "toolCallId": format!("child-{id}"),
                "content": content(&message.text),
            }))
        }
        (_, Event::Extension(extension)) => work(extension),
        _ => None,
    }
}

/// The update that a stored event is when a client loads its session.
pub(super) fn replayed(event: &Event) -> Option<Value> {
    match event {
        Event::MessageUser { message, .. } if message.source.is_user() => {
            said("user_message_chunk", &message.to_text())
        }
        // Work of an earlier process is over, and is told by its notices.
        Event::Extension(_) => None,
        event => update(Who::Root, event),
    }
}

fn said(kind: &str, text: &str) -> Option<Value> {
    (!text.is_empty())
        .then(|| json!({ "sessionUpdate": kind, "content": { "type": "text", "text": text } }))
}

/// A child or a background command, from its start to its end.
fn work(extension: &Extension) -> Option<Value> {
    let field = |name: &str| extension.field(name).unwrap_or_default();
    let began = |id: String, title: String, kind: &str| {
        Some(json!({
            "sessionUpdate": "tool_call",
            "toolCallId": id,
            "title": text::one_line(&title, MAX_TITLE),
            "kind": kind,
            "status": "in_progress",
        }))
    };
    match extension.kind.as_str() {
        "subagent/started" => {
            let title = format!("Subagent: {}", field("label"));
            began(format!("child-{}", field("child")), title, "other")
        }
        "subagent/settled" => {
            let outcome = field("outcome");
            let status = if outcome == "completed" {
                "completed"
            } else {
                "failed"
            };
            // What it said is there already.
            let mut update = Map::new();
            update.insert("sessionUpdate".to_owned(), "tool_call_update".into());
            update.insert(
                "toolCallId".to_owned(),
                format!("child-{}", field("child")).into(),
            );
            update.insert("status".to_owned(), status.into());
            update.insert("rawOutput".to_owned(), json!({ "outcome": outcome }));
            Some(Value::Object(update))
        }
        // A task that carries a child is shown as the child.
        "task/started" if field("kind") != "subagent" => {
            let title = format!("Background: {}", field("label"));
            began(format!("task-{}", field("task_id")), title, "execute")
        }
        "task/settled" if !field("task_id").starts_with("subagent-") => {
            let status = match field("status") {
                "completed" => "completed",
                _ => "failed",
            };
            let words = format!("{}: {}", field("status"), field("detail"));
            let words = words.trim_end_matches([' ', ':']);
            Some(ended(&format!("task-{}", field("task_id")), status, words))
        }
        _ => None,
    }
}

/// A model may use an id again in a later turn.
fn call(turn: u64, id: &str) -> String {
    format!("call-{turn}-{id}")
}

fn ended(id: &str, status: &str, text: &str) -> Value {
    json!({
        "sessionUpdate": "tool_call_update",
        "toolCallId": id,
        "status": status,
        "content": content(text),
    })
}

fn content(words: &str) -> Value {
    let words = text::marked_tail(words, MAX_CONTENT);
    json!([{ "type": "content", "content": { "type": "text", "text": words } }])
}

fn title(name: &str, args: &Value) -> String {
    let what = ["description", "command", "message", "task_id", "agent_id"];
    let what = what.iter().find_map(|key| args.get(key)?.as_str());
    let title = match what {
        Some(what) => format!("{name}: {what}"),
        None => name.to_owned(),
    };
    text::one_line(&title, MAX_TITLE)
}

fn kind(name: &str) -> &'static str {
    match name {
        "bash" => "execute",
        "task_output" | "task_list" | "list_agents" => "read",
        _ => "other",
    }
}
