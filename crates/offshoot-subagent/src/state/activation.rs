//! One residency of a continuable child, as its parent's side knows it.
//!
//! ```text
//!            begun            close, or the parent closes
//!  opening ────────▶ live ────────────────────────────────▶ closing ──┐
//!     │ │              └────────────────── settled ─────────────────┐ │ settled
//!     │ └─ refused: closing                                         ▼ ▼
//!     └─── failed ───────────────────────────────────────────────▶ settled
//! ```
//!
//! Invariants:
//! 1. A residency settles once. What its parent is told then follows from what it was told before:
//!    nothing of one that it never heard of, a record of one that it was refused, else a notice.
//! 2. What is settled is told first and released after.
//! 3. Nothing is delivered before the first message was accepted, nor after closing was asked for.

use std::fmt;

use offshoot_agent::Pending;

use crate::Interrupter;

/// How far a residency is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// It is being made.
    #[default]
    Opening,
    /// The child accepted its first message.
    Live,
    /// Its host was asked to end it.
    Closing,
    /// It is over, and everybody who has to be told was told.
    Settled,
}

/// What the parent knows of a residency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Known {
    #[default]
    Nothing,
    /// Its session says that it began.
    Recorded,
    /// Whoever asked for it was told that it is there.
    Announced,
}

/// What happens to a residency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// It could not be made, or whoever made it was stopped.
    Failed,
    /// The parent's session says that it began.
    Recorded,
    /// It was made, and whoever asked for it is refused all the same. What it has to read stays or goes
    /// when its parent's session knows of it; else nothing of it stays.
    Refused(Pending),
    /// The child accepted its first message.
    Begun,
    /// Somebody wants to deliver a message.
    Deliver,
    /// Somebody interrupts the child.
    Interrupt(Interrupter),
    /// Somebody ends it.
    Close(Pending),
    /// Its host reports that the child is quiet since its turn of this number, and waits.
    Waiting {
        /// The number of the turn.
        turn: u64,
    },
    /// Its host reports that it is over.
    Settled,
}

/// What is said to whoever gave a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It counts.
    Done,
    /// It changes nothing.
    NoOp,
    /// It was said before, and changes nothing.
    Duplicate,
    /// Not now: when the phase has changed, ask again.
    Later,
}

/// What is to be done, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Pass the interrupt of this number to the child's host.
    Interrupt {
        /// From 1.
        number: u64,
        /// Who asks.
        by: Interrupter,
    },
    /// Ask the child's host to end it.
    Close(Pending),
    /// Have the child's host take it back: nobody was told of it.
    Retract,
    /// Tell the parent that the child waits.
    TellWaiting,
    /// Record the settlement in the parent's session.
    RecordSettlement,
    /// Record it, and tell the parent.
    TellSettlement,
    /// Free the child's place and the hold on its parent.
    Release,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupt { .. } => f.write_str("interrupt"),
            Self::Close(pending) => write!(f, "close {pending:?}"),
            Self::Retract => f.write_str("retract"),
            Self::TellWaiting => f.write_str("tell waiting"),
            Self::RecordSettlement => f.write_str("record settlement"),
            Self::TellSettlement => f.write_str("tell settlement"),
            Self::Release => f.write_str("release"),
        }
    }
}

/// One residency.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activation {
    phase: Phase,
    known: Known,
    /// Asked for while it was being made.
    close: Option<Pending>,
    interrupts: u64,
    /// Asked for while it was being made.
    interrupt: Option<Interrupter>,
    /// The turn after which the parent was last told of a wait.
    waited: Option<u64>,
}

impl Activation {
    /// How far it is.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Answers a command, and says what is to be done about it.
    pub fn apply(&mut self, command: Command) -> (Reply, Vec<Effect>) {
        let answer = self.decide(command);
        self.check();
        answer
    }

