//! What an agent that is idle has done, and what it has left.

use super::Agent;
use super::state::State;
use super::wait::{Until, Wait};
use crate::TurnEndReason;

/// An agent is idle: how its last turn ended, and what waits all the same, of one moment.
///
/// Idle says of itself neither that everything was done nor that it was done well: what waits is parked
/// after a turn that did not complete, and what does not wake waits anyway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Idle {
    /// How the last turn of this residency ended; absent when there was none. `Interrupted` when it is one
    /// of the residency before, which this one found open.
    pub end: Option<TurnEndReason>,
    /// How many messages wait for the next step.
    pub next_step: usize,
    /// How many messages wait for a turn of their own.
    pub next_turn: usize,
}

impl Idle {
    fn of(state: &State) -> Option<Self> {
        let rests = !state.machine.is_running();
        rests.then(|| {
            let projection = state.projection();
            let inbox = projection.inbox();
            let next_turn = inbox.followups();
            Self {
                end: projection.facts().end,
                next_step: inbox.len() - next_turn,
                next_turn,
            }
        })
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_drained(self) -> bool {
        self.next_step == 0 && self.next_turn == 0
    }
}

impl Agent {
    /// Waits until no turn runs, and says how the last one ended and what is parked. Dropping the future
    /// has no effect.
    pub async fn idle(&self) -> Idle {
        Wait::new(self, Until::Rested, Idle::of).await
    }
}
