//! What the work of a task gets from the registry.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::Instant;

use crate::id::TaskId;
use crate::output::{OutputBuffer, OutputWriter};
use crate::progress::{Report, TaskProgress};
use crate::shard::Shard;
use crate::slab::Key;
use crate::status::StopRequest;
use crate::table::After;
use crate::waker_set::WakerKey;

/// What the work of a task gets from the registry. Clones are handles to the same task.
#[derive(Clone)]
pub struct TaskContext {
    pub(crate) shard: Arc<Shard>,
    pub(crate) key: Key,
    pub(crate) output: Option<OutputBuffer>,
}

impl fmt::Debug for TaskContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskContext")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

impl TaskContext {
    /// Completes when the task is asked to stop, and also when it is over, so that helpers which the
    /// work left behind end too. The work should then end within the grace of whoever asked.
    ///
    /// Costs nothing before it is first polled. Dropping it has no effect.
    pub fn cancelled(&self) -> Cancelled {
        Cancelled {
            shard: Arc::clone(&self.shard),
            key: self.key,
            place: None,
        }
    }

    /// The request to stop, when there was one.
    #[must_use]
    pub fn stop_request(&self) -> Option<StopRequest> {
        let stop = {
            let table = self.shard.table();
            table.records.get(self.key)?.stop.clone()?
        };
        Some((*stop).clone())
    }

    /// Where a task that streams writes; `None` when its output is given by its outcome.
    #[must_use]
    pub fn output(&self) -> Option<OutputWriter> {
        self.output.as_ref().map(OutputBuffer::writer)
    }

    /// The id; `None` in the starter, which runs before the task is registered, and when the record
    /// is gone.
    #[must_use]
    pub fn id(&self) -> Option<TaskId> {
        self.shard.table().id(self.key)
    }

    /// Says how far the work is: `done`, of `total` where that is known, and what it is at, as one
    /// line of at most 200 bytes. Snapshots show it, and it keeps the promise of
    /// [`TaskSpec::promises_progress`](crate::TaskSpec::promises_progress).
    ///
    /// Cheap; only the last one is kept. Without effect when the task is over.
    pub fn progress(&self, done: u64, total: impl Into<Option<u64>>, line: impl AsRef<str>) {
        let progress = TaskProgress::new(done, total.into(), line.as_ref());
        let now = Instant::now();
        let mut after = After::default();
        {
            let mut table = self.shard.table();
            let Some(record) = table.records.get_mut(self.key) else {
                return;
            };
            if !record.life.is_live() {
                return;
            }
            record
                .report
                .get_or_insert_with(|| Box::new(Report::new(None, now)))
                .note(progress, now);
            table.note_change(self.key, &mut after);
        }
        self.shard.perform(after);
    }
}

/// Completes when a task is asked to stop, or is over. Made by [`TaskContext::cancelled`].
#[must_use = "futures do nothing unless polled"]
pub struct Cancelled {
    shard: Arc<Shard>,
    key: Key,
    place: Option<WakerKey>,
}

impl fmt::Debug for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancelled").finish_non_exhaustive()
    }
}

impl Future for Cancelled {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let replaced = {
            let mut table = this.shard.table();
            let Some(record) = table.records.get_mut(this.key) else {
                this.place = None;
                return Poll::Ready(());
            };
            let stopped = record.life.is_stopped();
            let Some(live) = record.live_mut().filter(|_| !stopped) else {
                // The stop, or the end, has emptied the set.
                this.place = None;
                return Poll::Ready(());
            };
            match this.place {
                Some(place) => live.cancels.refresh(place, cx),
                None => {
                    this.place = Some(live.cancels.insert(cx));
                    None
                }
            }
        };
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Cancelled {
    fn drop(&mut self) {
        let Some(place) = self.place else {
            return;
        };
        let waker = {
            let mut table = self.shard.table();
            let record = table.records.get_mut(self.key);
            record
                .and_then(|record| record.live_mut())
                .and_then(|live| live.cancels.remove(place))
        };
        drop(waker);
    }
}
