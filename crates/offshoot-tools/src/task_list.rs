//! `task_list`: the caller's background tasks.

use std::sync::Arc;

use futures::future::BoxFuture;
use offshoot_agent::{Effects, Tool, ToolCall, ToolOutput};
use schemars::JsonSchema;
use serde_json::Value;

use crate::fit::{Room, fit_list};
use crate::notices::TaskNotices;
use crate::shape::Shape;
use crate::{schema, task_view};

/// The arguments of `task_list`: none.
#[derive(JsonSchema)]
struct TaskListArguments {}

const DESCRIPTION: &str = "List your background tasks, running and finished, one a line: id, kind, \
status, label.";

pub(crate) struct TaskList {
    notices: Arc<TaskNotices>,
    room: Room,
    schema: Value,
}

impl TaskList {
    pub(crate) const NAME: &'static str = "task_list";

    pub(crate) fn new(notices: Arc<TaskNotices>, room: Room) -> Self {
        Self {
            notices,
            room,
            schema: schema::of::<TaskListArguments>(),
        }
    }
}

impl Tool for TaskList {
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

    fn call(&self, call: ToolCall) -> BoxFuture<'_, ToolOutput> {
        Box::pin(async move {
            self.notices.look_after(&call.agent);
            let tasks = self.notices.tasks.list(call.agent.scope().id());
            let lines: Vec<_> = tasks.iter().map(task_view::list_line).collect();
            let shown = fit_list(&lines, Shape::NoTasks.head(), self.room);
            ToolOutput::text(shown).with_value(tasks.iter().map(task_view::value).collect())
        })
    }
}
