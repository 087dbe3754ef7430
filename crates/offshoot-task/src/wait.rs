//! Waiting for the end of tasks, and the claim of those who are about to show it.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use offshoot_core::ScopeId;

use crate::error::AccessError;
use crate::id::TaskId;
use crate::lifecycle::Arrival;
use crate::shard::Shard;
use crate::slab::Key;
use crate::snapshot::TaskSnapshot;
use crate::table::{After, Table};
use crate::waker_set::WakerKey;

// Invariants
// 1. A `Waiter` that was polled is counted in its record's `Lifecycle` until it is dropped or turned
//    into a `Waited`: before the end as a waiter, after it as a claim. Exactly one of `leave` and
//    `commit_claim` follows each `arrive`.
// 2. The record is not freed while a claim is out, so a waiter gets the terminal snapshot even when
//    the owner has gone meanwhile.

/// The right, and the duty, to show the end of a task. Dropped uncommitted, it is given back.
pub(crate) struct Claim {
    shard: Arc<Shard>,
    key: Key,
    open: bool,
}

impl Claim {
    pub(crate) fn new(shard: Arc<Shard>, key: Key) -> Self {
        Self {
            shard,
            key,
            open: true,
        }
    }

    /// The end was shown.
    pub(crate) fn commit(mut self) {
        self.open = false;
        let mut after = After::default();
        {
            let mut table = self.shard.table();
            if let Some(record) = table.records.get_mut(self.key) {
                record.life.commit_claim();
            }
            table.follow_up(self.key, &mut after);
        }
        self.shard.perform(after);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.open {
            self.shard.leave(self.key, None);
        }
    }
}

/// What a wait found.
///
/// Over a finished task it carries a claim: while it lives, nobody else needs a notice of the end.
/// [`commit`](Self::commit) it once the end was really shown; the task then counts as reported.
/// Dropped without, it gives the claim back, and observers get
/// [`NoticeDue`](crate::TaskChange::NoticeDue) unless somebody else shows the end.
#[must_use = "dropping it gives the claim back: the end counts as not shown"]
pub struct Waited {
    snapshot: TaskSnapshot,
    claim: Option<Claim>,
}

impl fmt::Debug for Waited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waited")
            .field("snapshot", &self.snapshot)
            .field("settled", &self.settled())
            .finish_non_exhaustive()
    }
}

impl Waited {
    /// What the task looks like: live after a timeout, else terminal.
    #[must_use]
    pub fn snapshot(&self) -> &TaskSnapshot {
        &self.snapshot
    }

    /// Whether the task has ended; false after a timeout.
    #[must_use]
    pub fn settled(&self) -> bool {
        self.claim.is_some()
    }

    /// The end was shown: the task counts as reported. Without effect after a timeout.
    pub fn commit(self) {
        if let Some(claim) = self.claim {
            claim.commit();
        }
    }
}

/// One wait for one task.
struct Waiter<'a> {
    shard: &'a Arc<Shard>,
    at: Option<(Key, WakerKey)>,
    /// It arrived in this very poll: its waker is the right one, and any end since will wake it.
    fresh: bool,
    // In its place from the moment it is made: it is large, and moves cost.
    found: Option<Waited>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some((key, place)) = self.at.take() {
            self.shard.leave(key, Some(place));
        }
    }
}

impl<'a> Waiter<'a> {
    fn new(shard: &'a Arc<Shard>) -> Self {
        Self {
            shard,
            at: None,
            fresh: false,
            found: None,
        }
    }

    fn find(&mut self, table: &Table, key: Key, claimed: bool) {
        self.found = table.snapshot(key).map(|snapshot| Waited {
            snapshot,
            claim: claimed.then(|| Claim::new(Arc::clone(self.shard), key)),
        });
    }

    /// The first poll: finds the task and joins its waiters, or claims its end.
    fn arrive(
        &mut self,
        caller: ScopeId,
        id: &TaskId,
        timeout: Duration,
        cx: &Context<'_>,
    ) -> Result<(), AccessError> {
        let mut table = self.shard.table();
        let key = table.find(caller, id)?;
        if timeout.is_zero() {
            return Err(AccessError::InvalidTimeout);
        }
        let Some(record) = table.records.get_mut(key) else {
            return Err(AccessError::Unknown { id: id.clone() });
        };
        let arrival = record.life.arrive();
        if let (Arrival::Counted, Some(live)) = (arrival, record.live_mut()) {
            self.at = Some((key, live.waiters.insert(cx)));
            self.fresh = true;
        } else {
            self.find(&table, key, true);
        }
        Ok(())
    }

