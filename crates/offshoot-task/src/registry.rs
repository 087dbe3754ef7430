//! The public handle of a registry: what it promises.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use offshoot_core::{Scope, ScopeId};

use crate::changes::Changes;
use crate::config::TaskConfig;
use crate::context::TaskContext;
use crate::controller::Controller;
use crate::error::{AccessError, StartError, StarterError};
use crate::id::TaskId;
use crate::kind::TaskKind;
use crate::lifecycle::StopEffect;
use crate::observe::{ObserverHandle, TaskObserver};
use crate::output::OutputSlice;
use crate::producer::Producer;
use crate::read::Reading;
use crate::shard::Shard;
use crate::shards::Shards;
use crate::snapshot::TaskSnapshot;
use crate::spec::{TaskSpec, detail_line};
use crate::status::{KillOutcome, StoppedBy, TaskOutcome};
use crate::table::After;
use crate::wait::{Need, Waited};

/// A registry of background tasks. Clones are handles to the same registry.
///
/// A producer hands over a [`TaskSpec`] and a starter; the registry runs the future that the starter
/// returns, contains its panic, asks it to stop, aborts it when it does not, and records its one end.
/// Tasks belong to a [`Scope`]: only its id gives access to them, they hold it until their end was
/// delivered, and its closing ends them. Every other caller is answered as if they did not exist.
///
/// Dropping the handles stops nothing: close the owners, or [`shutdown`](Self::shutdown).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use offshoot_core::Scope;
/// use offshoot_task::{TaskConfig, TaskOutcome, TaskRegistry, TaskSpec, TaskStatus};
///
/// let registry = TaskRegistry::new(TaskConfig::default());
/// let owner = Scope::root("me");
/// let id = registry.start(&owner, TaskSpec::new("sum", "1 + 1"), |_context| {
///     Ok(async { TaskOutcome::completed().with_output("2") })
/// })?;
/// assert_eq!(id.to_string(), "sum-1");
///
/// let waited = registry.wait(owner.id(), &id, Duration::from_secs(5)).await?;
/// assert_eq!(waited.snapshot().status, TaskStatus::Completed);
/// waited.commit();
/// let reading = registry.read(owner.id(), &id)?;
/// assert_eq!(reading.text(), "2");
/// reading.commit();
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct TaskRegistry {
    shards: Arc<Shards>,
}

impl fmt::Debug for TaskRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shards = self.shards.all().iter();
        let records: usize = shards.map(|shard| shard.table().records.len()).sum();
        f.debug_struct("TaskRegistry")
            .field("records", &records)
            .finish_non_exhaustive()
    }
}

impl Default for TaskRegistry {
    fn default() -> Self {
        Self::new(TaskConfig::default())
    }
}

impl TaskRegistry {
    /// An empty registry.
    #[must_use]
    pub fn new(config: TaskConfig) -> Self {
        Self {
            shards: Arc::new(Shards::new(config)),
        }
    }

    /// Where the tasks of `caller` are, and those without an owner if there can be any.
    pub(crate) fn shard(&self, caller: ScopeId) -> &Arc<Shard> {
        self.shards.of(Some(caller))
    }

    /// Where a task of `owner` is started. Checks first that somebody can look after it.
    fn starting(&self, owner: Option<&Scope>) -> Result<&Arc<Shard>, StartError> {
        self.shards.check_controller(owner)?;
        Ok(self.shards.of(owner.map(Scope::id)))
    }

