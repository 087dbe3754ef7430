//! The end of an owner and of the registry: cancel, grace, abort, and at last the records.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::owner::Owner;
use crate::shard::{ABORT_BOUND, Shard};
use crate::slab::Key;
use crate::status::StoppedBy;
use crate::table::After;

// Invariants
// 1. After `closing` is set no start is admitted, and one that was admitted before is stopped as it
//    registers: the set of tasks to wait for only shrinks.
// 2. The barrier ends when no start is under way and no ticket is out, that is when every observer
//    has returned from every `Settled`, and the holds are released; or when the grace and the time to abort have passed, after which
//    what is left is settled by force.
// 3. Every step may be repeated: the owner's closing and the shutdown may run at the same time.

impl Shard {
    /// Stops an owner's tasks, waits for their ends, and removes all its records.
    pub(crate) async fn close_owner(self: &Arc<Self>, owner: Key, by: StoppedBy) {
        let _closing = self.closing();
        let Some((gate, since)) = self.begin_closing(owner, by) else {
            return;
        };
        let idle = |owner: &Owner| owner.tickets == 0 && owner.reserved == 0;
        let grace = self.config.teardown_grace.saturating_sub(since.elapsed());
        if !self.until(owner, &gate, grace, idle).await {
            let left = self.live_keys(owner);
            tracing::warn!(tasks = left.len(), %by, "aborting tasks that did not stop in time");
            for key in &left {
                self.abort(*key);
            }
            if !self.until(owner, &gate, ABORT_BOUND, idle).await {
                for key in self.live_keys(owner) {
                    self.give_up(key);
                }
            }
            // A starter that does not return is not waited for: it will find the owner closed.
            let settled = |owner: &Owner| owner.tickets <= owner.reserved;
            self.until(owner, &gate, Duration::MAX, settled).await;
        }
        self.remove_all(owner);
        self.until(owner, &gate, Duration::MAX, |owner| owner.telling == 0)
            .await;
        self.end_closing(owner);
    }

    /// Stops an owner's tasks. Says when that was done first.
    pub(crate) fn begin_closing(
        &self,
        owner_key: Key,
        by: StoppedBy,
    ) -> Option<(Arc<Notify>, Instant)> {
        let now = Instant::now();
        let (gate, since, keys) = {
            let mut table = self.table();
            let owner = table.owners.get_mut(owner_key)?;
            owner.closing.get_or_insert(by);
            let since = *owner.closing_since.get_or_insert(now);
            let gate = Arc::clone(&owner.gate);
            (gate, since, table.keys_of(owner_key).collect::<Vec<_>>())
        };
        // Every task is told before any observer is: a slow one must not cost the others their grace.
        let mut left = Vec::new();
        for key in keys {
            let mut after = After::default();
            {
                let mut table = self.table();
                let live = table
                    .records
                    .get(key)
                    .is_some_and(|record| record.life.is_live());
                if !live {
                    continue;
                }
                table.stop(key, by, None, &mut after);
            }
            left.extend(after.wake(self));
        }
        self.announce_all(left);
        Some((gate, since))
    }

    /// Waits, at most for `limit`, until `done` is true of the owner, or it is gone.
    async fn until(
        &self,
        owner: Key,
        gate: &Arc<Notify>,
        limit: Duration,
        done: impl Fn(&Owner) -> bool,
    ) -> bool {
        let reached = async {
            loop {
                let mut changed = std::pin::pin!(gate.notified());
                changed.as_mut().enable();
                if self.reached(owner, gate, &done) {
                    return;
                }
                changed.await;
            }
        };
        if limit == Duration::MAX {
            reached.await;
            return true;
        }
        timeout(limit, reached).await.is_ok()
    }

    /// Whether `done` is true of the owner and every hold that it gave back is released. When only
    /// the latter is missing, `gate` is notified of it.
    fn reached(&self, owner: Key, gate: &Arc<Notify>, done: impl Fn(&Owner) -> bool) -> bool {
        let mut table = self.table();
        if !table.owners.get(owner).is_none_or(done) {
            return false;
        }
        let released = self.all_released(&table);
        if !released {
            table.stalled.push(Arc::clone(gate));
        }
        released
    }

    fn live_keys(&self, owner: Key) -> Vec<Key> {
        let table = self.table();
        let live = |key: &Key| {
            table
                .records
                .get(*key)
                .is_some_and(|record| record.life.is_live())
        };
        table.keys_of(owner).filter(live).collect()
    }

    fn remove_all(&self, owner: Key) {
        let mut after = After::default();
        {
            let mut table = self.table();
            let keys: Vec<_> = table.keys_of(owner).collect();
            for key in keys {
                if table
                    .records
                    .get(key)
                    .is_some_and(|record| !record.life.is_live())
                {
                    table.remove(key, &mut after);
                }
            }
        }
        self.perform(after);
    }

    fn end_closing(&self, owner_key: Key) {
        let gone = {
            let mut table = self.table();
            let Some(owner) = table.owners.get_mut(owner_key) else {
                return;
            };
            owner.closed = true;
            let id = owner.scope.as_ref().map(|(scope, _)| scope.id());
            let reserved = owner.reserved;
            table.owner_keys.remove(&id);
            // A start that still runs finds the entry closed, and removes it.
            (reserved == 0).then(|| table.owners.remove(owner_key))
        };
        let Some(Some(owner)) = gone else {
            return;
        };
        // Another closing may wait for what nobody counts any more.
        owner.gate.notify_waiters();
        if let Some((scope, cleanup)) = owner.scope {
            scope.forget_cleanup(cleanup);
        }
    }

    /// Closes every owner of this shard, all at once, so that one grace is enough.
    pub(crate) async fn shut_down(self: Arc<Self>) {
        let owners: Vec<_> = {
            let mut table = self.table();
            table.closing = true;
            table.owner_keys.values().copied().collect()
        };
        let closings = owners
            .into_iter()
            .map(|key| self.close_owner(key, StoppedBy::Service));
        futures::future::join_all(closings).await;
    }
}
