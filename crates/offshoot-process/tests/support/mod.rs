//! A parent whose one provider of subagents is a program.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test file is a program of its own and uses a part of this"
)]

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use offshoot_agent::{
    Agent, AgentHost, AgentKit, AgentSettings, AgentSpec, DriverError, MemoryStore, Prompt,
    StepContext, StepOutcome, ToolSet, TurnDriver,
};
use offshoot_process::{ProcessProvider, ProcessSettings};
use offshoot_subagent::{ChildRequest, OneShotResult, StartError, SubagentSettings, Subagents};
use tokio_util::sync::CancellationToken;

/// A bound on waits for something that must happen.
pub const SOON: Duration = Duration::from_secs(120);

/// The parent's turns are not what is tested.
struct Idle;

impl TurnDriver for Idle {
    fn step<'a>(&'a self, _: &'a StepContext) -> BoxFuture<'a, Result<StepOutcome, DriverError>> {
        Box::pin(std::future::pending())
    }
}

pub struct World {
    pub subagents: Subagents,
    pub parent: Agent,
}

impl World {
    pub fn of(settings: ProcessSettings) -> Self {
        let host = AgentHost::new(Arc::new(MemoryStore::default()), AgentSettings::default());
        let subagents = Subagents::new(host.clone(), SubagentSettings::default());
        subagents
            .register(Arc::new(ProcessProvider::new(settings)))
            .unwrap();
        let kit = AgentKit {
            driver: Arc::new(Idle),
            tools: ToolSet::new([]),
            prompt: Prompt::new([]),
        };
        let parent = Agent::create(&host, None, AgentSpec::root(kit))
            .unwrap()
            .into_agent();
        Self { subagents, parent }
    }

    pub fn request(&self, prompt: &str) -> ChildRequest {
        ChildRequest {
            guidance: Some("how a subagent works".into()),
            ..ChildRequest::new(self.parent.clone(), "program", "work", prompt)
        }
    }

    pub async fn start(
        &self,
        prompt: &str,
        cancel: &CancellationToken,
    ) -> Result<OneShotResult, StartError> {
        let run = self.subagents.run(self.request(prompt), cancel.clone());
        tokio::time::timeout(SOON, run).await.expect("an end")
    }

    pub async fn run(&self, prompt: &str) -> OneShotResult {
        let result = self.start(prompt, &CancellationToken::new()).await.unwrap();
        assert_eq!(result.dispose_error, None);
        result
    }
}
