//! How many children of one tree are live. It asks nobody to do anything: its reply is all.

use std::collections::HashMap;
use std::hash::Hash;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command<T> {
    /// A place in this tree.
    Take(T),
    /// A place in this tree is not needed any more.
    Free(T),
}

/// What is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The place is taken.
    Taken,
    /// There is none.
    Full,
    /// The place is free again.
    Freed,
    /// No place of this tree was taken.
    NoOp,
}

/// The places of all trees, each with as many.
#[derive(Clone, Debug)]
pub struct Capacity<T> {
    max: usize,
    /// Never zero.
    taken: HashMap<T, usize>,
}

impl<T: Copy + Eq + Hash> Capacity<T> {
    /// Trees with `max` places each.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self {
            max,
            taken: HashMap::new(),
        }
    }

    /// The places that a tree has.
    #[must_use]
    pub fn max(&self) -> usize {
        self.max
    }

    /// The places of a tree that are taken.
    #[must_use]
    pub fn taken(&self, tree: T) -> usize {
        self.taken.get(&tree).copied().unwrap_or(0)
    }

    /// Answers a command.
    pub fn apply(&mut self, command: Command<T>) -> Reply {
        match command {
            Command::Take(tree) if self.taken(tree) >= self.max => Reply::Full,
            Command::Take(tree) => {
                *self.taken.entry(tree).or_default() += 1;
                Reply::Taken
            }
            Command::Free(tree) => match self.taken(tree) {
                0 => Reply::NoOp,
                1 => {
                    self.taken.remove(&tree);
                    Reply::Freed
                }
                more => {
                    self.taken.insert(tree, more - 1);
                    Reply::Freed
                }
            },
        }
    }
}

#[cfg(test)]
#[test]
fn a_tree_has_its_places_and_no_other() {
    let mut capacity = Capacity::new(2);
    let trace = [
        (Command::Take('a'), Reply::Taken),
        (Command::Take('a'), Reply::Taken),
        (Command::Take('a'), Reply::Full),
        (Command::Take('b'), Reply::Taken),
        (Command::Free('a'), Reply::Freed),
        (Command::Take('a'), Reply::Taken),
        (Command::Free('b'), Reply::Freed),
        (Command::Free('b'), Reply::NoOp),
        (Command::Free('c'), Reply::NoOp),
        (Command::Take('b'), Reply::Taken),
    ];
    for (command, reply) in trace {
        assert_eq!(capacity.apply(command), reply, "{command:?}");
    }
    assert_eq!([capacity.taken('a'), capacity.taken('b')], [2, 1]);
    assert_eq!(Capacity::new(0).apply(Command::Take('a')), Reply::Full);
}
