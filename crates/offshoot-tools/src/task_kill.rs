//! `task_kill`: stops one of the caller's tasks.

use crate::refusal::{Refusal, UNKNOWN_TASK, answer};
use futures::future::BoxFuture;
use offshoot_agent::{Effects, Tool, ToolCall, ToolOutput};
use offshoot_task::{KillOutcome, StoppedBy, TaskRegistry};
use schemars::JsonSchema;
use serde_json::{Value, json};

use crate::arguments::Arguments;
use crate::{schema, task_view};

/// The arguments of `task_kill`.
#[derive(JsonSchema)]
#[expect(
    dead_code,
    reason = "describes the schema; arguments are read leniently"
)]
struct TaskKillArguments {
    /// The id of one of your background tasks, such as "bash-1".
    task_id: String,
    /// Why, in a few words.
    #[schemars(with = "String", default)]
    reason: Option<String>,
}

const DESCRIPTION: &str = "Stop one of your background tasks. Returns at once; the task is killed \
when its work has really stopped. What it wrote before can still be read with task_output. You get \
no notice of a task that you stopped.";

pub(crate) struct TaskKill {
    tasks: TaskRegistry,
    schema: Value,
}

impl TaskKill {
    pub(crate) const NAME: &'static str = "task_kill";

    pub(crate) fn new(tasks: TaskRegistry) -> Self {
        Self {
            tasks,
            schema: schema::of::<TaskKillArguments>(),
        }
    }

    fn run(&self, call: &ToolCall) -> Result<ToolOutput, Refusal> {
        let args = Arguments::new(&call.args);
        let id = args.text("task_id", task_view::ID_EXPECTED)?;
        let id = task_view::parse_id(id).map_err(|m| Refusal::new(UNKNOWN_TASK, m))?;
        let reason = args.optional_text("reason", "a text")?;
        let caller = call.agent.scope().id();
        let outcome = self
            .tasks
            .kill(caller, &id, StoppedBy::Model, reason.map(str::to_owned))?;
        let task = self.tasks.get(caller, &id)?;
        let (name, text) = match outcome {
            KillOutcome::AlreadyFinished => (
                "already-finished",
                format!(
                    "task {id} had already finished {}",
                    task_view::status_line(&task)
                ),
            ),
            _ => (
                "cancellation-requested",
                format!("requested cancellation of task {id}"),
            ),
        };
        Ok(ToolOutput::text(text)
            .with_value(json!({ "outcome": name, "task": task_view::value(&task) })))
    }
}

impl Tool for TaskKill {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn description(&self) -> &str {
        DESCRIPTION
    }

    fn input_schema(&self) -> &Value {
        &self.schema
    }

    fn effects(&self) -> Effects {
        Effects::STOPS_OWN.once()
    }

    fn call(&self, call: ToolCall) -> BoxFuture<'_, ToolOutput> {
        Box::pin(async move {
            let output = self.run(&call);
            answer(output.map_err(|refusal| refusal.with_way_out(&call.agent)))
        })
    }
}
