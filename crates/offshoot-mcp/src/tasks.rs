//! Long calls as tasks of the protocol: each is a task of a registry of its own that runs the tool. So it
//! has the owner and the end of any task, and is none of the background tasks that a tool shows, counts
//! or tells of: it is one call, and the client polls it.

// Invariants
// 1. The task is in the registry, and in its owner's session, before its id is handed out.
// 2. Somebody waits for it in the registry until it has ended: so it counts as reported, and the registry
//    keeps a bounded number of them.
// 3. An id that is unknown here, and one of another owner, get the same answer: the map is the
//    connection's, and the registry has the fence.
// 4. No other process has a task of the same id: a client may still ask for one of an earlier process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use offshoot_agent::{Agent, AgentRegistry, Tool, ToolCall, ToolOutput};
use offshoot_core::{Timestamp, text};
use offshoot_task::{
    StartError, StoppedBy, TaskConfig, TaskId, TaskOutcome, TaskRegistry, TaskSnapshot, TaskSpec,
    TaskStatus as Ended,
};
use offshoot_tools::TaskRecords;
use rmcp::ErrorData;
use rmcp::model::{DetailedTask, Task, TaskPayload, TaskStatus};
use serde_json::Value;
use tokio::sync::watch;

use crate::call;

/// Ended calls of one connection whose results are kept.
const RETAINED: usize = 256;
/// How often a client should ask, in milliseconds.
const POLL_MS: u64 = 500;

/// A call that runs, or ran, as a task.
struct Call {
    output: Mutex<Option<ToolOutput>>,
    ended: watch::Receiver<bool>,
}

impl Call {
    fn output(&self) -> MutexGuard<'_, Option<ToolOutput>> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the calls of all connections run that are tasks.
#[derive(Clone, Debug)]
pub(crate) struct CallTasks {
    registry: TaskRegistry,
    /// A crash must not make a task unheard of whose id a client has.
    records: Arc<TaskRecords>,
    kind: String,
    limit: usize,
}

impl CallTasks {
    /// Up to `limit` live ones a connection, each with this long to end with it.
    pub(crate) fn new(limit: usize, teardown_grace: Duration, agents: AgentRegistry) -> Self {
        let registry = TaskRegistry::new(TaskConfig {
            max_live_per_owner: limit,
            teardown_grace,
            retain_finished: RETAINED,
            ..TaskConfig::default()
        });
        let id = offshoot_core::fresh_id();
        // The random half: the other one is the time.
        let kind = format!("call-{}", id.get(10..).unwrap_or(&id));
        Self {
            records: Arc::new(TaskRecords::of(&registry, agents)),
            registry,
            kind,
            limit,
        }
    }

    /// Why a call is not begun, as its answer.
    pub(crate) fn refusal(&self, error: &StartError) -> ToolOutput {
        let limit = self.limit;
        let words = match error {
            StartError::LimitReached { .. } => format!(
                "{limit} calls of this client run as tasks, which is the limit; wait for one, or cancel one"
            ),
            other => other.to_string(),
        };
        ToolOutput::error(error.code(), words)
    }
}

/// The calls of one connection that are tasks: as many as the registry keeps tasks of an owner.
#[derive(Default)]
pub(crate) struct Carried(Mutex<HashMap<TaskId, Arc<Call>>>);

/// A started call.
pub(crate) struct Started {
    id: TaskId,
    call: Arc<Call>,
}

impl Started {
    /// Waits until it has ended. Dropping the future has no effect.
    pub(crate) async fn ended(&self) {
        // An error is the end of the registry, and so of the task.
        let _ = self.call.ended.clone().wait_for(|ended| *ended).await;
    }

    /// What the tool answered; `None` when it was dropped before it did, or was taken.
    pub(crate) fn take(&self) -> Option<ToolOutput> {
        self.call.output().take()
    }

    /// What a client is told instead of a result. It is durable by then as far as the session is.
    pub(crate) fn handle(&self, tasks: &CallTasks, agent: &Agent) -> Result<Task, ErrorData> {
        let snapshot = tasks.registry.get(agent.scope().id(), &self.id);
        let snapshot = snapshot.map_err(|_| unknown())?;
        if let Err(error) = tasks.records.begin(agent, &snapshot) {
            // Nobody will know the id: the work is not wanted.
            let reason = Some("its session did not take it".to_owned());
            let _ = tasks
                .registry
                .kill(agent.scope().id(), &self.id, StoppedBy::Service, reason);
            let message = format!("the call was stopped, as it cannot be made a task: {error}");
            return Err(ErrorData::internal_error(message, None));
        }
        let mut task = described(&snapshot);
        // Even if it has ended just now: its result is for `tasks/get` to tell.
        task.status = TaskStatus::Working;
        Ok(task)
    }
}

impl Carried {
    fn calls(&self) -> MutexGuard<'_, HashMap<TaskId, Arc<Call>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a call as a task of its caller.
    pub(crate) fn start(
        &self,
        tasks: &CallTasks,
        tool: Arc<dyn Tool>,
        call: ToolCall,
    ) -> Result<Started, StartError> {
        let owner = call.agent.scope().clone();
        let spec = TaskSpec::new(&tasks.kind, label(tool.as_ref(), &call.args));
        let (end, ended) = watch::channel(false);
        let record = Arc::new(Call {
            output: Mutex::new(None),
            ended,
        });
        let kept = Arc::clone(&record);
        let registry = &tasks.registry;
        let begun = registry.spawn(&owner, spec, move |context| async move {
            let cancel = call.cancel.clone();
            let mut work = std::pin::pin!(call::contained(tool, call));
            let output = tokio::select! {
                biased;
                output = &mut work => output,
                () = context.cancelled() => {
                    cancel.cancel();
                    work.await
                }
            };
            let outcome = match (context.stop_request(), output.is_error) {
                (Some(_), _) => TaskOutcome::killed(),
                (None, false) => TaskOutcome::completed(),
                (None, true) => TaskOutcome::failed(text::one_line(&output.text, 200)),
            };
            *kept.output() = Some(output);
            outcome
        });
        let id = begun?;
        let registry = registry.clone();
        let (caller, waited) = (owner.id(), id.clone());
        tokio::spawn(async move {
            if let Ok(waited) = registry.wait(caller, &waited, Duration::MAX).await {
                waited.commit();
            }
            end.send_replace(true);
        });
        let mut calls = self.calls();
        // What the registry has let go of is let go of here too.
        calls.retain(|id, _| tasks.registry.get(caller, id).is_ok());
        calls.insert(id.clone(), Arc::clone(&record));
        Ok(Started { id, call: record })
    }

