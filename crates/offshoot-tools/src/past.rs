//! What a session says of the tasks of an earlier process: which were alive, and of whose end its agent was
//! not told.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use offshoot_agent::{
    AgentId, EventFold, Extension, HistoryItem, Message, OUTCOME_UNKNOWN, Projection, Source,
};
use offshoot_core::text;
use offshoot_subagent::{Outcome, RunRecord};
use offshoot_task::{TaskId, TaskStatus};
use serde_json::Value;

use crate::notices::{EVENT_TYPES, LABEL_BYTES, SETTLED, SOURCE, STARTED, STOPPING};
use crate::quote;
use crate::shape::Shape;

/// As long as the detail of an end may be.
const DETAIL_BYTES: usize = 500;

/// A task that a session says was started and does not say has ended.
#[derive(Clone, Debug)]
pub(crate) struct OpenTask {
    pub(crate) id: TaskId,
    pub(crate) label: String,
    kind: String,
    pub(crate) generation: u64,
    /// The run that it carried, when that has settled.
    pub(crate) run: Option<(AgentId, Outcome)>,
}

/// A task that a session says has ended.
#[derive(Clone, Debug)]
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
    let generation = event.fields.get("generation").and_then(|g| g.as_u64());
    Some(OpenTask {
        id: task_id(event)?,
        label: event.field("label").unwrap_or_default().to_owned(),
        kind: event.field("kind").unwrap_or_default().to_owned(),
        generation: generation.unwrap_or(0),
        run: None,
    })
}

fn task_id(event: &Extension) -> Option<TaskId> {
    event.field("task_id")?.parse().ok()
}

fn is_reported(settled: &Extension) -> Option<bool> {
    settled.fields.get("reported").and_then(Value::as_bool)
}

/// What is still true of the tasks that a session has had: as large as what is open, and what ended in the
/// last step.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskPast {
    /// The greatest number of each kind.
    greatest: HashMap<String, u64>,
    /// How many tasks began.
    count: u64,
    /// With the place of each among all tasks.
    open: HashMap<TaskId, (u64, OpenTask)>,
    in_step: bool,
    /// The ends in the last step that somebody was told of as they happened.
    reported: Vec<EndedTask>,
    /// The last end that there was, of a task that began.
    last_end: Option<Box<EndedTask>>,
}

impl EventFold for TaskPast {
    const CLAIMS: &'static [&'static str] = &EVENT_TYPES;

    fn apply(&mut self, event: &Extension) {
        match event.kind.as_str() {
            STARTED => self.begin(event),
            STOPPING => self.meet(event),
            SETTLED => self.end(event),
            _ => self.end_run(event),
        }
    }

    fn step_begins(&mut self) {
        self.in_step = true;
        self.reported.clear();
    }

    fn step_ends(&mut self) {
        self.in_step = false;
    }
}

impl TaskPast {
    fn meet(&mut self, event: &Extension) {
        if let Some(id) = task_id(event) {
            match self.greatest.get_mut(id.kind()) {
                Some(greatest) => *greatest = id.number().max(*greatest),
                None => drop(self.greatest.insert(id.kind().to_owned(), id.number())),
            }
        }
    }

    fn begin(&mut self, event: &Extension) {
        self.meet(event);
        if let Some(task) = read_started(event) {
            self.open.insert(task.id.clone(), (self.count, task));
            self.count += 1;
        }
    }

    fn end(&mut self, event: &Extension) {
        // The log may have refused the beginning of one.
        self.meet(event);
        let begun = task_id(event).and_then(|id| self.open.remove(&id));
        let ended = begun.and_then(|(_, task)| EndedTask::read(task, event));
        if self.in_step && is_reported(event) == Some(true) {
            self.reported.extend(ended.clone());
        }
        self.last_end = ended.map(Box::new);
    }

    fn end_run(&mut self, event: &Extension) {
        let Some(id) = task_id(event) else {
            return;
        };
        let open = self.open.get_mut(&id).map(|(_, task)| task);
        let ended = self.reported.iter_mut().chain(self.last_end.as_deref_mut());
        let ended = ended.map(|end| &mut end.task).filter(|task| task.id == id);
        for task in open.into_iter().chain(ended) {
            let end = RunRecord::read_settled(event);
            task.run = end
                .map(|(run, outcome, _)| (run.child, outcome))
                .or(task.run.take());
        }
    }

    /// The greatest number of each kind of task.
    pub(crate) fn greatest(&self) -> impl Iterator<Item = (&str, u64)> {
        let greatest = self.greatest.iter();
        greatest.map(|(kind, number)| (kind.as_str(), *number))
    }

    pub(crate) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// The tasks that were started and have not ended, in order.
    pub(crate) fn open_tasks(&self) -> Vec<OpenTask> {
        let mut open: Vec<_> = self.open.values().collect();
        open.sort_unstable_by_key(|(at, _)| *at);
        open.into_iter().map(|(_, task)| task.clone()).collect()
    }
}

/// The ids of the tasks that a session says were started, and does not say have ended, in order.
#[must_use]
pub fn open_tasks(projection: &Projection) -> Vec<TaskId> {
    let open = projection.fold::<TaskPast>().open_tasks().into_iter();
    open.map(|task| task.id).collect()
}

/// An end and its notice are one append. A process that died in the middle of it left the end as the
/// last event: its notice is still owed.
pub(crate) fn owed(projection: &Projection) -> Option<EndedTask> {
    let fact = projection.last_fact().filter(|fact| fact.kind == SETTLED)?;
    if is_reported(fact)? {
        return None;
    }
    let id = task_id(fact)?;
    let past = projection.fold::<TaskPast>();
    let end = past.last_end.as_deref().filter(|end| end.task.id == id);
    end.cloned()
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
    let past = projection.fold::<TaskPast>();
    let ends = past.reported.iter().filter(|end| {
        let id = end.task.id.to_string();
        named.contains(&id) && !waits(&id)
    });
    ends.cloned().collect()
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
