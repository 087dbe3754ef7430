//! Why the program did not do what it was asked: one line, and the exit code.

use std::fmt;

/// A fault that ends the program.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Bad usage, configuration or script: exit code 2.
    Usage(String),
    /// What was asked was in order and failed: exit code 1.
    Failed(anyhow::Error),
    /// Nobody reads stdout any more: exit code 1, without a word.
    StdoutClosed,
}

impl Fault {
    pub(crate) fn usage(line: impl fmt::Display) -> Self {
        Self::Usage(line.to_string())
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Failed(_) | Self::StdoutClosed => 1,
        }
    }
}

impl From<anyhow::Error> for Fault {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(line) => f.write_str(line),
            Self::Failed(error) => write!(f, "{error:#}"),
            Self::StdoutClosed => f.write_str("stdout is closed"),
        }
    }
}
