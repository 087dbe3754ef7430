//! How a turn is stopped and how an agent ends.

use super::{Command, Effects, Machine, Phase};
use crate::projection::OpenTurn;
use crate::{CancelCause, Event, Message, Pending, Status, TurnEndReason};

/// Cancels the turn that runs, and with [`Pending::Discard`] discards what waits. The reply says
/// whether a turn ran.
#[derive(Debug)]
pub struct Cancel {
    /// Who.
    pub cause: CancelCause,
    /// What becomes of what waits.
    pub pending: Pending,
}

impl Command for Cancel {
    type Reply = bool;

    fn apply(self, machine: &mut Machine) -> (bool, Effects) {
        let by_user = self.cause == CancelCause::User;
        let was_stopped = machine.projection.stopped_by_user();
        if by_user {
            machine.projection.stop_by_user();
        }
        // Cut before anything is appended: a message that is accepted after this finds the turn
        // cancelled, and the stop does not depend on the log.
        let cut = machine.cut(self.cause, self.pending);
        let mut effects = Effects::none();
        if self.pending == Pending::Discard && !machine.closed {
            effects.events = machine.discarding(self.cause, false);
        }
        // A turn that the user cut says so with its end, unless the log has told the stop before; any
        // other stop is said here.
        if by_user && !was_stopped && !machine.closed && !machine.will_tell_stop() {
            let cause = self.cause.as_str().to_owned();
            effects.events.push(Event::AgentStopped { cause });
        }
        effects.cut = cut;
        (cut, effects)
    }
}

/// Begins to end the agent. False when it was ending already.
#[derive(Debug)]
pub struct Close {
    /// What becomes of what waits.
    pub pending: Pending,
    /// Whether something that the agent started is alive.
    pub held: bool,
}

impl Command for Close {
    type Reply = bool;

    fn apply(self, machine: &mut Machine) -> (bool, Effects) {
        if machine.closing.is_some() {
            return (false, Effects::none());
        }
        machine.closing = Some(self.pending);
        machine.cut_short = machine.is_running() || self.held;
        let effects = Effects {
            cut: machine.cut(CancelCause::Disposed, self.pending),
            status_after: Some(0),
            ..Effects::none()
        };
        if let Some(running) = machine.running() {
            running.latched.clear();
        }
        (true, effects)
    }
}

/// Begins to end the agent if it has nothing left to do: it is idle, nothing that it started is alive
/// and no message that may wake is parked behind an interrupt. What waits stays in the session.
#[derive(Debug)]
pub struct CloseIfSettled {
    /// Whether something that the agent started is alive.
    pub held: bool,
}

impl Command for CloseIfSettled {
    type Reply = bool;

    fn apply(self, machine: &mut Machine) -> (bool, Effects) {
        let idle = machine.status() == Status::Idle && matches!(machine.phase, Phase::Idle);
        let interrupted = machine.projection.facts().end == Some(TurnEndReason::Aborted);
        let parked = interrupted && machine.projection.inbox().has_waking();
        if !idle || parked || self.held {
            return (false, Effects::none());
        }
        let close = Close {
            pending: Pending::Keep,
            held: false,
        };
        close.apply(machine)
    }
}

/// The last words of an agent that ends: what is still open is closed, and what waits is discarded if
/// it ends so.
#[derive(Debug)]
pub struct Settle;

impl Command for Settle {
    type Reply = ();

    fn apply(self, machine: &mut Machine) -> ((), Effects) {
        // A turn whose end could not be written is ended now, or else when the session goes on.
        let mut events = machine.projection.repairs();
        if machine.closing == Some(Pending::Discard) {
            events.extend(machine.discarding(CancelCause::Disposed, true));
        }
        ((), Effects::append(events))
    }
}

/// The agent has ended: its log is let go.
#[derive(Debug)]
pub struct Closed;

impl Command for Closed {
    type Reply = ();

    fn apply(self, machine: &mut Machine) -> ((), Effects) {
        machine.closing.get_or_insert(Pending::Keep);
        machine.closed = true;
        let effects = Effects {
            status_after: Some(0),
            ..Effects::none()
        };
        ((), effects)
    }
}

impl Machine {
    /// Cuts the turn that runs; false when none does.
    fn cut(&mut self, cause: CancelCause, pending: Pending) -> bool {
        let Some(running) = self.running() else {
            return false;
        };
        running.cut.get_or_insert(cause);
        if pending == Pending::Discard {
            running.discard.get_or_insert(cause);
            running.latched.clear();
        }
        true
    }

    /// Whether the end of the turn that runs will tell that the user stopped the agent.
    fn will_tell_stop(&self) -> bool {
        let open = self.projection.open_turn();
        let told = open.is_none_or(OpenTurn::has_told_stop);
        let cut = matches!(&self.phase, Phase::Running(r) if r.cut == Some(CancelCause::User));
        cut && !told
    }

    /// The user's stop that the log tells only with the end of the turn: said before a message of the
    /// user's that ends it, so that the log has them in their order.
    pub(super) fn untold_stop(&self, message: &Message) -> Option<Event> {
        let untold = message.source.is_user() && self.will_tell_stop();
        untold.then(|| Event::AgentStopped {
            cause: CancelCause::User.as_str().to_owned(),
        })
    }

    /// Everything that waits, claimed messages included, as events that discard it.
    fn discarding(&self, cause: CancelCause, with_claimed: bool) -> Vec<Event> {
        let inbox = self.projection.inbox();
        let claimed = inbox.claimed().filter(|_| with_claimed);
        claimed
            .chain(inbox.entries())
            .map(|entry| Event::InboxDiscarded {
                message_id: entry.message.id.clone(),
                cause: cause.as_str().to_owned(),
            })
            .collect()
    }
}
