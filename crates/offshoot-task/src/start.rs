//! Starting a task: preflight, reservation, starter, registration, announcement, spawn.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use offshoot_core::Scope;
use offshoot_core::text::panic_message;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::context::TaskContext;
use crate::drive::{Driver, Job, drop_contained};
use crate::error::{StartError, StarterError};
use crate::id::TaskId;
use crate::kinds::KindKey;
use crate::lifecycle::Lifecycle;
use crate::output::OutputBuffer;
use crate::owner::{Owner, Ticket};
use crate::record::{Links, Output, Record};
use crate::shared::Shared;
use crate::slab::Key;
use crate::spec::{CheckedSpec, OutputSource, TaskSpec, detail_line, label_line};
use crate::status::{StoppedBy, TaskOutcome};
use crate::table::{After, Table};
use crate::waker_set::WakerSet;

// Invariants
// 1. Between admission and registration the start is counted in `reserved`: two starts that run at
//    the same time, or a starter that starts a task, cannot both take the last place.
// 2. The ticket, with the owner's hold, is taken before the starter runs, so the owner does not pass
//    for quiet while it does; from then to the delivery of `Settled` the record keeps it.
// 3. A start whose registration comes after closing reached the registry is stopped in the same
//    critical section; one that comes after closing ended registers nothing.

/// A place among an owner's live tasks, given back by the drop.
struct Reservation<'a> {
    shared: &'a Arc<Shared>,
    key: Key,
    kind: KindKey,
    registered: bool,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.registered {
            return;
        }
        let mut after = After::default();
        let record = {
            let mut table = self.shared.table();
            let record = table.records.remove(self.key);
            if let Some(record) = &record {
                table.unreserve(record.owner, &mut after);
            }
            record
        };
        if let Some(record) = record {
            // A context that the starter gave away completes its `cancelled`.
            record.cancels.wake_all();
            drop(record.ticket);
        }
        self.shared.perform(after);
    }
}

impl Table {
    fn unreserve(&mut self, owner_key: Key, after: &mut After) {
        let Some(owner) = self.owners.get_mut(owner_key) else {
            return;
        };
        owner.reserved -= 1;
        after.notify_closing(owner);
        if owner.closed && owner.reserved == 0 {
            after.gone = self.owners.remove(owner_key).map(Box::new);
        }
    }

    /// The entry of an owner, made at its first task.
    fn enrol(&mut self, shared: &Arc<Shared>, scope: Option<&Scope>) -> Result<Key, StartError> {
        let id = scope.map(Scope::id);
        if let Some(key) = self.owner_of(id) {
            return Ok(key);
        }
        let key = self.owners.insert(Owner::default());
        if let Some(scope) = scope {
            let weak = Arc::downgrade(shared);
            let cleanup = scope.on_close("stop background tasks", async move || {
                if let Some(shared) = weak.upgrade() {
                    shared.close_owner(key, StoppedBy::Owner).await;
                }
                Ok(())
            });
            match (cleanup, self.owners.get_mut(key)) {
                (Ok(cleanup), Some(owner)) => owner.scope = Some((scope.clone(), cleanup)),
                _ => {
                    self.owners.remove(key);
                    return Err(StartError::OwnerClosing);
                }
            }
        }
        self.owner_keys.insert(id, key);
        Ok(key)
    }

    fn admit(&mut self, shared: &Arc<Shared>, scope: Option<&Scope>) -> Result<Key, StartError> {
        if self.closing {
            return Err(StartError::RegistryClosing);
        }
        let key = self.enrol(shared, scope)?;
        let limit = shared.config.max_live_per_owner;
        match self.owners.get_mut(key) {
            Some(owner) if owner.closing.is_none() => {
                if owner.live + owner.reserved >= limit {
                    return Err(StartError::LimitReached { limit });
                }
                Ok(key)
            }
            _ => Err(StartError::OwnerClosing),
        }
    }
}

impl Shared {
    pub(crate) fn start<F>(
        self: &Arc<Self>,
        scope: Option<&Scope>,
        spec: TaskSpec,
        starter: impl FnOnce(TaskContext) -> Result<F, StarterError>,
    ) -> Result<TaskId, StartError>
    where
        F: Future<Output = TaskOutcome> + Send + 'static,
    {
        let checked = spec.check()?;
        let runtime = Handle::try_current().map_err(|_| StartError::NoRuntime)?;
        let output = match spec.output {
            OutputSource::Final => None,
            OutputSource::Fresh => Some(OutputBuffer::new(self.config.output_window)),
            OutputSource::Buffer(buffer) => Some(buffer),
        };
        let reservation = self.reserve(scope, checked, spec.generation, output.clone())?;
        let key = reservation.key;
        let context = TaskContext {
            shared: Arc::clone(self),
            key,
            output,
        };
        let work = match catch_unwind(AssertUnwindSafe(|| starter(context))) {
            Ok(Ok(work)) => work,
            Ok(Err(error)) => return Err(StartError::Starter(error)),
            Err(panic) => {
                let message = panic_message(&*panic).to_owned();
                return Err(StartError::StarterPanicked { message });
            }
        };
        let mut after = After::default();
        let id = match reservation.register(&runtime, &mut after) {
            Ok(id) => id,
            Err(error) => {
                drop_contained(work);
                return Err(error);
            }
        };
        tracing::debug!(task = %id, "task started");
        // `Started` is delivered here: before the work is polled and before the caller has the id.
        self.perform(after);
        self.spawn(&runtime, key, spec.deadline, work);
        Ok(id)
    }

