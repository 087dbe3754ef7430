//! The calls that the step which runs has asked for and not recorded the results of: what the log says of
//! them, and one thing that it does not say yet.
//!
//! Results are recorded in the order of the reply, so that one that is there may wait for another. Nothing
//! of that is an event: it would tell of what may still be cut off, in an order that no two runs share.

use super::Agent;
use super::state::{Settled, State};
use crate::{CallId, CallRequest};

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallState {
    /// The model asked for it; it has not begun.
    Asked,
    /// It has begun.
    Running,
    /// It has ended; its result is recorded after those of the calls before it.
    Settled,
}

/// A call of the step that runs, without a result on the record.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OpenCall {
    /// What the model asked for.
    pub call: CallRequest,
    /// How far it is.
    pub state: CallState,
}

impl State {
    /// The calls of this step that were said to have ended.
    fn settled_in(&self, turn: u64, step: u64) -> &[CallId] {
        let settled = self.settled.as_deref();
        let settled = settled.filter(|settled| (settled.turn, settled.step) == (turn, step));
        settled.map_or(&[], |settled| &settled.calls)
    }
}

impl Agent {
    /// The calls of the step that runs that have no result on the record, in the order of the reply: what a
    /// turn waits for, and what only waits for it. Empty when none does.
    #[must_use]
    pub fn open_calls(&self) -> Vec<OpenCall> {
        let state = self.lock();
        let Some(open) = state.projection().open_turn() else {
            return Vec::new();
        };
        let settled = state.settled_in(open.turn, open.step);
        let calls = open.unanswered.iter().map(|(call, begun)| OpenCall {
            call: call.clone(),
            state: match begun {
                true if settled.contains(&call.id) => CallState::Settled,
                true => CallState::Running,
                false => CallState::Asked,
            },
        });
        calls.collect()
    }

    /// Notes that a call of this step has ended, if it is the step that runs.
    pub(crate) fn note_settled(&self, turn: u64, step: u64, call: &CallId) {
        self.commit(|state, _| {
            let open = state.projection().open_turn();
            if open.map(|open| (open.turn, open.step)) != Some((turn, step)) {
                return;
            }
            let settled = state.settled.get_or_insert_default();
            if (settled.turn, settled.step) != (turn, step) {
                **settled = Settled {
                    turn,
                    step,
                    calls: Vec::new(),
                };
            }
            settled.calls.push(call.clone());
        });
    }
}
