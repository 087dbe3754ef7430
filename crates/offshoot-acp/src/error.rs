//! Why a run of an external agent failed.

use std::fmt;
use std::time::Duration;

use offshoot_core::process::SpawnError;

/// What the agent was asked when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// `initialize`.
    Initialize,
    /// `session/new`.
    Session,
    /// `session/prompt`.
    Prompt,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Initialize => "initialize",
            Self::Session => "session/new",
            Self::Prompt => "session/prompt",
        })
    }
}

/// Why a run of an external agent failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcpError {
    /// The program could not be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The folder of the session has no absolute path.
    #[error("the folder of the session cannot be found: {0}")]
    Folder(std::io::Error),
    /// It was cancelled before its session existed.
    #[error("cancelled before the session existed")]
    Cancelled,
    /// Its session did not exist in time.
    #[error("it was not ready within {} s", .0.as_secs_f64())]
    StartTimeout(Duration),
    /// Its turn did not end in time.
    #[error("deadline exceeded ({} s)", .0.as_secs_f64())]
    Deadline(Duration),
    /// It ended, or closed its output, before it answered.
    #[error("it ended before it answered {0}")]
    Ended(Stage),
    /// It answered with an error.
    #[error("it answered {stage} with error {code}: {message}")]
    Refused {
        /// What was asked.
        stage: Stage,
        /// The code of the error.
        code: i32,
        /// Its message, as one bounded line.
        message: String,
    },
    /// It speaks another version of the protocol.
    #[error("it speaks version {0} of the protocol, expected 1")]
    Version(String),
    /// It did not say which session it made.
    #[error("its answer to session/new has no sessionId")]
    NoSession,
    /// It ended its turn for a reason that is no success.
    #[error("its turn ended with {0}")]
    StopReason(String),
    /// It wrote too much that is no message.
    #[error("it wrote {lines} lines that are no messages, such as `{sample}`")]
    Garbage {
        /// How many lines.
        lines: u64,
        /// The last of them, as one bounded line.
        sample: String,
    },
    /// It wrote a message that is too long.
    #[error("it wrote a line of {bytes} bytes (limit: {limit})")]
    LineTooLong {
        /// How long it was.
        bytes: u64,
        /// The limit.
        limit: usize,
    },
    /// It wrote too much.
    #[error("it wrote more than {limit} bytes")]
    Flood {
        /// The limit.
        limit: u64,
    },
    /// It asked and asked, and read no answer.
    #[error("it asks without reading the answers ({waiting} wait)")]
    Unread {
        /// How many answers wait.
        waiting: usize,
    },
}

impl AcpError {
    /// A name that does not change between versions.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Spawn(error) => error.code(),
            Self::Folder(_) => "DIRECTORY_NOT_USABLE",
            Self::Cancelled => "CANCELLED",
            Self::StartTimeout(_) => "START_TIMEOUT",
            Self::Deadline(_) => "DEADLINE_EXCEEDED",
            Self::Ended(_) => "AGENT_ENDED",
            Self::Refused { .. } => "AGENT_REFUSED",
            Self::Version(_) => "PROTOCOL_VERSION",
            Self::NoSession => "NO_SESSION",
            Self::StopReason(_) => "STOP_REASON",
            Self::Garbage { .. } => "GARBAGE",
            Self::LineTooLong { .. } => "LINE_TOO_LONG",
            Self::Flood { .. } => "FLOOD",
            Self::Unread { .. } => "ANSWERS_UNREAD",
        }
    }
}
