//! The ends that a session did not take, for as long as it does not: what is owed, and to whom.
//!
//! It knows nothing of how they are said. Whoever says one has it in hand meanwhile, so that no two say
//! the same.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use offshoot_core::ScopeId;
use offshoot_task::TaskId;

/// What is owed of one end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owed {
    pub(crate) task: TaskId,
    /// The end is not in the session.
    pub(crate) record: bool,
    /// Its notice is not in the session.
    pub(crate) notice: bool,
}

#[derive(Debug)]
struct Entry {
    owed: Owed,
    in_hand: bool,
}

// Invariant: an entry owes something, or is in hand. An owner that is there has an entry.
#[derive(Debug, Default)]
pub(crate) struct Unsaid(Mutex<HashMap<ScopeId, Vec<Entry>>>);

impl Unsaid {
    fn all(&self) -> MutexGuard<'_, HashMap<ScopeId, Vec<Entry>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies `change` to the entry of a task; `None` when there is none.
    fn with<R>(
        &self,
        owner: ScopeId,
        task: &TaskId,
        change: impl FnOnce(&mut Entry) -> R,
    ) -> Option<R> {
        let mut all = self.all();
        let entries = all.get_mut(&owner)?;
        let at = entries.iter().position(|entry| entry.owed.task == *task)?;
        let entry = &mut entries[at];
        let result = change(entry);
        if !(entry.in_hand || entry.owed.record || entry.owed.notice) {
            entries.remove(at);
            if entries.is_empty() {
                all.remove(&owner);
            }
        }
        Some(result)
    }

    /// The session did not take an end of which nothing was owed before.
    pub(crate) fn keep(&self, owner: ScopeId, owed: Owed) {
        let in_hand = false;
        let mut all = self.all();
        all.entry(owner).or_default().push(Entry { owed, in_hand });
    }

    /// Takes the next end into the hand; [`said`](Self::said) must follow.
    pub(crate) fn next(&self, owner: ScopeId) -> Option<Owed> {
        let mut all = self.all();
        let mut entries = all.get_mut(&owner)?.iter_mut();
        let entry = entries.find(|entry| !entry.in_hand)?;
        entry.in_hand = true;
        Some(entry.owed.clone())
    }

    /// What was in hand is in the session, or was refused again. False when its notice is not owed
    /// any more: the end was shown meanwhile.
    pub(crate) fn said(&self, owner: ScopeId, owed: &Owed, taken: bool) -> bool {
        let wanted = self.with(owner, &owed.task, |entry| {
            entry.in_hand = false;
            let wanted = entry.owed.notice || !owed.notice;
            if taken {
                entry.owed.record &= !owed.record;
                entry.owed.notice &= !owed.notice;
            }
            wanted
        });
        wanted.unwrap_or(false)
    }

    /// A notice is due of an end. False when nothing of that end is owed: it is the caller's to say.
    pub(crate) fn notice_due(&self, owner: ScopeId, task: &TaskId) -> bool {
        let owed = self.with(owner, task, |entry| entry.owed.notice = true);
        owed.is_some()
    }

    /// The end was shown: no notice is due any more.
    pub(crate) fn collected(&self, owner: ScopeId, task: &TaskId) {
        self.with(owner, task, |entry| entry.owed.notice = false);
    }

    /// The task is gone.
    pub(crate) fn forget(&self, owner: ScopeId, task: &TaskId) {
        self.with(owner, task, |entry| {
            entry.in_hand = false;
            entry.owed.record = false;
            entry.owed.notice = false;
        });
    }
}

#[cfg(test)]
mod tests {
    use offshoot_core::Scope;

    use super::*;

    fn owed(record: bool, notice: bool) -> Owed {
        let task = "bash-1".parse().unwrap();
        Owed {
            task,
            record,
            notice,
        }
    }

    #[test]
    fn what_is_in_hand_is_nobody_elses_and_what_was_refused_is_owed_again() {
        let (unsaid, owner) = (Unsaid::default(), Scope::root("owner").id());
        unsaid.keep(owner, owed(true, true));
        let first = unsaid.next(owner).unwrap();
        assert_eq!(first, owed(true, true));
        assert_eq!(unsaid.next(owner), None);
        assert!(unsaid.said(owner, &first, false));
        let again = unsaid.next(owner).unwrap();
        assert_eq!(again, first);
        assert!(unsaid.said(owner, &again, true));
        assert!(unsaid.all().is_empty());
    }

    #[test]
    fn an_end_that_was_shown_while_its_notice_was_in_hand_needs_none() {
        let (unsaid, owner) = (Unsaid::default(), Scope::root("owner").id());
        unsaid.keep(owner, owed(true, true));
        let said = unsaid.next(owner).unwrap();
        unsaid.collected(owner, &said.task);
        assert!(!unsaid.said(owner, &said, true));
        assert!(unsaid.all().is_empty());
    }

    #[test]
    fn a_notice_that_falls_due_while_the_end_is_recorded_is_owed_after_it() {
        let (unsaid, owner) = (Unsaid::default(), Scope::root("owner").id());
        assert!(!unsaid.notice_due(owner, &owed(true, false).task));
        unsaid.keep(owner, owed(true, false));
        let said = unsaid.next(owner).unwrap();
        assert!(unsaid.notice_due(owner, &said.task));
        assert!(unsaid.said(owner, &said, true));
        assert_eq!(unsaid.next(owner), Some(owed(false, true)));
        unsaid.forget(owner, &said.task);
        assert!(unsaid.all().is_empty());
    }
}
