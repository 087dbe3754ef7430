//! Why an operation was refused. One enum a family of operations, each with a stable code.

use std::error::Error;
use std::fmt;

use crate::id::TaskId;

/// The error of a starter: its work could not be started.
#[derive(Debug)]
pub struct StarterError(Box<dyn Error + Send + Sync>);

impl StarterError {
    /// Wraps a message or another error.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(error.into())
    }

    /// The error that was wrapped, to look for a type that the producer knows.
    #[must_use]
    pub fn get_ref(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.0
    }
}

impl fmt::Display for StarterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for StarterError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

impl From<String> for StarterError {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

impl From<&str> for StarterError {
    fn from(message: &str) -> Self {
        Self::new(message)
    }
}

/// Why a task was not started. In every case nothing was registered and no id was used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Nobody who could look after the task is attached, and the settings want somebody.
    #[error("no task controller serves this owner: attach what can read and stop its tasks first")]
    NoController,
    /// The kind is not 1 to 32 characters of `[a-z0-9_-]`.
    #[error("invalid task kind `{kind}`")]
    InvalidKind {
        /// The kind that was given, cut.
        kind: String,
    },
    /// The label has nothing visible.
    #[error("invalid task label: it is empty")]
    EmptyLabel,
    /// The deadline is zero.
    #[error("invalid task deadline: it is zero")]
    InvalidDeadline,
    /// The interval of the promised progress is zero.
    #[error("invalid interval of progress: it is zero")]
    InvalidPromise,
    /// The owner is closing.
    #[error("the owner of the task is closing")]
    OwnerClosing,
    /// The registry is shutting down.
    #[error("the task registry is shutting down")]
    RegistryClosing,
    /// The owner has as many live tasks as it may.
    #[error(
        "background task limit reached for this owner (limit: {limit}): stop a task that is not needed any more, or wait for one to finish, then retry"
    )]
    LimitReached {
        /// The greatest number of live tasks of one owner.
        limit: usize,
    },
    /// The registry does not take tasks without an owner.
    #[error("tasks without an owner are not allowed")]
    UnownedNotAllowed,
    /// There is no Tokio runtime to run the task on.
    #[error("a task must be started inside a Tokio runtime")]
    NoRuntime,
    /// The starter failed.
    #[error("{0}")]
    Starter(#[source] StarterError),
    /// The starter panicked.
    #[error("the starter panicked: {message}")]
    StarterPanicked {
        /// The message of the panic.
        message: String,
    },
    /// The kind has no number left; ids are never used again.
    #[error("no task id of this kind is left")]
    IdsExhausted,
    /// A restored task has the id of a task that is known already.
    #[error("task id {id} is in use")]
    IdInUse {
        /// The id.
        id: TaskId,
    },
}

impl StartError {
    /// A name that does not change between versions.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoController => "NO_CONTROLLER",
            Self::InvalidKind { .. } => "INVALID_KIND",
            Self::EmptyLabel => "INVALID_LABEL",
            Self::InvalidDeadline => "INVALID_DEADLINE",
            Self::InvalidPromise => "INVALID_PROMISE",
            Self::OwnerClosing => "OWNER_CLOSING",
            Self::RegistryClosing => "REGISTRY_CLOSING",
            Self::LimitReached { .. } => "LIMIT_REACHED",
            Self::UnownedNotAllowed => "UNOWNED_NOT_ALLOWED",
            Self::NoRuntime => "NO_RUNTIME",
            Self::Starter(_) => "STARTER_FAILED",
            Self::StarterPanicked { .. } => "STARTER_PANICKED",
            Self::IdsExhausted => "IDS_EXHAUSTED",
            Self::IdInUse { .. } => "ID_IN_USE",
        }
    }
}

/// Why a task could not be looked at, waited for, read or stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The caller has no such task. A task of somebody else gives exactly this answer.
    #[error("unknown task {id}")]
    Unknown {
        /// The id that was given.
        id: TaskId,
    },
    /// The caller had this task; it was read and its record has been given up since.
    #[error(
        "task {id} has expired: it was finished and reported, and its record is no longer kept"
    )]
    Expired {
        /// The id that was given.
        id: TaskId,
    },
    /// The timeout of a wait is zero.
    #[error("invalid wait timeout: it must be greater than zero")]
    InvalidTimeout,
    /// A wait for any of no tasks would never end.
    #[error("no task to wait for")]
    NothingToWaitFor,
}

impl AccessError {
    /// A name that does not change between versions.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "UNKNOWN_TASK",
            Self::Expired { .. } => "EXPIRED_TASK",
            Self::InvalidTimeout => "INVALID_TIMEOUT",
            Self::NothingToWaitFor => "NOTHING_TO_WAIT_FOR",
        }
    }
}
