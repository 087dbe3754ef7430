//! What a session's log says: a pure fold, the same for a live agent and for one that is opened
//! again after a crash.

mod fold;
mod ids;

use std::sync::Arc;
use std::time::Duration;

use offshoot_core::Timestamp;
use serde_json::Value;
use smallvec::SmallVec;

use crate::{
    AgentId, AssistantMessage, CallId, CallRequest, Entry, Event, Extension, Finish, Inbox,
    Message, MessageId, SessionStart, StoredEvent, ToolResultRecord, TurnEndReason, Usage,
};
use fold::{Above, Boundary, Rules};
use ids::MessageIds;

pub use fold::{EventFold, Fold};

/// The source and the cause that a human is.
const USER: &str = "user";

/// The code of the result of a call that was running when its process died.
pub const OUTCOME_UNKNOWN: &str = "OUTCOME_UNKNOWN";

/// One thing that a model is shown of the past.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum HistoryItem {
    /// A message to the agent.
    User(Arc<Message>),
    /// A reply of the model.
    Assistant(Arc<AssistantMessage>),
    /// The result of one of its calls.
    ToolResult(Arc<ToolResultRecord>),
}

/// The turn that has begun and not ended.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenTurn {
    /// Its number.
    pub turn: u64,
    /// Its generation. A message of a lesser one that may wake and is read in the turn takes it down.
    pub generation: u64,
    /// The last step that began; 0 before the first one.
    pub step: u64,
    /// Whether that step has not ended.
    pub step_open: bool,
    /// Calls of the step's replies without a result, and whether each was dispatched.
    pub unanswered: Vec<(CallRequest, bool)>,
    /// The log has told in the turn that a user stopped the agent: its end does not tell it again.
    told_stop: bool,
    /// Mostly one.
    claimed: SmallVec<[Arc<Message>; 1]>,
}

impl OpenTurn {
    /// The messages that the turn claimed, in order.
    #[must_use]
    pub fn claimed(&self) -> &[Arc<Message>] {
        &self.claimed
    }

    pub(crate) fn has_told_stop(&self) -> bool {
        self.told_stop
    }

    /// Where a call of this id without a result is.
    pub(crate) fn position(&self, id: &CallId, dispatched: bool) -> Option<usize> {
        self.unanswered
            .iter()
            .position(|(call, was)| call.id == *id && *was == dispatched)
    }
}

/// What one residency of a session came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ActivationFacts {
    /// How its last turn ended.
    pub end: Option<TurnEndReason>,
    /// Who cancelled that turn.
    pub cause: Option<String>,
    /// What failed in that turn.
    pub error: Option<String>,
    /// Whether waking work was discarded unread after that.
    pub dropped: bool,
    /// The last reply that says something; parts that a token limit had cut apart are joined.
    pub text: String,
    /// Whether the token limit cut `text` off.
    pub cut: bool,
    /// Tokens of this residency, without subagents.
    pub usage: Usage,
    /// The greatest generation among the messages of users and agents that it read.
    pub generation: u64,
    /// How many turns began.
    pub turns: u64,
}

/// The state that a session's log describes.
///
/// `apply` is the only way to change it, so that a log always rebuilds the same state.
#[derive(Clone, Debug, Default)]
pub struct Projection {
    next_seq: u64,
    start: Option<Arc<SessionStart>>,
    inbox: Inbox,
    history: Vec<HistoryItem>,
    turn: u64,
    open: Option<OpenTurn>,
    facts: ActivationFacts,
    usage: Usage,
    rules: Option<Rules>,
    above: Option<Box<Above>>,
    last_result: Option<String>,
    message_ids: MessageIds,
    stopped_by_user: bool,
    activations: u32,
    /// The last event, if it is one of a crate above.
    last: Option<Arc<Extension>>,
    last_fact: Option<Arc<Extension>>,
    /// Since the residency began there is nothing but its beginning and the repairs of the one before.
    beginning: bool,
    activation_at: u64,
    /// When the present residency began, and its last event so far; in wall time.
    span: (Timestamp, Timestamp),
    /// How long the residencies before it took, in milliseconds.
    past_ms: u64,
    /// Where the last step began.
    step_at: u64,
    /// Where the last step ended that did; the last one of all, or the one before.
    step_end_at: u64,
    /// Whether the last turn was ended by the process after the one that ran it.
    interrupted: bool,
}