    fn reserve<'a>(
        self: &'a Arc<Self>,
        scope: Option<&Scope>,
        spec: CheckedSpec,
        generation: u64,
        output: Option<OutputBuffer>,
    ) -> Result<Reservation<'a>, StartError> {
        let started_at = self.config.clock.now();
        let started = Instant::now();
        let mut table = self.table();
        let owner_key = table.admit(self, scope)?;
        let kind = table.kinds.intern(spec.kind.as_str());
        if table.kinds.is_exhausted(kind) {
            return Err(StartError::IdsExhausted);
        }
        let Some(owner) = table.owners.get_mut(owner_key) else {
            return Err(StartError::OwnerClosing);
        };
        // Under the lock, and last: the closing either finds the ticket, or has set `closing` before.
        let hold = scope.map(Scope::hold).transpose();
        let hold = hold.map_err(|_| StartError::OwnerClosing)?;
        let ticket = Ticket::new(hold, &owner.gate);
        owner.reserved += 1;
        let key = table.records.insert(Record {
            life: Lifecycle::running(),
            kind,
            n: 0,
            owner: owner_key,
            owner_id: scope.map(Scope::id),
            sequence: 0,
            links: Links::default(),
            label: spec.label,
            generation,
            started_at,
            started,
            finished_at: started_at,
            ran: 0,
            detail: None,
            output: output.map_or(Output::NONE, Output::Stream),
            read: 0,
            stop: None,
            waiters: WakerSet::default(),
            cancels: WakerSet::default(),
            abort: None,
            aborting: false,
            retired: false,
            ticket: Some(ticket),
        });
        Ok(Reservation {
            shared: self,
            key,
            kind,
            registered: false,
        })
    }

    fn spawn<F>(self: &Arc<Self>, runtime: &Handle, key: Key, deadline: Option<Duration>, work: F)
    where
        F: Future<Output = TaskOutcome> + Send + 'static,
    {
        let job = Job::new(Arc::clone(self), key);
        let handle = runtime
            .spawn(Driver::new(work, deadline, job))
            .abort_handle();
        let unused = {
            let mut table = self.table();
            match table.records.get_mut(key) {
                Some(record) if record.life.is_live() => {
                    if record.aborting {
                        handle.abort();
                    }
                    record.abort.replace(handle)
                }
                // It has ended already.
                _ => Some(handle),
            }
        };
        drop(unused);
    }

    /// Registers a task that an earlier process lost. See `TaskRegistry::restore_lost`.
    pub(crate) fn restore(
        self: &Arc<Self>,
        scope: &Scope,
        id: TaskId,
        label: &str,
        generation: u64,
        detail: &str,
    ) -> Result<(), StartError> {
        let label = label_line(label).ok_or(StartError::EmptyLabel)?;
        let now = self.config.clock.now();
        let started = Instant::now();
        let mut after = After::default();
        let outcome = {
            let mut table = self.table();
            if table.closing {
                return Err(StartError::RegistryClosing);
            }
            let owner = table.enrol(self, Some(scope))?;
            if table
                .owners
                .get(owner)
                .is_none_or(|owner| owner.closing.is_some())
            {
                return Err(StartError::OwnerClosing);
            }
            let kind = table.kinds.intern(id.kind());
            let key = table.records.insert(Record {
                life: Lifecycle::lost(),
                kind,
                n: id.number(),
                owner,
                owner_id: Some(scope.id()),
                sequence: 0,
                links: Links::default(),
                label,
                generation,
                started_at: now,
                started,
                finished_at: now,
                ran: 0,
                detail: detail_line(detail).map(Into::into),
                output: Output::NONE,
                read: 0,
                stop: None,
                waiters: WakerSet::default(),
                cancels: WakerSet::default(),
                abort: None,
                aborting: false,
                retired: false,
                ticket: None,
            });
            if table.kinds.adopt(kind, id.number(), key) {
                table.link(key);
                table.follow_up(key, &mut after);
                Ok(())
            } else {
                table.records.remove(key);
                Err(StartError::IdInUse { id })
            }
        };
        self.perform(after);
        outcome
    }
}

impl Reservation<'_> {
    /// Makes the reservation a task. From here on its end is certain.
    fn register(mut self, runtime: &Handle, after: &mut After) -> Result<TaskId, StartError> {
        let mut table = self.shared.table();
        let table = &mut *table;
        let Some(record) = table.records.get_mut(self.key) else {
            return Err(StartError::RegistryClosing);
        };
        let Some(owner) = table.owners.get_mut(record.owner) else {
            return Err(StartError::OwnerClosing);
        };
        if owner.closed {
            return Err(match owner.closing {
                Some(StoppedBy::Service) => StartError::RegistryClosing,
                _ => StartError::OwnerClosing,
            });
        }
        let closing = owner.closing;
        owner.reserved -= 1;
        owner.live += 1;
        record.n = table.kinds.issue(self.kind, self.key);
        let id = TaskId::from_parts(Arc::clone(table.kinds.name(self.kind)), record.n);
        if table
            .runtime
            .as_ref()
            .is_none_or(|known| known.id() != runtime.id())
        {
            table.runtime = Some(runtime.clone());
        }
        table.link(self.key);
        self.registered = true;
        match closing {
            Some(by) => {
                table.stop(self.key, by, None, after);
            }
            None => table.follow_up(self.key, after),
        }
        Ok(id)
    }
}
