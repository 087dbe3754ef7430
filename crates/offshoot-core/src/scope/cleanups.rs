//! The cleanups of one scope: a stack from which any one can be taken back cheaply.

use futures::future::BoxFuture;

use super::CleanupId;

pub(super) type Cleanup = Box<dyn FnOnce() -> BoxFuture<'static, Result<(), String>> + Send>;

struct Entry {
    id: CleanupId,
    /// `None` once it was taken back.
    work: Option<(Box<str>, Cleanup)>,
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
    pub(super) fn push(&mut self, name: Box<str>, cleanup: Cleanup) -> CleanupId {
        let id = CleanupId(self.next);
        self.next += 1;
        let work = Some((name, cleanup));
        if self.entries.is_empty() {
            // Most scopes have one.
            self.entries.reserve_exact(1);
        }
        self.entries.push(Entry { id, work });
        id
    }

    /// Takes the last registered one.
    pub(super) fn pop(&mut self) -> Option<(Box<str>, Cleanup)> {
        let last = self.entries.pop()?.work;
        self.tidy();
        last
    }

    /// Takes one back.
    pub(super) fn take(&mut self, id: CleanupId) -> Option<(Box<str>, Cleanup)> {
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

    proptest! {
        /// Beside a plain list: the same ones come out, in the same order, and the stack stays small.
        #[test]
        fn it_is_a_stack_from_which_any_one_can_be_taken(steps in prop::collection::vec((0..4_u8, any::<prop::sample::Index>()), 0..400)) {
            let (mut stack, mut list) = (Cleanups::default(), Vec::<CleanupId>::new());
            for (step, index) in steps {
                match step {
                    0 | 1 => list.push(stack.push("one".into(), nothing())),
                    2 if !list.is_empty() => {
                        let id = list.remove(index.index(list.len()));
                        prop_assert!(stack.take(id).is_some());
                        prop_assert!(stack.take(id).is_none());
                    }
                    _ => prop_assert_eq!(stack.pop().is_some(), list.pop().is_some()),
                }
                prop_assert!(stack.entries.len() <= list.len() * 2 + 2 * FEW + 2);
                prop_assert_eq!(stack.entries.last().map(|last| last.id), list.last().copied());
            }
        }
    }
}
