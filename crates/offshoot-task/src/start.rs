//! Starting a task: preflight, reservation, starter, registration, announcement, spawn.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use offshoot_core::text::panic_message;
use offshoot_core::{Scope, Timestamp};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::context::TaskContext;
use crate::drive::{Driver, Job, Timed, drop_contained};
use crate::error::{StartError, StarterError};
use crate::id::TaskId;
use crate::lifecycle::Lifecycle;
use crate::owner::Owner;
use crate::progress::Report;
use crate::record::{Links, Live, Output, Record, Stage};
use crate::shard::Shard;
use crate::slab::Key;
use crate::spec::{CheckedSpec, TaskSpec};
use crate::status::{StoppedBy, TaskOutcome};
use crate::table::{After, Table};

// Invariants
// 1. Between admission and registration the start is counted in `reserved`: two starts that run at
//    the same time, or a starter that starts a task, cannot both take the last place.
// 2. The ticket, with the owner's hold, is taken before the starter runs, so the owner does not pass
//    for quiet while it does; from then to the delivery of `Settled` the record keeps it.
// 3. A start whose registration comes after closing reached the registry is stopped in the same
//    critical section; one that comes after closing ended registers nothing.

/// A place among an owner's live tasks, given back by the drop.
struct Reservation<'a> {
    shard: &'a Arc<Shard>,
    key: Key,
    registered: bool,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.registered {
            return;
        }
        let mut after = After::default();
        let record = {
            let mut table = self.shard.table();
            let mut record = table.records.remove(self.key);
            if let Some(record) = &mut record {
                let hold = record.hold.take();
                table.release(record.owner, hold, &mut after);
                table.unreserve(record.owner, &mut after);
            }
            record
        };
        if let Some(record) = record {
            // A context that the starter gave away completes its `cancelled`.
            if let Stage::Live(live) = record.stage {
                live.cancels.wake_all();
            }
        }
        self.shard.perform(after);
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
    pub(crate) fn enrol(
        &mut self,
        shard: &Arc<Shard>,
        scope: Option<&Scope>,
    ) -> Result<Key, StartError> {
        let id = scope.map(Scope::id);
        if let Some(key) = self.owner_of(id) {
            return Ok(key);
        }
        let key = self.owners.insert(Owner::default());
        if let Some(scope) = scope {
            let weak = Arc::downgrade(shard);
            // At once, also when a scope around it closes: all levels of a tree have one grace.
            let stopping = weak.clone();
            let told = scope.on_closing(move || {
                if let Some(shard) = stopping.upgrade() {
                    shard.begin_closing(key, StoppedBy::Owner);
                }
            });
            let cleanup = told.and_then(|()| {
                scope.on_close("stop background tasks", async move || {
                    if let Some(shard) = weak.upgrade() {
                        shard.close_owner(key, StoppedBy::Owner).await;
                    }
                    Ok(())
                })
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

    fn admit(&mut self, shard: &Arc<Shard>, scope: Option<&Scope>) -> Result<Key, StartError> {
        if self.closing {
            return Err(StartError::RegistryClosing);
        }
        let key = self.enrol(shard, scope)?;
        let limit = shard.config.max_live_per_owner;
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

/// A registered task whose work is not polled yet.
pub(crate) struct Prepared<F> {
    pub(crate) id: TaskId,
    pub(crate) work: F,
    pub(crate) job: Job,
    pub(crate) aborts: u32,
    deadline: Option<Duration>,
}

impl Table {
    /// Admits a task and puts its record, unregistered, in its place.
    fn reserve(
        &mut self,
        shard: &Arc<Shard>,
        scope: Option<&Scope>,
        spec: CheckedSpec,
        started_at: Timestamp,
    ) -> Result<Key, StartError> {
        let started = Instant::now();
        let owner_key = self.admit(shard, scope)?;
        let kind = self.kinds.intern(spec.kind);
        if self.kinds.is_exhausted(kind) {
            return Err(StartError::IdsExhausted);
        }
        let Some(owner) = self.owners.get_mut(owner_key) else {
            return Err(StartError::OwnerClosing);
        };
        // Under the lock, and last: the closing either finds the ticket, or has set `closing` before.
        let hold = scope.map(Scope::hold).transpose();
        let hold = hold.map_err(|_| StartError::OwnerClosing)?;
        owner.tickets += 1;
        owner.reserved += 1;
        let promised = spec.promised;
        Ok(self.records.insert(Record {
            life: Lifecycle::running(),
            kind,
            n: 0,
            owner: owner_key,
            owner_id: scope.map(Scope::id),
            sequence: 0,
            links: Links::default(),
            label: spec.label,
            generation: spec.generation,
            started_at,
            stage: Stage::Live(Live::new(started)),
            output: spec.output.map_or(Output::None, Output::stream),
            stop: None,
            report: promised.map(|every| Box::new(Report::new(Some(every), started))),
            hold,
            ticket: true,
            retired: false,
        }))
    }

    /// Makes a reservation a task. From here on its end is certain.
    fn register(
        &mut self,
        key: Key,
        runtime: &Handle,
        after: &mut After,
    ) -> Result<TaskId, StartError> {
        let Some(record) = self.records.get_mut(key) else {
            return Err(StartError::RegistryClosing);
        };
        let Some(owner) = self.owners.get_mut(record.owner) else {
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
        record.n = self.kinds.issue(record.kind, key);
        let id = TaskId::from_parts(self.kinds.name(record.kind), record.n, key);
        let known = self.runtime.as_ref();
        if known.is_none_or(|known| known.id() != runtime.id()) {
            self.runtime = Some(runtime.clone());
        }
        self.link(key);
        match closing {
            Some(by) => {
                self.stop(key, by, None, after);
            }
            None => self.follow_up(key, after),
        }
        Ok(id)
    }
}

impl Reservation<'_> {
    fn register(mut self, runtime: &Handle, after: &mut After) -> Result<TaskId, StartError> {
        let mut table = self.shard.table();
        let registered = table.register(self.key, runtime, after);
        drop(table);
        self.registered = registered.is_ok();
        registered
    }
}

impl Shard {
    pub(crate) fn start<F>(
        self: &Arc<Self>,
        scope: Option<&Scope>,
        spec: TaskSpec,
        starter: impl FnOnce(TaskContext) -> Result<F, StarterError>,
    ) -> Result<TaskId, StartError>
    where
        F: Future<Output = TaskOutcome> + Send + 'static,
    {
        let checked = spec.check(self.config.output_window)?;
        let runtime = Handle::try_current().map_err(|_| StartError::NoRuntime)?;
        let prepared = self.prepare(scope, checked, &runtime, starter)?;
        Ok(self.launch(&runtime, prepared))
    }

    pub(crate) fn prepare<F>(
        self: &Arc<Self>,
        scope: Option<&Scope>,
        spec: CheckedSpec,
        runtime: &Handle,
        starter: impl FnOnce(TaskContext) -> Result<F, StarterError>,
    ) -> Result<Prepared<F>, StartError> {
        let (deadline, aborts) = (spec.deadline, self.aborts());
        let output = spec.output.clone();
        let started_at = self.config.clock.now();
        let key = self.table().reserve(self, scope, spec, started_at)?;
        let reservation = Reservation {
            shard: self,
            key,
            registered: false,
        };
        let context = TaskContext {
            shard: Arc::clone(self),
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
        let id = match reservation.register(runtime, &mut after) {
            Ok(id) => id,
            Err(error) => {
                drop_contained(work);
                return Err(error);
            }
        };
        let job = Job::new(Arc::clone(self), key);
        tracing::debug!(task = %id, "task started");
        // `Started` is delivered here: before the work is polled and before the caller has the id.
        self.perform(after);
        Ok(Prepared {
            id,
            work,
            job,
            aborts,
            deadline,
        })
    }

    /// As `start`, without a starter: nothing of the caller's runs before the first poll, so that
    /// admission and registration are one critical section.
    pub(crate) fn spawn<F>(
        self: &Arc<Self>,
        scope: Option<&Scope>,
        spec: TaskSpec,
        work: impl FnOnce(TaskContext) -> F + Send + 'static,
    ) -> Result<TaskId, StartError>
    where
        F: Future<Output = TaskOutcome> + Send + 'static,
    {
        let spec = spec.check(self.config.output_window)?;
        let runtime = Handle::try_current().map_err(|_| StartError::NoRuntime)?;
        let (deadline, aborts) = (spec.deadline, self.aborts());
        let output = spec.output.clone();
        let started_at = self.config.clock.now();
        let mut after = After::default();
        let (id, key) = {
            let mut table = self.table();
            let key = table.reserve(self, scope, spec, started_at)?;
            // The owner was admitted in this critical section: this cannot fail.
            (table.register(key, &runtime, &mut after)?, key)
        };
        let job = Job::new(Arc::clone(self), key);
        let context = TaskContext {
            shard: Arc::clone(self),
            key,
            output,
        };
        tracing::debug!(task = %id, "task started");
        self.perform(after);
        let prepared = Prepared {
            id,
            work: async move { work(context).await },
            job,
            aborts,
            deadline,
        };
        Ok(self.launch(&runtime, prepared))
    }

    fn launch<F>(&self, runtime: &Handle, prepared: Prepared<F>) -> TaskId
    where
        F: Future<Output = TaskOutcome> + Send + 'static,
    {
        let Prepared {
            id,
            work,
            job,
            aborts,
            deadline,
        } = prepared;
        match deadline {
            None => drop(runtime.spawn(Driver::new(work, job, aborts))),
            Some(deadline) => {
                if let Some(work) = Timed::new(work, deadline, &job) {
                    drop(runtime.spawn(Driver::new(work, job, aborts)));
                }
            }
        }
        id
    }
}
