//! What can be said of a task from outside: its status, who stopped it, how it ended.

use std::fmt;

use crate::spec::detail_line;

/// Where a task is in its life. The last three are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskStatus {
    /// The work goes on.
    Running,
    /// A stop was requested; the work has not ended yet.
    Stopping,
    /// It ended by itself.
    Completed,
    /// It ended because a stop was requested.
    Killed,
    /// It ended otherwise: an error, a panic, its deadline, or it was lost.
    Failed,
}

impl TaskStatus {
    /// The name shown to people and models: `running`, `stopping`, `completed`, `killed`, `failed`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Completed => "completed",
            Self::Killed => "killed",
            Self::Failed => "failed",
        }
    }

    /// Whether the task has ended; such a status never changes again.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Killed | Self::Failed)
    }
}

impl fmt::Display for TaskStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who asked a task to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoppedBy {
    /// The model, with its tool. It knows, so no notice follows.
    Model,
    /// A person. The model is still told.
    Human,
    /// The owner's closing.
    Owner,
    /// The registry's shutdown.
    Service,
    /// The task's own deadline.
    Deadline,
}

impl StoppedBy {
    /// The name shown to people and models: `model`, `human`, `owner`, `service`, `deadline`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Human => "human",
            Self::Owner => "owner",
            Self::Service => "service",
            Self::Deadline => "deadline",
        }
    }

    /// Whether nobody needs a notice about the end of a task that was stopped so.
    pub(crate) const fn silences(self) -> bool {
        matches!(self, Self::Model | Self::Owner | Self::Service)
    }
}

impl fmt::Display for StoppedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A request to stop, as the producer and every snapshot see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StopRequest {
    /// Who asked.
    pub by: StoppedBy,
    /// Why, as one line of at most 500 bytes.
    pub reason: Option<String>,
}

/// What a kill did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a kill of a finished task does nothing"]
pub enum KillOutcome {
    /// The task was running and was asked to stop.
    Requested,
    /// It had been asked before. Nothing changed.
    AlreadyStopping,
    /// It had ended before.
    AlreadyFinished,
}

/// How a task ended, as its future returns it.
///
/// ```
/// use offshoot_task::{TaskOutcome, TaskStatus};
/// let outcome = TaskOutcome::completed().with_detail("exit code: 0");
/// assert_eq!(outcome.status(), TaskStatus::Completed);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the outcome is how a task reports its end"]
pub struct TaskOutcome {
    pub(crate) status: TaskStatus,
    pub(crate) detail: Option<String>,
    pub(crate) output: Option<String>,
    pub(crate) frame: Option<Box<Frame>>,
}

/// What a producer says of a final output, apart from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) heading: Option<String>,
    pub(crate) note: Option<String>,
}

impl Frame {
    pub(crate) fn bounded(self) -> Self {
        let line = |text: Option<String>| text.as_deref().and_then(detail_line);
        Self {
            heading: line(self.heading),
            note: line(self.note),
        }
    }
}

impl TaskOutcome {
    const fn of(status: TaskStatus) -> Self {
        Self {
            status,
            detail: None,
            output: None,
            frame: None,
        }
    }

    /// The work ended by itself.
    pub const fn completed() -> Self {
        Self::of(TaskStatus::Completed)
    }

    /// The work ended because a stop was requested.
    pub const fn killed() -> Self {
        Self::of(TaskStatus::Killed)
    }

    /// The work failed; `detail` says why.
    pub fn failed(detail: impl Into<String>) -> Self {
        Self::of(TaskStatus::Failed).with_detail(detail)
    }

    /// Adds what is shown beside the status. The registry keeps one line of at most 500 bytes.
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds the final output. The registry keeps the tail that fits its output window; the output
    /// of a task that streams is what it wrote, and this one is ignored.
    pub fn with_output(mut self, output: impl Into<String>) -> Self {
        self.output = Some(output.into());
        self
    }

    /// Adds what the producer itself says before the final output, such as that it is only a part. It
    /// is no part of the output, so that nothing in that can pass for it. The registry keeps one line
    /// of at most 500 bytes, and none for a task that streams.
    pub fn with_heading(mut self, line: impl Into<String>) -> Self {
        self.frame.get_or_insert_default().heading = Some(line.into());
        self
    }

    /// Adds what the producer itself says after the final output, as
    /// [`with_heading`](Self::with_heading) does before it.
    pub fn with_note(mut self, line: impl Into<String>) -> Self {
        self.frame.get_or_insert_default().note = Some(line.into());
        self
    }

    /// The terminal status.
    #[must_use]
    pub const fn status(&self) -> TaskStatus {
        self.status
    }

    /// What is shown beside the status.
    #[must_use]
    pub fn detail(&self) -> Option<&str> {
        self.detail.as_deref()
    }

    /// The final output.
    #[must_use]
    pub fn output(&self) -> Option<&str> {
        self.output.as_deref()
    }

    /// What is said before the final output.
    #[must_use]
    pub fn heading(&self) -> Option<&str> {
        self.frame.as_ref()?.heading.as_deref()
    }

    /// What is said after the final output.
    #[must_use]
    pub fn note(&self) -> Option<&str> {
        self.frame.as_ref()?.note.as_deref()
    }
}
