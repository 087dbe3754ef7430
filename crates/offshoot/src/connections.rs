//! A runtime as a server of the Model Context Protocol: each connection of a client is an agent that is
//! never started.

use std::time::Duration;

use offshoot_agent::{Agent, AgentHandle, AgentId, OpenError};
use offshoot_mcp::{McpServer, McpSettings, ServerParts};

use crate::Runtime;

impl Runtime {
    /// The tools of this runtime for MCP clients. `version` is what the clients are told.
    ///
    /// Calls of `bash` and of the delegation tools become tasks when they take long, for clients that
    /// know tasks.
    #[must_use]
    pub fn mcp_server(&self, version: impl Into<String>) -> McpServer {
        let delegation = self.config().subagent.iter();
        let names = delegation.map(|entry| entry.tool_name.clone());
        let settings = McpSettings {
            version: version.into(),
            as_tasks: names.chain(["bash".to_owned()]).collect(),
            // Room for what is aborted at the end of the grace.
            close_limit: self.host().settings.cancel_grace + Duration::from_millis(200),
            ..McpSettings::default()
        };
        let parts = ServerParts {
            host: self.host().clone(),
            kit: self.kit().clone(),
            tasks: self.tasks().clone(),
        };
        McpServer::new(parts, settings)
    }

    /// Goes on with the stored session of a connection. It is told of what its last process left
    /// behind, and is not started.
    ///
    /// # Errors
    ///
    /// [`OpenError`] when the session is not there, is open elsewhere, or cannot be read.
    pub fn resume_connection(&self, id: &AgentId) -> Result<AgentHandle, OpenError> {
        let kit = self.kit().clone();
        let agent = Agent::resume(self.host(), None, id, serde_json::Map::new(), kit)?;
        self.subagents().recover(&agent);
        Ok(agent)
    }
}