    /// Starts a task of `owner` and returns its id, `<kind>-<n>`.
    ///
    /// `starter` is called once, on this thread, outside every lock, after everything else was found
    /// in order and a place among the owner's live tasks was reserved. It may start the work (a
    /// process, a connection) and returns the future that brings it to its end; that future is polled
    /// only after `start` has announced the task. The future should end soon after
    /// [`TaskContext::cancelled`] completes; it is dropped when it does not end in the grace, and its
    /// drop must release what it owns.
    ///
    /// A start that is under way when its owner begins to close is stopped at once.
    ///
    /// # Errors
    ///
    /// [`StartError`]; nothing was registered, no id was used, and unless it is
    /// [`Starter`](StartError::Starter), [`StarterPanicked`](StartError::StarterPanicked) or the
    /// owner closed meanwhile, `starter` was not called.
    ///
    /// # Panics
    ///
    /// When the spec has a deadline and the runtime has no timer.
    pub fn start<F>(
        &self,
        owner: &Scope,
        spec: TaskSpec,
        starter: impl FnOnce(TaskContext) -> Result<F, StarterError>,
    ) -> Result<TaskId, StartError>
    where
        F: Future<Output = TaskOutcome> + Send + 'static,
    {
        self.starting(Some(owner))?
            .start(Some(owner), spec, starter)
    }

