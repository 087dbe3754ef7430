//! What is read by hand, against what the derived reading says.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::Index;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::event::storable::is_own;
use crate::event::{AssistantMessage, Event, SessionStart, ToolResultRecord, TurnEndReason};
use crate::{CallId, Message, MessageId, StoredEvent, Target};

/// As it would be derived; events of crates above are left out.
#[derive(Deserialize)]
#[serde(remote = "Event", tag = "type")]
enum Derived {
    #[serde(rename = "session/start")]
    SessionStart(Arc<SessionStart>),
    #[serde(rename = "inbox/inserted")]
    InboxInserted {
        target: Target,
        wake: bool,
        message: Arc<Message>,
        #[serde(default)]
        before: Option<MessageId>,
        #[serde(default)]
        passive: bool,
    },
    #[serde(rename = "inbox/moved")]
    InboxMoved {
        message_id: MessageId,
        target: Target,
        #[serde(default)]
        before: Option<MessageId>,
    },
    #[serde(rename = "inbox/claimed")]
    InboxClaimed {
        message_id: MessageId,
        turn: u64,
        step: u64,
    },
    #[serde(rename = "inbox/discarded")]
    InboxDiscarded {
        message_id: MessageId,
        cause: String,
    },
    #[serde(rename = "turn/start")]
    TurnStart { turn: u64, generation: u64 },
    #[serde(rename = "step/start")]
    StepStart { turn: u64, step: u64 },
    #[serde(rename = "step/end")]
    StepEnd { turn: u64, step: u64 },
    #[serde(rename = "message/user")]
    MessageUser {
        turn: u64,
        step: u64,
        message: Arc<Message>,
    },
    #[serde(rename = "tool/call")]
    ToolCall {
        turn: u64,
        step: u64,
        call_id: CallId,
        name: String,
        args: Arc<Value>,
    },
    #[serde(rename = "turn/end")]
    TurnEnd {
        turn: u64,
        reason: TurnEndReason,
        #[serde(default)]
        cause: Option<String>,
        #[serde(default)]
        error: Option<String>,
    },
    #[serde(rename = "agent/stopped")]
    AgentStopped { cause: String },
    #[serde(rename = "agent/status")]
    AgentStatus { status: crate::Status },
    #[serde(rename = "message/assistant")]
    MessageAssistant {
        turn: u64,
        step: u64,
        #[serde(flatten)]
        message: Arc<AssistantMessage>,
    },
    #[serde(rename = "tool/result")]
    ToolResult {
        turn: u64,
        step: u64,
        #[serde(flatten)]
        result: Arc<ToolResultRecord>,
    },
}

/// A field's text, and values that are right for some field and wrong for others.
fn field() -> impl Strategy<Value = (&'static str, Value)> {
    let message = json!({"id": "m", "source": {"kind": "user", "generation": 1, "at": "noon"},
        "content": [{"type": "text", "text": "t"}]});
    let names = [
        "turn",
        "step",
        "generation",
        "target",
        "wake",
        "message",
        "before",
        "message_id",
        "cause",
        "call_id",
        "name",
        "args",
        "reason",
        "error",
        "text",
        "calls",
        "finish",
        "usage",
        "value",
        "is_error",
        "code",
        "origin",
        "depth",
        "resumed",
        "parent",
        "label",
        "inherited",
        "status",
        "ignorable",
        "passive",
        "later",
    ];
    let values = vec![
        json!(1),
        json!(-1),
        json!(1.5),
        json!(true),
        json!(null),
        json!("t"),
        json!(""),
        json!("a \"b\" \u{e9}"),
        json!("next_turn"),
        json!("completed"),
        json!("stop"),
        json!("root"),
        json!("idle"),
        json!([]),
        json!({}),
        json!({"input": 1, "output": 2}),
        json!([{"id": "c", "name": "n", "args": {"a": [1]}}]),
        message,
        json!({"id": "m", "source": {"generation": 1}, "content": []}),
        json!({"id": "", "source": {"kind": "k"}, "content": []}),
    ];
    (
        prop::sample::select(names.to_vec()),
        prop::sample::select(values),
    )
}

