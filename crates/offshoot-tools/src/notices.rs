//! What an agent's session says of its background tasks, and the notices that tell it of their ends.
//!
//! The registry announces every change of every task; this observer writes it into the session of the
//! owner, an exact agent, and tells that agent of each end that nobody has shown it: exactly once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use offshoot_agent::{
    Agent, AgentRegistry, Extension, HistoryItem, Message, MessageId, Projection, Source, Status,
};
use offshoot_core::text;
use offshoot_task::{
    Reading, Receipt, StoppedBy, TaskChange, TaskId, TaskObserver, TaskRegistry, TaskSnapshot,
    TaskStatus,
};

use crate::unsaid::{Owed, Unsaid};
use crate::{NoticeSettings, quote, task_view};

pub(crate) const STARTED: &str = "task/started";
pub(crate) const STOPPING: &str = "task/stopping";
pub(crate) const SETTLED: &str = "task/settled";
/// The types of the events that say what becomes of an agent's tasks.
pub const EVENT_TYPES: [&str; 3] = [STARTED, STOPPING, SETTLED];

pub(crate) const LOST: &str = "lost in a restart";
pub(crate) const SOURCE: &str = "task";
pub(crate) const LABEL_BYTES: usize = 120;

/// An output that was taken into a notice.
#[derive(Debug)]
struct Inline {
    notice: MessageId,
    bytes: u64,
    receipt: Receipt,
}

/// What became of a message that a session took.
enum Fate {
    Waits,
    Read,
    Discarded,
}

impl Fate {
    fn of(message: &MessageId, projection: &Projection) -> Self {
        let is_read = |item: &HistoryItem| match item {
            HistoryItem::User(read) => read.id == *message,
            _ => false,
        };
        let inbox = projection.inbox();
        let mut claimed = inbox.claimed();
        if inbox.contains(message) || claimed.any(|entry| entry.message.id == *message) {
            return Self::Waits;
        }
        // The newest are the likely ones.
        match projection.history().iter().rev().any(is_read) {
            true => Self::Read,
            false => Self::Discarded,
        }
    }
}

/// Writes tasks into their owners' sessions and tells the owners of their ends.
pub(crate) struct TaskNotices {
    agents: AgentRegistry,
    pub(crate) tasks: TaskRegistry,
    pub(crate) settings: NoticeSettings,
    /// Notices that only point at an output: withdrawn when it is read before they are.
    waiting: Mutex<HashMap<TaskId, MessageId>>,
    /// Outputs that are in a notice: unread again when that is discarded before it was read.
    inline: Mutex<HashMap<TaskId, Inline>>,
    /// Ends that their owner's session did not take: said again at the owner's next change of a task.
    unsaid: Unsaid,
}

