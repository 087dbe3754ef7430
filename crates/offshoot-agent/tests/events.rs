//! The shape of every event as JSON, and that a log gives back what it was given.

mod support;

use std::sync::Arc;

use offshoot_agent::{
    AgentId, CallId, Event, EventRecord, Extension, Finish, Inherited, Origin, SessionStart,
    SessionStore, Source, Status, StoredEvent, Target, ToolResultRecord, TurnEndReason,
};
use offshoot_core::Timestamp;
use serde_json::{Map, Value, json};
use support::{message, user};

fn start() -> SessionStart {
    SessionStart {
        parent: None,
        label: Some("root".into()),
        origin: Origin::Root,
        depth: 0,
        resumed: false,
        inherited: None,
        extra: Map::new(),
    }
}

/// Every event of the vocabulary beside the shape that the event stream promises.
fn vocabulary() -> Vec<(Event, Value)> {
    let parent: AgentId = "p".parse().expect("an id");
    let mut extra = Map::new();
    extra.insert("mode".into(), "continuable".into());
    extra.insert("provider".into(), "fork".into());
    let id = |text: &str| text.parse().expect("an id");
    let shown = json!({
        "id": "m1",
        "source": {"kind": "settled", "generation": 2, "child": "c", "outcome": "completed"},
        "content": [{"type": "text", "text": "done"}],
    });
    let settled = Source::new("settled", 2)
        .with("child", "c")
        .with("outcome", "completed");
    let mut settled = message(settled, "m1");
    settled.content.clear();
    let settled = settled.and_text("done");
    let mut reply = support::reply_of("hello", Finish::ToolCalls);
    reply.calls = vec![support::call_of("c1")];
    let end = |reason, cause: Option<&str>, error: Option<&str>| Event::TurnEnd {
        turn: 1,
        reason,
        cause: cause.map(Into::into),
        error: error.map(Into::into),
    };
    vec![
        (
            start().into(),
            json!({"type": "session/start", "label": "root", "origin": "root", "depth": 0,
                "resumed": false}),
        ),
        (
            Event::from(SessionStart {
                parent: Some(parent),
                label: Some("sizes".into()),
                origin: Origin::Subagent,
                depth: 1,
                resumed: true,
                inherited: Some(Inherited {
                    events: 12,
                    turns: 2,
                }),
                extra,
            }),
            json!({"type": "session/start", "parent": "p", "label": "sizes",
                "origin": "subagent", "depth": 1, "resumed": true,
                "inherited": {"events": 12, "turns": 2},
                "mode": "continuable", "provider": "fork"}),
        ),
        (
            Event::InboxInserted {
                target: Target::NextStep,
                wake: true,
                message: settled.clone().into(),
                before: None,
                passive: false,
            },
            json!({"type": "inbox/inserted", "target": "next_step", "wake": true,
                "message": shown}),
        ),
        (
            Event::InboxInserted {
                target: Target::NextTurn,
                wake: false,
                message: user("m2").into(),
                before: Some(id("m0")),
                passive: false,
            },
            json!({"type": "inbox/inserted", "target": "next_turn", "wake": false, "before": "m0",
                "message": {"id": "m2", "source": {"kind": "user", "generation": 0},
                    "content": [{"type": "text", "text": "m2"}]}}),
        ),
        (
            Event::InboxInserted {
                target: Target::NextStep,
                wake: false,
                message: user("m3").into(),
                before: None,
                passive: true,
            },
            json!({"type": "inbox/inserted", "target": "next_step", "wake": false, "passive": true,
                "message": {"id": "m3", "source": {"kind": "user", "generation": 0},
                    "content": [{"type": "text", "text": "m3"}]}}),
        ),
        (
            Event::InboxMoved {
                message_id: id("m2"),
                target: Target::NextStep,
                before: Some(id("m1")),
            },
            json!({"type": "inbox/moved", "message_id": "m2", "target": "next_step",
                "before": "m1"}),
        ),
        (
            Event::InboxMoved {
                message_id: id("m2"),
                target: Target::NextTurn,
                before: None,
            },
            json!({"type": "inbox/moved", "message_id": "m2", "target": "next_turn"}),
        ),
        (
            Event::InboxClaimed {
                message_id: id("m1"),
                turn: 1,
                step: 2,
            },
            json!({"type": "inbox/claimed", "message_id": "m1", "turn": 1, "step": 2}),
        ),
        (
            Event::InboxDiscarded {
                message_id: id("m1"),
                cause: "user".into(),
            },
            json!({"type": "inbox/discarded", "message_id": "m1", "cause": "user"}),
        ),
        (
            Event::TurnStart {
                turn: 1,
                generation: 3,
            },
            json!({"type": "turn/start", "turn": 1, "generation": 3}),
        ),
        (
            Event::StepStart { turn: 1, step: 1 },
            json!({"type": "step/start", "turn": 1, "step": 1}),
        ),
        (
            Event::StepEnd { turn: 1, step: 1 },
            json!({"type": "step/end", "turn": 1, "step": 1}),
        ),
        (
            Event::MessageUser {
                turn: 1,
                step: 1,
                message: settled.into(),
            },
            json!({"type": "message/user", "turn": 1, "step": 1, "message": shown}),
        ),
        (
            Event::MessageAssistant {
                turn: 1,
                step: 1,
                message: reply.into(),
            },
            json!({"type": "message/assistant", "turn": 1, "step": 1, "text": "hello",
                "calls": [{"id": "c1", "name": "probe", "args": {}}],
                "finish": "tool_calls", "usage": {"input": 10, "output": 5}}),
        ),
        (
            Event::ToolCall {
                turn: 1,
                step: 1,
                call_id: CallId("c1".into()),
                name: "bash".into(),
                args: json!("not {json").into(),
            },
            json!({"type": "tool/call", "turn": 1, "step": 1, "call_id": "c1", "name": "bash",
                "args": "not {json"}),
        ),
        (
            Event::ToolResult {
                turn: 1,
                step: 1,
                result: support::result_of("c1").into(),
            },
            json!({"type": "tool/result", "turn": 1, "step": 1, "call_id": "c1",
                "text": "result of c1", "is_error": false}),
        ),
        (
            Event::ToolResult {
                turn: 1,
                step: 1,
                result: Arc::new(ToolResultRecord {
                    value: Some(json!({"n": 1.5})),
                    is_error: true,
                    code: Some("ABORTED".into()),
                    ..support::result_of("c1")
                }),
            },
            json!({"type": "tool/result", "turn": 1, "step": 1, "call_id": "c1",
                "text": "result of c1", "value": {"n": 1.5}, "is_error": true,
                "code": "ABORTED"}),
        ),
        (
            end(TurnEndReason::Completed, None, None),
            json!({"type": "turn/end", "turn": 1, "reason": "completed"}),
        ),
        (
            end(TurnEndReason::Aborted, Some("user"), None),
            json!({"type": "turn/end", "turn": 1, "reason": "aborted", "cause": "user"}),
        ),
        (
            end(TurnEndReason::Error, None, Some("no")),
            json!({"type": "turn/end", "turn": 1, "reason": "error", "error": "no"}),
        ),
        (
            Event::AgentStatus {
                status: Status::Closing,
            },
            json!({"type": "agent/status", "status": "closing"}),
        ),
        (
            Event::from(
                Extension::new("task/started")
                    .with("task_id", "shell-1")
                    .with("generation", 4),
            ),
            json!({"type": "task/started", "task_id": "shell-1", "generation": 4}),
        ),
    ]
}

