//! What agents have running in a registry, and what a resumed one is told of it.

use std::sync::Arc;

use offshoot_agent::{Agent, Extension, Projection};
use offshoot_core::text;
use offshoot_subagent::{EndedRun, Interrupter, LiveWork, ended_run};
use offshoot_task::{StoppedBy, TaskOutcome, TaskSnapshot, TaskStatus};

use crate::notices::{LOST, SETTLED, TaskNotices};
use crate::past::{EndedTask, OpenTask, TaskPast, owed, taken_and_not_shown};
use crate::subagent::outcome_of_ended;

/// What agents have running in a registry.
pub(crate) struct RegistryWork {
    notices: Arc<TaskNotices>,
}

impl RegistryWork {
    pub(crate) fn new(notices: Arc<TaskNotices>) -> Self {
        Self { notices }
    }

    fn live(&self, agent: &Agent) -> impl Iterator<Item = TaskSnapshot> + use<> {
        let tasks = self.notices.tasks.list(agent.scope().id());
        tasks.into_iter().filter(|task| !task.status.is_terminal())
    }

    /// Ids that a session has used are not used again for other tasks.
    fn reserve(&self, projection: &Projection) {
        for (kind, number) in projection.fold::<TaskPast>().greatest() {
            self.notices.tasks.reserve_through(kind, number);
        }
    }

    /// Tells of an end of an earlier process, with what is known of the output; the registry has the
    /// task again, with an output that does not fit into the notice.
    fn tell(&self, agent: &Agent, task: &OpenTask, outcome: TaskOutcome, facts: Vec<Extension>) {
        let tasks = &self.notices.tasks;
        let (status, detail) = (outcome.status(), outcome.detail().map(str::to_owned));
        let output = outcome.output().unwrap_or_default().to_owned();
        let heading = outcome.heading().map(str::to_owned);
        let restored = tasks.restore(
            agent.scope(),
            task.id.clone(),
            &task.label,
            task.generation,
            outcome,
        );
        if let Err(error) = &restored {
            tracing::warn!(agent = %agent.id(), task = %task.id, %error, "not restored");
        }
        let restored = restored.ok();
        let restored = restored.and_then(|()| tasks.get(agent.scope().id(), &task.id).ok());
        match restored.filter(|_| !output.is_empty()) {
            // It says itself when it is refused.
            Some(restored) => {
                self.notices.tell(agent, &restored, facts);
            }
            None => {
                let settings = &self.notices.settings;
                let output = text::marked_tail(&output, settings.inline_bytes);
                let message = task.message(status, detail.as_deref(), heading.as_deref(), &output);
                if let Err(error) = agent.notify_with(facts, message, settings.wake) {
                    tracing::warn!(agent = %agent.id(), task = %task.id, %error, "not told of an end");
                }
            }
        }
    }
}

/// What the run came to that a task carried.
fn run_of(agent: &Agent, task: &OpenTask) -> Option<EndedRun> {
    let (child, outcome) = task.run.as_ref()?;
    Some(ended_run(agent, child, *outcome))
}

impl LiveWork for RegistryWork {
    fn describe(&self, agent: &Agent) -> Vec<String> {
        self.live(agent)
            .map(|task| format!("task {} ({})", task.id, task.label))
            .collect()
    }

    fn stop(&self, agent: &Agent, by: Interrupter, reason: &str) {
        let by = match by {
            Interrupter::Model => StoppedBy::Model,
            Interrupter::Human => StoppedBy::Human,
        };
        for task in self.live(agent) {
            let reason = Some(reason.to_owned());
            let caller = agent.scope().id();
            if let Err(error) = self.notices.tasks.kill(caller, &task.id, by, reason) {
                tracing::debug!(task = %task.id, %error, "a task could not be stopped");
            }
        }
    }

    fn was_alive(&self, session: &Projection) -> bool {
        session.fold::<TaskPast>().has_open()
    }

    fn lost(&self, session: &Projection) -> Vec<Extension> {
        let open = session.fold::<TaskPast>().open_tasks().into_iter();
        let lost = |task: OpenTask| {
            Extension::new(SETTLED)
                .with("task_id", task.id.to_string())
                .with("status", TaskStatus::Failed.as_str())
                .with("detail", LOST)
                // Nobody is left to be told.
                .with("reported", true)
        };
        open.map(lost).collect()
    }

    fn retell(&self, agent: &Agent) {
        let owed: Vec<EndedTask> = agent.with_projection(|projection| {
            let owed = owed(projection).into_iter();
            owed.chain(taken_and_not_shown(projection)).collect()
        });
        for EndedTask {
            task,
            status,
            detail,
        } in owed
        {
            let of_run = run_of(agent, &task).map(|run| outcome_of_ended(&run));
            let mut outcome = match status {
                TaskStatus::Completed => TaskOutcome::completed(),
                TaskStatus::Killed => TaskOutcome::killed(),
                _ => TaskOutcome::failed(LOST),
            };
            outcome = match detail {
                Some(detail) => outcome.with_detail(detail),
                None => outcome,
            };
            if let Some(of_run) = of_run {
                if let Some(output) = of_run.output() {
                    outcome = outcome.with_output(output);
                }
                if let Some(heading) = of_run.heading() {
                    outcome = outcome.with_heading(heading);
                }
            }
            self.tell(agent, &task, outcome, Vec::new());
        }
    }

    fn recover(&self, agent: &Agent) {
        let open = agent.with_projection(|projection| {
            self.reserve(projection);
            projection.fold::<TaskPast>().open_tasks()
        });
        for task in open {
            // A run that it carried may have ended, though nobody wrote down that the task did.
            let outcome = match run_of(agent, &task) {
                Some(run) => outcome_of_ended(&run),
                None => TaskOutcome::failed(LOST),
            };
            let fact = Extension::new(SETTLED)
                .with("task_id", task.id.to_string())
                .with("status", outcome.status().as_str())
                .with_some("detail", outcome.detail())
                .with("reported", false);
            self.tell(agent, &task, outcome, vec![fact]);
        }
    }
}
