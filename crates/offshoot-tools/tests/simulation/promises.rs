//! What must hold of every event stream. Shares no code with the crates that make it.

use std::collections::{BTreeMap, HashMap, HashSet};

use offshoot_agent::{Agent, AgentId, Event, EventRecord, Status, Target};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Waits,
    Claimed,
    Entered,
    Discarded,
}

/// One residency of a session after the other.
#[derive(Default)]
struct Session {
    /// When each message was accepted, and whether for a turn of its own.
    accepted: HashMap<String, (usize, bool)>,
    /// The last message of each list that entered a step.
    entered: HashMap<bool, usize>,
    residencies: usize,
    /// Between `session/start` and `agent/status closed`.
    resident: bool,
    closing: bool,
    next_seq: Option<u64>,
    turn: Option<u64>,
    step: Option<u64>,
    last_turn: u64,
    calls: HashMap<String, usize>,
    fates: HashMap<String, Fate>,
    /// Runs that it started, by run id; whether they have settled.
    runs: HashMap<String, (String, bool)>,
    tasks: HashMap<String, bool>,
    /// Runs that a settlement notice told of.
    told: HashMap<String, usize>,
    /// Tasks that a notice told of.
    task_notices: HashMap<String, usize>,
    /// Tasks that ended and that nobody was shown.
    unreported: HashSet<String>,
}

pub fn check(events: &[EventRecord], root: &Agent) {
    let mut sessions: HashMap<AgentId, Session> = HashMap::new();
    let mut continuable: HashSet<String> = HashSet::new();
    for (at, record) in events.iter().enumerate() {
        let place = format!(
            "event {at} of {} ({}): {:?}",
            record.session, record.label, record.event
        );
        if let Event::Extension(event) = &record.event
            && event.kind == "subagent/settled"
        {
            let child = event
                .field("child")
                .and_then(|id| id.parse::<AgentId>().ok());
            let child = child.and_then(|id| sessions.get(&id));
            let there = child.is_some_and(|child| child.resident);
            assert!(!there, "settled while the child is there: {place}");
        }
        let session = sessions.entry(record.session.clone()).or_default();
        session.follow(record, &place, &mut continuable);
    }
    for (id, session) in &sessions {
        let who = format!("session {id}");
        assert!(!session.resident, "{who} is left open");
        assert_eq!(
            (session.turn, session.step),
            (None, None),
            "{who}: an open turn"
        );
        let claimed = session
            .fates
            .iter()
            .find(|(_, fate)| **fate == Fate::Claimed);
        assert_eq!(claimed, None, "{who}: claimed for ever");
        for (run, (child, settled)) in &session.runs {
            assert!(settled, "{who}: run {run} of {child} never settled");
            let told = session.told.get(run).copied().unwrap_or(0);
            let expected = usize::from(continuable.contains(run));
            assert_eq!(told, expected, "{who}: notices of run {run} of {child}");
        }
        for run in session.told.keys() {
            assert!(
                session.runs.contains_key(run),
                "{who}: told of a foreign run {run}"
            );
        }
        for (task, settled) in &session.tasks {
            assert!(settled, "{who}: task {task} never settled");
            let told = session.task_notices.get(task).copied().unwrap_or(0);
            assert!(told <= 1, "{who}: {told} notices of {task}");
            if session.unreported.contains(task) {
                assert_eq!(told, 1, "{who}: no notice of {task}");
            }
        }
    }
    assert!(sessions.contains_key(root.id()));
    // Every child has a parent that knows it, and as many runs as residencies.
    let mut runs: HashMap<&str, usize> = HashMap::new();
    for session in sessions.values() {
        for (child, _) in session.runs.values() {
            *runs.entry(child.as_str()).or_default() += 1;
        }
    }
    for (id, session) in &sessions {
        if id != root.id() {
            let known = runs.get(id.as_str()).copied().unwrap_or(0);
            assert_eq!(known, session.residencies, "runs and residencies of {id}");
        }
    }
}

/// How often what happened.
pub fn tally(events: &[EventRecord]) -> BTreeMap<String, usize> {
    let mut seen = BTreeMap::new();
    let mut count = |what: String| *seen.entry(what).or_default() += 1;
    for record in events {
        match &record.event {
            Event::SessionStart(start) if start.resumed => {
                count("session/start resumed".to_owned())
            }
            Event::SessionStart(start) => count(format!("session/start depth {}", start.depth)),
            Event::InboxInserted { message, wake, .. } => {
                count(format!("inbox/inserted {}", message.source.kind));
                if !wake {
                    count("inbox/inserted quiet".to_owned());
                }
            }
            Event::InboxDiscarded { cause, .. } => count(format!("inbox/discarded {cause}")),
            Event::TurnEnd { reason, cause, .. } => match cause {
                Some(cause) => count(format!("turn/end {cause}")),
                None => count(format!("turn/end {reason:?}")),
            },
            Event::Extension(event) => {
                for name in ["outcome", "status", "mode"] {
                    if let Some(value) = event.field(name) {
                        count(format!("{} {value}", event.kind));
                    }
                }
                if event
                    .fields
                    .get("reported")
                    .is_some_and(|value| value == true)
                {
                    count(format!("{} reported", event.kind));
                }
            }
            _ => {}
        }
    }
    seen
}

