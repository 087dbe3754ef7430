//! Which events a log can give back as they are. Asked before an event is appended: what was accepted
//! must be readable for ever, and a log with one unreadable line is lost as a whole.

use serde_json::{Map, Value};

use super::{Event, Extension};
use crate::Source;

/// Whether a type is one of this crate's. An event of such a type that does not have its fields is corrupt,
/// while one of an unknown type belongs to a crate above.
pub(crate) fn is_own(kind: &str) -> bool {
    is_own_name(kind.as_bytes())
}

/// Asked of every line of a log: a comparison by length and content, and not of one text after the other.
fn is_own_name(kind: &[u8]) -> bool {
    matches!(
        kind,
        b"session/start"
            | b"inbox/inserted"
            | b"inbox/moved"
            | b"inbox/claimed"
            | b"inbox/discarded"
            | b"turn/start"
            | b"turn/end"
            | b"step/start"
            | b"step/end"
            | b"message/user"
            | b"message/assistant"
            | b"tool/call"
            | b"tool/result"
            | b"agent/stopped"
            | b"agent/status"
    )
}

/// Whether the first part of a type is one that this crate names events with.
fn is_own_family(kind: &str) -> bool {
    let family = kind.split_once('/').map(|(family, _)| family);
    matches!(
        family,
        Some("session" | "inbox" | "turn" | "step" | "message" | "tool" | "agent")
    )
}

/// Whether a line whose type begins like this is one of this crate's events.
pub(crate) fn is_of_this_crate(start_of_type: &[u8]) -> bool {
    let end = start_of_type.iter().position(|byte| *byte == b'"');
    end.is_some_and(|end| is_own_name(&start_of_type[..end]))
}

/// Whether an event that was read as one of a crate above is one of a newer version of this one.
pub(super) fn is_of_newer(extension: &Extension) -> bool {
    is_own_family(&extension.kind) && !extension.is_ignorable()
}

/// Fields of `session/start` that `extra` stands beside.
const START_FIELDS: [&str; 7] = [
    "type",
    "parent",
    "label",
    "origin",
    "depth",
    "resumed",
    "inherited",
];

/// Parsers refuse what is nested deeper than 128; an event puts its values a few levels down.
const MAX_DEPTH: usize = 100;

/// Says why a log could not give the event back as it is.
pub(crate) fn check(event: &Event) -> Result<(), &'static str> {
    match event {
        Event::SessionStart(start) => {
            none_of(&start.extra, &START_FIELDS)?;
            shallow_map(&start.extra)
        }
        Event::InboxInserted { message, .. } | Event::MessageUser { message, .. } => {
            source(&message.source)
        }
        Event::MessageAssistant { message, .. } => message
            .calls
            .iter()
            .try_for_each(|call| shallow(&call.args)),
        Event::ToolCall { args, .. } => shallow(args),
        Event::ToolResult { result, .. } => result.value.as_ref().map_or(Ok(()), shallow),
        Event::AgentStatus { .. } => Err("the status of an agent is live only"),
        Event::Extension(extension) => {
            if is_own_family(&extension.kind) {
                return Err("its type belongs to the vocabulary of agents");
            }
            none_of(&extension.fields, &["type"])?;
            shallow_map(&extension.fields)
        }
        Event::InboxMoved { .. }
        | Event::InboxClaimed { .. }
        | Event::InboxDiscarded { .. }
        | Event::TurnStart { .. }
        | Event::TurnEnd { .. }
        | Event::StepStart { .. }
        | Event::AgentStopped { .. }
        | Event::StepEnd { .. } => Ok(()),
    }
}

fn source(source: &Source) -> Result<(), &'static str> {
    none_of(&source.fields, &["kind", "generation"])?;
    shallow_map(&source.fields)
}

/// Two fields of one name in one object cannot both be read back.
fn none_of(fields: &Map<String, Value>, reserved: &[&str]) -> Result<(), &'static str> {
    if !fields.is_empty() && reserved.iter().any(|name| fields.contains_key(*name)) {
        return Err("an added field has the name of one that is there already");
    }
    Ok(())
}

fn shallow_map(fields: &Map<String, Value>) -> Result<(), &'static str> {
    fields.values().try_for_each(shallow)
}

fn shallow(value: &Value) -> Result<(), &'static str> {
    fn within(value: &Value, left: usize) -> bool {
        match value {
            Value::Array(items) => left > 0 && items.iter().all(|item| within(item, left - 1)),
            Value::Object(fields) => left > 0 && fields.values().all(|item| within(item, left - 1)),
            _ => true,
        }
    }
    if within(value, MAX_DEPTH) {
        Ok(())
    } else {
        Err("a value is nested too deeply")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CallId, CallRequest, Extension, StoredEvent};
    use offshoot_core::Timestamp;

    fn nested(depth: usize) -> Value {
        (0..depth).fold(Value::Null, |inner, level| {
            if level % 2 == 0 {
                Value::Array(vec![inner])
            } else {
                Value::Object(Map::from_iter([("a".to_owned(), inner)]))
            }
        })
    }

    fn reply(depth: usize) -> Event {
        let call = CallRequest {
            id: CallId("c".to_owned()),
            name: "t".to_owned(),
            args: nested(depth),
        };
        Event::MessageAssistant {
            turn: 1,
            step: 1,
            message: std::sync::Arc::new(crate::AssistantMessage {
                text: String::new(),
                calls: vec![call],
                finish: crate::Finish::ToolCalls,
                usage: crate::Usage::default(),
            }),
        }
    }

    /// The deepest value that passes is one that can be read back.
    #[test]
    fn what_passes_can_be_read_back() {
        for event in [
            reply(MAX_DEPTH),
            Extension::new("a/b").with("v", nested(MAX_DEPTH)).into(),
        ] {
            check(&event).expect("it passes");
            let stored = StoredEvent {
                seq: 0,
                time: Timestamp::default(),
                event,
            };
            let line = serde_json::to_string(&stored).expect("a line");
            let read: StoredEvent = serde_json::from_str(&line).expect("readable");
            assert_eq!(read, stored);
        }
        assert!(check(&reply(MAX_DEPTH + 1)).is_err());
    }

    /// The list is the vocabulary: a type that is missing in it would be read back as an extension.
    #[test]
    fn every_type_of_this_crate_is_in_the_list() {
        let source = include_str!("../event.rs");
        let named: Vec<_> = source
            .lines()
            .filter_map(|line| line.trim().strip_prefix("#[serde(rename = \""))
            .filter_map(|rest| rest.split_once('"').map(|(name, _)| name))
            .filter(|name| name.contains('/'))
            .collect();
        assert_eq!(named.len(), 15);
        assert!(named.iter().all(|name| is_own(name) && is_own_family(name)));
        let read = include_str!("read.rs");
        let is_read = |name: &&str| read.contains(&format!("\"{name}\""));
        assert!(named.iter().all(is_read), "each is read as what it is");
        assert!(!is_own("turn/starts") && !is_own("turn") && !is_own_family("turn"));
        assert!(is_own_family("turn/later") && !is_own_family("turns/start"));
    }
}