/// Whether a resumption begins with it: its start, and what closes that which a dead process left open.
fn is_beginning(event: &Event) -> bool {
    matches!(
        event,
        Event::SessionStart(_)
            | Event::ToolCall { .. }
            | Event::ToolResult { .. }
            | Event::StepEnd { .. }
            | Event::TurnEnd { .. }
    )
}

impl Projection {
    /// Folds one event. Events of a live-only kind change nothing.
    pub fn apply(&mut self, stored: &StoredEvent) {
        self.next_seq = stored.seq + 1;
        // Nothing depends on what is ignorable: who goes on with a session may not have been shown it.
        if matches!(&stored.event, Event::Extension(extension) if extension.is_ignorable()) {
            return;
        }
        let last = match &stored.event {
            Event::Extension(extension) => Some(Arc::clone(extension)),
            _ => None,
        };
        let before = std::mem::replace(&mut self.last, last);
        self.beginning &= is_beginning(&stored.event);
        // What a session had not read may be discarded long after its last residency.
        if !matches!(
            stored.event,
            Event::InboxDiscarded { .. } | Event::SessionStart(_)
        ) {
            self.span.1 = stored.time;
        }
        match &stored.event {
            Event::SessionStart(start) => {
                // A residency that died before it could do anything changes nothing of what is owed.
                if !self.beginning {
                    self.last_fact = before;
                }
                if start.inherited.is_some() {
                    // The birth of a session that begins with another one's past: of that one only
                    // the history, with the ids of its messages, and the turn numbers are its own.
                    let inherited = std::mem::take(self);
                    self.next_seq = inherited.next_seq;
                    self.turn = inherited.turn;
                    self.history = inherited.history;
                    self.message_ids = inherited.message_ids;
                    self.rules = inherited.rules;
                }
                self.cross(Boundary::Residency);
                self.beginning = true;
                self.start.get_or_insert_with(|| Arc::clone(start));
                self.activations = self.activations.saturating_add(1);
                self.past_ms = self.past_ms.saturating_add(self.present_ms());
                self.span = (stored.time, stored.time);
                self.activation_at = stored.seq;
                self.facts = ActivationFacts::default();
            }
            Event::InboxInserted {
                target,
                wake,
                message,
                before,
                passive,
            } => {
                self.message_ids.insert(&message.id);
                self.heard(message.source.kind.as_str());
                let entry = Entry {
                    message: message.clone(),
                    wake: *wake,
                    target: *target,
                    passive: *passive,
                };
                self.inbox.insert(entry, before.as_ref());
            }
            Event::InboxMoved {
                message_id,
                target,
                before,
            } => self.inbox.shift(message_id, *target, before.as_ref()),
            Event::InboxClaimed { message_id, .. } => {
                if let Some((message, wake)) = self.inbox.claim(message_id) {
                    self.heard(&message.source.kind);
                    if let Some(open) = &mut self.open {
                        if wake {
                            open.generation = open.generation.min(message.source.generation);
                        }
                        open.claimed.push(message);
                    }
                }
            }
            Event::InboxDiscarded { message_id, cause } => {
                // What took the place of a message is not lost with it.
                self.facts.dropped |= cause != REPLACED
                    && self
                        .inbox
                        .entries()
                        .chain(self.inbox.claimed())
                        .any(|e| e.message.id == *message_id && e.wake && is_work(&e.message));
                self.inbox.discard(message_id);
            }
            Event::TurnStart { turn, generation } => {
                self.turn = *turn;
                self.interrupted = false;
                self.facts.turns += 1;
                self.open = Some(OpenTurn {
                    turn: *turn,
                    generation: *generation,
                    step: 0,
                    step_open: false,
                    unanswered: Vec::new(),
                    told_stop: false,
                    claimed: SmallVec::new(),
                });
            }
            Event::StepStart { step, .. } => {
                self.step_at = stored.seq;
                self.cross(Boundary::StepBegin);
                if let Some(open) = &mut self.open {
                    open.step = *step;
                    open.step_open = true;
                    open.unanswered.clear();
                }
            }
            Event::StepEnd { .. } => {
                self.step_end_at = stored.seq;
                self.cross(Boundary::StepEnd);
                if let Some(open) = &mut self.open {
                    open.step_open = false;
                    open.unanswered.clear();
                }
            }
            Event::MessageUser { message, .. } => {
                if is_work(message) {
                    self.facts.generation = self.facts.generation.max(message.source.generation);
                }
                // What was accepted is what enters: the entry's own copy goes on into the history.
                let entry = self.inbox.enter(&message.id);
                let message = entry.map_or_else(|| message.clone(), |entry| entry.message);
                self.history.push(HistoryItem::User(message));
            }
            Event::MessageAssistant { message, .. } => self.apply_reply(message),
            Event::ToolCall { call_id, .. } => {
                if let Some(open) = &mut self.open {
                    let call = open
                        .unanswered
                        .iter_mut()
                        .find(|(call, dispatched)| call.id == *call_id && !dispatched);
                    if let Some((_, dispatched)) = call {
                        *dispatched = true;
                    }
                }
            }
            Event::ToolResult { result, .. } => {
                if let Some(open) = &mut self.open {
                    // One result answers one call, also when a reply used an id twice.
                    let answered = open.position(&result.call_id, true);
                    let answered = answered.or_else(|| open.position(&result.call_id, false));
                    if let Some(at) = answered {
                        open.unanswered.remove(at);
                    }
                }
                self.last_result = Some(result.text.clone());
                self.history.push(HistoryItem::ToolResult(result.clone()));
            }
            Event::TurnEnd {
                reason,
                cause,
                error,
                ..
            } => {
                let told_stop = self.open.take().is_some_and(|open| open.told_stop);
                // A claimed message that never entered its step waits again, in its old place.
                self.inbox.put_back();
                self.facts.end = Some(*reason);
                self.facts.cause.clone_from(cause);
                self.facts.error.clone_from(error);
                self.facts.dropped = false;
                self.interrupted = *reason == TurnEndReason::Interrupted;
                if *reason == TurnEndReason::Aborted && !told_stop {
                    self.stopped_by_user |= cause.as_deref() == Some(USER);
                }
            }
            Event::AgentStopped { cause } if cause == USER => {
                self.stopped_by_user = true;
                if let Some(open) = &mut self.open {
                    open.told_stop = true;
                }
            }
            Event::AgentStopped { .. } => {}
            Event::AgentStatus { .. } => {}
            Event::Extension(extension) => {
                self.apply_above(stored.seq, extension);
            }
        }
    }

