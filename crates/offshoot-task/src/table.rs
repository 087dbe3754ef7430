//! The table of a registry: everything under its one lock.
//!
//! Functions here change data and collect what must happen after the lock was released ([`After`]).
//! None calls code of a producer, an observer, a waker or a clock.

use std::sync::Arc;

use offshoot_core::{ScopeId, Timestamp};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::error::AccessError;
use crate::id::TaskId;
use crate::kinds::{CounterMap, Kinds};
use crate::observe::{Observers, TaskChange};
use crate::owner::{Gate, Owner, Ticket};
use crate::record::{Output, Record};
use crate::slab::{Key, Slab};
use crate::snapshot::TaskSnapshot;
use crate::spec::detail_line;
use crate::status::{StopRequest, StoppedBy, TaskOutcome, TaskStatus};
use crate::waker_set::WakerSet;

// Invariants
// 1. A registered record is in the index of its kind, in the list of its owner and counted in
//    `records`, until it is removed; its place is freed when its `Lifecycle` is over.
// 2. `live` of an owner is the number of its records whose status is not terminal; it falls in the
//    same critical section that settles.
// 3. The ticket of a record is dropped when every observer has returned from `Settled`.
// 4. Every mutation of a `Lifecycle` is followed by `follow_up`, in the same critical section.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) records: Slab<Record>,
    pub(crate) kinds: Kinds,
    pub(crate) owners: Slab<Owner>,
    /// `None` is the owner of the unowned tasks.
    pub(crate) owner_keys: CounterMap<Option<ScopeId>, Key>,
    pub(crate) observers: Option<Observers>,
    pub(crate) next_observer: u64,
    pub(crate) sequence: u64,
    pub(crate) retain: usize,
    pub(crate) closing: bool,
    /// Where the reaper runs when a kill comes from outside a runtime.
    pub(crate) runtime: Option<Handle>,
}

/// What must happen after the lock was released.
#[must_use = "call `Shared::perform` after the lock was released"]
#[derive(Default)]
pub(crate) struct After {
    pub(crate) waiters: WakerSet,
    pub(crate) cancels: WakerSet,
    pub(crate) abort: Option<AbortHandle>,
    pub(crate) announce: Vec<Key>,
    ticket: Option<Ticket>,
    more_tickets: Vec<Ticket>,
    notify: Option<Arc<Gate>>,
    /// An owner's entry: its scope may be the last handle, and dropping that runs foreign drops.
    pub(crate) gone: Option<Box<Owner>>,
}

impl After {
    fn release(&mut self, ticket: Option<Ticket>) {
        if self.ticket.is_none() {
            self.ticket = ticket;
        } else {
            self.more_tickets.extend(ticket);
        }
    }

    /// Wakes the barrier that closes `owner`, if it is closing.
    pub(crate) fn notify_closing(&mut self, owner: &Owner) {
        if owner.closing.is_some() {
            self.notify = Some(Arc::clone(&owner.gate));
        }
    }

    /// Everything but the announcements. Returns the tickets: they outlive the announcements.
    pub(crate) fn wake(self) -> (Vec<Key>, Released) {
        self.waiters.wake_all();
        self.cancels.wake_all();
        drop(self.abort);
        drop(self.gone);
        let released = Released {
            _ticket: self.ticket,
            _more: self.more_tickets,
            notify: self.notify,
        };
        (self.announce, released)
    }
}

/// Tickets to be given up, and the closing barrier to be woken, by the drop.
pub(crate) struct Released {
    _ticket: Option<Ticket>,
    _more: Vec<Ticket>,
    notify: Option<Arc<Gate>>,
}

impl Drop for Released {
    fn drop(&mut self) {
        if let Some(gate) = self.notify.take() {
            gate.changed.notify_waiters();
        }
    }
}

impl Table {
    pub(crate) fn owner_of(&self, owner: Option<ScopeId>) -> Option<Key> {
        self.owner_keys.get(&owner).copied()
    }

    /// The record that `id` names, for `caller`.
    pub(crate) fn find(&self, caller: ScopeId, id: &TaskId) -> Result<Key, AccessError> {
        if let Some(key) = self.kinds.find(id) {
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

    pub(crate) fn id(&self, record: &Record) -> TaskId {
        TaskId::from_parts(Arc::clone(self.kinds.name(record.kind)), record.n)
    }

    pub(crate) fn snapshot(&self, record: &Record) -> TaskSnapshot {
        record.snapshot(self.kinds.name(record.kind))
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
            after.cancels = record.cancels.take();
        }
        self.follow_up(key, after);
        effect
    }

    /// Ends a task. False when it had ended before: the outcome is ignored.
    pub(crate) fn settle(
        &mut self,
        key: Key,
        outcome: TaskOutcome,
        now: (Instant, Timestamp),
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
        record.detail = detail.map(Into::into);
        let ran = now.0.saturating_duration_since(record.started);
        record.ran = u64::try_from(ran.as_nanos()).unwrap_or(u64::MAX);
        record.finished_at = now.1.max(record.started_at);
        if let (Output::Final { text, dropped }, Some(full)) = (&mut record.output, output) {
            let kept = offshoot_core::text::tail(&full, output_limit);
            *dropped = (full.len() - kept.len()) as u64;
            *text = Some(kept.into());
        }
        after.waiters = record.waiters.take();
        after.cancels = record.cancels.take();
        after.abort = record.abort.take();
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
            while let Some(change) = record.life.tell() {
                record.life.told();
                if change == TaskChange::Settled {
                    after.release(record.ticket.take());
                }
            }
        }
        if record.life.is_over() {
            self.records.discard(key);
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
        let record = self.records.get(key)?;
        let mut snapshot = self.snapshot(record);
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
        if change == TaskChange::Settled {
            after.release(record.ticket.take());
        }
        if let Some(owner) = self.owners.get_mut(record.owner) {
            owner.telling -= 1;
            after.notify_closing(owner);
        }
        if record.life.is_over() {
            self.records.discard(key);
        }
    }
}
