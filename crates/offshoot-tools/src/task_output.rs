//! `task_output`: what a task has written, and how it is.

use std::sync::Arc;
use std::time::Duration;

use crate::refusal::{Refusal, UNKNOWN_TASK, answer};
use futures::future::BoxFuture;
use offshoot_agent::{Deadline, Effects, Tool, ToolCall, ToolOutput};
use offshoot_task::{AccessError, TaskId, TaskRegistry, Waited};
use schemars::JsonSchema;
use serde_json::{Value, json};

use crate::arguments::Arguments;
use crate::fit::{Body, File, Room, fit};
use crate::handed::Handed;
use crate::notices::TaskNotices;
use crate::shape::Shape;
use crate::{TaskOutputSettings, schema, task_view};
use offshoot_core::text;

/// The arguments of `task_output`.
#[derive(JsonSchema)]
#[expect(
    dead_code,
    reason = "describes the schema; arguments are read leniently"
)]
struct TaskOutputArguments {
    /// The id of one of your background tasks, such as "bash-1".
    task_id: String,
    /// Wait until the task has finished. Without it the call returns at once.
    #[schemars(with = "bool", default)]
    wait: Option<bool>,
    /// How long to wait at most, in milliseconds. Only with wait.
    #[schemars(with = "u64", range(min = 1), default)]
    timeout_ms: Option<u64>,
}

const DESCRIPTION: &str = "Read one of your background tasks. A command gives what it wrote since \
you last read it; a subagent run gives its final answer once it has finished. The last line is the \
task's status. Returns at once unless wait is true; a wait ends after timeout_ms (the task goes on) \
or when a message for you arrives.";

pub(crate) struct TaskOutput {
    tasks: TaskRegistry,
    notices: Arc<TaskNotices>,
    settings: TaskOutputSettings,
    room: Room,
    /// What other calls of the same steps have.
    handed: Arc<Handed>,
    schema: Value,
}

impl TaskOutput {
    pub(crate) const NAME: &'static str = "task_output";

    pub(crate) fn new(notices: Arc<TaskNotices>, settings: TaskOutputSettings) -> Self {
        Self {
            tasks: notices.tasks.clone(),
            notices,
            room: Room::new(settings.max_bytes),
            settings,
            handed: Arc::default(),
            schema: schema::of::<TaskOutputArguments>(),
        }
    }

    async fn run(&self, call: ToolCall) -> Result<ToolOutput, Refusal> {
        let args = Arguments::new(&call.args);
        let id = args.text("task_id", task_view::ID_EXPECTED)?;
        let id = task_view::parse_id(id).map_err(|m| Refusal::new(UNKNOWN_TASK, m))?;
        let wait = args.optional_flag("wait")?.unwrap_or(false);
        let timeout = args.optional_millis("timeout_ms")?;
        let waited = if wait {
            let timeout = timeout.unwrap_or(self.settings.wait_timeout);
            let timeout = timeout.min(self.settings.max_wait_timeout);
            self.wait(&call, &id, timeout).await?
        } else {
            Ended::NotWaited
        };
        Ok(self.answer(&call, &id, waited)?)
    }

    async fn wait(
        &self,
        call: &ToolCall,
        id: &TaskId,
        timeout: Duration,
    ) -> Result<Ended, Refusal> {
        tokio::select! {
            // What is there already is taken first: an end before an interruption.
            biased;
            waited = self.tasks.wait(call.agent.scope().id(), id, timeout) => match waited {
                Ok(waited) => Ok(Ended::Waited(Box::new(waited))),
                Err(error) => Err(error.into()),
            },
            () = call.cancel.cancelled() => Err(Refusal::new("ABORTED", "wait aborted")),
            () = call.agent.next_step_arrival() => Ok(Ended::Interrupted),
        }
    }

    fn answer(
        &self,
        call: &ToolCall,
        id: &TaskId,
        ended: Ended,
    ) -> Result<ToolOutput, AccessError> {
        let noticed = self.notices.in_a_notice(&call.agent, id);
        let reading = self.tasks.read(call.agent.scope().id(), id)?;
        let task = reading.snapshot();
        let mut last: Vec<_> = reading.note().map(str::to_owned).into_iter().collect();
        let elsewhere = match (reading.elsewhere(), reading.text()) {
            // Committed already, but the model gets it together with this result.
            (0, "") => self.handed.to_others(&call.key, id),
            (bytes, _) => bytes,
        };
        if elsewhere > 0 {
            last.push(Shape::Elsewhere.counted(elsewhere, " the result of another call]"));
        }
        // A final output is in each reading; of a stream each byte is read once.
        let noticed = if reading.text().is_empty() {
            noticed
        } else {
            0
        };
        if noticed > 0 {
            last.push(Shape::Elsewhere.counted(noticed, " a notice that waits for you]"));
        }
        if matches!(ended, Ended::Interrupted) && !task.status.is_terminal() {
            last.push(Shape::WaitEnded.line(": a message for you has arrived]"));
        }
        last.push(task_view::status_line(task));
        let body = Body {
            heading: reading.heading().unwrap_or_default(),
            text: reading.text(),
            gap: reading.gap(),
            replaced: task.replaced,
            file: reading.overflow().map(|path| File {
                path,
                missing: task.overflow_missing,
            }),
            empty: match elsewhere + noticed {
                0 => Shape::NoNewOutput.head(),
                _ => "",
            },
            last: &last.join("\n"),
        };
        let shown = fit(&body, self.room);
        let value = json!({
            "text": text::tail(reading.text(), self.room.bytes()),
            "task": task_view::value(task),
        });
        let (handed, key, id) = (Arc::clone(&self.handed), call.key.clone(), id.clone());
        // It counts as read, and the task as reported, once the model has it.
        Ok(ToolOutput::text(shown)
            .with_value(value)
            .on_commit(move || {
                if reading.snapshot().streams {
                    handed.note(key, id, reading.text().len());
                }
                reading.commit();
                if let Ended::Waited(waited) = ended {
                    waited.commit();
                }
            }))
    }
}

/// How the wait of a call ended.
enum Ended {
    NotWaited,
    Waited(Box<Waited>),
    Interrupted,
}

impl Tool for TaskOutput {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn description(&self) -> &str {
        DESCRIPTION
    }

    fn input_schema(&self) -> &Value {
        &self.schema
    }

    fn is_parallel_safe(&self, _: &Value) -> bool {
        true
    }

    fn effects(&self) -> Effects {
        Effects::READS
    }

    fn deadline(&self) -> Deadline {
        Deadline::Never
    }

    fn call(&self, call: ToolCall) -> BoxFuture<'_, ToolOutput> {
        Box::pin(async move {
            let caller = call.agent.clone();
            let output = self.run(call).await;
            answer(output.map_err(|refusal| refusal.with_way_out(&caller)))
        })
    }
}
