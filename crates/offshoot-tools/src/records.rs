//! What an agent's session says of tasks that are no background tasks, but whose ids somebody has.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use offshoot_agent::{Agent, AgentRegistry, SendError};
use offshoot_task::{ObserverHandle, TaskChange, TaskId, TaskObserver, TaskRegistry, TaskSnapshot};

use crate::notices::{record, settled, started};

/// Writes tasks of a registry into their owners' sessions when their ids are handed out, and tells
/// nobody of their ends: whoever has such an id asks for it. A session that is resumed after a crash
/// tells its agent of those that were live, as it does of background tasks.
///
/// Dropping it ends the records.
pub struct TaskRecords {
    records: Arc<Records>,
    tasks: TaskRegistry,
    _observer: ObserverHandle,
}

struct Records {
    agents: AgentRegistry,
    /// Those that a session says were started and does not say have ended. Who takes one out says it.
    open: Mutex<HashSet<TaskId>>,
}

impl fmt::Debug for TaskRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskRecords").finish_non_exhaustive()
    }
}

impl TaskRecords {
    /// For the tasks of a registry that has no notices.
    #[must_use]
    pub fn of(tasks: &TaskRegistry, agents: AgentRegistry) -> Self {
        let records = Arc::new(Records {
            agents,
            open: Mutex::default(),
        });
        Self {
            tasks: tasks.clone(),
            _observer: tasks.observe(Arc::clone(&records) as Arc<dyn TaskObserver>),
            records,
        }
    }

    /// Writes that a task of `agent` was started: before anybody is told its id. Its end is written when
    /// it comes, or at once when it has come already.
    ///
    /// # Errors
    ///
    /// What the session does not take; nothing is written of the end then either.
    pub fn begin(&self, agent: &Agent, task: &TaskSnapshot) -> Result<(), SendError> {
        agent.record(started(task))?;
        self.records.open().insert(task.id.clone());
        // It may have ended before it was known to be open.
        let now = self.tasks.get(agent.scope().id(), &task.id);
        if let Some(task) = now.ok().filter(|task| task.status.is_terminal()) {
            self.records.end(agent, &task);
        }
        Ok(())
    }
}

impl Records {
    fn open(&self) -> MutexGuard<'_, HashSet<TaskId>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, agent: &Agent, task: &TaskSnapshot) {
        let is_open = self.open().remove(&task.id);
        if is_open {
            record(agent, task, settled(task).with("reported", true));
        }
    }
}

impl TaskObserver for Records {
    fn on_change(&self, change: TaskChange, task: &TaskSnapshot) {
        match change {
            TaskChange::Settled => {
                let agent = task.owner.and_then(|owner| self.agents.by_scope(owner));
                if let Some(agent) = agent {
                    self.end(&agent, task);
                }
            }
            TaskChange::Removed => {
                self.open().remove(&task.id);
            }
            _ => {}
        }
    }
}