impl Session {
    fn follow(&mut self, record: &EventRecord, place: &str, continuable: &mut HashSet<String>) {
        if let Event::SessionStart(start) = &record.event {
            assert!(!self.resident, "resident twice: {place}");
            assert_eq!(start.resumed, self.residencies > 0, "{place}");
            self.resident = true;
            self.closing = false;
            self.residencies += 1;
            if let Some(inherited) = start.inherited {
                self.last_turn = inherited.turns;
            }
        }
        assert!(self.resident, "after the end: {place}");
        if let (Some(seq), Some(expected)) = (record.seq, self.next_seq) {
            assert_eq!(seq, expected, "{place}");
        }
        if let Some(seq) = record.seq {
            self.next_seq = Some(seq + 1);
        }
        match &record.event {
            Event::AgentStatus {
                status: Status::Closing,
            } => {
                assert!(!std::mem::replace(&mut self.closing, true), "{place}");
            }
            Event::AgentStatus {
                status: Status::Closed,
            } => {
                assert!(self.closing, "closed and not closing: {place}");
                self.resident = false;
            }
            Event::AgentStatus { .. } => assert!(!self.closing, "{place}"),
            Event::InboxInserted {
                message,
                wake,
                target,
                ..
            } => {
                assert!(!(*wake && self.closing), "a wake while closing: {place}");
                let id = message.id.to_string();
                assert_eq!(
                    self.fates.insert(id, Fate::Waits),
                    None,
                    "accepted twice: {place}"
                );
                let at = self.accepted.len();
                let id = message.id.to_string();
                self.accepted.insert(id, (at, *target == Target::NextTurn));
                let source = &message.source;
                match source.kind.as_str() {
                    "settled" => {
                        let run = source.field("run_id").unwrap().to_owned();
                        assert!(self.runs[&run].1, "told before it settled: {place}");
                        *self.told.entry(run).or_default() += 1;
                    }
                    "task" => {
                        let task = source.field("task_id").unwrap().to_owned();
                        assert!(self.tasks[&task], "told before it settled: {place}");
                        *self.task_notices.entry(task).or_default() += 1;
                    }
                    _ => {}
                }
            }
            Event::InboxClaimed {
                message_id, turn, ..
            } => {
                assert_eq!(Some(*turn), self.turn, "{place}");
                let old = self.fates.insert(message_id.to_string(), Fate::Claimed);
                assert_eq!(old, Some(Fate::Waits), "{place}");
            }
            Event::InboxDiscarded { message_id, .. } => {
                let old = self.fates.insert(message_id.to_string(), Fate::Discarded);
                assert!(
                    matches!(old, Some(Fate::Waits | Fate::Claimed)),
                    "{old:?}: {place}"
                );
            }
            Event::MessageUser {
                message,
                turn,
                step,
            } => {
                self.in_step(*turn, *step, place);
                let old = self.fates.insert(message.id.to_string(), Fate::Entered);
                assert_eq!(old, Some(Fate::Claimed), "{place}");
                // Of each list, in the order of acceptance: a child's message before its notice.
                let (at, list) = self.accepted[message.id.as_str()];
                let before = self.entered.insert(list, at);
                assert!(before < Some(at), "out of order: {place}");
            }
            Event::TurnStart { turn, .. } => {
                assert!(self.turn.is_none() && !self.closing, "{place}");
                assert_eq!(*turn, self.last_turn + 1, "{place}");
                (self.turn, self.last_turn) = (Some(*turn), *turn);
            }
            Event::StepStart { turn, step } => {
                assert_eq!((Some(*turn), None), (self.turn, self.step), "{place}");
                self.step = Some(*step);
            }
            Event::StepEnd { turn, step } => {
                self.in_step(*turn, *step, place);
                assert!(self.calls.values().all(|n| *n == 0), "unanswered: {place}");
                self.calls.clear();
                self.step = None;
            }
            Event::MessageAssistant { turn, step, .. } => self.in_step(*turn, *step, place),
            Event::ToolCall {
                turn,
                step,
                call_id,
                ..
            } => {
                self.in_step(*turn, *step, place);
                *self.calls.entry(call_id.0.clone()).or_default() += 1;
            }
            Event::ToolResult { turn, step, result } => {
                self.in_step(*turn, *step, place);
                let open = self.calls.get_mut(&result.call_id.0).expect(place);
                *open = open.checked_sub(1).expect(place);
            }
            Event::TurnEnd { turn, .. } => {
                assert_eq!((Some(*turn), None), (self.turn, self.step), "{place}");
                self.turn = None;
                // What was claimed and did not enter waits again.
                for fate in self
                    .fates
                    .values_mut()
                    .filter(|fate| **fate == Fate::Claimed)
                {
                    *fate = Fate::Waits;
                }
            }
            Event::Extension(event) => {
                let field = |name: &str| event.field(name).unwrap_or_default().to_owned();
                match event.kind.as_str() {
                    "subagent/started" => {
                        if event.field("mode") == Some("continuable") {
                            continuable.insert(field("run_id"));
                        }
                        let old = self.runs.insert(field("run_id"), (field("child"), false));
                        assert_eq!(old, None, "{place}");
                    }
                    "subagent/settled" => {
                        let run = self.runs.get_mut(&field("run_id")).expect(place);
                        assert!(
                            !std::mem::replace(&mut run.1, true),
                            "settled twice: {place}"
                        );
                        assert_eq!(run.0, field("child"), "{place}");
                    }
                    "task/started" => {
                        assert_eq!(self.tasks.insert(field("task_id"), false), None, "{place}");
                    }
                    "task/settled" => {
                        let settled = self.tasks.get_mut(&field("task_id")).expect(place);
                        assert!(!std::mem::replace(settled, true), "settled twice: {place}");
                        if event.fields["reported"] == false {
                            self.unreported.insert(field("task_id"));
                        }
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn in_step(&self, turn: u64, step: u64, place: &str) {
        assert_eq!((Some(turn), Some(step)), (self.turn, self.step), "{place}");
    }
}