/// A good event of each kind.
fn good() -> Vec<Value> {
    let message = json!({"id": "m", "source": {"kind": "agent", "generation": 1, "from": "p"},
        "content": [{"type": "text", "text": "t"}]});
    vec![
        json!({"type": "session/start", "origin": "root", "depth": 0, "resumed": false, "mode": "x"}),
        json!({"type": "inbox/inserted", "target": "next_turn", "wake": true, "message": message}),
        json!({"type": "inbox/moved", "message_id": "m", "target": "next_step", "before": "n"}),
        json!({"type": "inbox/claimed", "message_id": "m", "turn": 1, "step": 1}),
        json!({"type": "inbox/discarded", "message_id": "m", "cause": "c"}),
        json!({"type": "turn/start", "turn": 1, "generation": 0}),
        json!({"type": "turn/end", "turn": 1, "reason": "completed", "cause": "user"}),
        json!({"type": "step/start", "turn": 1, "step": 1}),
        json!({"type": "step/end", "turn": 1, "step": 1}),
        json!({"type": "message/user", "turn": 1, "step": 1, "message": message}),
        json!({"type": "message/assistant", "turn": 1, "step": 1, "text": "t", "finish": "stop",
            "calls": [{"id": "c", "name": "n", "args": {}}], "usage": {"input": 1, "output": 2}}),
        json!({"type": "tool/call", "turn": 1, "step": 1, "call_id": "c", "name": "n", "args": [1.5]}),
        json!({"type": "tool/result", "turn": 1, "step": 1, "call_id": "c", "text": "t",
            "value": {"a": 1}, "is_error": true, "code": "X"}),
        json!({"type": "agent/stopped", "cause": "user"}),
        json!({"type": "agent/status", "status": "idle"}),
    ]
}

fn changed() -> impl Strategy<Value = (String, Vec<(String, Value)>)> {
    let index = any::<Index>;
    let changes = prop::collection::vec((index(), 0..3_u8, field()), 0..3);
    (prop::sample::select(good()), changes, index()).prop_map(|(event, changes, at)| {
        let Value::Object(event) = event else {
            unreachable!("objects");
        };
        let kind = event["type"].as_str().unwrap_or_default().to_owned();
        let mut fields: Vec<_> = event.into_iter().filter(|(key, _)| key != "type").collect();
        for (at, what, (name, value)) in changes {
            match what {
                0 if !fields.is_empty() => drop(fields.remove(at.index(fields.len()))),
                1 if !fields.is_empty() => {
                    let at = at.index(fields.len());
                    fields[at].1 = value;
                }
                _ => fields.push((name.to_owned(), value)),
            }
        }
        let type_at = at.index(fields.len() + 1);
        fields.insert(type_at, ("type".to_owned(), kind.clone().into()));
        (kind, fields)
    })
}

/// As it is in a line, where a name may stand twice.
fn text(fields: &[(String, Value)]) -> String {
    let fields: Vec<_> = fields
        .iter()
        .map(|(key, value)| format!("{}:{value}", json!(key)))
        .collect();
    format!("{{{}}}", fields.join(","))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn an_event_is_read_as_a_derived_reading_would((kind, fields) in changed()) {
        let text = text(&fields);
        let derived = {
            let mut from = serde_json::Deserializer::from_str(&text);
            Derived::deserialize(&mut from).ok()
        };
        let read = serde_json::from_str::<Event>(&text).ok();
        prop_assert_eq!(&read, &derived, "{} in {}", kind, text);
        // The same bytes, by whatever way they come.
        if let Some(read) = &read {
            let mut slow = fields.clone();
            let at = slow.iter().position(|(name, _)| name == "type");
            let first = at.map(|at| slow.remove(at));
            slow.extend(first);
            let slow = serde_json::from_str::<Event>(&self::text(&slow)).ok();
            prop_assert_eq!(Some(read), slow.as_ref());
        }
    }

    #[test]
    fn an_event_of_a_crate_above_keeps_what_it_says(
        fields in prop::collection::vec(field(), 0..6),
        at in any::<Index>(),
        twice in any::<bool>(),
    ) {
        let mut fields: Vec<_> = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let at = at.index(fields.len() + 1);
        fields.insert(at, ("type".to_owned(), "x/y".into()));
        if twice {
            fields.push(("type".to_owned(), "x/y".into()));
        }
        let read = serde_json::from_str::<Event>(&text(&fields));
        if twice {
            prop_assert!(read.is_err(), "a second type");
            return Ok(());
        }
        let mut expected: Map<String, Value> = fields.into_iter().collect();
        expected.remove("type");
        let read = read.expect("an event");
        let Event::Extension(extension) = &read else {
            panic!("{read:?}");
        };
        prop_assert_eq!(extension.kind.as_str(), "x/y");
        prop_assert_eq!(&extension.fields, &expected);
        let json = serde_json::to_string(&read).expect("JSON");
        prop_assert_eq!(serde_json::from_str::<Event>(&json).expect("an event"), read);
    }
}

