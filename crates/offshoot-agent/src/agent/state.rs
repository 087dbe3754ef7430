//! The locked state of an agent: its machine, and the one place that carries out what it decides.

// Invariants
// 1. Every change of the projection is an event that was appended to `log` first: accepted means
//    appended.
// 2. The machine's phase is Running exactly while a drive is awake, or about to be: it is spawned, or
//    woken, after the lock is released. A runtime that is gone drops a new drive at once, and its drop
//    takes the lock. A drive parks in the critical section in which it finds nothing to run.
// 3. Before `born` nothing is announced, and nobody can find the agent.
// Lock order: agent state -> hub queue. No agent lock is taken under another agent's.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use offshoot_core::{Scope, text};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::wait::Waiters;
use super::{AgentHost, AgentKit, Pending};
use crate::machine::{Close, Command, Effects, Machine, Repair, Then};
use crate::{
    AgentId, AppendError, CallId, Event, EventRecord, Projection, SessionLog, StoreError,
    StoredEvent, Usage,
};
use crate::{event, sync};

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
    /// When this residency began.
    pub(super) began: Instant,
    pub(super) state: Mutex<State>,
}

pub(crate) struct State {
    pub(super) machine: Machine,
    pub(super) log: Option<Box<dyn SessionLog>>,
    /// Tells the turn that runs to stop; made for the first who asks for it.
    pub(super) signal: Option<CancellationToken>,
    /// The session's beginning is in the log, and the agent is listed.
    pub(super) born: bool,
    /// The session began with this agent.
    pub(super) fresh: bool,
    /// Its maker takes it back: a fresh session goes with it.
    pub(super) retracted: bool,
    /// A turn was opened that no drive was told of yet.
    pub(super) undriven: bool,
    pub(super) drive: Drive,
    pub(super) waiters: Waiters,
    pub(super) failure: Option<String>,
    pub(super) subtree: Usage,
    pub(super) subtree_wall: Duration,
    /// Calls that have ended and have no result on the record. In a box of its own: few steps have any.
    pub(super) settled: Option<Box<Settled>>,
    /// In a box of its own: most agents live.
    pub(super) ending: Option<Box<Ending>>,
    /// Counts critical sections that may have changed something.
    pub(super) epoch: u64,
}

/// Calls of one step that have ended.
#[derive(Default)]
pub(super) struct Settled {
    pub(super) turn: u64,
    pub(super) step: u64,
    pub(super) calls: Vec<CallId>,
}

/// How an agent that closes comes to its end.
#[derive(Default)]
pub(super) struct Ending {
    /// When it began to close.
    pub(super) since: Option<Instant>,
    /// The step that was dropped meanwhile.
    pub(super) dropped: Option<String>,
    /// When this residency ended.
    pub(super) ended: Option<Instant>,
}

/// The task that runs an agent's turns. It is made for the first one and lives as long as the agent.
pub(super) enum Drive {
    /// There is none: the agent had no turn yet, has closed, or its runtime is gone.
    None,
    /// It runs turns, or is about to look for one.
    Awake,
    /// It waits for the next turn.
    Parked(Waker),
}

/// Who is to run the turn that was opened; told after the lock is released.
#[must_use = "a turn that nobody runs does not end"]
pub(super) enum Roused {
    Nobody,
    Parked(Waker),
    New,
}

impl State {
    /// Says who runs a turn that was opened, or learns that there will be none any more.
    pub(super) fn rouse(&mut self) -> Roused {
        let opened = std::mem::take(&mut self.undriven);
        if !opened && !self.machine.is_closed() {
            return Roused::Nobody;
        }
        match std::mem::replace(&mut self.drive, Drive::Awake) {
            Drive::Parked(waker) => Roused::Parked(waker),
            Drive::None if opened => Roused::New,
            before => {
                self.drive = before;
                Roused::Nobody
            }
        }
    }

    /// The drive that has this waker found nothing to run. False when nothing will ever be: it ends.
    pub(super) fn park(&mut self, waker: &Waker) -> bool {
        if self.machine.is_closed() {
            self.drive = Drive::None;
            return false;
        }
        // One that is replaced is of the task that calls this: not the last that keeps it.
        self.drive = Drive::Parked(waker.clone());
        true
    }

    /// Whether nothing could run a turn of an agent that lives: its runtime is gone.
    pub(super) fn is_stranded(&self, inner: &Inner) -> bool {
        let undriven = matches!(self.drive, Drive::None) && self.machine.closing().is_none();
        undriven && sync::is_gone(&inner.runtime)
    }

    pub(super) fn ending(&mut self) -> &mut Ending {
        self.ending.get_or_insert_default()
    }

