//! What a stored session may say of tasks.

use std::collections::HashMap;

use offshoot_agent::{AgentId, EventCheck, EventRule, Extension, Fold};
use offshoot_task::{TaskId, TaskStatus};

use crate::notices::{SETTLED, STARTED, STOPPING};
use crate::past::TaskPast;

/// What a session may say of tasks: names that a registry gives, each begun once, each ended once.
///
/// An end without a beginning is taken: the log may have refused the beginning.
#[derive(Clone, Copy, Debug, Default)]
pub struct TaskRule;

/// No registry has issued so many ids of one kind, and no log passes over so many.
const MOST_AHEAD: u64 = 1 << 53;
/// From here on ids run out.
const MOST: u64 = 1 << 63;

impl EventRule for TaskRule {
    fn check(&self, _: &AgentId) -> EventCheck {
        let mut tasks = Tasks::default();
        Box::new(move |event| match event.kind.as_str() {
            STARTED => tasks.started(event),
            STOPPING => tasks.named(event).map(drop),
            SETTLED => tasks.settled(event),
            _ => Ok(()),
        })
    }

    fn fold(&self) -> Option<Fold> {
        Some(Fold::of::<TaskPast>())
    }
}

#[derive(Default)]
struct Tasks {
    kinds: HashMap<String, Kind>,
}

/// The tasks of one kind.
#[derive(Default)]
struct Kind {
    /// The greatest number so far.
    greatest: u64,
    started: Numbers,
    settled: Numbers,
}

/// Numbers that mostly lie close together, 64 to a word.
#[derive(Default)]
struct Numbers(HashMap<u64, u64>);

impl Numbers {
    fn has(&self, number: u64) -> bool {
        let word = self.0.get(&(number / 64)).copied().unwrap_or_default();
        word & (1 << (number % 64)) != 0
    }

    /// Whether it is new.
    fn insert(&mut self, number: u64) -> bool {
        let is_new = !self.has(number);
        *self.0.entry(number / 64).or_default() |= 1 << (number % 64);
        is_new
    }
}

impl Tasks {
    /// The task that an event names.
    fn named(&mut self, event: &Extension) -> Result<(TaskId, &mut Kind), String> {
        let id = task_id(event)?;
        let kind = self.kinds.entry(id.kind().to_owned()).or_default();
        let greatest = kind.greatest;
        if id.number() > greatest.saturating_add(MOST_AHEAD) || id.number() > MOST {
            return Err(format!(
                "impossible task id {id}: expected at most {}",
                greatest.saturating_add(MOST_AHEAD).min(MOST)
            ));
        }
        kind.greatest = id.number().max(greatest);
        Ok((id, kind))
    }

    fn started(&mut self, event: &Extension) -> Result<(), String> {
        let (id, seen) = self.named(event)?;
        let kind = event.field("kind").unwrap_or_default();
        if kind != id.kind() {
            return Err(format!("the task {id} of the kind {kind:?}"));
        }
        if seen.settled.has(id.number()) {
            return Err(format!("the task {id} ended before"));
        }
        match seen.started.insert(id.number()) {
            true => Ok(()),
            false => Err(format!("the task {id} was started before")),
        }
    }

    fn settled(&mut self, event: &Extension) -> Result<(), String> {
        let (id, seen) = self.named(event)?;
        let status = event.field("status").unwrap_or_default();
        let ends = [
            TaskStatus::Completed,
            TaskStatus::Killed,
            TaskStatus::Failed,
        ];
        if !ends.iter().any(|end| end.as_str() == status) {
            return Err(format!("the task {id} ended with the status {status:?}"));
        }
        match seen.settled.insert(id.number()) {
            true => Ok(()),
            false => Err(format!("the task {id} ended before")),
        }
    }
}

fn task_id(event: &Extension) -> Result<TaskId, String> {
    let id = event.field("task_id").unwrap_or_default();
    // Shown with its escapes: it may hold anything.
    id.parse()
        .map_err(|error| format!("a {} event with the task id {id:?}: {error}", event.kind))
}