    /// A later poll; the first one may follow `arrive` within the same poll of the whole wait. True
    /// when the end was found.
    fn poll(&mut self, cx: &Context<'_>) -> bool {
        let Some((key, place)) = self.at else {
            return self.found.is_some();
        };
        if std::mem::take(&mut self.fresh) {
            return false;
        }
        let shard = self.shard;
        let mut table = shard.table();
        let Some(record) = table.records.get_mut(key) else {
            return false;
        };
        if let Some(live) = record.live_mut() {
            let replaced = live.waiters.refresh(place, cx);
            drop(table);
            drop(replaced);
            return false;
        }
        // Settlement turned the waiter into a claim.
        self.at = None;
        self.find(&table, key, true);
        true
    }

    /// The end of the wait, whatever the task is at this moment.
    fn finish(mut self, id: &TaskId) -> Result<Waited, AccessError> {
        if let Some((key, place)) = self.at {
            let shard = self.shard;
            let mut table = shard.table();
            if let Some(record) = table.records.get_mut(key) {
                let waker = record.live_mut().map(|live| live.waiters.remove(place));
                let live = waker.is_some();
                if live {
                    record.life.leave();
                }
                self.at = None;
                self.find(&table, key, !live);
                drop(table);
                drop(waker);
            }
        }
        self.found
            .take()
            .ok_or_else(|| AccessError::Unknown { id: id.clone() })
    }
}

/// How many of the tasks a wait is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Any,
    All,
}

/// Waits until `done`, at most for `timeout`.
async fn within(timeout: Duration, mut done: impl FnMut(&Context<'_>) -> bool) {
    let done = poll_fn(|cx| match done(cx) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    });
    if timeout == Duration::MAX {
        return done.await;
    }
    // The end of the task beats the end of the time.
    let _ = tokio::time::timeout(timeout, done).await;
}

impl Shard {
    /// A waiter, or a claim, goes without having shown anything.
    fn leave(&self, key: Key, place: Option<WakerKey>) {
        let mut after = After::default();
        let waker = {
            let mut table = self.table();
            let Some(record) = table.records.get_mut(key) else {
                return;
            };
            record.life.leave();
            match record.live_mut() {
                // Nothing that can be seen has changed.
                Some(live) => place.and_then(|place| live.waiters.remove(place)),
                None => {
                    table.follow_up(key, &mut after);
                    None
                }
            }
        };
        drop(waker);
        self.perform(after);
    }

    pub(crate) async fn wait(
        self: &Arc<Self>,
        caller: ScopeId,
        id: &TaskId,
        timeout: Duration,
    ) -> Result<Waited, AccessError> {
        let mut waiter = Waiter::new(self);
        poll_fn(|cx| Poll::Ready(waiter.arrive(caller, id, timeout, cx))).await?;
        if waiter.found.is_none() {
            within(timeout, |cx| waiter.poll(cx)).await;
        }
        waiter.finish(id)
    }

    pub(crate) async fn wait_many(
        self: &Arc<Self>,
        caller: ScopeId,
        ids: &[TaskId],
        need: Need,
        timeout: Duration,
    ) -> Result<Vec<Waited>, AccessError> {
        if ids.is_empty() && need == Need::Any {
            return Err(AccessError::NothingToWaitFor);
        }
        let mut waiters: Vec<_> = ids.iter().map(|_| Waiter::new(self)).collect();
        poll_fn(|cx| {
            let mut arrivals = waiters.iter_mut().zip(ids);
            Poll::Ready(
                arrivals.try_for_each(|(waiter, id)| waiter.arrive(caller, id, timeout, cx)),
            )
        })
        .await?;
        let enough = |ended: usize| match need {
            Need::Any => ended > 0,
            Need::All => ended == ids.len(),
        };
        if !enough(waiters.iter().filter(|one| one.found.is_some()).count()) {
            within(timeout, |cx| {
                // Each of them is polled, so that each has the waker of now.
                let ended = waiters.iter_mut().map(|one| one.poll(cx));
                enough(ended.map(usize::from).sum())
            })
            .await;
        }
        let ends = waiters.into_iter().zip(ids);
        ends.map(|(waiter, id)| waiter.finish(id)).collect()
    }
}
