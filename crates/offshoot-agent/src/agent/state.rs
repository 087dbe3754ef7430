//! The locked state of an agent, and the one place that appends to its log.

// Invariants
// 1. Every change of `projection` is an event that was appended to `log` first: accepted means
//    appended.
// 2. `phase` is Running exactly while a drive exists; it is set in the same critical section that
//    appends `turn/start`, and left in the one that finds nothing runnable in the inbox. A message is
//    therefore either claimed by the running drive or starts a new one. The drive itself is spawned
//    after the lock is released: a runtime that is gone drops it at once, and its drop takes the lock.
// 3. `closing` never goes back. Once it is set, or the scope closes, no turn starts.
// 4. Before `born` nothing is announced, and nobody can find the agent.
// Lock order: agent state -> hub queue. No agent lock is taken under another agent's.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use offshoot_core::{Scope, text};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{AgentHost, AgentKit, Appended, CancelCause, Pending, Status};
use crate::event::{self, Shared};
use crate::{
    AgentId, AppendError, Event, EventRecord, MessageId, Projection, SessionLog, StoreError,
    StoredEvent, Target, Usage,
};

pub(crate) struct Inner {
    pub(super) id: AgentId,
    pub(super) label: Arc<str>,
    pub(super) depth: u32,
    pub(super) parent: Option<AgentId>,
    pub(super) scope: Scope,
    pub(super) kit: AgentKit,
    pub(super) host: AgentHost,
    pub(super) activation: u64,
    /// Bytes of a torn last line that were cut off when the session was opened.
    pub(super) torn_bytes: u64,
    pub(super) runtime: Handle,
    /// After every critical section that may have changed something.
    pub(super) changed: Notify,
    /// After those that leave no turn running: who waits for the end of a turn sleeps through it.
    pub(super) rested: Notify,
    pub(super) state: Mutex<State>,
}

/// What the turn that runs needs to be cancelled.
pub(super) struct Running {
    pub(super) cancel: CancellationToken,
    pub(super) cause: Option<CancelCause>,
    /// Claimed messages that have not entered their step when the turn is cut are discarded with
    /// this cause; without one they are put back. The first cause wins.
    pub(super) discard: Option<CancelCause>,
    /// Waking messages that were accepted after the cancel: they start a turn of their own.
    pub(super) latched: Vec<MessageId>,
}

impl Running {
    pub(super) fn new() -> Self {
        Self {
            cancel: CancellationToken::new(),
            cause: None,
            discard: None,
            latched: Vec::new(),
        }
    }

    /// Cuts the turn. Runs no code of the driver: waking its task only schedules it.
    pub(super) fn cut(&mut self, cause: CancelCause, pending: Pending) {
        self.cause.get_or_insert(cause);
        if pending == Pending::Discard {
            self.discard.get_or_insert(cause);
            self.latched.clear();
        }
        self.cancel.cancel();
    }
}

/// A message that is accepted with the turn that it opens.
pub(super) struct Arriving {
    pub(super) id: MessageId,
    pub(super) target: Target,
    pub(super) generation: u64,
}

pub(super) enum Phase {
    /// Made, but not started: messages are accepted and nothing runs.
    Preparing,
    Idle,
    Running(Running),
}

pub(crate) struct State {
    pub(super) projection: Projection,
    pub(super) log: Option<Box<dyn SessionLog>>,
    pub(super) phase: Phase,
    pub(super) closing: Option<Pending>,
    /// Closing began while there was something left to do.
    pub(super) cut_short: bool,
    pub(super) closed: bool,
    /// The session's beginning is in the log, and the agent is listed.
    pub(super) born: bool,
    /// A turn was opened whose drive has not been spawned yet.
    pub(super) undriven: bool,
    pub(super) failure: Option<String>,
    pub(super) subtree: Usage,
    /// Counts critical sections that may have changed something.
    pub(super) epoch: u64,
}

impl State {
    pub(super) fn status(&self) -> Status {
        match (&self.phase, self.closed, self.closing.is_some()) {
            (_, true, _) => Status::Closed,
            (_, _, true) => Status::Closing,
            (Phase::Running(_), ..) => Status::Running,
            (Phase::Idle | Phase::Preparing, ..) => Status::Idle,
        }
    }

    /// Begins to end the agent; false when it was ending already.
    pub(super) fn begin_closing(&mut self, inner: &Inner, pending: Pending) -> bool {
        if self.closing.is_some() {
            return false;
        }
        self.closing = Some(pending);
        self.cut_short = matches!(self.phase, Phase::Running(_)) || inner.scope.holds() > 0;
        self.announce_status(inner);
        if let Some(running) = self.running() {
            running.cut(CancelCause::Disposed, pending);
            running.latched.clear();
        }
        tracing::debug!(agent = %inner.id, "closing");
        true
    }

