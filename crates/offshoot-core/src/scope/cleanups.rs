//! The cleanups of one scope, child scopes among them: a stack from which any one can be taken back
//! cheaply.

use std::borrow::Cow;

use futures::future::BoxFuture;

use super::{CleanupId, Scope};

pub(super) type Cleanup = Box<dyn FnOnce() -> BoxFuture<'static, Result<(), String>> + Send>;

enum Work {
    Run(Cow<'static, str>, Cleanup),
    Close(Scope),
}

/// What closing does next.
pub(super) enum Next {
    /// Runs this cleanup, of this name.
    Run(Cow<'static, str>, Cleanup),
    /// Closes these, all at the same time.
    Close(Vec<Scope>),
}

struct Entry {
    id: CleanupId,
    /// `None` once it was taken back.
    work: Option<Work>,
}

// Invariants
// 1. Ids ascend, so that an entry is found by bisection.
// 2. The last entry is not empty, and at most half of the entries (plus a few) are: a scope that
//    registers and takes back for ever stays small, and taking back costs O(log n) on average.
/// Cleanups in the order of their registration.
#[derive(Default)]
pub(super) struct Cleanups {
    entries: Vec<Entry>,
    empty: usize,
    next: u64,
}

const FEW: usize = 8;

impl Cleanups {
    pub(super) fn push(&mut self, name: Cow<'static, str>, cleanup: Cleanup) -> CleanupId {
        let id = self.fresh();
        self.add(id, Work::Run(name, cleanup));
        id
    }

    /// Puts the scope in that `make` makes, which is told its id.
    pub(super) fn push_child(&mut self, make: impl FnOnce(CleanupId) -> Scope) -> Scope {
        let id = self.fresh();
        let child = make(id);
        self.add(id, Work::Close(child.clone()));
        child
    }

    fn fresh(&mut self) -> CleanupId {
        let id = CleanupId(self.next);
        self.next += 1;
        id
    }

    fn add(&mut self, id: CleanupId, work: Work) {
        let work = Some(work);
        if self.entries.is_empty() {
            // Most scopes have one.
            self.entries.reserve_exact(1);
        }
        self.entries.push(Entry { id, work });
    }

    /// Takes the last registered one; if that is a child scope, with all that follow it next.
    pub(super) fn pop(&mut self) -> Option<Next> {
        let mut children = match self.take_last()? {
            Work::Run(name, cleanup) => return Some(Next::Run(name, cleanup)),
            Work::Close(child) => vec![child],
        };
        while let Some(Some(Work::Close(_))) = self.entries.last().map(|last| &last.work) {
            if let Some(Work::Close(child)) = self.take_last() {
                children.push(child);
            }
        }
        Some(Next::Close(children))
    }

    fn take_last(&mut self) -> Option<Work> {
        let last = self.entries.pop()?.work;
        self.tidy();
        last
    }

    /// The child scopes.
    pub(super) fn children(&self) -> impl Iterator<Item = &Scope> {
        self.entries.iter().filter_map(|entry| match &entry.work {
            Some(Work::Close(child)) => Some(child),
            _ => None,
        })
    }

    /// Takes one back. Returns it, to be dropped unlocked.
    pub(super) fn take(&mut self, id: CleanupId) -> Option<impl Sized + use<>> {
        let at = self
            .entries
            .binary_search_by_key(&id, |entry| entry.id)
            .ok()?;
        let taken = self.entries[at].work.take()?;
        self.empty += 1;
        self.tidy();
        Some(taken)
    }

    fn tidy(&mut self) {
        while self.entries.last().is_some_and(|last| last.work.is_none()) {
            self.entries.pop();
            self.empty -= 1;
        }
        if self.empty > self.entries.len() / 2 + FEW {
            self.entries.retain(|entry| entry.work.is_some());
            self.entries.shrink_to(self.entries.len() * 2);
            self.empty = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use proptest::prelude::*;

    use super::*;

    fn nothing() -> Cleanup {
        Box::new(|| async { Ok(()) }.boxed())
    }

    /// How many the next step of closing takes.
    fn size(next: &Next) -> usize {
        match next {
            Next::Run(..) => 1,
            Next::Close(children) => children.len(),
        }
    }

    proptest! {
        /// Beside a plain list: the same ones come out, in the same order, neighbouring children
        /// together, and the stack stays small.
        #[test]
        fn it_is_a_stack_from_which_any_one_can_be_taken(steps in prop::collection::vec((0..5_u8, any::<prop::sample::Index>()), 0..400)) {
            let (mut stack, mut list) = (Cleanups::default(), Vec::<(CleanupId, bool)>::new());
            for (step, index) in steps {
                match step {
                    0 | 1 => list.push((stack.push("one".into(), nothing()), false)),
                    2 => {
                        let mut given = None;
                        stack.push_child(|id| {
                            given = Some(id);
                            Scope::root("child")
                        });
                        list.extend(given.map(|id| (id, true)));
                    }
                    3 if !list.is_empty() => {
                        let (id, _) = list.remove(index.index(list.len()));
                        prop_assert!(stack.take(id).is_some());
                        prop_assert!(stack.take(id).is_none());
                    }
                    _ => {
                        let children = list.iter().rev().take_while(|(_, child)| *child).count();
                        let taken = children.max(1).min(list.len());
                        prop_assert_eq!(stack.pop().as_ref().map_or(0, size), taken);
                        list.truncate(list.len() - taken);
                    }
                }
                prop_assert_eq!(stack.children().count(), list.iter().filter(|(_, child)| *child).count());
                prop_assert!(stack.entries.len() <= list.len() * 2 + 2 * FEW + 2);
                prop_assert_eq!(stack.entries.last().map(|last| last.id), list.last().map(|last| last.0));
            }
        }
    }
}
