//! Which record a number of one kind names.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use crate::slab::Key;

// Invariants
// 1. `recent` has numbers in ascending order, each greater than all that were pushed before; its front
//    is a record, or it is empty. It has at most RECENT places.
// 2. `old` has the other numbers that name a record: those that were pushed long ago, and those that
//    were issued elsewhere. No number is in both.

/// Most tasks are short: their numbers come and go at the end, where no hashing is needed.
const RECENT: usize = 1024;

/// Spreads counters, which nobody outside chooses freely, over a hash map.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CounterHasher(u64);

impl Hasher for CounterHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_isize(&mut self, n: isize) {
        self.write_u64(n as u64);
    }

    fn write_u64(&mut self, n: u64) {
        let mixed = (self.0.rotate_left(5) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

pub(crate) type CounterMap<K, V> = HashMap<K, V, BuildHasherDefault<CounterHasher>>;

#[derive(Debug, Default)]
pub(crate) struct Index {
    /// `None` once the record is gone.
    recent: VecDeque<(u64, Option<Key>)>,
    old: CounterMap<u64, Key>,
}

impl Index {
    /// Gives a record its number, which is greater than all that were pushed before.
    pub(crate) fn push(&mut self, n: u64, record: Key) {
        debug_assert!(self.recent.back().is_none_or(|(last, _)| *last < n));
        if self.recent.len() == RECENT {
            self.retire_front();
        }
        self.recent.push_back((n, Some(record)));
    }

    fn retire_front(&mut self) {
        if let Some((n, Some(record))) = self.recent.pop_front() {
            self.old.insert(n, record);
        }
        self.drop_free_front();
    }

    fn drop_free_front(&mut self) {
        while let Some((_, None)) = self.recent.front() {
            self.recent.pop_front();
        }
    }

    /// Gives a number that was issued elsewhere to a record. False when it is in use.
    pub(crate) fn adopt(&mut self, n: u64, record: Key) -> bool {
        let free = self.get(n).is_none();
        if free {
            self.old.insert(n, record);
        }
        free
    }

    fn at(&self, n: u64) -> Option<usize> {
        self.recent.binary_search_by_key(&n, |(n, _)| *n).ok()
    }

    pub(crate) fn get(&self, n: u64) -> Option<Key> {
        let recent = self.at(n).and_then(|at| self.recent[at].1);
        recent.or_else(|| self.old.get(&n).copied())
    }

    pub(crate) fn remove(&mut self, n: u64) {
        if let Some(at) = self.at(n)
            && self.recent[at].1.take().is_some()
        {
            self.drop_free_front();
            return;
        }
        self.old.remove(&n);
        // A map does not shrink by itself; after a burst it would keep its greatest size.
        if self.old.capacity() > 1024 && self.old.len() < self.old.capacity() / 8 {
            self.old.shrink_to(self.old.len() * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::slab::Slab;

    proptest! {
        #[test]
        fn it_agrees_with_a_plain_map(
            steps in proptest::collection::vec((0..10u8, 0..4000u64), 1..4000),
        ) {
            let (mut index, mut plain) = (Index::default(), BTreeMap::new());
            let (mut slab, mut last) = (Slab::default(), 0);
            for (kind, n) in steps {
                let key = slab.insert(());
                match kind {
                    0..6 => {
                        // Other shards draw numbers as well.
                        last += 1 + n % 3;
                        index.push(last, key);
                        plain.insert(last, key);
                    }
                    6..9 => {
                        index.remove(n);
                        plain.remove(&n);
                    }
                    _ => {
                        // The counter was raised to it first.
                        let n = n + 1;
                        prop_assert_eq!(index.adopt(n, key), !plain.contains_key(&n));
                        plain.entry(n).or_insert(key);
                        last = last.max(n);
                    }
                }
                prop_assert_eq!(index.get(n), plain.get(&n).copied());
            }
            for n in 0..=last + 2 {
                prop_assert_eq!(index.get(n), plain.get(&n).copied());
            }
            prop_assert!(index.recent.len() <= RECENT);
        }
    }
}
