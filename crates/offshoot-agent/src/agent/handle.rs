//! Who made an agent holds it by this: an agent that nobody is left to close does not live on unseen.

use std::fmt;
use std::ops::Deref;

use super::{Agent, Pending};

/// A live agent in the hands of who made it, who is to [close](Agent::close) it. It can do all that
/// an [`Agent`] can; cloning gives a plain `Agent`, as a look-up in the registry does, and those may
/// come and go.
///
/// Dropping it before the agent began to close is a fault of the program: the agent is then closed in
/// the background with [`Pending::Keep`], so that its session is let go, and a warning is logged.
/// Dropping it later does nothing.
///
/// ```
/// # use std::sync::Arc;
/// # use futures::FutureExt;
/// # use futures::future::BoxFuture;
/// # use offshoot_agent::*;
/// # struct Done;
/// # impl TurnDriver for Done {
/// #     fn step<'a>(&'a self, _: &'a StepContext) -> BoxFuture<'a, Result<StepOutcome, DriverError>> {
/// #         async { Ok(StepOutcome::Completed) }.boxed()
/// #     }
/// # }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let host = AgentHost::new(Arc::new(MemoryStore::default()), AgentSettings::default());
/// # let kit = AgentKit { driver: Arc::new(Done), tools: ToolSet::default(), prompt: Prompt::default() };
/// let handle = Agent::create(&host, None, AgentSpec::root(kit))?;
/// let agent: Agent = handle.clone();
/// drop(handle); // Better: handle.close(Pending::Keep).await
/// agent.closed().await;
/// # Ok(()) }
/// ```
#[must_use = "dropping the handle closes the agent"]
pub struct AgentHandle {
    agent: Agent,
    /// Somebody else ends the agent.
    released: bool,
}

impl AgentHandle {
    pub(super) fn new(agent: Agent) -> Self {
        Self {
            agent,
            released: false,
        }
    }

    /// Gives the duty to close the agent away: to the scope that it was made in, which ends it when
    /// it closes itself, or to who keeps the returned agent.
    #[must_use = "without an owner scope, who holds the agent is to close it"]
    pub fn into_agent(mut self) -> Agent {
        self.released = true;
        self.agent.clone()
    }
}

impl Deref for AgentHandle {
    type Target = Agent;

    fn deref(&self) -> &Agent {
        &self.agent
    }
}

impl fmt::Debug for AgentHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AgentHandle").field(&self.agent).finish()
    }
}

impl Drop for AgentHandle {
    fn drop(&mut self) {
        if self.released || self.agent.scope().is_closing() {
            return;
        }
        // Asked and begun as one: of several that end the agent only the first finds it open.
        if self.agent.begin_close(Pending::Keep) {
            tracing::warn!(
                agent = %self.agent.id(),
                "the handle of an agent was dropped before the agent was closed: closing it in the background"
            );
            drop(self.agent.close(Pending::Keep));
        }
    }
}
