//! What must hold of a store of sessions, whatever happened to the program that wrote it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

/// The events of one session, in order.
struct Session {
    label: String,
    parent: Option<String>,
    events: Vec<Value>,
}

impl Session {
    fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        let events = self.events.iter().map(|stored| &stored["event"]);
        events.filter(move |event| event["type"] == kind)
    }

    /// The messages of a source that were accepted.
    fn accepted<'a>(&'a self, source: &'a str) -> impl Iterator<Item = &'a Value> {
        let messages = self.of("inbox/inserted").map(|event| &event["message"]);
        messages.filter(move |message| message["source"]["kind"] == source)
    }
}

/// A store, read.
pub(crate) struct Audit {
    sessions: BTreeMap<String, Session>,
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

impl Audit {
    /// Reads the whole lines of every log.
    pub(crate) fn of(store: &Path) -> Self {
        let mut sessions = BTreeMap::new();
        for entry in std::fs::read_dir(store).expect("a store").flatten() {
            let name = entry.file_name().into_string().expect("a name");
            let Some(id) = name.strip_suffix(".jsonl") else {
                continue;
            };
            let log = std::fs::read_to_string(entry.path()).expect("a log");
            let whole = log
                .split_inclusive('\n')
                .filter(|line| line.ends_with('\n'));
            let events: Vec<Value> = whole
                .skip(1)
                .map(|line| serde_json::from_str(line).expect("an event"))
                .collect();
            let Some(start) = events.first().map(|stored| &stored["event"]) else {
                continue;
            };
            let session = Session {
                label: text(&start["label"]).to_owned(),
                parent: start["parent"].as_str().map(str::to_owned),
                events,
            };
            sessions.insert(id.to_owned(), session);
        }
        Self { sessions }
    }

    /// What users and agents said.
    pub(crate) fn asked(&self) -> BTreeSet<String> {
        let all = self.sessions.values();
        let messages = all.flat_map(|session| session.accepted("user"));
        messages
            .map(|message| text(&message["content"][0]["text"]).to_owned())
            .collect()
    }

    /// Accepted means appended: what was seen is in the log, as it was seen.
    pub(crate) fn has(&self, printed: &[Value], at: &str) {
        for line in printed.iter().filter(|line| line.get("seq").is_some()) {
            let session = &self.sessions[text(&line["session"])];
            let seq = usize::try_from(line["seq"].as_u64().expect("a number")).expect("small");
            let stored = session.events.get(seq);
            let event = stored.map(|stored| &stored["event"]);
            assert_eq!(event, Some(&line["event"]), "{at}");
        }
    }

    /// Nothing that was accepted is rewritten.
    pub(crate) fn goes_on_from(&self, before: &Self, at: &str) {
        for (id, was) in &before.sessions {
            let is = &self.sessions[id].events;
            assert!(
                is.starts_with(&was.events),
                "{at}: {} was rewritten",
                was.label
            );
        }
    }

    /// Whether the session that delegated to this one says so; the root always counts.
    fn is_known(&self, id: &str) -> bool {
        let Some(parent) = &self.sessions[id].parent else {
            return true;
        };
        let mut started = self.sessions[parent].of("subagent/started");
        started.any(|event| event["child"] == id)
    }

    pub(crate) fn check(&self, at: &str) {
        let mut seen = BTreeSet::new();
        for (id, session) in &self.sessions {
            let at = format!("{at}: session {} ({id})", session.label);
            for message in session.of("inbox/inserted") {
                let id = text(&message["message"]["id"]);
                assert!(seen.insert(id), "{at}: message {id} was accepted twice");
            }
            if self.is_known(id) {
                messages(session, &at);
                turns(session, &at);
                runs(session, &at);
                tasks(session, &at);
            }
        }
    }
}

/// Each accepted message entered exactly once, or was discarded exactly once.
fn messages(session: &Session, at: &str) {
    for message in session.of("inbox/inserted").map(|event| &event["message"]) {
        let entered = session.of("message/user");
        let entered = entered
            .filter(|event| event["message"]["id"] == message["id"])
            .count();
        let discarded = session.of("inbox/discarded");
        let discarded = discarded
            .filter(|event| event["message_id"] == message["id"])
            .count();
        assert_eq!(
            entered + discarded,
            1,
            "{at}: entered {entered} times, discarded {discarded} times: {message}"
        );
    }
}

/// Turns are numbered, and each ends once before the next begins.
fn turns(session: &Session, at: &str) {
    let mut turn = 0;
    let mut open = false;
    for event in session.events.iter().map(|stored| &stored["event"]) {
        match text(&event["type"]) {
            "turn/start" => {
                assert!(!open, "{at}: turn {turn} did not end");
                open = true;
                turn += 1;
                assert_eq!(event["turn"], turn, "{at}");
            }
            "turn/end" => {
                assert!(open && event["turn"] == turn, "{at}: {event}");
                open = false;
            }
            _ => {}
        }
    }
    assert!(!open, "{at}: turn {turn} did not end");
}

/// Such a run takes what it has started with it, and may have died with the program: there is nobody to
/// be told then, but its session has the ends.
fn is_one_shot(session: &Session) -> bool {
    session.events[0]["event"]["mode"] == "one-shot"
}

/// Each run settled once, and its end was told once: by its own notice, or by its task's.
fn runs(session: &Session, at: &str) {
    for started in session.of("subagent/started") {
        let run = &started["run_id"];
        let settled = session
            .of("subagent/settled")
            .filter(|event| event["run_id"] == *run);
        assert_eq!(settled.count(), 1, "{at}: settlements of {started}");
        if is_one_shot(session) {
            continue;
        }
        let told = session.accepted("settled");
        let told = told
            .filter(|message| message["source"]["run_id"] == *run)
            .count();
        let expected = usize::from(started["mode"] == "continuable");
        assert_eq!(told, expected, "{at}: notices of {started}");
    }
}

/// Each task ended once, and its end was told once: by a notice, or by the result of a call.
fn tasks(session: &Session, at: &str) {
    let mut ids = BTreeSet::new();
    for started in session.of("task/started") {
        let id = text(&started["task_id"]);
        assert!(ids.insert(id), "{at}: {id} was used twice");
        let settled: Vec<_> = session
            .of("task/settled")
            .filter(|event| event["task_id"] == id)
            .collect();
        assert_eq!(settled.len(), 1, "{at}: ends of {id}");
        if is_one_shot(session) {
            continue;
        }
        let notices = session.accepted("task");
        let notices = notices
            .filter(|message| message["source"]["task_id"] == id)
            .count();
        if settled[0]["reported"] == false {
            assert_eq!(notices, 1, "{at}: notices of {id}");
        } else {
            assert_eq!(
                notices + told_by_a_call(session, id),
                1,
                "{at}: tellings of {id}"
            );
        }
    }
}

/// How many calls that named the task ended with a result, instead of being cut by a crash.
fn told_by_a_call(session: &Session, task: &str) -> usize {
    let named = session
        .of("tool/call")
        .filter(|call| call["args"]["task_id"] == task);
    let answered = named.filter(|call| {
        let mut results = session.of("tool/result");
        results.any(|result| {
            result["call_id"] == call["call_id"]
                && result["step"] == call["step"]
                && result["turn"] == call["turn"]
                && result["is_error"] == false
                // A wait that a message ended told nothing of the end.
                && !text(&result["text"]).contains("wait ended early")
        })
    });
    usize::from(answered.count() > 0)
}
