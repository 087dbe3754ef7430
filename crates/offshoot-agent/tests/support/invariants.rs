//! What must hold of every log, however it came to be. A plain reading of the rules, which shares no
//! code with the crate's own fold.

use std::collections::{BTreeMap, VecDeque};

use offshoot_agent::{CallId, Event, Message, MessageId, StoredEvent, Target};

/// What became of an accepted message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    Waits,
    Claimed,
    Read,
    Discarded,
}

/// What became of all of them, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger(pub BTreeMap<String, Fate>);

impl Ledger {
    pub fn of(&self, name: &str) -> Option<Fate> {
        self.0.get(name).copied()
    }

    pub fn all(&self, fate: Fate) -> Vec<&str> {
        let found = self.0.iter().filter(|(_, f)| **f == fate);
        found.map(|(name, _)| name.as_str()).collect()
    }
}

#[derive(Default)]
struct Reader {
    fates: BTreeMap<String, Fate>,
    messages: BTreeMap<String, (Target, Message)>,
    next_step: VecDeque<String>,
    next_turn: VecDeque<String>,
    claimed: VecDeque<String>,
    /// Claims of the present boundary that came from `next_turn`.
    followups: usize,
    turn: u64,
    open_turn: bool,
    step: u64,
    open_step: bool,
    /// Calls of the open step without a result, and whether each was dispatched.
    calls: Vec<(CallId, bool)>,
    /// The events before began a turn, and perhaps its first claims.
    begins: bool,
    reads: bool,
    sessions: u64,
    /// The process that opened this turn died: its last append may lack its end.
    torn: bool,
}

/// Checks a log, or the beginning of one.
pub fn check(events: &[StoredEvent]) -> Ledger {
    read(events).0
}

/// Checks the log of an agent that has closed: nothing is left open.
pub fn check_closed(events: &[StoredEvent]) -> Ledger {
    let (ledger, reader) = read(events);
    assert!(!reader.open_turn, "a turn is left open");
    assert!(
        ledger.all(Fate::Claimed).is_empty(),
        "claimed for ever: {ledger:?}"
    );
    ledger
}

fn read(events: &[StoredEvent]) -> (Ledger, Reader) {
    let mut reader = Reader::default();
    for (index, stored) in events.iter().enumerate() {
        assert_eq!(stored.seq, index as u64, "sequence numbers are contiguous");
        let at = format!("at {index}: {:?}", stored.event);
        reader.event(&stored.event, &at);
    }
    (Ledger(reader.fates.clone()), reader)
}

impl Reader {
    fn list(&mut self, target: Target) -> &mut VecDeque<String> {
        match target {
            Target::NextStep => &mut self.next_step,
            Target::NextTurn => &mut self.next_turn,
        }
    }

    fn put(&mut self, target: Target, id: &str, before: Option<&MessageId>, at: &str) {
        let list = self.list(target);
        let place = before.map_or(list.len(), |before| {
            let found = list.iter().position(|other| *other == before.as_str());
            found.unwrap_or_else(|| panic!("in front of nothing {at}"))
        });
        list.insert(place, id.to_owned());
    }

    fn in_step(&self, turn: u64, step: u64, at: &str) {
        assert!(
            self.open_turn && self.open_step,
            "outside an open step {at}"
        );
        assert_eq!((turn, step), (self.turn, self.step), "another step {at}");
    }