    /// Forgets a call whose result was handed over as such: nobody knows its id.
    pub(crate) fn forget(&self, started: &Started) {
        self.calls().remove(&started.id);
    }

    fn find(
        &self,
        tasks: &CallTasks,
        agent: Option<&Agent>,
        id: &str,
    ) -> Result<(TaskSnapshot, Arc<Call>), ErrorData> {
        let id: TaskId = id.parse().map_err(|_| unknown())?;
        let agent = agent.ok_or_else(unknown)?;
        let snapshot = tasks.registry.get(agent.scope().id(), &id);
        let snapshot = snapshot.map_err(|_| unknown())?;
        let call = self.calls().get(&id).cloned().ok_or_else(unknown)?;
        Ok((snapshot, call))
    }

    /// What has become of a task. The first look at a result counts as its delivery.
    pub(crate) fn look(
        &self,
        tasks: &CallTasks,
        agent: Option<&Agent>,
        id: &str,
    ) -> Result<DetailedTask, ErrorData> {
        let (snapshot, call) = self.find(tasks, agent, id)?;
        let payload = match snapshot.status.is_terminal() {
            true => payload(&snapshot, &call),
            false => TaskPayload::Working,
        };
        Ok(DetailedTask::new(described(&snapshot), payload))
    }

    /// Asks a task to stop.
    pub(crate) fn cancel(
        &self,
        tasks: &CallTasks,
        agent: Option<&Agent>,
        id: &str,
    ) -> Result<(), ErrorData> {
        let (snapshot, _) = self.find(tasks, agent, id)?;
        let owner = snapshot.owner.ok_or_else(unknown)?;
        let reason = Some("cancelled by the client".to_owned());
        let killed = tasks
            .registry
            .kill(owner, &snapshot.id, StoppedBy::Human, reason);
        killed.map(|_| ()).map_err(|_| unknown())
    }

    /// Whether this is a task of the caller, for a request that changes nothing of it.
    pub(crate) fn check(
        &self,
        tasks: &CallTasks,
        agent: Option<&Agent>,
        id: &str,
    ) -> Result<(), ErrorData> {
        self.find(tasks, agent, id).map(|_| ())
    }
}

/// The one answer for an id that is not the caller's, whosever it is.
fn unknown() -> ErrorData {
    let message = "unknown task: expected the id of a task of this client that was not removed yet";
    ErrorData::invalid_params(message, None)
}

fn label(tool: &dyn Tool, args: &Value) -> String {
    let said = ["description", "command"].map(|key| args.get(key).and_then(Value::as_str));
    let said = said
        .into_iter()
        .flatten()
        .find(|text| !text.trim().is_empty());
    match said {
        Some(said) => format!("{}: {said}", tool.name()),
        None => tool.name().to_owned(),
    }
}

fn payload(snapshot: &TaskSnapshot, call: &Call) -> TaskPayload {
    if snapshot.status == Ended::Killed {
        return TaskPayload::Cancelled;
    }
    let mut output = call.output();
    let Some(output) = output.as_mut() else {
        let detail = snapshot.detail.as_deref().unwrap_or("it was dropped");
        let error = ErrorData::internal_error(format!("the call did not end: {detail}"), None);
        return TaskPayload::Failed {
            error: object(&error),
        };
    };
    if let Some(commit) = output.take_commit() {
        commit();
    }
    TaskPayload::Completed {
        result: object(&call::result(output)),
    }
}

fn object(value: &impl serde::Serialize) -> serde_json::Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(object)) => object,
        _ => serde_json::Map::new(),
    }
}

fn described(snapshot: &TaskSnapshot) -> Task {
    let created = time(snapshot.started_at);
    let updated = time(snapshot.finished_at.unwrap_or(snapshot.started_at));
    let status = match snapshot.status.is_terminal() {
        true => TaskStatus::Completed,
        false => TaskStatus::Working,
    };
    Task::new(snapshot.id.to_string(), status, created, updated)
        .with_status_message(snapshot.label.as_ref())
        .with_poll_interval_ms(POLL_MS)
}

fn time(time: Timestamp) -> String {
    let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let time = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
    format!("{time:.3}")
}
