//! The inbox: two ordered lists of accepted messages. Pure: no clock, no lock, no runtime.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Message, MessageId};

/// One of the inbox's two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// Read one a turn, at the turn's beginning.
    NextTurn,
    /// Read all together, at the next step's beginning.
    NextStep,
}

/// A message that waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The message.
    pub message: Arc<Message>,
    /// Whether it may start a turn.
    pub wake: bool,
    /// The list that it was accepted into.
    pub target: Target,
    /// Whether it is read with whatever else is, and is no reason for a step or a turn. Only in the next
    /// step's list: moved to the other one it is a quiet message.
    pub passive: bool,
}

// Invariants
// 1. A message id is in at most one of `next_step`, `next_turn`, `claimed`.
// 2. `claimed` holds what left the lists for a step and has not entered it yet, in claim order.
// 3. What is passive is in `next_step`, or was claimed from it.
/// Accepted messages that have not been read, in the order of acceptance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inbox {
    next_step: VecDeque<Entry>,
    next_turn: VecDeque<Entry>,
    claimed: VecDeque<Entry>,
}

impl Inbox {
    fn list(&mut self, target: Target) -> &mut VecDeque<Entry> {
        match target {
            Target::NextStep => &mut self.next_step,
            Target::NextTurn => &mut self.next_turn,
        }
    }

    /// Messages that wait, in the order in which they would be read.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.next_step.iter().chain(&self.next_turn)
    }

    /// Messages that left the lists for a step that has not begun.
    pub fn claimed(&self) -> impl Iterator<Item = &Entry> {
        self.claimed.iter()
    }

    /// How many messages wait in both lists.
    #[must_use]
    pub fn len(&self) -> usize {
        self.next_step.len() + self.next_turn.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.next_step.is_empty() && self.next_turn.is_empty()
    }

    /// Whether something waits for the next step that is a reason for one: not only passive messages.
    #[must_use]
    pub fn has_next_step(&self) -> bool {
        self.next_step.iter().any(|entry| !entry.passive)
    }

    /// Whether something waits for a turn of its own.
    #[must_use]
    pub fn has_next_turn(&self) -> bool {
        !self.next_turn.is_empty()
    }

    /// How many messages wait for a turn of their own.
    pub(crate) fn followups(&self) -> usize {
        self.next_turn.len()
    }

    /// Whether a message that may start a turn waits.
    #[must_use]
    pub fn has_waking(&self) -> bool {
        self.entries().any(|entry| entry.wake)
    }

    /// Whether `id` waits in one of the lists.
    #[must_use]
    pub fn contains(&self, id: &MessageId) -> bool {
        self.get(id).is_some()
    }

    /// The message of this id, if it waits.
    #[must_use]
    pub fn get(&self, id: &MessageId) -> Option<&Entry> {
        self.entries().find(|entry| entry.message.id == *id)
    }

    /// How many messages are read before one at the end of this list, or before `before` in it.
    pub(crate) fn ahead(&self, target: Target, before: Option<&MessageId>) -> usize {
        let (list, others) = match target {
            Target::NextStep => (&self.next_step, 0),
            Target::NextTurn => (&self.next_turn, self.next_step.len()),
        };
        others + place(list, before)
    }

    /// Puts a message in front of `before`, or at the end of its list.
    pub(crate) fn insert(&mut self, mut entry: Entry, before: Option<&MessageId>) {
        entry.passive &= entry.target == Target::NextStep;
        let list = self.list(entry.target);
        match place(list, before) {
            end if end == list.len() => list.push_back(entry),
            at => list.insert(at, entry),
        }
    }

    /// Gives a message that waits another place.
    pub(crate) fn shift(&mut self, id: &MessageId, target: Target, before: Option<&MessageId>) {
        if let Some(mut entry) = self.take(id) {
            entry.target = target;
            self.insert(entry, before);
        }
    }

    /// What a boundary would claim: all of the next step's list, and at a turn's beginning one
    /// message of the next turn's.
    #[must_use]
    pub fn batch(&self, boundary: Target) -> Vec<&Entry> {
        let followup = match boundary {
            Target::NextTurn => self.next_turn.front(),
            Target::NextStep => None,
        };
        self.next_step.iter().chain(followup).collect()
    }

    /// Moves a message from its list to the claimed ones; returns it, and whether it may wake.
    pub(crate) fn claim(&mut self, id: &MessageId) -> Option<(Arc<Message>, bool)> {
        let entry = self.take(id)?;
        let claimed = (Arc::clone(&entry.message), entry.wake);
        self.claimed.push_back(entry);
        Some(claimed)
    }

    /// A claimed message entered its step.
    pub(crate) fn enter(&mut self, id: &MessageId) -> Option<Entry> {
        let at = self
            .claimed
            .iter()
            .position(|entry| entry.message.id == *id);
        at.and_then(|at| self.claimed.remove(at))
    }

    pub(crate) fn discard(&mut self, id: &MessageId) -> bool {
        self.take(id).or_else(|| self.enter(id)).is_some()
    }

    fn take(&mut self, id: &MessageId) -> Option<Entry> {
        for list in [&mut self.next_step, &mut self.next_turn] {
            if let Some(at) = list.iter().position(|entry| entry.message.id == *id) {
                return list.remove(at);
            }
        }
        None
    }

    /// Puts what was claimed and never entered back to the front of its list, in its old order.
    pub(crate) fn put_back(&mut self) {
        while let Some(entry) = self.claimed.pop_back() {
            self.list(entry.target).push_front(entry);
        }
    }
}

/// Where `before` is in the list; its end when there is none.
fn place(list: &VecDeque<Entry>, before: Option<&MessageId>) -> usize {
    let at = before.and_then(|id| list.iter().position(|entry| entry.message.id == *id));
    at.unwrap_or(list.len())
}
