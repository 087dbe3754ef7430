//! The counters of ids, which all shards of a registry draw from.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::kind::TaskKind;

/// Numbers above this are never issued, so that a counter cannot wrap.
const LAST_NUMBER: u64 = u64::MAX - u32::MAX as u64;

/// The last number of one kind that was issued, or passed over; 0 at first.
// Two owners that start tasks at the same time meet here and nowhere else: it has its cache line
// alone. Relaxed everywhere: a number is published by the lock of the table that its task is in.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Issues the next number.
    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Passes over the numbers up to `n`. True when it is certain that nobody had `n` before.
    pub(crate) fn skip_through(&self, n: u64) -> bool {
        let n = n.min(LAST_NUMBER);
        self.0.fetch_max(n, Ordering::Relaxed) < n
    }

    /// Whether no number can be issued any more.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= LAST_NUMBER
    }
}

/// One counter a kind, for all shards.
#[derive(Debug, Default)]
pub(crate) struct Counters(Mutex<HashMap<TaskKind, Arc<Counter>>>);

impl Counters {
    /// The counter of a kind, made when it is new. A shard asks once for each kind.
    pub(crate) fn of(&self, kind: TaskKind) -> Arc<Counter> {
        // Taken under a table's lock and held for this alone: no model needs to switch here.
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(counters.entry(kind).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_one_counter_whoever_asks() {
        let counters = Counters::default();
        let (bash, sum) = (
            TaskKind::new("bash").unwrap(),
            TaskKind::new("sum").unwrap(),
        );
        assert_eq!(counters.of(bash).next(), 1);
        assert_eq!(counters.of(bash).next(), 2);
        assert_eq!(counters.of(sum).next(), 1);
    }

    #[test]
    fn the_greatest_number_can_be_passed_over_and_ends_the_issue() {
        let counter = Counter::default();
        assert!(counter.skip_through(7) && !counter.skip_through(7) && !counter.skip_through(3));
        assert_eq!(counter.next(), 8);
        assert!(counter.skip_through(u64::MAX) && !counter.skip_through(u64::MAX));
        assert!(counter.is_exhausted());
        // A start that was let in before still gets a number of its own.
        assert_eq!(counter.next(), LAST_NUMBER + 1);
    }
}
