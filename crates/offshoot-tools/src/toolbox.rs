//! All tools of one runtime.

use std::fmt;
use std::sync::Arc;

use offshoot_agent::{PromptSection, Tool, ToolSet};
use offshoot_subagent::Subagents;
use offshoot_task::{ObserverHandle, TaskRegistry};

use crate::bash::Bash;
use crate::fit::Room;
use crate::interrupt_agent::InterruptAgent;
use crate::list_agents::ListAgents;
use crate::live::RegistryWork;
use crate::notices::TaskNotices;
use crate::send_message::SendMessage;
use crate::subagent::SubagentTool;
use crate::task_kill::TaskKill;
use crate::task_list::TaskList;
use crate::task_output::TaskOutput;
use crate::{ToolsSettings, sections};

/// The tools of one runtime, with what keeps them working. Dropping it stops the notices.
pub struct Toolbox {
    /// The tools, in the order in which models are shown them.
    pub tools: ToolSet,
    /// What the system prompt says about them.
    pub sections: Vec<PromptSection>,
    _notices: ObserverHandle,
}

impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Toolbox")
            .field("tools", &self.tools)
            .finish_non_exhaustive()
    }
}

impl Toolbox {
    /// Makes the tools over a registry and a delegation service, and begins to deliver notices to
    /// the agents of that service's host. A service whose limit of depth is 0 has no delegation tools.
    #[must_use]
    pub fn install(tasks: &TaskRegistry, subagents: &Subagents, settings: ToolsSettings) -> Self {
        let room = Room::new(settings.task_output.max_bytes);
        // What can never start a child has nothing to delegate with, and nobody to write to.
        let delegates = subagents.settings().max_depth > 0;
        let sections = sections::all(&settings);
        let agents = subagents.host().agents.clone();
        let notices = Arc::new(TaskNotices::new(agents, tasks.clone(), settings.notices));
        subagents.set_live_work(Arc::new(RegistryWork::new(Arc::clone(&notices))));
        let observing = tasks.observe(Arc::clone(&notices) as Arc<_>);
        let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
        if delegates {
            for tool in settings.subagents {
                let tool = SubagentTool::new(subagents.clone(), tasks.clone(), tool, room);
                tools.push(Arc::new(tool));
            }
            tools.push(Arc::new(SendMessage::new(subagents.clone())));
            tools.push(Arc::new(InterruptAgent::new(subagents.clone())));
            tools.push(Arc::new(ListAgents::new(subagents.clone(), room)));
        }
        tools.push(Arc::new(TaskOutput::new(
            Arc::clone(&notices),
            settings.task_output,
        )));
        tools.push(Arc::new(TaskList::new(notices, room)));
        tools.push(Arc::new(TaskKill::new(tasks.clone())));
        if let Some(bash) = settings.bash {
            tools.push(Arc::new(Bash::new(tasks.clone(), bash, room)));
        }
        Self {
            tools: ToolSet::new(tools),
            sections,
            _notices: observing,
        }
    }
}
