//! How a child's run ended.

use std::fmt;
use std::time::Duration;

use offshoot_agent::{ActivationFacts, Agent, TurnEndReason, Usage};
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

/// What a run cost, alone and with its subtree: tokens and time.
///
/// The time of a residency, or of a one-shot run, goes from its start to its settlement on the
/// runtime's clock, in milliseconds, waits included. What ended with its process is timed by the time
/// stamps of its log instead. With the subtree it is a sum: children that ran at the same time, and
/// while their parent ran, count each, so that it may exceed the time that went by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TreeUsage {
    /// Tokens that the run itself read.
    pub input: u64,
    /// Tokens that the run itself wrote.
    pub output: u64,
    /// Tokens that the run and everything below it read.
    pub total_input: u64,
    /// Tokens that the run and everything below it wrote.
    pub total_output: u64,
    /// How long the run itself took, in milliseconds.
    pub wall_ms: u64,
    /// How long the run and everything below it took together, in milliseconds.
    pub total_wall_ms: u64,
}

impl TreeUsage {
    /// From a run's own tokens and those of its whole tree; without times.
    #[must_use]
    pub fn new(own: Usage, total: Usage) -> Self {
        Self {
            input: own.input,
            output: own.output,
            total_input: total.input,
            total_output: total.output,
            ..Self::default()
        }
    }

    /// What the present residency of an agent cost so far, with what has settled below it.
    #[must_use]
    pub fn of(agent: &Agent) -> Self {
        let (own, total) = agent.usage();
        let (wall, total_wall) = agent.wall();
        Self {
            wall_ms: millis(wall),
            total_wall_ms: millis(total_wall),
            ..Self::new(own, total)
        }
    }

    /// What a run without anything below it cost.
    #[must_use]
    pub fn alone(own: Usage, wall: Duration) -> Self {
        Self {
            wall_ms: millis(wall),
            total_wall_ms: millis(wall),
            ..Self::new(own, own)
        }
    }

    /// The same run, which took this long; what is below it took as long as before.
    pub(crate) fn lasting(self, wall: Duration) -> Self {
        let below = self.total_wall_ms.saturating_sub(self.wall_ms);
        Self {
            wall_ms: millis(wall),
            total_wall_ms: millis(wall).saturating_add(below),
            ..self
        }
    }

    /// Adds a run that was started by this one, with everything below it.
    pub fn add_below(&mut self, below: Self) {
        self.total_input = self.total_input.saturating_add(below.total_input);
        self.total_output = self.total_output.saturating_add(below.total_output);
        self.total_wall_ms = self.total_wall_ms.saturating_add(below.total_wall_ms);
    }

    /// The tokens of the whole tree.
    #[must_use]
    pub fn total(self) -> Usage {
        Usage {
            input: self.total_input,
            output: self.total_output,
        }
    }

    /// How long the whole tree took together.
    #[must_use]
    pub fn total_wall(self) -> Duration {
        Duration::from_millis(self.total_wall_ms)
    }
}

/// Adds another run of the same session.
impl std::ops::AddAssign for TreeUsage {
    fn add_assign(&mut self, other: Self) {
        self.add_below(other);
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.wall_ms = self.wall_ms.saturating_add(other.wall_ms);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