    /// A message of this kind of source was accepted, or left the inbox to be read. A user's word,
    /// new or kept from before a stop, ends the stop: the agent works for the user again.
    fn heard(&mut self, kind: &str) {
        self.stopped_by_user &= kind != USER;
    }

    /// A user stopped the agent: known at once, while the log tells it with the end of the turn.
    pub(crate) fn stop_by_user(&mut self) {
        self.stopped_by_user = true;
    }

    fn apply_reply(&mut self, message: &Arc<AssistantMessage>) {
        self.usage += message.usage;
        self.facts.usage += message.usage;
        if let Some(open) = &mut self.open {
            // What an earlier reply of the step asked for is owed a result as well.
            let calls = message.calls.iter().map(|call| (call.clone(), false));
            open.unanswered.extend(calls);
        }
        if self.facts.cut && !message.text.is_empty() {
            self.facts.text.push_str(&message.text);
        } else if !message.text.trim().is_empty() {
            self.facts.text.clone_from(&message.text);
        }
        self.facts.cut = message.finish == Finish::MaxTokens;
        if !(message.text.is_empty() && message.calls.is_empty()) {
            self.history.push(HistoryItem::Assistant(message.clone()));
        }
    }

    /// The log holds as many events, though the last of them were not shown.
    pub(crate) fn skip_to(&mut self, next_seq: u64) {
        self.next_seq = self.next_seq.max(next_seq);
    }