#[test]
fn every_event_has_the_promised_shape_and_is_read_back() {
    for (event, shape) in vocabulary() {
        let json = serde_json::to_value(&event).expect("JSON");
        assert_eq!(json, shape);
        let text = serde_json::to_string(&event).expect("JSON");
        assert!(
            text.starts_with("{\"type\":"),
            "the type comes first: {text}"
        );
        let back: Event = serde_json::from_str(&text).expect("readable");
        assert_eq!(back, event);
    }
}

#[test]
fn the_words_for_reasons_finishes_and_statuses_are_the_promised_ones() {
    let words = |value: Value| value.as_str().expect("a word").to_owned();
    let reasons = [
        TurnEndReason::Completed,
        TurnEndReason::MaxTokens,
        TurnEndReason::Refusal,
        TurnEndReason::Aborted,
        TurnEndReason::Error,
        TurnEndReason::Interrupted,
        TurnEndReason::StepLimit,
    ]
    .map(|reason| words(json!(reason)));
    assert_eq!(
        reasons,
        [
            "completed",
            "max_tokens",
            "refusal",
            "aborted",
            "error",
            "interrupted",
            "step_limit"
        ]
    );
    let finishes = [
        Finish::Stop,
        Finish::ToolCalls,
        Finish::MaxTokens,
        Finish::Refusal,
        Finish::Error,
        Finish::Interrupted,
    ]
    .map(|finish| words(json!(finish)));
    assert_eq!(
        finishes,
        [
            "stop",
            "tool_calls",
            "max_tokens",
            "refusal",
            "error",
            "interrupted"
        ]
    );
    let statuses = [
        Status::Idle,
        Status::Running,
        Status::Closing,
        Status::Closed,
    ]
    .map(|status| words(json!(status)));
    assert_eq!(statuses, ["idle", "running", "closing", "closed"]);
}

