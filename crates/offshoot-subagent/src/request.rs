//! What a parent asks for.

use std::fmt;

use offshoot_agent::{Agent, CallId, ToolFilter};
use serde::{Deserialize, Serialize};

use crate::OutputSchema;

/// How long a child lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// It ends with its turn.
    OneShot,
    /// It stays addressable: a later message makes it resident again.
    Continuable,
}

impl Mode {
    /// The name in events and configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OneShot => "one-shot",
            Self::Continuable => "continuable",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A delegation.
#[derive(Clone, Debug)]
pub struct ChildRequest {
    /// Who delegates.
    pub parent: Agent,
    /// The provider's name.
    pub provider: String,
    /// What the child is called: made one line of at most 200 bytes.
    pub label: String,
    /// What it is to do.
    pub prompt: String,
    /// Who it is, instead of who its parent is.
    pub persona: Option<String>,
    /// Which of its parent's tools it sees.
    pub tool_filter: Option<ToolFilter>,
    /// What its answer has to be; for one-shot runs only.
    pub output_schema: Option<OutputSchema>,
    /// The generation of the turn that delegates.
    pub generation: u64,
    /// The background task that carries a one-shot run, as it is called in events.
    pub task_id: Option<String>,
    /// The tool call that waits for a one-shot run: when its result is cut off by the death of the
    /// process, the agent is told of the end all the same.
    pub call_id: Option<CallId>,
    /// What is added to the child's first message, after the prompt.
    pub guidance: Option<String>,
}

impl ChildRequest {
    /// A delegation by `parent` to a child of `provider`, without anything optional.
    #[must_use]
    pub fn new(
        parent: Agent,
        provider: impl Into<String>,
        label: impl Into<String>,
        prompt: impl Into<String>,
    ) -> Self {
        Self {
            parent,
            provider: provider.into(),
            label: label.into(),
            prompt: prompt.into(),
            persona: None,
            tool_filter: None,
            output_schema: None,
            generation: 0,
            task_id: None,
            call_id: None,
            guidance: None,
        }
    }
}
