//! What a session says of the tasks of an earlier process: which were alive, and of whose end its agent was
//! not told.

use offshoot_agent::{Extension, HistoryItem, Message, OUTCOME_UNKNOWN, Projection, Source};
use offshoot_core::text;
use offshoot_task::{TaskId, TaskStatus};
use serde_json::Value;

use crate::notices::{LABEL_BYTES, SETTLED, SOURCE, STARTED};
use crate::quote;
use crate::shape::Shape;

/// As long as the detail of an end may be.
const DETAIL_BYTES: usize = 500;

/// A task that a session says was started and does not say has ended.
pub(crate) struct OpenTask {
    pub(crate) id: TaskId,
    pub(crate) label: String,
    kind: String,
    pub(crate) generation: u64,
}

/// A task that a session says has ended.
pub(crate) struct EndedTask {
    pub(crate) task: OpenTask,
    pub(crate) status: TaskStatus,
    pub(crate) detail: Option<String>,
}

impl EndedTask {
    fn read(task: OpenTask, settled: &Extension) -> Option<Self> {
        let ends = [
            TaskStatus::Completed,
            TaskStatus::Killed,
            TaskStatus::Failed,
        ];
        let status = settled.field("status")?;
        Some(Self {
            task,
            status: ends.into_iter().find(|end| end.as_str() == status)?,
            detail: settled
                .field("detail")
                .map(|detail| text::one_line(detail, DETAIL_BYTES)),
        })
    }
}

/// What a session says of one of its tasks.
fn read_started(event: &Extension) -> Option<OpenTask> {
    if event.kind != STARTED {
        return None;
    }
    let generation = event.fields.get("generation").and_then(|g| g.as_u64());
    Some(OpenTask {
        id: event.field("task_id")?.parse().ok()?,
        label: event.field("label").unwrap_or_default().to_owned(),
        kind: event.field("kind").unwrap_or_default().to_owned(),
        generation: generation.unwrap_or(0),
    })
}

/// The tasks that a session says were started, and does not say have ended.
pub(crate) fn open_tasks(projection: &Projection) -> Vec<OpenTask> {
    let mut open: Vec<OpenTask> = Vec::new();
    for event in projection.extensions() {
        open.extend(read_started(event));
        if event.kind == SETTLED {
            let settled = event.field("task_id");
            open.retain(|task| Some(task.id.to_string().as_str()) != settled);
        }
    }
    open
}

/// An end and its notice are one append. A process that died in the middle of it left the end as the
/// last event: its notice is still owed.
pub(crate) fn owed(projection: &Projection) -> Option<EndedTask> {
    let fact = projection.last_fact().filter(|fact| fact.kind == SETTLED)?;
    if fact.fields.get("reported")?.as_bool()? {
        return None;
    }
    let id = fact.field("task_id")?;
    let task = projection.extensions().filter_map(read_started);
    let task = task.filter(|task| task.id.to_string() == id).last()?;
    EndedTask::read(task, fact)
}

/// Ends that a call took, and whose process died before the result of the call was committed: the
/// model was told of a call with an unknown outcome, and nothing of the task.
pub(crate) fn taken_and_not_shown(projection: &Projection) -> Vec<EndedTask> {
    if !projection.interrupted() {
        return Vec::new();
    }
    let named = cut_calls(projection);
    let waits = |id: &str| {
        let mut waiting = projection.inbox().entries();
        waiting.any(|entry| {
            let source = &entry.message.source;
            source.kind == SOURCE && source.fields.get("task_id").is_some_and(|task| task == id)
        })
    };
    let ends = projection.last_step_extensions().filter(|event| {
        let id = event.field("task_id").unwrap_or_default();
        let reported = event.fields.get("reported").and_then(Value::as_bool);
        event.kind == SETTLED
            && reported == Some(true)
            && named.iter().any(|task| task == id)
            && !waits(id)
    });
    ends.filter_map(|end| {
        let started = projection.extensions().filter_map(read_started);
        let task =
            started.filter(|task| Some(task.id.to_string().as_str()) == end.field("task_id"));
        EndedTask::read(task.last()?, end)
    })
    .collect()
}

/// The tasks that the calls of the last step name whose outcome is unknown.
fn cut_calls(projection: &Projection) -> Vec<String> {
    let mut cut = Vec::new();
    for item in projection.history().iter().rev() {
        match item {
            HistoryItem::ToolResult(result) => {
                if result.code.as_deref() == Some(OUTCOME_UNKNOWN) {
                    cut.push(&result.call_id);
                }
            }
            HistoryItem::Assistant(reply) => {
                let calls = reply.calls.iter().filter(|call| cut.contains(&&call.id));
                return calls.filter_map(|call| named_task(&call.args)).collect();
            }
            _ => break,
        }
    }
    Vec::new()
}

/// The task that a call is about. Arguments may come as the text of an object.
fn named_task(args: &Value) -> Option<String> {
    let parsed = args
        .as_str()
        .and_then(|text| serde_json::from_str(text).ok());
    let args: &Value = parsed.as_ref().unwrap_or(args);
    args.get("task_id")?.as_str().map(str::to_owned)
}

impl OpenTask {
    /// The notice of an end of an earlier process, with what is known of the output.
    pub(crate) fn message(
        &self,
        status: TaskStatus,
        detail: Option<&str>,
        heading: Option<&str>,
        output: &str,
    ) -> Message {
        let label = text::one_line(&self.label, LABEL_BYTES);
        let detail = detail
            .map(|detail| format!(", {detail}"))
            .unwrap_or_default();
        let heading = heading.map(|line| format!("{line}\n")).unwrap_or_default();
        let output = match output {
            "" => "The program ended meanwhile, and its output is gone.".to_owned(),
            output => format!("Output:\n{heading}{}", quote::every_line(output)),
        };
        let words = format!(
            "background task {} ({}: {label}) finished {}\n{output}",
            self.id,
            self.kind,
            Shape::Status.line(format_args!(" {status}{detail}]")),
        );
        let source = Source::new(SOURCE, self.generation.saturating_add(1))
            .with("task_id", self.id.to_string())
            .with("status", status.as_str());
        Message::text(source, words)
    }
}
