//! The table of a shard: everything under its one lock.
//!
//! Functions here change data and collect what must happen after the lock was released ([`After`]).
//! None calls code of a producer, an observer, a waker or a clock.

use std::mem;
use std::sync::Arc;
use std::task::Waker;

use offshoot_core::{Hold, ScopeId};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::changes::{Watched, Watches};
use crate::error::AccessError;
use crate::id::TaskId;
use crate::index::CounterMap;
use crate::kinds::Kinds;
use crate::observe::{Observers, TaskChange};
use crate::owner::Owner;
use crate::record::{Ended, FinalOutput, OpenReadings, Output, Record, Stage};
use crate::shard::Shard;
use crate::slab::{Key, Slab};
use crate::snapshot::TaskSnapshot;
use crate::spec::detail_line;
use crate::status::{StopRequest, StoppedBy, TaskOutcome, TaskStatus};
use crate::waker_set::WakerSet;

// Invariants
// 1. A registered record is in the index of its kind, in the list of its owner and counted in
//    `records`, until it is removed; its place is freed when its `Lifecycle` is over.
// 2. `live` of an owner is the number of its records whose status is not terminal; it falls in the
//    same critical section that settles. A record's `stage` is `Live` for as long.
// 3. A record gives up its ticket and its hold when every observer has returned from `Settled`. The
//    hold is released outside the lock: between the two it is in flight (`taken`).
// 4. Every mutation of a `Lifecycle` that can be seen is followed by `follow_up`, in the same
//    critical section.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) records: Slab<Record>,
    pub(crate) kinds: Kinds,
    pub(crate) owners: Slab<Owner>,
    /// `None` is the owner of the unowned tasks.
    pub(crate) owner_keys: CounterMap<Option<ScopeId>, Key>,
    pub(crate) observers: Option<Observers>,
    pub(crate) watches: Watches,
    pub(crate) sequence: u64,
    pub(crate) retain: usize,
    pub(crate) closing: bool,
    /// Holds that were ever taken out of records. With `Shard::released` it says whether one is
    /// still on its way.
    pub(crate) taken: u64,
    /// Closings that wait for nothing but holds on their way.
    pub(crate) stalled: Vec<Arc<Notify>>,
    /// Where the reaper runs when a kill comes from outside a runtime.
    pub(crate) runtime: Option<Handle>,
}

/// What must happen after the lock was released.
#[must_use = "call `Shard::perform` after the lock was released"]
#[derive(Default)]
pub(crate) struct After {
    pub(crate) waiters: WakerSet,
    pub(crate) cancels: WakerSet,
    /// The waker of a driver, to be dropped.
    pub(crate) driver: Option<Waker>,
    pub(crate) announce: Vec<Key>,
    hold: Option<Hold>,
    more_holds: Vec<Hold>,
    notify: Option<Arc<Notify>>,
    watched: Option<Box<Watched>>,
    /// Outputs of records that are gone: the last handle of a buffer drops what its producer gave it.
    outputs: Vec<Output>,
    /// An owner's entry: its scope may be the last handle, and dropping that runs foreign drops.
    pub(crate) gone: Option<Box<Owner>>,
}

impl After {
    /// Wakes the barrier that closes `owner`, if it is closing.
    pub(crate) fn notify_closing(&mut self, owner: &Owner) {
        if owner.closing.is_some() {
            self.notify = Some(Arc::clone(&owner.gate));
        }
    }

    /// Everything but the announcements, which are returned.
    pub(crate) fn wake(self, shard: &Shard) -> Vec<Key> {
        self.waiters.wake_all();
        self.cancels.wake_all();
        drop(self.driver);
        drop(self.gone);
        drop(self.outputs);
        if let Some(watched) = self.watched {
            watched.tell();
        }
        let released = self.more_holds.len() as u64 + u64::from(self.hold.is_some());
        if released > 0 {
            drop(self.hold);
            drop(self.more_holds);
            shard.note_released(released);
        }
        if let Some(gate) = self.notify {
            gate.notify_waiters();
        }
        self.announce
    }
}

impl Table {
    pub(crate) fn owner_of(&self, owner: Option<ScopeId>) -> Option<Key> {
        self.owner_keys.get(&owner).copied()
    }

    /// The registered record that `id` names.
    fn locate(&self, id: &TaskId) -> Option<Key> {
        let named = |record: &Record| {
            record.n == id.number()
                && self.kinds.name(record.kind) == id.task_kind()
                && !record.life.is_removed()
        };
        match id.hint() {
            Some(key) if self.records.get(key).is_some_and(named) => Some(key),
            _ => self.kinds.find(id),
        }
    }

    /// The record that `id` names, for `caller`.
    pub(crate) fn find(&self, caller: ScopeId, id: &TaskId) -> Result<Key, AccessError> {
        if let Some(key) = self.locate(id) {
            let owner = self.records.get(key).map(|record| record.owner_id);
            // Unowned tasks exist only where the host has allowed them; they are everybody's.
            if owner.is_some_and(|owner| owner.is_none_or(|owner| owner == caller)) {
                return Ok(key);
            }
        }
        let expired = |owner: Option<ScopeId>| {
            let owner = self.owner_of(owner).and_then(|key| self.owners.get(key));
            let kind = self.kinds.kind_of(id);
            owner
                .zip(kind)
                .is_some_and(|(owner, kind)| owner.expired.contains(kind, id.number()))
        };
        let id = id.clone();
        if expired(Some(caller)) || expired(None) {
            Err(AccessError::Expired { id })
        } else {
            Err(AccessError::Unknown { id })
        }
    }