    /// An agent ends with its scope, whoever closes it: asked before anything that could run.
    pub(super) fn follow_scope(&mut self, inner: &Inner) {
        if self.closing.is_none() && inner.scope.is_closing() {
            self.begin_closing(inner, Pending::Keep);
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn running(&mut self) -> Option<&mut Running> {
        match &mut self.phase {
            Phase::Running(running) => Some(running),
            _ => None,
        }
    }

    /// Appends events to the log, then folds and announces them, all or none.
    pub(super) fn append(&mut self, inner: &Inner, events: Vec<Event>) -> Result<(), AppendError> {
        let stored = self.write(inner, events)?;
        self.announce(inner, &stored);
        Ok(())
    }

    fn write(&mut self, inner: &Inner, events: Vec<Event>) -> Appended {
        for event in &events {
            event::check(event).map_err(AppendError::Unstorable)?;
        }
        let expected = self.projection.next_seq();
        let time = inner.host.clock.now();
        let shared: Vec<Shared> = (expected..)
            .zip(events)
            .map(|(seq, event)| Arc::new(StoredEvent { seq, time, event }))
            .collect();
        let Some(log) = &mut self.log else {
            return Err(StoreError::NotFound(inner.id.clone()).into());
        };
        // A log that panics half-way refuses what comes next, by its sequence.
        let written = catch_unwind(AssertUnwindSafe(|| log.append(expected, &shared)));
        let written = written.unwrap_or_else(|panic| {
            let message = text::panic_message(&*panic).to_owned();
            Err(StoreError::Io {
                place: format!("the log of {}", inner.id),
                error: std::io::Error::other(message),
            }
            .into())
        });
        if let Err(error) = written {
            tracing::error!(agent = %inner.id, %error, "the session log could not be written");
            self.failure = Some(error.to_string());
            return Err(error);
        }
        for event in &shared {
            self.projection.apply(event);
        }
        Ok(shared)
    }

    fn announce(&self, inner: &Inner, stored: &[Shared]) {
        inner
            .host
            .hub
            .enqueue_stored(&inner.id, &inner.label, inner.depth, stored);
    }

    /// Announces the status that the agent has now. Live only: it is in no log.
    pub(super) fn announce_status(&self, inner: &Inner) {
        if self.born && inner.host.hub.has_observers() {
            inner.host.hub.enqueue([EventRecord {
                session: inner.id.clone(),
                label: Arc::clone(&inner.label),
                depth: inner.depth,
                seq: None,
                time: inner.host.clock.now(),
                event: Event::AgentStatus {
                    status: self.status(),
                },
            }]);
        }
    }

    /// Ends a turn whose end could not be written before. What it had claimed waits again.
    pub(super) fn repair(&mut self, inner: &Inner) -> Result<(), AppendError> {
        let repairs = self.projection.repairs();
        if repairs.is_empty() {
            return Ok(());
        }
        self.append(inner, repairs)
    }

    /// Appends `first`, whose last event may insert `arriving`, and in the same append opens a turn
    /// on an idle agent. The agent stays idle, and nothing is appended, when the log refuses.
    pub(super) fn open_turn(
        &mut self,
        inner: &Inner,
        first: Vec<Event>,
        arriving: Option<Arriving>,
    ) -> Result<(), AppendError> {
        self.repair(inner)?;
        let inserted = first.len();
        let events = self.opening(first, arriving);
        let stored = self.write(inner, events)?;
        self.phase = Phase::Running(Running::new());
        self.undriven = true;
        self.announce(inner, &stored[..inserted]);
        self.announce_status(inner);
        self.announce(inner, &stored[inserted..]);
        Ok(())
    }

    /// Opens the next turn of a drive. False when the log refuses.
    pub(super) fn open_next_turn(&mut self, inner: &Inner) -> bool {
        let events = self.opening(Vec::new(), None);
        let opened = self.append(inner, events).is_ok();
        if opened {
            self.phase = Phase::Running(Running::new());
        }
        opened
    }

    /// `events`, and those that open a turn and claim its first batch: all of the next step's list,
    /// then one message of the next turn's. `arriving` is the last of its list.
    fn opening(&self, mut events: Vec<Event>, arriving: Option<Arriving>) -> Vec<Event> {
        let turn = self.projection.turn() + 1;
        let batch = self.projection.inbox().batch(Target::NextTurn);
        let start = events.len();
        events.reserve_exact(batch.len() + 2);
        events.push(Event::TurnStart {
            turn,
            generation: 0,
        });
        let mut greatest = 0;
        let mut claim = |id: &MessageId, generation: u64| {
            greatest = greatest.max(generation);
            events.push(Event::InboxClaimed {
                message_id: id.clone(),
                turn,
                step: 1,
            });
        };
        let followups = batch.partition_point(|entry| entry.target == Target::NextStep);
        let (steers, followup) = batch.split_at(followups);
        for entry in steers {
            claim(&entry.message.id, entry.message.source.generation);
        }
        if let Some(steer) = arriving.as_ref().filter(|a| a.target == Target::NextStep) {
            claim(&steer.id, steer.generation);
        }
        if let Some(entry) = followup.first() {
            claim(&entry.message.id, entry.message.source.generation);
        } else if let Some(new) = arriving.as_ref().filter(|a| a.target == Target::NextTurn) {
            claim(&new.id, new.generation);
        }
        if let Some(Event::TurnStart { generation, .. }) = events.get_mut(start) {
            *generation = greatest;
        }
        events
    }

    /// Everything that waits, claimed messages included, as events that discard it.
    pub(super) fn discarding(&self, cause: &str, with_claimed: bool) -> Vec<Event> {
        let inbox = self.projection.inbox();
        let claimed = inbox.claimed().filter(|_| with_claimed);
        claimed
            .chain(inbox.entries())
            .map(|entry| Event::InboxDiscarded {
                message_id: entry.message.id.clone(),
                cause: cause.to_owned(),
            })
            .collect()
    }
}