    pub(super) fn projection(&self) -> &Projection {
        self.machine.projection()
    }

    /// An agent ends with its scope, whoever closes it: asked before anything that could run.
    pub(super) fn follow_scope(&mut self, inner: &Inner) {
        if inner.scope.is_closing() {
            self.begin_closing(inner, Pending::Keep);
        }
    }

    /// Begins to end the agent; false when it was ending already.
    pub(super) fn begin_closing(&mut self, inner: &Inner, pending: Pending) -> bool {
        if self.machine.closing().is_some() {
            return false;
        }
        let held = inner.scope.holds() > 0;
        self.ending().since = Some(Instant::now());
        let (began, _) = self.run(inner, Close { pending, held });
        tracing::debug!(agent = %inner.id, "closing");
        began
    }

    /// What tells the turn to stop. For a turn that does not run any more it has stopped.
    pub(super) fn signal(&mut self, turn: u64) -> CancellationToken {
        let open = self.projection().open_turn().map(|open| open.turn);
        if !self.machine.is_running() || open != Some(turn) {
            let over = CancellationToken::new();
            over.cancel();
            return over;
        }
        let signal = self.signal.get_or_insert_with(CancellationToken::new);
        if self.machine.is_cut() {
            // It was cut before anybody asked.
            signal.cancel();
        }
        signal.clone()
    }

    /// Applies a command and carries out its effects. The reply does not hold when the log refused.
    pub(super) fn run<C: Command>(
        &mut self,
        inner: &Inner,
        command: C,
    ) -> (C::Reply, Result<(), AppendError>) {
        let (reply, effects) = self.machine.apply(command);
        (reply, self.carry_out(inner, effects))
    }

    fn carry_out(&mut self, inner: &Inner, effects: Effects) -> Result<(), AppendError> {
        if effects.cut {
            // Runs no code of the driver: waking its task only schedules it.
            if let Some(signal) = &self.signal {
                signal.cancel();
            }
        }
        let watched = inner.host.hub.has_observers();
        let stored = self.write(inner, effects.events, watched)?;
        if effects.then.opens_turn() {
            self.signal = None;
            self.settled = None;
        }
        self.machine.commit(effects.then, &stored);
        self.undriven |= effects.drive;
        if watched {
            let news = effects.status_after.unwrap_or(stored.len());
            self.announce(inner, &stored[..news]);
            if effects.status_after.is_some() {
                self.announce_status(inner);
            }
            self.announce(inner, &stored[news..]);
        }
        Ok(())
    }

    /// Ends a turn whose end could not be written before, if there is one.
    pub(super) fn repair(&mut self, inner: &Inner) -> Result<(), AppendError> {
        if self.machine.needs_repair() {
            self.run(inner, Repair).1?;
        }
        Ok(())
    }

    /// Appends events to the log, then folds and announces them, all or none.
    pub(super) fn append(&mut self, inner: &Inner, events: Vec<Event>) -> Result<(), AppendError> {
        let stored = self.write(inner, events, true)?;
        self.machine.commit(Then::default(), &stored);
        self.announce(inner, &stored);
        Ok(())
    }

    /// Appends events to the log. Returns those that are still to be folded: all of them when they are
    /// `wanted`, else none.
    fn write(
        &mut self,
        inner: &Inner,
        events: Vec<Event>,
        wanted: bool,
    ) -> Result<Vec<StoredEvent>, AppendError> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        for event in &events {
            event::check(event).map_err(AppendError::Unstorable)?;
            if let Event::Extension(extension) = event
                && !inner.host.knows(extension)
            {
                let why = "its type is not among the event types that the host names";
                return Err(AppendError::Unstorable(why));
            }
        }
        let expected = self.projection().next_seq();
        let time = inner.host.clock.now();
        let mut stored: Vec<_> = (expected..)
            .zip(events)
            .map(|(seq, event)| StoredEvent { seq, time, event })
            .collect();
        let Some(log) = &mut self.log else {
            return Err(StoreError::NotFound(inner.id.clone()).into());
        };
        let machine = &mut self.machine;
        // A log that panics half-way refuses what comes next, by its sequence.
        let written = catch_unwind(AssertUnwindSafe(|| {
            if wanted {
                return log.append(expected, &stored);
            }
            let taken = std::mem::take(&mut stored);
            log.take(expected, taken, &mut |event| machine.fold(event))
        }));
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
        Ok(stored)
    }

    fn announce(&self, inner: &Inner, stored: &[StoredEvent]) {
        if stored.is_empty() {
            return;
        }
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
                    status: self.machine.status(),
                },
            }]);
        }
    }
}
