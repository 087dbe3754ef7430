//! One shard of a registry: the settings, the locked table of its owners, the duties outside it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::config::TaskConfig;
use crate::counters::Counters;
use crate::kinds::Kinds;
use crate::slab::Key;
use crate::status::TaskOutcome;
use crate::sync::{lock, point};
use crate::table::{After, Table};

/// How long an aborted task may take to be dropped before it is settled without.
pub(crate) const ABORT_BOUND: Duration = Duration::from_secs(1);

// Lock order: `table`, then the lock of a `Scope` or of `Counters`. `reaper` is taken alone. No other
// lock is taken under one of them, never that of another shard, and nothing foreign runs under one.
//
// What one owner's tasks touch all the time is in here, the count of its handles included, so that
// other shards' tasks do not have it in their cache lines.
#[repr(align(128))]
pub(crate) struct Shard {
    pub(crate) config: TaskConfig,
    table: Mutex<Table>,
    /// Holds that were taken out of records and are released by now.
    released: AtomicU64,
    /// Closings that are under way.
    closings: AtomicUsize,
    /// Grows when some task is aborted: its driver then looks whether it is the one.
    aborts: AtomicU32,
    reaper: Mutex<Reaper>,
}

/// Killed tasks whose grace runs, in the order in which it ends (the grace is the same for all).
#[derive(Default)]
struct Reaper {
    due: VecDeque<(Instant, Key)>,
    runs: bool,
}

impl Shard {
    pub(crate) fn new(config: TaskConfig, counters: Arc<Counters>) -> Self {
        let table = Table {
            retain: config.retain_finished,
            kinds: Kinds::new(counters),
            ..Table::default()
        };
        Self {
            config,
            table: Mutex::new(table),
            released: AtomicU64::new(0),
            closings: AtomicUsize::new(0),
            aborts: AtomicU32::new(0),
            reaper: Mutex::default(),
        }
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    fn reaper(&self) -> MutexGuard<'_, Reaper> {
        lock(&self.reaper)
    }

    /// Does what a critical section left to be done: wakes, releases holds, then announces.
    pub(crate) fn perform(&self, after: After) {
        let announce = after.wake(self);
        self.announce_all(announce);
    }

    // A hold is released in three steps: taken out of its record under the lock, dropped, counted
    // here. A closing that finds no ticket but a hold between the steps leaves its gate in `stalled`.
    // Both sides are sequentially consistent: either the closing sees the count, or the other side
    // sees the closing.

    /// Counts holds that were released.
    pub(crate) fn note_released(&self, holds: u64) {
        point();
        self.released.fetch_add(holds, Ordering::SeqCst);
        point();
        if self.closings.load(Ordering::SeqCst) > 0 {
            let stalled = std::mem::take(&mut self.table().stalled);
            for gate in stalled {
                gate.notify_waiters();
            }
        }
    }

    /// Whether no hold is on its way. `table` is locked, so none sets out meanwhile.
    pub(crate) fn all_released(&self, table: &Table) -> bool {
        self.released.load(Ordering::SeqCst) == table.taken
    }

    /// Says that a closing is under way, until the guard is dropped.
    pub(crate) fn closing(self: &Arc<Self>) -> Closing {
        self.closings.fetch_add(1, Ordering::SeqCst);
        Closing(Arc::clone(self))
    }

    /// Ends a task; the first end wins.
    pub(crate) fn settle(&self, key: Key, outcome: TaskOutcome) {
        let status = outcome.status();
        let now = Instant::now();
        let mut after = After::default();
        let (first, id) = {
            let mut table = self.table();
            let limit = self.config.output_window;
            let shown = tracing::enabled!(tracing::Level::DEBUG);
            let id = shown.then(|| table.id(key)).flatten();
            (table.settle(key, outcome, now, limit, &mut after), id)
        };
        if let Some(id) = id {
            tracing::debug!(task = %id, %status, first, "task settled");
        }
        self.perform(after);
    }

    /// How many aborts there were. Wraps.
    pub(crate) fn aborts(&self) -> u32 {
        point();
        // Acquire: with the waker that the abort wakes, the driver sees the abort.
        self.aborts.load(Ordering::Acquire)
    }

    /// Gives a task up: its driver drops the work at the next opportunity and settles it.
    pub(crate) fn abort(&self, key: Key) {
        let driver = {
            let mut table = self.table();
            let record = table.records.get_mut(key);
            let Some(live) = record.and_then(|record| record.live_mut()) else {
                return;
            };
            live.aborting = true;
            live.driver.take()
        };
        point();
        self.aborts.fetch_add(1, Ordering::Release);
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    pub(crate) fn is_aborting(&self, key: Key) -> bool {
        let table = self.table();
        let live = table.records.get(key).and_then(|record| record.live());
        live.is_some_and(|live| live.aborting)
    }

    /// Ends an aborted task whose future could not even be dropped: it blocks its thread.
    pub(crate) fn give_up(&self, key: Key) {
        let live = {
            let table = self.table();
            table
                .records
                .get(key)
                .is_some_and(|record| record.life.is_live())
        };
        if live {
            self.settle(
                key,
                TaskOutcome::failed("did not stop and could not be aborted; its work may go on"),
            );
        }
    }

    /// Aborts a task that does not end within the kill grace.
    pub(crate) fn reap_later(self: &Arc<Self>, key: Key, runtime: Option<Handle>) {
        let Some(grace) = self.config.kill_grace else {
            return;
        };
        let Some(runtime) = Handle::try_current().ok().or(runtime) else {
            return;
        };
        let mut reaper = self.reaper();
        reaper.due.push_back((Instant::now() + grace, key));
        if !std::mem::replace(&mut reaper.runs, true) {
            drop(reaper);
            let running = Running {
                shard: Arc::clone(self),
                ended: false,
            };
            runtime.spawn(async move { running.reap().await });
        }
    }

    /// When the next task is due; the one that is due now is taken out.
    fn next_due(&self) -> Due {
        loop {
            let mut reaper = self.reaper();
            let Some((at, key)) = reaper.due.front().copied() else {
                reaper.runs = false;
                return Due::Nothing;
            };
            let due = at <= Instant::now();
            drop(reaper);
            let live = {
                let table = self.table();
                table
                    .records
                    .get(key)
                    .is_some_and(|record| record.life.is_live())
            };
            if live && !due {
                return Due::At(at);
            }
            // Only this task takes from the front.
            self.reaper().due.pop_front();
            if live {
                return Due::Now(key);
            }
        }
    }
}

/// A closing that is under way.
pub(crate) struct Closing(Arc<Shard>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.closings.fetch_sub(1, Ordering::SeqCst);
    }
}

enum Due {
    Nothing,
    At(Instant),
    Now(Key),
}

/// The one task that reaps. When its runtime goes, the next kill starts another one.
struct Running {
    shard: Arc<Shard>,
    ended: bool,
}

impl Running {
    async fn reap(mut self) {
        loop {
            match self.shard.next_due() {
                Due::Nothing => {
                    self.ended = true;
                    return;
                }
                Due::At(at) => tokio::time::sleep_until(at).await,
                Due::Now(key) => {
                    self.shard.abort(key);
                    let shard = Arc::clone(&self.shard);
                    tokio::spawn(async move {
                        tokio::time::sleep(ABORT_BOUND).await;
                        shard.give_up(key);
                    });
                }
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.shard.reaper().runs = false;
        }
    }
}
