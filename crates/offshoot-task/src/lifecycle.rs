//! The state machine of one task: its status, who was told of its end, and what observers were told.
//!
//! A plain value: no lock, no clock, no runtime, no data of the task. One function an event; each says
//! what follows from it. `table.rs` applies the events and performs the effects.

use crate::observe::TaskChange;
use crate::status::{StoppedBy, TaskStatus};

// Invariants (see `check`)
// 1. The status moves Running -> Stopping -> terminal or Running -> terminal. The first settlement
//    wins and is final.
// 2. `reported` never goes back. A claim stands for somebody who is about to show the end; it is
//    either committed, which reports, or released.
// 3. Live waiters are counted; settlement turns each of them into a claim: one number is enough.
// 4. Observers are told Started, Stopping, Settled, Removed in this order, each at most once, one at a
//    time (`telling`); between Settled and Removed, NoticeDue and Collected alternate with what is
//    true. They are derived from the state, so nothing is queued and nothing can be lost.
// 5. The record may be freed when it was removed, everything was told, and no claim is out.

/// What a stop request did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopEffect {
    /// The work must be told.
    Cancel,
    /// It was told before. Nothing changed.
    AlreadyStopping,
    /// It had ended.
    AlreadyFinished,
}

/// What the arrival of a waiter, or of a reader, found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// A live task: the waiter is counted.
    Counted,
    /// A finished one: a claim was taken.
    Claimed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Told {
    started: bool,
    stopping: bool,
    settled: bool,
    /// Whether observers believe that a notice is due.
    due: bool,
    removed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifecycle {
    status: TaskStatus,
    stopped: bool,
    reported: bool,
    removed: bool,
    telling: bool,
    /// Waiters while the task is live, claims afterwards.
    attending: u32,
    told: Told,
}

impl Lifecycle {
    /// A task that was just registered.
    pub(crate) fn running() -> Self {
        Self {
            status: TaskStatus::Running,
            stopped: false,
            reported: false,
            removed: false,
            telling: false,
            attending: 0,
            told: Told::default(),
        }
    }

    /// A task that ended in an earlier process. Its end is not told, and whoever restored it sees to
    /// the notice.
    pub(crate) fn ended(status: TaskStatus) -> Self {
        Self {
            status,
            told: Told {
                started: true,
                stopping: true,
                settled: true,
                due: true,
                removed: false,
            },
            ..Self::running()
        }
    }

    pub(crate) fn status(&self) -> TaskStatus {
        self.status
    }

    pub(crate) fn is_live(&self) -> bool {
        !self.status.is_terminal()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.removed
    }

    /// Whether the end was shown, is being shown, or needs no notice.
    pub(crate) fn is_reported(&self) -> bool {
        self.reported || (!self.is_live() && self.attending > 0)
    }

    /// Whether the end was shown for good: retention may give the record up.
    pub(crate) fn is_spent(&self) -> bool {
        self.reported && !self.is_live() && !self.removed
    }

    /// A request to stop.
    pub(crate) fn stop(&mut self, by: StoppedBy) -> StopEffect {
        match self.status {
            TaskStatus::Running => {
                self.status = TaskStatus::Stopping;
                self.stopped = true;
                self.reported |= by.silences();
                StopEffect::Cancel
            }
            TaskStatus::Stopping => StopEffect::AlreadyStopping,
            TaskStatus::Completed | TaskStatus::Killed | TaskStatus::Failed => {
                // The model that kills a finished task is told that it had finished.
                self.reported |= by == StoppedBy::Model;
                StopEffect::AlreadyFinished
            }
        }
    }

    /// The owner or the registry goes: like a stop, and nobody is left to be told.
    pub(crate) fn tear_down(&mut self, by: StoppedBy) -> StopEffect {
        if self.is_live() {
            self.reported = true;
        }
        self.stop(by)
    }

    /// The work ended. False when it had ended before: nothing changed.
    pub(crate) fn settle(&mut self, status: TaskStatus) -> bool {
        debug_assert!(status.is_terminal());
        if !self.is_live() {
            return false;
        }
        self.status = status;
        true
    }

    /// Somebody waits for the end, or reads it.
    pub(crate) fn arrive(&mut self) -> Arrival {
        self.attending += 1;
        if self.is_live() {
            Arrival::Counted
        } else {
            Arrival::Claimed
        }
    }

    /// A counted waiter goes without having shown anything.
    pub(crate) fn leave(&mut self) {
        self.attending -= 1;
    }

    /// A claim is kept: the end was shown.
    pub(crate) fn commit_claim(&mut self) {
        debug_assert!(!self.is_live());
        self.attending -= 1;
        self.reported = true;
    }

    /// The record leaves the registry.
    pub(crate) fn remove(&mut self) {
        debug_assert!(!self.is_live());
        self.removed = true;
    }

    /// What observers must be told next, if nobody is telling them something already.
    fn next_change(&self) -> Option<TaskChange> {
        if self.telling {
            None
        } else if !self.told.started {
            Some(TaskChange::Started)
        } else if self.stopped && !self.told.stopping {
            Some(TaskChange::Stopping)
        } else if self.is_live() {
            None
        } else if !self.told.settled {
            Some(TaskChange::Settled)
        } else if self.told.removed {
            None
        } else if self.told.due && self.reported {
            // Before the removal, which may have followed at once: a notice must not stay.
            Some(TaskChange::Collected)
        } else if self.removed {
            Some(TaskChange::Removed)
        } else if self.told.due {
            None
        } else {
            (!self.is_reported()).then_some(TaskChange::NoticeDue)
        }
    }

    /// Begins to tell observers the next change. [`told`](Self::told) must follow.
    pub(crate) fn tell(&mut self) -> Option<TaskChange> {
        let change = self.next_change()?;
        self.telling = true;
        match change {
            TaskChange::Started => self.told.started = true,
            TaskChange::Stopping => self.told.stopping = true,
            TaskChange::Settled => {
                self.told.settled = true;
                self.told.due = !self.is_reported();
            }
            TaskChange::NoticeDue => self.told.due = true,
            TaskChange::Collected => self.told.due = false,
            TaskChange::Removed => self.told.removed = true,
        }
        Some(change)
    }

    /// Every observer returned.
    pub(crate) fn told(&mut self) {
        debug_assert!(self.telling);
        self.telling = false;
    }

    /// Whether nothing refers to the record any more.
    pub(crate) fn is_over(&self) -> bool {
        self.removed && self.attending == 0 && !self.telling && self.next_change().is_none()
    }

    /// Panics when an invariant does not hold.
    pub(crate) fn check(&self) {
        assert!(!(self.removed && self.is_live()), "{self:?}");
        assert!(
            self.stopped || self.status != TaskStatus::Stopping,
            "{self:?}"
        );
        assert!(!self.told.settled || !self.is_live(), "{self:?}");
        assert!(!self.told.removed || self.removed, "{self:?}");
        assert!(!self.told.due || self.told.settled, "{self:?}");
    }
}

#[cfg(test)]
mod tests;
