//! How a child's run ended.

use std::fmt;

use offshoot_agent::{ActivationFacts, TurnEndReason, Usage};
use serde::{Deserialize, Serialize};

/// How a run of a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// It did its work.
    Completed,
    /// It was stopped.
    Aborted,
    /// It failed.
    Error,
    /// It ran out of tokens.
    MaxTokens,
    /// Its model declined.
    Refusal,
    /// The program ended while it ran.
    Lost,
}

impl Outcome {
    /// The name in events and values.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Aborted => "aborted",
            Self::Error => "error",
            Self::MaxTokens => "max_tokens",
            Self::Refusal => "refusal",
            Self::Lost => "lost",
        }
    }

    /// What a residency came to.
    #[must_use]
    pub fn of(facts: &ActivationFacts) -> Self {
        match facts.end {
            Some(TurnEndReason::MaxTokens) => Self::MaxTokens,
            Some(TurnEndReason::Refusal) => Self::Refusal,
            Some(TurnEndReason::Aborted | TurnEndReason::Interrupted) => Self::Aborted,
            Some(TurnEndReason::Completed) if !facts.dropped => Self::Completed,
            // Work was accepted and thrown away unread: the child did not do what it was asked.
            Some(TurnEndReason::Completed) | None => Self::Aborted,
            Some(_) => Self::Error,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Tokens of a run, alone and with its subtree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeUsage {
    /// Tokens that the run itself read.
    pub input: u64,
    /// Tokens that the run itself wrote.
    pub output: u64,
    /// Tokens that the run and everything below it read.
    pub total_input: u64,
    /// Tokens that the run and everything below it wrote.
    pub total_output: u64,
}

impl TreeUsage {
    /// From a run's own tokens and those of its whole tree.
    #[must_use]
    pub fn new(own: Usage, total: Usage) -> Self {
        Self {
            input: own.input,
            output: own.output,
            total_input: total.input,
            total_output: total.output,
        }
    }

    /// The tokens of the whole tree.
    #[must_use]
    pub fn total(self) -> Usage {
        Usage {
            input: self.total_input,
            output: self.total_output,
        }
    }
}