    /// Folds a whole log.
    pub fn of<'a>(events: impl IntoIterator<Item = &'a StoredEvent>) -> Self {
        let mut projection = Self::default();
        for event in events {
            projection.apply(event);
        }
        projection
    }

    /// How many residencies the session had, the present one included.
    #[must_use]
    pub fn activations(&self) -> u64 {
        self.activations.into()
    }

    /// The `seq` of the next event.
    #[must_use]
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// The event that describes the session; absent in an empty log.
    #[must_use]
    pub fn start(&self) -> Option<&SessionStart> {
        self.start.as_deref()
    }

    /// The session that delegated to this one.
    #[must_use]
    pub fn parent(&self) -> Option<&AgentId> {
        self.start().and_then(|start| start.parent.as_ref())
    }

    /// What waits.
    #[must_use]
    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// What a model is shown of the past.
    #[must_use]
    pub fn history(&self) -> &[HistoryItem] {
        &self.history
    }

    /// The number of the last turn that began; 0 before the first one.
    #[must_use]
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// The turn that has not ended.
    #[must_use]
    pub fn open_turn(&self) -> Option<&OpenTurn> {
        self.open.as_ref()
    }

    /// What the present residency came to so far.
    #[must_use]
    pub fn facts(&self) -> &ActivationFacts {
        &self.facts
    }

    /// Tokens of the whole session, without subagents.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// How long the present residency took by the time stamps of its events: from the first to the
    /// last one. For a session whose agent is gone; a live agent knows better:
    /// [`Agent::wall`](crate::Agent::wall). Zero when the clock was set back.
    #[must_use]
    pub fn present_wall(&self) -> Duration {
        Duration::from_millis(self.present_ms())
    }

    /// As [`present_wall`](Self::present_wall), of all residencies of the session together; the time
    /// between them does not count.
    #[must_use]
    pub fn wall(&self) -> Duration {
        Duration::from_millis(self.past_ms.saturating_add(self.present_ms()))
    }

    fn present_ms(&self) -> u64 {
        let (began, last) = self.span;
        last.as_millis().saturating_sub(began.as_millis())
    }

    /// The events of crates above, in order, but for those that a [fold](EventFold::CLAIMS) of the host
    /// claims, which are not kept, and those that are ignorable.
    pub fn extensions(&self) -> impl Iterator<Item = &Extension> {
        self.kept().iter().map(|(_, extension)| &**extension)
    }

    /// The event of a crate above that the residency before this one ended with, if it did. A crate
    /// that appends such an event together with what follows from it finds here the one whose
    /// consequence was cut off by the death of the process. Residencies in which nothing happened,
    /// since their process died at once, do not count.
    #[must_use]
    pub fn last_fact(&self) -> Option<&Extension> {
        self.last_fact.as_deref()
    }

    /// Whether the process ended in the middle of the last turn. Stays so until the next turn begins.
    #[must_use]
    pub fn interrupted(&self) -> bool {
        self.interrupted
    }

    /// The text of the last tool result.
    #[must_use]
    pub fn last_result(&self) -> Option<&str> {
        self.last_result.as_deref()
    }

    /// Whether a message of this id was ever accepted.
    #[must_use]
    pub fn knows_message(&self, id: &MessageId) -> bool {
        self.message_ids.contains(id)
    }

    /// Whether a user stopped the agent and has not written since.
    #[must_use]
    pub fn stopped_by_user(&self) -> bool {
        self.stopped_by_user
    }

    /// The events that close what a dead process left open: a result for each unanswered call, the
    /// end of the step, the end of the turn. Empty for a log that was left in order.
    #[must_use]
    pub fn repairs(&self) -> Vec<Event> {
        let Some(open) = &self.open else {
            return Vec::new();
        };
        let mut events = self.close_step(|dispatched| {
            if dispatched {
                (
                    OUTCOME_UNKNOWN,
                    "the program ended while this call ran; its outcome is unknown",
                )
            } else {
                (
                    "ABORTED_BEFORE_DISPATCH",
                    "the program ended before this call was started",
                )
            }
        });
        events.push(Event::TurnEnd {
            turn: open.turn,
            reason: TurnEndReason::Interrupted,
            cause: None,
            error: None,
        });
        events
    }

    /// The events that answer what is unanswered and end the open step, if any.
    pub(crate) fn close_step(
        &self,
        why: impl Fn(bool) -> (&'static str, &'static str),
    ) -> Vec<Event> {
        let Some(open) = self.open.as_ref().filter(|open| open.step_open) else {
            return Vec::new();
        };
        let (turn, step) = (open.turn, open.step);
        // Two a call, the end of the step, and what the caller adds to end or begin more.
        let mut events = Vec::with_capacity(2 * open.unanswered.len() + 3);
        for (call, dispatched) in &open.unanswered {
            let (code, text) = why(*dispatched);
            if !dispatched {
                events.push(Event::ToolCall {
                    turn,
                    step,
                    call_id: call.id.clone(),
                    name: call.name.clone(),
                    args: call.args.clone().into(),
                });
            }
            let result = ToolResultRecord {
                call_id: call.id.clone(),
                text: format!("Error: {text}"),
                value: None::<Value>,
                is_error: true,
                code: Some(code.to_owned()),
            };
            events.push(Event::ToolResult {
                turn,
                step,
                result: result.into(),
            });
        }
        events.push(Event::StepEnd { turn, step });
        events
    }
}

/// The cause of a message that another one took the place of.
pub(crate) const REPLACED: &str = "replaced";

/// Whether somebody asked for work with it, as opposed to a notice.
pub(crate) fn is_work(message: &Message) -> bool {
    matches!(message.source.kind.as_str(), "user" | "agent")
}
