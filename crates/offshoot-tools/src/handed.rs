//! Which output the calls of a step have handed to their model: until the step's results are read
//! together, another call of it has to say where the output is that it does not have.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use offshoot_agent::StepKey;
use offshoot_task::TaskId;

/// How many are remembered: more than the calls of the steps that run at one time. What is forgotten
/// is said less exactly, no more.
const KEPT: usize = 1024;

/// What was handed over last.
#[derive(Debug, Default)]
pub(crate) struct Handed(Mutex<VecDeque<Piece>>);

#[derive(Debug)]
struct Piece {
    step: StepKey,
    task: TaskId,
    bytes: u64,
}

impl Handed {
    fn pieces(&self) -> MutexGuard<'_, VecDeque<Piece>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call of `step` has so many bytes of the output of `task`.
    pub(crate) fn note(&self, step: StepKey, task: TaskId, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let bytes = bytes as u64;
        let mut pieces = self.pieces();
        if pieces.len() == KEPT {
            pieces.pop_front();
        }
        pieces.push_back(Piece { step, task, bytes });
    }

    /// How many bytes other calls of the same step have.
    pub(crate) fn to_others(&self, step: &StepKey, task: &TaskId) -> u64 {
        let pieces = self.pieces();
        let same = pieces.iter().filter(|p| p.step == *step && p.task == *task);
        same.map(|piece| piece.bytes).sum()
    }
}