    /// The id of a record, unless it is only a reservation or gone.
    pub(crate) fn id(&self, key: Key) -> Option<TaskId> {
        let record = self.records.get(key)?;
        let id = TaskId::from_parts(self.kinds.name(record.kind), record.n, key);
        record.is_registered().then_some(id)
    }

    pub(crate) fn snapshot(&self, key: Key) -> Option<TaskSnapshot> {
        let record = self.records.get(key)?;
        Some(record.snapshot(self.kinds.name(record.kind), key))
    }

    /// The keys of an owner's records, in the order of registration.
    pub(crate) fn keys_of(&self, owner: Key) -> impl Iterator<Item = Key> + '_ {
        let mut next = self.owners.get(owner).and_then(|owner| owner.first);
        std::iter::from_fn(move || {
            let key = next?;
            next = self.records.get(key)?.links.next;
            Some(key)
        })
    }

    /// Puts a record, whose id was issued, at the end of its owner's list.
    pub(crate) fn link(&mut self, key: Key) {
        let Some(record) = self.records.get_mut(key) else {
            return;
        };
        let Some(owner) = self.owners.get_mut(record.owner) else {
            return;
        };
        record.sequence = self.sequence;
        self.sequence += 1;
        record.links.previous = owner.last.replace(key);
        owner.records += 1;
        match record.links.previous {
            None => owner.first = Some(key),
            Some(previous) => {
                if let Some(previous) = self.records.get_mut(previous) {
                    previous.links.next = Some(key);
                }
            }
        }
    }

    fn unlink(&mut self, key: Key) {
        let Some(record) = self.records.get_mut(key) else {
            return;
        };
        let links = std::mem::take(&mut record.links);
        let owner = record.owner;
        if let Some(previous) = links.previous.and_then(|key| self.records.get_mut(key)) {
            previous.links.next = links.next;
        }
        if let Some(next) = links.next.and_then(|key| self.records.get_mut(key)) {
            next.links.previous = links.previous;
        }
        if let Some(owner) = self.owners.get_mut(owner) {
            if owner.first == Some(key) {
                owner.first = links.next;
            }
            if owner.last == Some(key) {
                owner.last = links.previous;
            }
            owner.records -= 1;
        }
    }

    /// Stops a task. `reason` was bounded already.
    pub(crate) fn stop(
        &mut self,
        key: Key,
        by: StoppedBy,
        reason: Option<String>,
        after: &mut After,
    ) -> crate::lifecycle::StopEffect {
        use crate::lifecycle::StopEffect;
        let Some(record) = self.records.get_mut(key) else {
            return StopEffect::AlreadyFinished;
        };
        let effect = match by {
            StoppedBy::Owner | StoppedBy::Service => record.life.tear_down(by),
            StoppedBy::Model | StoppedBy::Human | StoppedBy::Deadline => record.life.stop(by),
        };
        if effect == StopEffect::Cancel {
            record.stop = Some(Arc::new(StopRequest { by, reason }));
            if let Some(live) = record.live_mut() {
                after.cancels = live.cancels.take();
            }
        }
        self.follow_up(key, after);
        effect
    }

    /// Ends a task. False when it had ended before: the outcome is ignored.
    pub(crate) fn settle(
        &mut self,
        key: Key,
        outcome: TaskOutcome,
        now: Instant,
        output_limit: usize,
        after: &mut After,
    ) -> bool {
        let Some(record) = self.records.get_mut(key) else {
            return false;
        };
        let TaskOutcome {
            mut status,
            detail,
            output,
            frame,
        } = outcome;
        let mut detail = detail.as_deref().and_then(detail_line);
        let overdue = matches!(&record.stop, Some(stop) if stop.by == StoppedBy::Deadline);
        if overdue && status == TaskStatus::Killed {
            status = TaskStatus::Failed;
            detail = Some(match detail {
                None => "deadline exceeded".to_owned(),
                Some(detail) => format!("deadline exceeded ({detail})"),
            });
        }
        if !record.life.settle(status) {
            return false;
        }
        let ended = Ended {
            ran: 0,
            detail: detail.map(Into::into),
        };
        if let Stage::Live(live) = mem::replace(&mut record.stage, Stage::Ended(ended)) {
            let ran = now.saturating_duration_since(live.started).as_nanos();
            if let Stage::Ended(ended) = &mut record.stage {
                ended.ran = u64::try_from(ran).unwrap_or(u64::MAX);
            }
            after.waiters = live.waiters;
            after.cancels = live.cancels;
            after.driver = live.driver;
        }
        let output = output.or_else(|| frame.as_ref().map(|_| String::new()));
        if let (Output::None, Some(full)) = (&record.output, output) {
            let output = Arc::new(FinalOutput::bounded(&full, output_limit, frame));
            let read = false;
            let open = OpenReadings::default();
            record.output = Output::Final { output, read, open };
        }
        if let Some(owner) = self.owners.get_mut(record.owner) {
            owner.live -= 1;
        }
        self.follow_up(key, after);
        true
    }

    /// Takes a finished record out of the registry.
    pub(crate) fn remove(&mut self, key: Key, after: &mut After) {
        let Some(record) = self.records.get_mut(key) else {
            return;
        };
        if record.life.is_removed() {
            return;
        }
        record.life.remove();
        let (kind, n) = (record.kind, record.n);
        self.kinds.forget(kind, n);
        self.unlink(key);
        self.follow_up(key, after);
    }

    /// What follows from a change of a record's `Lifecycle`: retention, announcements, freeing.
    pub(crate) fn follow_up(&mut self, key: Key, after: &mut After) {
        self.note_change(key, after);
        self.retire(key, after);
        let listening = self.observers.is_some();
        let Some(record) = self.records.get_mut(key) else {
            return;
        };
        if cfg!(debug_assertions) {
            record.life.check();
        }
        if listening {
            after.announce.push(key);
        } else {
            let mut settled = false;
            while let Some(change) = record.life.tell() {
                record.life.told();
                settled |= change == TaskChange::Settled;
            }
            if settled && mem::take(&mut record.ticket) {
                let (owner, hold) = (record.owner, record.hold.take());
                self.release(owner, hold, after);
            }
        }
        self.tidy(key, after);
    }

    /// Frees the place of a record that is over.
    fn tidy(&mut self, key: Key, after: &mut After) {
        let Some(record) = self.records.get_mut(key) else {
            return;
        };
        if !record.life.is_over() {
            return;
        }
        if let Output::Stream(_) = record.output {
            let output = mem::replace(&mut record.output, Output::None);
            after.outputs.push(output);
        }
        self.records.discard(key);
    }

    /// Takes back the ticket of a record of `owner`; its hold is released after the lock was.
    pub(crate) fn release(&mut self, owner: Key, hold: Option<Hold>, after: &mut After) {
        if let Some(owner) = self.owners.get_mut(owner) {
            owner.tickets -= 1;
            after.notify_closing(owner);
        }
        let Some(hold) = hold else {
            return;
        };
        self.taken += 1;
        if after.hold.is_none() {
            after.hold = Some(hold);
        } else {
            after.more_holds.push(hold);
        }
    }

    /// Tells those who watch the owner of a record that something changed.
    pub(crate) fn note_change(&mut self, key: Key, after: &mut After) {
        if self.watches.is_empty() {
            return;
        }
        if let Some(record) = self.records.get(key) {
            let owner = record.owner_id;
            self.watches.note(owner, &mut after.watched);
        }
    }

    /// Notes a record that was reported for good, and gives up those beyond the limit.
    fn retire(&mut self, key: Key, after: &mut After) {
        let Some(record) = self.records.get_mut(key) else {
            return;
        };
        if record.retired || !record.life.is_spent() {
            return;
        }
        record.retired = true;
        let owner_key = record.owner;
        let Some(owner) = self.owners.get_mut(owner_key) else {
            return;
        };
        owner.spent.push_back(key);
        while let Some(owner) = self.owners.get_mut(owner_key)
            && owner.spent.len() > self.retain
            && let Some(oldest) = owner.spent.pop_front()
        {
            if let Some(record) = self.records.get(oldest) {
                owner.expired.note(record.kind, record.n);
                self.remove(oldest, after);
            }
        }
    }

    /// Begins to tell observers the next change of a record; [`told`](Self::told) must follow.
    pub(crate) fn tell(
        &mut self,
        key: Key,
        after: &mut After,
    ) -> Option<(TaskChange, TaskSnapshot, Observers)> {
        let Some(observers) = self.observers.clone() else {
            // The last observer went meanwhile: there is nobody to tell.
            self.follow_up(key, after);
            return None;
        };
        let record = self.records.get_mut(key)?;
        let change = record.life.tell()?;
        if let Some(owner) = self.owners.get_mut(record.owner) {
            owner.telling += 1;
        }
        let mut snapshot = self.snapshot(key)?;
        if change == TaskChange::Stopping && snapshot.status.is_terminal() {
            // It ended before the stop could be announced; its end is announced next.
            snapshot.status = TaskStatus::Stopping;
            snapshot.finished_at = None;
            snapshot.detail = None;
        }
        Some((change, snapshot, observers))
    }

    /// Every observer returned.
    pub(crate) fn told(&mut self, key: Key, change: TaskChange, after: &mut After) {
        let Some(record) = self.records.get_mut(key) else {
            return;
        };
        record.life.told();
        let owner_key = record.owner;
        if change == TaskChange::Settled && mem::take(&mut record.ticket) {
            let hold = record.hold.take();
            self.release(owner_key, hold, after);
        }
        if let Some(owner) = self.owners.get_mut(owner_key) {
            owner.telling -= 1;
            after.notify_closing(owner);
        }
        self.tidy(key, after);
    }
}