#[test]
fn each_good_event_is_read_and_none_without_its_fields() {
    assert!(
        good()
            .iter()
            .all(|event| event["type"].as_str().is_some_and(is_own))
    );
    for event in good() {
        let read: Event = serde_json::from_value(event.clone()).expect("an event");
        assert_eq!(serde_json::to_value(&read).expect("JSON"), event);
        let bare = json!({"type": event["type"]});
        let error = serde_json::from_value::<Event>(bare).expect_err("fields are missing");
        let kind = event["type"].as_str().expect("a type");
        assert!(
            error
                .to_string()
                .starts_with(&format!("a {kind} event: missing field")),
            "{error}"
        );
    }
    for wrong in [
        "1",
        "[]",
        "{}",
        "null",
        "{\"type\": 1}",
        "{\"type\": null, \"turn\": 1}",
    ] {
        assert!(serde_json::from_str::<Event>(wrong).is_err(), "{wrong}");
    }
}

/// A log is text: what is no text is no event, also where nobody looks at it.
#[test]
fn a_line_that_is_not_utf_8_is_no_event() {
    let line = |extra: &[u8]| {
        let mut line = br#"{"seq":0,"time":"2026-01-01T00:00:00.000Z","event":{"type":"step/end","turn":1,"step":1"#.to_vec();
        line.extend_from_slice(extra);
        line.extend_from_slice(b"}}");
        StoredEvent::from_json(&line, || "here".to_owned())
    };
    line(b",\"later\":\"\xc3\xa9\"").expect("a field of a newer version");
    for bytes in [
        &b",\"later\":\"\xff\""[..],
        b",\"\xc3\":1",
        b",\"later\":[{\"x\":\"\xed\xa0\x80\"}]",
    ] {
        let error = line(bytes).expect_err("no text");
        assert_eq!(error.code(), "SESSION_CORRUPT", "{error}");
    }
}

#[test]
fn a_field_that_is_there_twice_is_refused_in_each_order() {
    for event in [
        r#"{"type": "step/end", "turn": 1, "step": 1, "turn": 1}"#,
        r#"{"turn": 1, "type": "step/end", "step": 1, "turn": 1}"#,
        r#"{"turn": 1, "step": 1, "turn": 1, "type": "step/end"}"#,
        r#"{"turn": 1, "step": 1, "t\u0075rn": 1, "type": "step/end"}"#,
    ] {
        let error = serde_json::from_str::<Event>(event)
            .expect_err(event)
            .to_string();
        assert!(
            error.starts_with("a step/end event: duplicate field `turn`"),
            "{error}"
        );
    }
    // What is not known is not looked at; of an event of a crate above the last one counts.
    for event in [
        r#"{"type": "step/end", "x": 1, "turn": 1, "step": 1, "x": 2}"#,
        r#"{"x": 1, "type": "step/end", "turn": 1, "step": 1, "x": 2}"#,
    ] {
        let read = serde_json::from_str::<Event>(event).expect(event);
        assert_eq!(read, Event::StepEnd { turn: 1, step: 1 });
    }
    for event in [
        r#"{"type": "a/b", "x": 1, "x": 2}"#,
        r#"{"x": 1, "x": 2, "type": "a/b"}"#,
    ] {
        let read: Event = serde_json::from_str(event).expect(event);
        assert_eq!(read, Event::from(crate::Extension::new("a/b").with("x", 2)));
    }
}
