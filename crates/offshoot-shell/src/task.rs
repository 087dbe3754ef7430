//! A command as a task of a registry.

use std::time::Duration;

use offshoot_core::Scope;
use offshoot_task::{StartError, TaskContext, TaskId, TaskOutcome, TaskRegistry, TaskSpec};

use crate::command::{ShellCommand, ShellConfig};
use crate::outcome::task_outcome;
use crate::run::ShellRun;

/// The kind of a task that runs a command.
const KIND: &str = "bash";

/// What is said of the task that runs a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShellTask {
    /// What the command does; the command line itself when absent.
    pub label: Option<String>,
    /// The generation of the turn that starts it.
    pub generation: u64,
    /// When it is stopped, counted from its start; never when absent.
    pub deadline: Option<Duration>,
}

impl ShellTask {
    /// The spec of a task of kind `bash` that runs `command`.
    pub fn spec(&self, command: &ShellCommand) -> TaskSpec {
        let label = self
            .label
            .as_deref()
            .filter(|label| !label.trim().is_empty());
        let spec = TaskSpec::new(KIND, label.unwrap_or(command.line()));
        let spec = spec.generation(self.generation);
        match self.deadline {
            Some(deadline) => spec.deadline(deadline),
            None => spec,
        }
    }
}

impl ShellRun {
    /// The work of a task that runs this command to its end: a stop of the task stops the command.
    ///
    /// Give the task [`output`](Self::output) as its stream, so that a command that runs already
    /// keeps what it has written:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # use offshoot_core::Scope;
    /// # use offshoot_shell::{ShellCommand, ShellConfig, ShellRun, ShellTask};
    /// # use offshoot_task::TaskRegistry;
    /// # let (registry, owner) = (TaskRegistry::default(), Scope::root("me"));
    /// let command = ShellCommand::new("echo begun; sleep 600");
    /// let mut run = ShellRun::spawn(&command, &ShellConfig::default())?;
    /// if tokio::time::timeout(Duration::from_millis(200), run.wait()).await.is_err() {
    ///     let spec = ShellTask::default().spec(&command).stream(run.output());
    ///     let id = registry.start(&owner, spec, |context| Ok(run.into_task(context)))?;
    ///     assert_eq!(registry.read(owner.id(), &id)?.text(), "begun\n");
    /// }
    /// # registry.shutdown().await;
    /// # Ok(()) }
    /// ```
    pub async fn into_task(mut self, context: TaskContext) -> TaskOutcome {
        let ended = tokio::select! {
            // A stop that came before the first poll is seen first.
            biased;
            () = context.cancelled() => None,
            outcome = self.wait() => Some(outcome),
        };
        match ended {
            Some(outcome) => task_outcome(outcome),
            None => task_outcome(self.stop().await),
        }
    }
}

/// Runs a command as a task of `owner`. Its label is `task`'s, or the command line.
///
/// A command that cannot be started is a task that failed, with the reason as its detail.
///
/// # Errors
///
/// [`StartError`]: the registry did not take the task; nothing was started.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use offshoot_core::Scope;
/// use offshoot_shell::{ShellCommand, ShellConfig, ShellTask, start_shell};
/// use offshoot_task::TaskRegistry;
///
/// let (registry, owner) = (TaskRegistry::default(), Scope::root("me"));
/// let command = ShellCommand::new("echo hello; exit 3");
/// let config = ShellConfig::default();
/// let id = start_shell(&registry, &owner, &command, &ShellTask::default(), &config)?;
/// let waited = registry.wait(owner.id(), &id, Duration::from_secs(5)).await?;
/// assert_eq!(waited.snapshot().detail.as_deref(), Some("exit code: 3"));
/// waited.commit();
/// # Ok(()) }
/// ```
pub fn start_shell(
    registry: &TaskRegistry,
    owner: &Scope,
    command: &ShellCommand,
    task: &ShellTask,
    config: &ShellConfig,
) -> Result<TaskId, StartError> {
    let output = offshoot_task::OutputBuffer::new(config.output_window);
    let spec = task.spec(command).stream(output.clone());
    registry.start(owner, spec, |context| {
        let run = ShellRun::spawn_into(command, config, output);
        Ok(async move {
            match run {
                Ok(run) => run.into_task(context).await,
                Err(error) => TaskOutcome::failed(error.to_string()),
            }
        })
    })
}
