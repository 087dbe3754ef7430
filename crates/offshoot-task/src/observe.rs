//! Observers: who is told of every change, in order and outside every lock.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use offshoot_core::text::panic_message;

use crate::shard::Shard;
use crate::shards::Shards;
use crate::slab::Key;
use crate::snapshot::TaskSnapshot;
use crate::table::After;

/// What happened to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TaskChange {
    /// It was registered. Delivered before the start returns and before the work is first polled.
    Started,
    /// A stop was requested.
    Stopping,
    /// It ended. A notice is due unless the snapshot says `reported`.
    Settled,
    /// Whoever was going to show the end went away without it: a notice is due after all.
    NoticeDue,
    /// The end was shown after a notice had become due: one that still waits can be withdrawn.
    Collected,
    /// Its record left the registry.
    Removed,
}

/// Is told of every change of every task.
///
/// For one task the calls come one at a time, in the order `Started`, `Stopping`, `Settled`, then
/// `NoticeDue` and `Collected` in turn, then `Removed`. The owner's hold is released after the
/// `Settled` calls returned, so that an owner that waits until nothing holds it has had them.
///
/// # Implementing
///
/// `on_change` runs on whatever thread caused the change, outside every lock of the registry: it may
/// call the registry, whose further changes of the same task are then delivered after it returns. It
/// must not block: the caller of the operation waits for it. Its panic is contained and logged.
pub trait TaskObserver: Send + Sync + 'static {
    /// `task` is what it looked like when the change was announced.
    fn on_change(&self, change: TaskChange, task: &TaskSnapshot);
}

impl<F> TaskObserver for F
where
    F: Fn(TaskChange, &TaskSnapshot) + Send + Sync + 'static,
{
    fn on_change(&self, change: TaskChange, task: &TaskSnapshot) {
        self(change, task);
    }
}

#[derive(Clone)]
pub(crate) struct Registered {
    pub(crate) key: u64,
    pub(crate) observer: Arc<dyn TaskObserver>,
}

pub(crate) type Observers = Arc<[Registered]>;

/// Keeps an observer registered until it is dropped. A call that is under way may still end after.
#[must_use = "dropping the handle unregisters the observer"]
pub struct ObserverHandle {
    shards: Vec<Weak<Shard>>,
    key: u64,
}

impl fmt::Debug for ObserverHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObserverHandle").finish_non_exhaustive()
    }
}

impl ObserverHandle {
    /// Keeps the observer for as long as the registry lives.
    pub fn forget(mut self) {
        self.shards.clear();
    }
}

impl Drop for ObserverHandle {
    fn drop(&mut self) {
        for shard in self.shards.iter().filter_map(Weak::upgrade) {
            shard.unregister(self.key);
        }
    }
}

impl Shards {
    pub(crate) fn observe(&self, observer: Arc<dyn TaskObserver>) -> ObserverHandle {
        let key = self.next_observer();
        for shard in self.all() {
            let observer = Arc::clone(&observer);
            shard.register_observer(Registered { key, observer });
        }
        ObserverHandle {
            shards: self.all().iter().map(Arc::downgrade).collect(),
            key,
        }
    }
}

impl Shard {
    fn register_observer(&self, observer: Registered) {
        let old = {
            let mut table = self.table();
            let old = table.observers.take();
            let all = old.iter().flat_map(|all| all.iter()).cloned();
            table.observers = Some(all.chain([observer]).collect());
            old
        };
        drop(old);
    }

    fn unregister(&self, key: u64) {
        let old = {
            let mut table = self.table();
            let kept = table.observers.iter().flat_map(|all| all.iter());
            let kept: Vec<_> = kept.filter(|one| one.key != key).cloned().collect();
            let kept = (!kept.is_empty()).then(|| kept.into());
            std::mem::replace(&mut table.observers, kept)
        };
        // The observer's own drop is somebody else's code.
        drop(old);
    }

    /// Tells observers what they were not told yet of one task, unless another thread is doing so:
    /// that one goes on until nothing is left.
    pub(crate) fn announce(&self, key: Key) {
        let mut told = None;
        loop {
            let mut after = After::default();
            let next = {
                let mut table = self.table();
                if let Some(change) = told {
                    table.told(key, change, &mut after);
                }
                table.tell(key, &mut after)
            };
            // Holds are released here, after the observers returned; nothing else can be in it.
            after.wake(self);
            let Some((change, snapshot, observers)) = next else {
                return;
            };
            for one in observers.iter() {
                let call = || one.observer.on_change(change, &snapshot);
                if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
                    let panic = panic_message(&*panic);
                    tracing::error!(task = %snapshot.id, ?change, panic, "a task observer panicked");
                }
            }
            told = Some(change);
        }
    }

    pub(crate) fn announce_all(&self, keys: impl IntoIterator<Item = Key>) {
        for key in keys {
            self.announce(key);
        }
    }
}
