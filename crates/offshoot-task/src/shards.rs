//! The shards of a registry: owners that have nothing to do with each other share no lock.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use offshoot_core::ScopeId;

use crate::config::TaskConfig;
use crate::controller::Controllers;
use crate::counters::Counters;
use crate::id::TaskId;
use crate::index::CounterHasher;
use crate::kind::TaskKind;
use crate::shard::Shard;
use crate::sync::lock;

// Invariants
// 1. An owner, and with it all its tasks, is in one shard for ever: the one that its id says.
// 2. Where tasks without an owner are allowed, which are everybody's, there is one shard alone.
// 3. An id is in use in at most one shard: its number was drawn from the counter of all, or it was
//    adopted under `adopting`, by whoever raised the counter to it or found it in no shard.

/// A power of two; well above the number of cores that meet, so that two busy owners rarely do.
const SHARDS: usize = 16;

/// What all handles of one registry share.
pub(crate) struct Shards {
    all: Box<[Arc<Shard>]>,
    counters: Arc<Counters>,
    controllers: Mutex<Controllers>,
    next_observer: AtomicU64,
    // Taken before any table. Nothing foreign runs under it.
    adopting: Mutex<()>,
}

impl Shards {
    pub(crate) fn new(config: TaskConfig) -> Self {
        let counters = Arc::default();
        let count = if config.allow_unowned { 1 } else { SHARDS };
        let shard = |_| Arc::new(Shard::new(config.clone(), Arc::clone(&counters)));
        Self {
            all: (0..count).map(shard).collect(),
            counters,
            controllers: Mutex::default(),
            next_observer: AtomicU64::new(0),
            adopting: Mutex::default(),
        }
    }

    pub(crate) fn all(&self) -> &[Arc<Shard>] {
        &self.all
    }

    pub(crate) fn config(&self) -> &TaskConfig {
        &self.all[0].config
    }

    /// The shard of an owner.
    pub(crate) fn of(&self, owner: Option<ScopeId>) -> &Arc<Shard> {
        let Some(owner) = owner else {
            return &self.all[0];
        };
        let mut hasher = CounterHasher::default();
        owner.hash(&mut hasher);
        // The upper bits are the ones that are spread: ids that follow each other are far apart.
        let spread = (hasher.finish() >> 32) * self.all.len() as u64;
        &self.all[(spread >> 32) as usize]
    }

    pub(crate) fn controllers(&self) -> MutexGuard<'_, Controllers> {
        lock(&self.controllers)
    }

    /// Observers are told apart by number.
    pub(crate) fn next_observer(&self) -> u64 {
        self.next_observer.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn reserve_through(&self, kind: TaskKind, n: u64) {
        self.counters.of(kind).skip_through(n);
    }

    /// Held by whoever gives a task an id that was not drawn from a counter.
    pub(crate) fn adopting(&self) -> &Mutex<()> {
        &self.adopting
    }

    /// Whether an id is in use in a shard that is not `own`. It is not issued from here on. The lock of
    /// [`adopting`](Self::adopting) is held.
    pub(crate) fn is_taken(&self, id: &TaskId, own: &Arc<Shard>) -> bool {
        let counter = self.counters.of(id.task_kind());
        let unseen = counter.skip_through(id.number());
        let mut others = self.all.iter().filter(|other| !Arc::ptr_eq(other, own));
        !unseen && others.any(|other| other.table().kinds.find(id).is_some())
    }
}

#[cfg(test)]
mod tests {
    use offshoot_core::Scope;

    use super::*;

    #[test]
    fn owners_made_one_after_the_other_are_spread() {
        let shards = Shards::new(TaskConfig::default());
        let place = |owner: &Scope| {
            let own = shards.of(Some(owner.id()));
            shards.all().iter().position(|one| Arc::ptr_eq(one, own))
        };
        for stride in 1..5 {
            let mut owners = vec![0; SHARDS];
            for n in 0..stride * 32 * SHARDS {
                let owner = Scope::root("owner");
                if n % stride == 0 {
                    owners[place(&owner).unwrap()] += 1;
                }
            }
            assert!(owners.iter().all(|n| (16..=48).contains(n)), "{owners:?}");
        }
    }

    #[test]
    fn everybody_is_in_one_shard_where_tasks_without_an_owner_are_allowed() {
        let config = TaskConfig {
            allow_unowned: true,
            ..TaskConfig::default()
        };
        assert_eq!(Shards::new(config).all().len(), 1);
    }
}
