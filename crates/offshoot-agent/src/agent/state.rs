//! The locked state of an agent, and the one place that appends to its log.

// Invariants
// 1. Every change of `projection` is an event that was appended to `log` first: accepted means
//    appended.
// 2. `phase` is Running exactly while a drive task exists; it is set in the same critical section
//    that appends `turn/start`, and left in the one that finds nothing runnable in the inbox. A
//    message is therefore either claimed by the running drive or starts a new one.
// 3. `closing` never goes back. Once it is set no turn starts.
// Lock order: agent state -> hub queue. No agent lock is taken under another agent's.

use std::sync::{Arc, Mutex};

use offshoot_core::Scope;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{AgentHost, AgentKit, Appended, CancelCause, Pending, Status};
use crate::event::Shared;
use crate::{
    AgentId, AppendError, Event, EventRecord, MessageId, Projection, SessionLog, StoredEvent,
    Target, Usage,
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
    pub(super) runtime: Handle,
    pub(super) changed: Notify,
    pub(super) state: Mutex<State>,
}

/// What the turn that runs needs to be cancelled.
pub(super) struct Running {
    pub(super) cancel: CancellationToken,
    pub(super) cause: Option<CancelCause>,
    /// What becomes of claimed messages that have not entered their step when the turn is cut.
    pub(super) claimed: Pending,
    /// Waking messages that were accepted after the cancel: they start a turn of their own.
    pub(super) latched: Vec<MessageId>,
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
    pub(super) closed: bool,
    pub(super) failure: Option<String>,
    pub(super) subtree: Usage,
    /// A user stopped the agent and has not written since: notices are quiet.
    pub(super) stopped_by_user: bool,
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

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn running(&mut self) -> Option<&mut Running> {
        match &mut self.phase {
            Phase::Running(running) => Some(running),
            _ => None,
        }
    }

    /// Appends events to the log, then folds them, all or none.
    pub(super) fn append(&mut self, inner: &Inner, events: Vec<Event>) -> Result<(), AppendError> {
        self.append_shared(inner, events).map(drop)
    }

    fn append_shared(&mut self, inner: &Inner, events: Vec<Event>) -> Appended {
        let expected = self.projection.next_seq();
        let time = inner.host.clock.now();
        let shared: Vec<Shared> = (expected..)
            .zip(events)
            .map(|(seq, event)| Arc::new(StoredEvent { seq, time, event }))
            .collect();
        let Some(log) = &mut self.log else {
            let found = expected;
            return Err(AppendError::Conflict { expected, found });
        };
        if let Err(error) = log.append(expected, &shared) {
            tracing::error!(agent = %inner.id, %error, "the session log could not be written");
            self.failure = Some(error.to_string());
            return Err(error);
        }
        for event in &shared {
            self.projection.apply(event);
        }
        inner
            .host
            .hub
            .enqueue_stored(&inner.id, &inner.label, inner.depth, &shared);
        Ok(shared)
    }

    /// Announces the status that the agent has now. Live only: it is in no log.
    pub(super) fn announce_status(&self, inner: &Inner) {
        if inner.host.hub.has_observers() {
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

    /// The events that open a turn and claim its first batch.
    pub(super) fn opening(&self) -> Vec<Event> {
        let turn = self.projection.turn() + 1;
        self.claiming(Target::NextTurn, turn, 1, |generation| {
            // A turn whose end could not be written is ended first.
            let mut events = self.projection.repairs();
            events.push(Event::TurnStart { turn, generation });
            events
        })
    }

    /// The events that claim what a boundary takes, after those that `first` makes of the greatest
    /// generation in the batch.
    pub(super) fn claiming(
        &self,
        boundary: Target,
        turn: u64,
        step: u64,
        first: impl FnOnce(u64) -> Vec<Event>,
    ) -> Vec<Event> {
        let batch = self.projection.inbox().batch(boundary);
        let generation = batch
            .iter()
            .map(|entry| entry.message.source.generation)
            .max();
        let mut events = first(generation.unwrap_or(0));
        events.extend(batch.iter().map(|entry| Event::InboxClaimed {
            message_id: entry.message.id.clone(),
            turn,
            step,
        }));
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
