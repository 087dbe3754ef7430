//! What all handles of one registry share: the settings, the locked table, the duties outside it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::config::TaskConfig;
use crate::slab::Key;
use crate::status::TaskOutcome;
use crate::table::{After, Table};

/// How long an aborted task may take to be dropped before it is settled without.
pub(crate) const ABORT_BOUND: Duration = Duration::from_secs(1);

// Lock order: `table`, then the lock of a `Scope`. `reaper` is taken alone. No other lock is taken
// under one of them, and nothing foreign runs under one of them.
pub(crate) struct Shared {
    pub(crate) config: TaskConfig,
    table: Mutex<Table>,
    reaper: Mutex<Reaper>,
}

/// Killed tasks whose grace runs, in the order in which it ends (the grace is the same for all).
#[derive(Default)]
struct Reaper {
    due: VecDeque<(Instant, Key)>,
    runs: bool,
}

impl Shared {
    pub(crate) fn new(config: TaskConfig) -> Self {
        let table = Table {
            retain: config.retain_finished,
            ..Table::default()
        };
        Self {
            config,
            table: Mutex::new(table),
            reaper: Mutex::default(),
        }
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        // A panic under the lock is a broken invariant of ours; going on beats losing every task.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reaper(&self) -> MutexGuard<'_, Reaper> {
        self.reaper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what a critical section left to be done: wakes, then announces, then releases holds.
    pub(crate) fn perform(&self, after: After) {
        let (announce, released) = after.wake();
        self.announce_all(announce);
        drop(released);
    }

    /// Ends a task; the first end wins.
    pub(crate) fn settle(&self, key: Key, outcome: TaskOutcome) {
        let status = outcome.status();
        let now = (Instant::now(), self.config.clock.now());
        let mut after = After::default();
        let (first, id) = {
            let mut table = self.table();
            let limit = self.config.output_window;
            let first = table.settle(key, outcome, now, limit, &mut after);
            let shown = tracing::enabled!(tracing::Level::DEBUG);
            let id = shown.then(|| table.records.get(key).map(|record| table.id(record)));
            (first, id.flatten())
        };
        if let Some(id) = id {
            tracing::debug!(task = %id, %status, first, "task settled");
        }
        self.perform(after);
    }

    /// Gives a task up: its future is dropped at the next opportunity, which settles it.
    pub(crate) fn abort(&self, key: Key) {
        let handle = {
            let mut table = self.table();
            let Some(record) = table.records.get_mut(key) else {
                return;
            };
            if !record.life.is_live() {
                return;
            }
            record.aborting = true;
            record.abort.clone()
        };
        if let Some(handle) = handle {
            handle.abort();
        }
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
                shared: Arc::clone(self),
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

enum Due {
    Nothing,
    At(Instant),
    Now(Key),
}

/// The one task that reaps. When its runtime goes, the next kill starts another one.
struct Running {
    shared: Arc<Shared>,
    ended: bool,
}

impl Running {
    async fn reap(mut self) {
        loop {
            match self.shared.next_due() {
                Due::Nothing => {
                    self.ended = true;
                    return;
                }
                Due::At(at) => tokio::time::sleep_until(at).await,
                Due::Now(key) => {
                    self.shared.abort(key);
                    let shared = Arc::clone(&self.shared);
                    tokio::spawn(async move {
                        tokio::time::sleep(ABORT_BOUND).await;
                        shared.give_up(key);
                    });
                }
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.shared.reaper().runs = false;
        }
    }
}