#[test]
fn a_record_of_the_stream_names_its_session_and_its_time() {
    let record = EventRecord {
        session: "s".parse().expect("an id"),
        label: Arc::from("sizes"),
        depth: 1,
        seq: Some(4),
        time: Timestamp::from_millis(1_767_225_600_000),
        event: Event::StepEnd { turn: 1, step: 1 },
    };
    let shape = json!({"session": "s", "label": "sizes", "depth": 1, "seq": 4,
        "time": "2026-01-01T00:00:00.000Z",
        "event": {"type": "step/end", "turn": 1, "step": 1}});
    assert_eq!(serde_json::to_value(&record).expect("JSON"), shape);
    let live = EventRecord {
        seq: None,
        ..record
    };
    let json = serde_json::to_value(&live).expect("JSON");
    assert_eq!(json.get("seq"), None, "a live-only event has no seq");
}

#[test]
fn an_event_of_an_unknown_type_is_kept_as_it_is() {
    let id: AgentId = "s".parse().expect("an id");
    let folder = tempfile::tempdir().expect("a folder");
    let store = offshoot_agent::JsonlStore::open_folder(folder.path()).expect("a store");
    let shapes = [
        json!({"type": "later/invented", "deep": {"a": [1, "x", null, 2.5, {"b": false}]}}),
        json!({"type": "without a slash"}),
    ];
    let events: Vec<_> = (0..)
        .zip(&shapes)
        .map(|(seq, shape)| StoredEvent {
            seq,
            time: Timestamp::from_millis(1),
            event: serde_json::from_value(shape.clone()).expect("an extension"),
        })
        .collect();
    let mut log = store.create(&id, 0).expect("a session");
    log.append(0, &events).expect("an append");
    drop(log);
    let read = store.read(&id).expect("the log");
    assert_eq!(read, events);
    for (stored, shape) in read.iter().zip(&shapes) {
        assert!(matches!(stored.event, Event::Extension(_)));
        assert_eq!(&serde_json::to_value(&stored.event).expect("JSON"), shape);
    }
}

/// A line of the file is the event of the stream, with its place and its time.
#[test]
fn a_stored_line_has_seq_time_and_event() {
    let stored = StoredEvent {
        seq: 7,
        time: Timestamp::from_millis(1),
        event: Event::StepStart { turn: 1, step: 1 },
    };
    assert_eq!(
        serde_json::to_string(&stored).expect("JSON"),
        r#"{"seq":7,"time":"1970-01-01T00:00:00.001Z","event":{"type":"step/start","turn":1,"step":1}}"#
    );
}

/// The residencies of a session count, not the time between them, nor what is written into it there.
#[test]
fn a_log_tells_how_long_its_residencies_took() {
    let discarded = || Event::InboxDiscarded {
        message_id: "m".parse().expect("an id"),
        cause: "lost".into(),
    };
    let step = || Event::StepStart { turn: 1, step: 1 };
    let log = [
        (1_000, Event::from(start()), (0, 0)),
        (3_000, step(), (2_000, 2_000)),
        (8_000, discarded(), (2_000, 2_000)),
        (9_000, Event::from(start()), (0, 2_000)),
        (9_500, step(), (500, 2_500)),
        // The clock was set back.
        (4_000, step(), (0, 2_000)),
        (9_600, step(), (600, 2_600)),
    ];
    let mut projection = offshoot_agent::Projection::default();
    for (seq, (time, event, expected)) in (0..).zip(log) {
        let time = Timestamp::from_millis(time);
        projection.apply(&StoredEvent { seq, time, event });
        let walls = (projection.present_wall(), projection.wall());
        let millis = (walls.0.as_millis(), walls.1.as_millis());
        assert_eq!(millis, expected, "after {seq}");
    }
}