impl TaskNotices {
    pub(crate) fn new(
        agents: AgentRegistry,
        tasks: TaskRegistry,
        settings: NoticeSettings,
    ) -> Self {
        Self {
            agents,
            tasks,
            settings,
            waiting: Mutex::default(),
            inline: Mutex::default(),
            unsaid: Unsaid::default(),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<TaskId, MessageId>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn inline(&self) -> MutexGuard<'_, HashMap<TaskId, Inline>> {
        self.inline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many bytes of the output of a task of `agent` are in a notice that the agent will read. When
    /// the notice was discarded unread they can be read again from now on.
    pub(crate) fn in_a_notice(&self, agent: &Agent, task: &TaskId) -> u64 {
        let known = self
            .inline()
            .get(task)
            .map(|inline| (inline.notice.clone(), inline.bytes));
        let Some((notice, bytes)) = known else {
            return 0;
        };
        let fate = agent.with_projection(|projection| Fate::of(&notice, projection));
        if matches!(fate, Fate::Waits) {
            return bytes;
        }
        let inline = self.inline().remove(task);
        if let (Fate::Discarded, Some(inline)) = (fate, inline) {
            inline.receipt.revoke();
        }
        0
    }

    /// Makes what was in discarded notices of `agent` unread again.
    pub(crate) fn look_after(&self, agent: &Agent) {
        let owner = agent.scope().id();
        let tasks: Vec<_> = self.inline().keys().cloned().collect();
        for task in tasks {
            if self.tasks.get(owner, &task).is_ok() {
                self.in_a_notice(agent, &task);
            }
        }
    }

    /// Tells the owner of an end; whether its session took the notice. What it did not take was not
    /// shown: the end stays unreported and its output unread.
    pub(crate) fn tell(&self, agent: &Agent, task: &TaskSnapshot, facts: Vec<Extension>) -> bool {
        let limit = u64::try_from(self.settings.inline_bytes).unwrap_or(u64::MAX);
        // Decided by its size, before it is taken.
        let reading = (task.unread <= limit)
            .then(|| self.tasks.read_alone(agent.scope().id(), &task.id).ok())
            .flatten();
        // What another reading has may yet turn out not to have been shown: it is only named.
        let reading = reading.filter(|reading| reading.elsewhere() == 0);
        let output = match &reading {
            Some(reading) => Output::Inline(reading),
            None => Output::Elsewhere(task.unread),
        };
        let message = notice(task, &output);
        match (
            agent.notify_with(facts, message, self.settings.wake),
            reading,
        ) {
            (Ok(delivered), Some(reading)) => {
                let inline = Inline {
                    notice: delivered.message_id,
                    bytes: reading.text().len() as u64,
                    receipt: reading.commit_with_receipt(),
                };
                if inline.bytes > 0 {
                    self.inline().insert(task.id.clone(), inline);
                    // It may have been the last that was owed of a record: gone before it was noted.
                    if self.tasks.get(agent.scope().id(), &task.id).is_err() {
                        self.inline().remove(&task.id);
                    }
                }
            }
            (Ok(delivered), None) => {
                self.waiting().insert(task.id.clone(), delivered.message_id);
            }
            (Err(error), _) => {
                tracing::warn!(agent = %agent.id(), task = %task.id, %error, "a notice was dropped");
                return false;
            }
        }
        true
    }

    /// What the session did not take is said again at the agent's next change of a task.
    fn keep(&self, agent: &Agent, task: &TaskSnapshot, record: bool, notice: bool) {
        let task = task.id.clone();
        let owed = Owed {
            task,
            record,
            notice,
        };
        self.unsaid.keep(agent.scope().id(), owed);
    }

    /// Says what the session did not take before, until it refuses again.
    fn catch_up(&self, agent: &Agent) {
        let owner = agent.scope().id();
        while let Some(owed) = self.unsaid.next(owner) {
            let Ok(task) = self.tasks.get(owner, &owed.task) else {
                self.unsaid.forget(owner, &owed.task);
                continue;
            };
            let fact = settled(&task).with("reported", !owed.notice);
            let taken = if owed.notice {
                let facts = owed.record.then_some(fact).into_iter().collect();
                self.tell(agent, &task, facts)
            } else {
                record(agent, &task, fact)
            };
            if !self.unsaid.said(owner, &owed, taken) {
                // It was read meanwhile, when there was no notice to withdraw yet.
                self.withdraw(agent, &owed.task);
            }
            if !taken {
                break;
            }
        }
    }

    /// The notice pointed at an output that was read before the notice was.
    fn withdraw(&self, agent: &Agent, task: &TaskId) {
        let message = self.waiting().remove(task);
        if let Some(message) = message {
            agent.withdraw(&message, "collected");
        }
    }
}

impl TaskObserver for TaskNotices {
    fn on_change(&self, change: TaskChange, task: &TaskSnapshot) {
        let Some(owner) = task.owner else {
            return;
        };
        // First, so that what is said below is the newest.
        let owed = match change {
            TaskChange::Removed => {
                self.waiting().remove(&task.id);
                self.inline().remove(&task.id);
                self.unsaid.forget(owner, &task.id);
                return;
            }
            TaskChange::NoticeDue => self.unsaid.notice_due(owner, &task.id),
            TaskChange::Collected => {
                self.unsaid.collected(owner, &task.id);
                false
            }
            _ => false,
        };
        let Some(agent) = self.agents.by_scope(owner) else {
            return;
        };
        self.catch_up(&agent);
        match change {
            TaskChange::Started => {
                record(&agent, task, started(task));
            }
            TaskChange::Stopping => {
                record(&agent, task, stopping(task));
            }
            TaskChange::Settled if task.reported => {
                let taken = record(&agent, task, settled(task));
                if !taken {
                    self.keep(&agent, task, true, false);
                }
            }
            // Its owner is ending: no notice follows.
            TaskChange::Settled if agent.status() == Status::Closing => {
                let taken = record(&agent, task, settled(task).with("reported", true));
                if taken && let Ok(reading) = self.tasks.read(owner, &task.id) {
                    reading.commit();
                }
            }
            TaskChange::Settled => {
                let taken = self.tell(&agent, task, vec![settled(task)]);
                if !taken {
                    self.keep(&agent, task, true, true);
                }
            }
            TaskChange::NoticeDue if owed => {}
            TaskChange::NoticeDue => {
                let taken = self.tell(&agent, task, Vec::new());
                if !taken {
                    self.keep(&agent, task, false, true);
                }
            }
            TaskChange::Collected => self.withdraw(&agent, &task.id),
            _ => {}
        }
    }
}

/// Whether the session took it.
pub(crate) fn record(agent: &Agent, task: &TaskSnapshot, event: Extension) -> bool {
    let recorded = agent.record(event);
    if let Err(error) = &recorded {
        tracing::warn!(agent = %agent.id(), task = %task.id, %error, "not recorded");
    }
    recorded.is_ok()
}

pub(crate) fn started(task: &TaskSnapshot) -> Extension {
    Extension::new(STARTED)
        .with("task_id", task.id.to_string())
        .with("kind", task.kind.as_ref())
        .with("label", task.label.as_ref())
        .with("generation", task.generation)
}

fn stopping(task: &TaskSnapshot) -> Extension {
    let stop = task.stop.as_ref();
    Extension::new(STOPPING)
        .with("task_id", task.id.to_string())
        .with("by", stop.map_or("service", |stop| stop.by.as_str()))
        .with_some("reason", stop.and_then(|stop| stop.reason.as_deref()))
}

pub(crate) fn settled(task: &TaskSnapshot) -> Extension {
    Extension::new(SETTLED)
        .with("task_id", task.id.to_string())
        .with("status", task.status.as_str())
        .with_some("detail", task.detail.as_deref())
        .with("reported", task.reported)
}

enum Output<'a> {
    Inline(&'a Reading),
    Elsewhere(u64),
}

fn notice(task: &TaskSnapshot, output: &Output<'_>) -> Message {
    let label = text::one_line(&task.label, LABEL_BYTES);
    let mut words = format!(
        "background task {} ({}: {label}) finished {}",
        task.id,
        task.kind,
        task_view::status_line(task)
    );
    if let Some(stop) = task
        .stop
        .as_ref()
        .filter(|stop| stop.by == StoppedBy::Human)
    {
        words.push_str("\nIt was stopped by the user");
        match &stop.reason {
            Some(reason) => words.push_str(&format!(": {reason}")),
            None => words.push('.'),
        }
    }
    let complete = task.status == TaskStatus::Completed;
    match output {
        Output::Inline(reading) if reading.text().is_empty() => {
            words.push_str("\nThere is no output that you have not read.");
            add_line(&mut words, reading.note());
        }
        Output::Inline(reading) => {
            let heading = if complete {
                "Output"
            } else {
                "Output (the task did not complete)"
            };
            add_line(&mut words, Some(&format!("{heading}:")));
            add_line(&mut words, reading.heading());
            // Quoted, so that it cannot imitate a further notice.
            let output = quote::every_line(reading.text());
            let note = reading.note();
            add_line(
                &mut words,
                Some(note.map_or(&*output, |_| output.trim_end_matches('\n'))),
            );
            add_line(&mut words, note);
        }
        Output::Elsewhere(bytes) => {
            let partial = if complete {
                ""
            } else {
                " of a task that did not complete"
            };
            words.push_str(&format!(
                "\n{bytes} bytes of output{partial} wait for you: read them with task_output."
            ));
        }
    }
    let source = Source::new(SOURCE, task.generation.saturating_add(1))
        .with("task_id", task.id.to_string())
        .with("status", task.status.as_str());
    Message::text(source, words)
}

fn add_line(words: &mut String, line: Option<&str>) {
    if let Some(line) = line {
        words.push('\n');
        words.push_str(line);
    }
}