    fn decide(&mut self, command: Command) -> (Reply, Vec<Effect>) {
        use Command as C;
        use Phase as P;
        match (command, self.phase) {
            // What was recorded may be there.
            (C::Failed, P::Opening) if self.known == Known::Recorded => {
                let (_, mut effects) = self.end(Pending::Discard);
                effects.extend(self.settle().1);
                (Reply::Done, effects)
            }
            (C::Failed, P::Opening) => self.settle(),
            (C::Recorded, P::Opening) if self.known == Known::Nothing => {
                self.known = Known::Recorded;
                (Reply::Done, Vec::new())
            }
            (C::Refused(_), P::Opening) if self.known == Known::Nothing => {
                self.end(Pending::Keep);
                (Reply::Done, vec![Effect::Retract])
            }
            (C::Refused(pending), P::Opening) => self.end(pending),
            (C::Begun, P::Opening) => {
                self.phase = P::Live;
                self.known = Known::Announced;
                match (self.close.take(), self.interrupt.take()) {
                    (Some(pending), _) => self.end(pending),
                    (None, Some(by)) => self.interrupt(by),
                    (None, None) => (Reply::Done, Vec::new()),
                }
            }
            (C::Recorded | C::Begun, _) => (Reply::Duplicate, Vec::new()),
            (C::Failed | C::Refused(_), _) => (Reply::NoOp, Vec::new()),

            (C::Deliver, P::Live) => (Reply::Done, Vec::new()),
            (C::Deliver, _) => (Reply::Later, Vec::new()),
            (C::Interrupt(by), P::Live) => self.interrupt(by),
            (C::Interrupt(by), P::Opening) => {
                self.interrupt.get_or_insert(by);
                (Reply::Later, Vec::new())
            }
            (C::Interrupt(_), _) => (Reply::NoOp, Vec::new()),
            (C::Close(pending), P::Opening) => {
                self.close.get_or_insert(pending);
                (Reply::Later, Vec::new())
            }
            (C::Close(pending), P::Live) => self.end(pending),
            (C::Close(_), _) => (Reply::NoOp, Vec::new()),

            // A host may report faster than it answers.
            (C::Waiting { .. } | C::Settled, P::Opening) => (Reply::Later, Vec::new()),
            (C::Waiting { turn }, _) if self.waited >= Some(turn) => (Reply::Duplicate, Vec::new()),
            (C::Waiting { turn }, P::Live) => {
                self.waited = Some(turn);
                (Reply::Done, vec![Effect::TellWaiting])
            }
            (C::Waiting { .. }, _) => (Reply::NoOp, Vec::new()),
            (C::Settled, P::Live | P::Closing) => self.settle(),
            (C::Settled, P::Settled) => (Reply::Duplicate, Vec::new()),
        }
    }

    fn interrupt(&mut self, by: Interrupter) -> (Reply, Vec<Effect>) {
        self.interrupts += 1;
        let number = self.interrupts;
        (Reply::Done, vec![Effect::Interrupt { number, by }])
    }

    fn end(&mut self, pending: Pending) -> (Reply, Vec<Effect>) {
        (self.close, self.interrupt) = (None, None);
        self.phase = Phase::Closing;
        (Reply::Done, vec![Effect::Close(pending)])
    }

    fn settle(&mut self) -> (Reply, Vec<Effect>) {
        (self.close, self.interrupt) = (None, None);
        self.phase = Phase::Settled;
        let tell = match self.known {
            Known::Nothing => None,
            Known::Recorded => Some(Effect::RecordSettlement),
            Known::Announced => Some(Effect::TellSettlement),
        };
        let effects = tell.into_iter().chain([Effect::Release]).collect();
        (Reply::Done, effects)
    }

    fn check(&self) {
        let announced = self.known == Known::Announced;
        debug_assert!(self.phase != Phase::Opening || !announced, "{self:?}");
        debug_assert!(self.phase != Phase::Live || announced, "{self:?}");
        debug_assert!(
            self.close.is_none() || self.phase == Phase::Opening,
            "{self:?}"
        );
    }
}

#[cfg(test)]
mod tests;
