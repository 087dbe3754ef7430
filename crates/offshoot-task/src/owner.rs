//! What a registry keeps for each owner: counters, the list of its tasks, and what it gave up.

use std::collections::VecDeque;
use std::sync::Arc;

use offshoot_core::{CleanupId, Scope};
use tokio::sync::Notify;

use crate::kinds::KindKey;
use crate::slab::Key;
use crate::status::StoppedBy;

/// How many runs of given-up ids are remembered for an owner.
const EXPIRED_RUNS: usize = 1024;

/// Ids whose records were given up: runs of numbers of one kind, bounded, the oldest forgotten first.
#[derive(Debug, Default)]
pub(crate) struct Expired(VecDeque<(KindKey, u64, u64)>);

impl Expired {
    pub(crate) fn note(&mut self, kind: KindKey, n: u64) {
        // An owner that works alone has few runs: its ids follow each other.
        const NEAR: usize = 8;
        let near = self.0.iter_mut().rev().take(NEAR);
        for (run_kind, _, last) in near {
            if *run_kind == kind && *last + 1 == n {
                *last = n;
                return;
            }
        }
        if self.0.len() == EXPIRED_RUNS {
            self.0.pop_front();
        }
        self.0.push_back((kind, n, n));
    }

    pub(crate) fn contains(&self, kind: KindKey, n: u64) -> bool {
        self.0
            .iter()
            .any(|(run, first, last)| *run == kind && (*first..=*last).contains(&n))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Owner {
    /// `None` for the owner of the unowned tasks.
    pub(crate) scope: Option<(Scope, CleanupId)>,
    pub(crate) first: Option<Key>,
    pub(crate) last: Option<Key>,
    /// Records in the list.
    pub(crate) records: usize,
    /// Tasks that run or stop.
    pub(crate) live: usize,
    /// Starts that have been admitted and are not registered yet.
    pub(crate) reserved: usize,
    /// The tasks, admitted ones included, whose end was not delivered to the observers yet.
    pub(crate) tickets: usize,
    /// Wakes the closing when one of these numbers falls.
    pub(crate) gate: Arc<Notify>,
    /// Records about which observers are being called now.
    pub(crate) telling: usize,
    /// Finished and reported records, the longest reported first.
    pub(crate) spent: VecDeque<Key>,
    pub(crate) expired: Expired,
    /// Set when closing has reached the registry.
    pub(crate) closing: Option<StoppedBy>,
    /// Set when closing has ended: not even a late start is let in.
    pub(crate) closed: bool,
}