    /// Starts a task of `owner` whose work cannot fail to start: `work` is called with the task's
    /// context when the task is first polled.
    ///
    /// Use [`start`](Self::start) when something must be started first, and may fail, before there
    /// is a task; [`launch`](Self::launch) when the work is a type of its own.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start); `work` was dropped uncalled.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub fn spawn<F>(
        &self,
        owner: &Scope,
        spec: TaskSpec,
        work: impl FnOnce(TaskContext) -> F + Send + 'static,
    ) -> Result<TaskId, StartError>
    where
        F: Future<Output = TaskOutcome> + Send + 'static,
    {
        self.starting(Some(owner))?.spawn(Some(owner), spec, work)
    }

    /// Starts a task of `owner` that runs `producer`. See [`Producer`].
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start); [`StartError::Starter`] when [`Producer::begin`] failed.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub fn launch<P: Producer>(
        &self,
        owner: &Scope,
        mut producer: P,
    ) -> Result<TaskId, StartError> {
        let spec = producer.spec();
        self.starting(Some(owner))?
            .start(Some(owner), spec, |context| {
                producer.begin(&context)?;
                Ok(producer.run(context))
            })
    }

    /// Starts a task without an owner: everybody has access to it, and it ends with the registry.
    /// All such tasks share one limit.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start); [`StartError::UnownedNotAllowed`] unless the settings allow it.
    pub fn start_unowned<F>(
        &self,
        spec: TaskSpec,
        starter: impl FnOnce(TaskContext) -> Result<F, StarterError>,
    ) -> Result<TaskId, StartError>
    where
        F: Future<Output = TaskOutcome> + Send + 'static,
    {
        if !self.shards.config().allow_unowned {
            return Err(StartError::UnownedNotAllowed);
        }
        self.starting(None)?.start(None, spec, starter)
    }

    /// What a task of `caller` looks like now. Changes nothing.
    ///
    /// # Errors
    ///
    /// [`AccessError::Unknown`], also for a task of somebody else; [`AccessError::Expired`].
    pub fn get(&self, caller: ScopeId, id: &TaskId) -> Result<TaskSnapshot, AccessError> {
        let table = self.shard(caller).table();
        let key = table.find(caller, id)?;
        let unknown = || AccessError::Unknown { id: id.clone() };
        table.snapshot(key).ok_or_else(unknown)
    }

    /// The tasks of `caller`, finished ones included, in the order of their registration (and, where
    /// they are allowed, the tasks without an owner). Costs what the caller's tasks cost, however
    /// many others there are.
    #[must_use]
    pub fn list(&self, caller: ScopeId) -> Vec<TaskSnapshot> {
        let table = self.shard(caller).table();
        let mut keys = Vec::new();
        for owner in [Some(caller), None] {
            if let Some(owner) = table.owner_of(owner) {
                keys.extend(table.keys_of(owner));
            }
        }
        if self.shards.config().allow_unowned {
            keys.sort_by_key(|key| table.records.get(*key).map(|record| record.sequence));
        }
        keys.into_iter()
            .filter_map(|key| table.snapshot(key))
            .collect()
    }

    /// How many tasks of `caller` run or stop now. Does not look at them one by one.
    #[must_use]
    pub fn live_count(&self, caller: ScopeId) -> usize {
        let table = self.shard(caller).table();
        let owner = table
            .owner_of(Some(caller))
            .and_then(|key| table.owners.get(key));
        owner.map_or(0, |owner| owner.live)
    }

    /// Asks a task to stop and returns at once. `reason` becomes one line of at most 500 bytes.
    ///
    /// The task keeps its place among the live ones until it has really ended; how it ends is what
    /// its work says. Work that does not end within the kill grace of the settings is aborted. A kill
    /// by the model counts as reported; a kill by a person does not, so the model is told. A repeated
    /// kill changes nothing.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn kill(
        &self,
        caller: ScopeId,
        id: &TaskId,
        by: StoppedBy,
        reason: Option<String>,
    ) -> Result<KillOutcome, AccessError> {
        let shard = self.shard(caller);
        let key = shard.table().find(caller, id)?;
        let reason = reason.as_deref().and_then(detail_line);
        Ok(match shard.stop(key, by, reason) {
            StopEffect::Cancel => KillOutcome::Requested,
            StopEffect::AlreadyStopping => KillOutcome::AlreadyStopping,
            StopEffect::AlreadyFinished => KillOutcome::AlreadyFinished,
        })
    }

    /// Waits until a task has ended, at most for `timeout` ([`Duration::MAX`]: without limit).
    ///
    /// A timeout is no error: the result is the live task. Any number of waits may be under way. A
    /// task that ends while somebody waits for it needs no notice, so a [`Waited`] over a finished
    /// task must be committed or dropped.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get); [`AccessError::InvalidTimeout`] for zero, also over a finished task.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the task and consumes nothing. Even when the task has
    /// ended and woken it, the notice that it suppressed is then given back.
    pub async fn wait(
        &self,
        caller: ScopeId,
        id: &TaskId,
        timeout: Duration,
    ) -> Result<Waited, AccessError> {
        self.shard(caller).wait(caller, id, timeout).await
    }

    /// As [`wait`](Self::wait), until at least one of the tasks has ended. One result an id, in
    /// their order; those that are not [settled](Waited::settled) are live.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait), for the first id that has one; [`AccessError::NothingToWaitFor`]
    /// without ids.
    ///
    /// # Cancel safety
    ///
    /// As [`wait`](Self::wait).
    pub async fn wait_any(
        &self,
        caller: ScopeId,
        ids: &[TaskId],
        timeout: Duration,
    ) -> Result<Vec<Waited>, AccessError> {
        self.shard(caller)
            .wait_many(caller, ids, Need::Any, timeout)
            .await
    }

    /// As [`wait_any`](Self::wait_any), until all of the tasks have ended. Without ids: at once.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait), for the first id that has one.
    ///
    /// # Cancel safety
    ///
    /// As [`wait`](Self::wait).
    pub async fn wait_all(
        &self,
        caller: ScopeId,
        ids: &[TaskId],
        timeout: Duration,
    ) -> Result<Vec<Waited>, AccessError> {
        self.shard(caller)
            .wait_many(caller, ids, Need::All, timeout)
            .await
    }

    /// Looks at the output that was not read yet. Nothing counts as read until the
    /// [`Reading`] is committed.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn read(&self, caller: ScopeId, id: &TaskId) -> Result<Reading, AccessError> {
        self.shard(caller).read(caller, id, false)
    }

    /// As [`read`](Self::read), for somebody whose text is shown beside those of others, so that it
    /// must be in one of them: of a final output that another open reading has there is nothing here,
    /// and while this reading has it there is nothing for others; it is
    /// [elsewhere](Reading::elsewhere).
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn read_alone(&self, caller: ScopeId, id: &TaskId) -> Result<Reading, AccessError> {
        self.shard(caller).read(caller, id, true)
    }

    /// The output from an absolute offset on, for somebody who looks on: unlike
    /// [`read`](Self::read) it consumes and reports nothing.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn read_at(
        &self,
        caller: ScopeId,
        id: &TaskId,
        offset: u64,
    ) -> Result<OutputSlice, AccessError> {
        self.shard(caller).read_at(caller, id, offset)
    }

    /// Registers an observer, which is told of every change from now on until the handle is dropped.
    pub fn observe(&self, observer: Arc<dyn TaskObserver>) -> ObserverHandle {
        self.shards.observe(observer)
    }

    /// Says that somebody can look after every task, until the [`Controller`] is dropped.
    pub fn attach_controller(&self) -> Controller {
        self.shards.attach_controller(None)
    }

    /// Says that somebody can look after the tasks of `scope` and of the scopes within it, until the
    /// [`Controller`] is dropped.
    pub fn attach_controller_within(&self, scope: &Scope) -> Controller {
        self.shards.attach_controller(Some(scope.id()))
    }

    /// Says when something changes among the tasks that `owner` has access to, without saying what.
    ///
    /// For a screen that shows tasks; an [observer](Self::observe) gets every change, in order.
    #[must_use]
    pub fn changes(&self, owner: ScopeId) -> Changes {
        self.shard(owner).changes(owner)
    }

    /// Makes sure that the ids of `kind` up to `n` are never issued: an earlier process has used them.
    pub fn reserve_through(&self, kind: &str, n: u64) {
        if let Some(kind) = TaskKind::new(kind) {
            self.shards.reserve_through(kind, n);
        }
    }

    /// Records a task that ended in an earlier process, or was lost with it: it has this outcome, is
    /// finished now and not reported, and its id is reserved. Neither its start nor its end is
    /// announced; when it is read, [`Collected`](crate::TaskChange::Collected) is.
    ///
    /// # Errors
    ///
    /// [`StartError`]: the owner or the registry is closing, the label is empty, or the id is in use.
    pub fn restore(
        &self,
        owner: &Scope,
        id: TaskId,
        label: impl AsRef<str>,
        generation: u64,
        outcome: TaskOutcome,
    ) -> Result<(), StartError> {
        self.shards
            .restore(owner, id, label.as_ref(), generation, outcome)
    }

    /// Ends the registry: no start is admitted from the moment of this call (not of its first poll),
    /// every live task is stopped by the service, aborted after the teardown grace, and all records
    /// are removed. Owners stay open. A second call waits for the same end.
    ///
    /// Dropping the future does not stop the shutdown, which runs as a task of its own.
    ///
    /// # Panics
    ///
    /// When called outside a Tokio runtime.
    pub fn shutdown(&self) -> impl Future<Output = ()> + Send + 'static {
        for shard in self.shards.all() {
            shard.table().closing = true;
        }
        let all = self.shards.all().iter().cloned().map(Shard::shut_down);
        let end = tokio::spawn(join_all(all.collect::<Vec<_>>()));
        async move {
            // It fails only when the runtime goes, which ends every task by itself.
            let _ = end.await;
        }
    }
}

impl Shard {
    pub(crate) fn stop(
        self: &Arc<Self>,
        key: crate::slab::Key,
        by: StoppedBy,
        reason: Option<String>,
    ) -> StopEffect {
        let mut after = After::default();
        let (effect, runtime) = {
            let mut table = self.table();
            let effect = table.stop(key, by, reason, &mut after);
            let runtime = (effect == StopEffect::Cancel).then(|| table.runtime.clone());
            (effect, runtime.flatten())
        };
        // The driver itself keeps the grace after a deadline.
        if effect == StopEffect::Cancel && by != StoppedBy::Deadline {
            self.reap_later(key, runtime);
        }
        self.perform(after);
        effect
    }
}
