//! Which record a number of one kind names.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use crate::slab::Key;

// Invariants
// 1. `recent` has the numbers from `first` to the last one that was issued, one place each; its front
//    is a record, or it is empty. It has at most RECENT places.
// 2. `old` has the numbers before `first` that still name a record, and those that were issued elsewhere.

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

#[derive(Debug)]
pub(crate) struct Index {
    first: u64,
    recent: VecDeque<Option<Key>>,
    old: CounterMap<u64, Key>,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            first: 1,
            recent: VecDeque::new(),
            old: CounterMap::default(),
        }
    }
}

impl Index {
    /// The last number that was issued, or passed over; 0 at first.
    pub(crate) fn last(&self) -> u64 {
        self.first + self.recent.len() as u64 - 1
    }

    /// Issues the next number.
    pub(crate) fn push(&mut self, record: Key) -> u64 {
        if self.recent.len() == RECENT {
            self.retire_front();
        }
        self.recent.push_back(Some(record));
        self.last()
    }

    fn retire_front(&mut self) {
        if let Some(front) = self.recent.pop_front() {
            if let Some(record) = front {
                self.old.insert(self.first, record);
            }
            self.first += 1;
        }
        self.drop_free_front();
    }

    fn drop_free_front(&mut self) {
        while let Some(None) = self.recent.front() {
            self.recent.pop_front();
            self.first += 1;
        }
    }

    /// Passes over the numbers up to `n`.
    pub(crate) fn skip_through(&mut self, n: u64) {
        if n <= self.last() {
            return;
        }
        while !self.recent.is_empty() {
            self.retire_front();
        }
        // The greatest number of all is never issued.
        self.first = n.saturating_add(1);
    }

    /// Gives a number that was issued elsewhere to a record. False when it is in use.
    pub(crate) fn adopt(&mut self, n: u64, record: Key) -> bool {
        if self.get(n).is_some() {
            return false;
        }
        self.skip_through(n);
        match self.place(n) {
            Some(place) => *place = Some(record),
            None => drop(self.old.insert(n, record)),
        }
        true
    }

    fn place(&mut self, n: u64) -> Option<&mut Option<Key>> {
        let at = usize::try_from(n.checked_sub(self.first)?).ok()?;
        self.recent.get_mut(at)
    }

    pub(crate) fn get(&self, n: u64) -> Option<Key> {
        let at = n.checked_sub(self.first);
        let at = at.and_then(|at| usize::try_from(at).ok());
        match at.and_then(|at| self.recent.get(at)) {
            Some(place) => *place,
            None => self.old.get(&n).copied(),
        }
    }

    pub(crate) fn remove(&mut self, n: u64) {
        if let Some(place) = self.place(n) {
            *place = None;
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

    #[test]
    fn the_greatest_number_can_be_adopted_and_ends_the_issue() {
        let mut slab = Slab::default();
        let (mut index, key) = (Index::default(), slab.insert(()));
        assert!(index.adopt(u64::MAX, key) && !index.adopt(u64::MAX, key));
        assert_eq!(
            (index.get(u64::MAX), index.last()),
            (Some(key), u64::MAX - 1)
        );
        index.remove(u64::MAX);
        assert_eq!(index.get(u64::MAX), None);
    }

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
                        last += 1;
                        prop_assert_eq!(index.push(key), last);
                        plain.insert(last, key);
                    }
                    6..8 => {
                        index.remove(n);
                        plain.remove(&n);
                    }
                    8 => {
                        let n = n + 1;
                        prop_assert_eq!(index.adopt(n, key), !plain.contains_key(&n));
                        plain.entry(n).or_insert(key);
                        last = last.max(n);
                    }
                    _ => {
                        let n = n / 2;
                        index.skip_through(n);
                        last = last.max(n);
                    }
                }
                prop_assert_eq!(index.last(), last);
                prop_assert_eq!(index.get(n), plain.get(&n).copied());
            }
            for n in 0..=last + 2 {
                prop_assert_eq!(index.get(n), plain.get(&n).copied());
            }
        }
    }
}