    fn event(&mut self, event: &Event, at: &str) {
        if let Event::SessionStart(start) = event {
            if start.inherited.is_some() {
                // A session that begins with another one's past takes only its numbers over.
                *self = Self {
                    turn: self.turn,
                    ..Self::default()
                };
            }
            self.torn = self.open_turn;
            self.begins = false;
        }
        let claims = matches!(event, Event::InboxClaimed { .. });
        if !claims && self.begins {
            // What woke it may stand behind what was moved in front of it, and what is parked may be
            // resumed without a message: that is for the model to know.
            assert!(self.reads, "a turn that reads nothing {at}");
            assert!(
                self.next_step.is_empty(),
                "a turn began and left next-step messages {at}"
            );
            self.begins = false;
        }
        let enters = matches!(event, Event::MessageUser { .. });
        if self.open_step && !enters && !self.torn {
            assert!(
                self.claimed.is_empty(),
                "claimed for a step and not entered {at}"
            );
        }
        match event {
            Event::SessionStart(start) => {
                assert_eq!(start.resumed, self.sessions > 0, "{at}");
                self.sessions += 1;
            }
            Event::InboxInserted {
                target,
                message,
                before,
                ..
            } => {
                let id = message.id.to_string();
                let old = self.fates.insert(id.clone(), Fate::Waits);
                assert_eq!(old, None, "accepted twice {at}");
                self.put(*target, &id, before.as_ref(), at);
                self.messages.insert(id, (*target, Message::clone(message)));
            }
            Event::InboxMoved {
                message_id,
                target,
                before,
            } => {
                let id = message_id.to_string();
                assert_eq!(self.fates.get(&id), Some(&Fate::Waits), "{at}");
                self.next_step.retain(|other| *other != id);
                self.next_turn.retain(|other| *other != id);
                self.messages.get_mut(&id).expect("a message").0 = *target;
                self.put(*target, &id, before.as_ref(), at);
            }
            Event::InboxClaimed {
                message_id,
                turn,
                step,
            } => self.claim(message_id.as_str(), *turn, *step, at),
            Event::InboxDiscarded { message_id, .. } => self.discard(message_id.as_str(), at),
            Event::TurnStart { turn, .. } => {
                assert!(!self.open_turn, "a turn in a turn {at}");
                assert_eq!(*turn, self.turn + 1, "turns are numbered {at}");
                (self.turn, self.open_turn, self.step) = (*turn, true, 0);
                (self.begins, self.reads, self.followups) = (true, false, 0);
            }
            Event::StepStart { turn, step } => {
                assert!(self.open_turn && !self.open_step, "{at}");
                assert_eq!(
                    (*turn, *step),
                    (self.turn, self.step + 1),
                    "steps are numbered {at}"
                );
                assert!(
                    *step == 1 || self.next_step.is_empty(),
                    "a boundary passed waiting messages over {at}"
                );
                (self.step, self.open_step) = (*step, true);
            }
            Event::StepEnd { turn, step } => {
                self.in_step(*turn, *step, at);
                assert!(self.calls.is_empty(), "unanswered calls {at}");
                self.open_step = false;
            }
            Event::MessageUser {
                turn,
                step,
                message,
            } => {
                self.in_step(*turn, *step, at);
                let id = message.id.to_string();
                assert_eq!(self.claimed.pop_front(), Some(id.clone()), "order {at}");
                assert_eq!(
                    self.messages.get(&id).map(|(.., m)| m),
                    Some(&**message),
                    "{at}"
                );
                self.fates.insert(id, Fate::Read);
            }
            Event::MessageAssistant {
                turn,
                step,
                message,
            } => {
                self.in_step(*turn, *step, at);
                self.calls
                    .extend(message.calls.iter().map(|call| (call.id.clone(), false)));
            }
            Event::ToolCall {
                turn,
                step,
                call_id,
                ..
            } => {
                self.in_step(*turn, *step, at);
                let call = self
                    .calls
                    .iter_mut()
                    .find(|(id, called)| id == call_id && !called);
                call.unwrap_or_else(|| panic!("a call that nothing asked for {at}"))
                    .1 = true;
            }
            Event::ToolResult { turn, step, result } => {
                self.in_step(*turn, *step, at);
                let call = self
                    .calls
                    .iter()
                    .position(|(id, called)| *id == result.call_id && *called);
                let call = call.unwrap_or_else(|| panic!("a result without its call {at}"));
                self.calls.remove(call);
            }
            Event::TurnEnd { turn, .. } => {
                assert!(self.open_turn && !self.open_step, "{at}");
                assert_eq!(*turn, self.turn, "{at}");
                (self.open_turn, self.torn) = (false, false);
                while let Some(id) = self.claimed.pop_back() {
                    self.fates.insert(id.clone(), Fate::Waits);
                    let target = self.messages[&id].0;
                    self.list(target).push_front(id);
                }
            }
            Event::AgentStatus { .. } => panic!("a live-only event in a log {at}"),
            _ => {}
        }
    }

    fn claim(&mut self, id: &str, turn: u64, step: u64, at: &str) {
        assert!(self.open_turn && !self.open_step, "a claim in a step {at}");
        assert_eq!(
            (turn, step),
            (self.turn, self.step + 1),
            "claimed for another step {at}"
        );
        let known = self.messages.get(id);
        let target = known.unwrap_or_else(|| panic!("unknown {at}")).0;
        if target == Target::NextTurn {
            assert_eq!(step, 1, "a followup in the middle of a turn {at}");
            assert!(
                self.next_step.is_empty(),
                "a followup before next-step messages {at}"
            );
            self.followups += 1;
            assert_eq!(self.followups, 1, "two followups in one turn {at}");
        }
        assert_eq!(
            self.list(target).pop_front().as_deref(),
            Some(id),
            "claimed out of order {at}"
        );
        self.fates.insert(id.to_owned(), Fate::Claimed);
        self.claimed.push_back(id.to_owned());
        self.reads = true;
    }

    fn discard(&mut self, id: &str, at: &str) {
        let old = self.fates.insert(id.to_owned(), Fate::Discarded);
        assert!(
            matches!(old, Some(Fate::Waits | Fate::Claimed)),
            "{old:?} {at}"
        );
        self.next_step.retain(|other| other != id);
        self.next_turn.retain(|other| other != id);
        self.claimed.retain(|other| other != id);
    }
}
