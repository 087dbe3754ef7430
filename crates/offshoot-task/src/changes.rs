//! The change feed: a version for each owner that is watched. No payload, nothing queued.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use offshoot_core::ScopeId;
use tokio::sync::watch;

use crate::shard::Shard;

// Invariants
// 1. Versions come from one counter of the shard, in which an owner stays, so that they never go back,
//    not even for an owner that nobody watched for a while.
// 2. A version is drawn under the lock, in the critical section of the change, and published after
//    it was released; who sees the version sees the change. Two may be published out of order: the
//    greater one stays.

type Watch = Arc<watch::Sender<u64>>;

/// The owners that somebody watches.
#[derive(Default)]
pub(crate) struct Watches {
    version: u64,
    owners: HashMap<ScopeId, Watch>,
}

/// A version to be published when the lock was released.
pub(crate) struct Watched {
    version: u64,
    watches: Vec<Watch>,
}

impl Watches {
    pub(crate) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// A task of `owner` changed; one without an owner is everybody's.
    pub(crate) fn note(&mut self, owner: Option<ScopeId>, watched: &mut Option<Box<Watched>>) {
        self.version += 1;
        let version = self.version;
        let watched = watched.get_or_insert_with(|| {
            let watches = Vec::new();
            Box::new(Watched { version, watches })
        });
        watched.version = version;
        let mut add = |watch: &Watch| {
            if !watched
                .watches
                .iter()
                .any(|known| Arc::ptr_eq(known, watch))
            {
                watched.watches.push(Arc::clone(watch));
            }
        };
        match owner {
            Some(owner) => self.owners.get(&owner).into_iter().for_each(&mut add),
            None => self.owners.values().for_each(&mut add),
        }
    }
}

impl Watched {
    pub(crate) fn tell(self) {
        for watch in self.watches {
            watch.send_if_modified(|version| {
                let newer = self.version > *version;
                if newer {
                    *version = self.version;
                }
                newer
            });
        }
    }
}

/// Says that something changed among the tasks of one owner, and not what: look at them with
/// [`list`](crate::TaskRegistry::list).
///
/// A change is whatever an observer would be told, a claim that was taken or given back, and
/// progress. The growth of an output is none (see [`OutputBuffer::grown_past`]), nor is time that
/// passes: a stall shows when somebody looks. Any number of changes between two looks is one. A
/// version may come without a difference that can be seen.
///
/// [`OutputBuffer::grown_past`]: crate::OutputBuffer::grown_past
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use offshoot_core::Scope;
/// # use offshoot_task::{TaskOutcome, TaskRegistry, TaskSpec};
/// # let (registry, owner) = (TaskRegistry::default(), Scope::root("me"));
/// let mut changes = registry.changes(owner.id());
/// let before = changes.version();
/// registry.spawn(&owner, TaskSpec::new("sum", "1 + 1"), async |_| TaskOutcome::completed())?;
/// assert!(changes.changed().await > before);
/// # Ok(()) }
/// ```
pub struct Changes {
    shard: Arc<Shard>,
    owner: ScopeId,
    receiver: watch::Receiver<u64>,
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes")
            .field("owner", &self.owner)
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}

impl Changes {
    /// The version of now. Versions grow, not by one.
    #[must_use]
    pub fn version(&self) -> u64 {
        *self.receiver.borrow()
    }

    /// Waits until there was a change since this was made or since `changed` last returned, and
    /// returns the version. It never completes for an owner whose tasks do not change any more.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: the next call returns at once.
    pub async fn changed(&mut self) -> u64 {
        if self.receiver.changed().await.is_err() {
            // The table keeps the sender for as long as this lives.
            std::future::pending::<()>().await;
        }
        *self.receiver.borrow_and_update()
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        let unused = {
            let mut table = self.shard.table();
            let owners = &mut table.watches.owners;
            let last = owners.get(&self.owner);
            // This receiver is the last one.
            if last.is_some_and(|watch| watch.receiver_count() == 1) {
                owners.remove(&self.owner)
            } else {
                None
            }
        };
        drop(unused);
    }
}

impl Shard {
    pub(crate) fn changes(self: &Arc<Self>, owner: ScopeId) -> Changes {
        let mut table = self.table();
        let Watches { version, owners } = &mut table.watches;
        let watch = owners
            .entry(owner)
            .or_insert_with(|| Arc::new(watch::channel(*version).0));
        Changes {
            shard: Arc::clone(self),
            owner,
            receiver: watch.subscribe(),
        }
    }
}
