//! One client: an agent that is never started, and owns what the client starts.
//!
//! The agent is made with the first call, so that a client that only looks leaves no session.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use offshoot_agent::{
    Agent, AgentHandle, AgentSpec, CallId, OpenError, Pending, StepKey, ToolCall,
};
use serde_json::Value;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::announce::Announcer;
use crate::notices::Shown;
use crate::server::McpServer;
use crate::tasks::Carried;

/// Why a connection has no agent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OwnerError {
    #[error("the connection is closing")]
    Closing,
    #[error(transparent)]
    Open(#[from] OpenError),
}

pub(crate) struct Connection {
    server: McpServer,
    /// Closes the agent when the connection is dropped without its end.
    owner: OnceCell<AgentHandle>,
    ended: CancellationToken,
    calls: Arc<Semaphore>,
    counter: AtomicU64,
    announcer: Announcer,
    pub(crate) shown: Shown,
    pub(crate) carried: Carried,
}

impl Connection {
    pub(crate) fn new(server: McpServer, resumed: Option<AgentHandle>) -> Arc<Self> {
        let calls = Arc::new(Semaphore::new(server.0.settings.max_calls));
        let ended = CancellationToken::new();
        let known = resumed.as_ref().map(|agent| agent.id().clone());
        let connection = Arc::new(Self {
            announcer: Announcer::new(ended.clone()),
            server,
            owner: OnceCell::new_with(resumed),
            ended,
            calls,
            counter: AtomicU64::new(0),
            shown: Shown::default(),
            carried: Carried::default(),
        });
        if let Some(id) = known {
            connection.server.0.enter(&id, &connection);
        }
        connection
    }

    pub(crate) fn server(&self) -> &McpServer {
        &self.server
    }

    pub(crate) fn announcer(&self) -> &Announcer {
        &self.announcer
    }

    /// The agent, made now if there is none yet.
    pub(crate) async fn owner(self: &Arc<Self>) -> Result<Agent, OwnerError> {
        if self.ended.is_cancelled() {
            return Err(OwnerError::Closing);
        }
        let parts = &self.server.0.parts;
        let made = self.owner.get_or_try_init(|| async {
            let agent = Agent::create(&parts.host, None, AgentSpec::root(parts.kit.clone()))?;
            self.server.0.enter(agent.id(), self);
            Ok::<_, OpenError>(agent)
        });
        let agent = Agent::clone(made.await?);
        if self.ended.is_cancelled() {
            // The closing may have looked before the agent was there.
            drop(agent.close(Pending::Keep));
            return Err(OwnerError::Closing);
        }
        Ok(agent)
    }

    /// The agent, if there is one.
    pub(crate) fn known_owner(&self) -> Option<&Agent> {
        self.owner.get().map(|owner| &**owner)
    }

    /// A place among the calls that may run at once.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.calls).try_acquire_owned().ok()
    }

    /// A call of a tool by this client. It is cancelled with the connection.
    pub(crate) fn call(&self, agent: &Agent, args: Value) -> ToolCall {
        let number = self.counter.fetch_add(1, Ordering::Relaxed) + 1;
        let activation = agent.with_projection(|projection| projection.activations());
        ToolCall {
            agent: agent.clone(),
            call_id: CallId(format!("mcp_{number}")),
            args,
            key: StepKey {
                session: agent.id().clone(),
                activation,
                // No turn: each call is a step of its own.
                turn: 0,
                step: number,
                attempt: 1,
            },
            generation: 0,
            cancel: self.ended.child_token(),
        }
    }

    /// Ends the connection with everything that its client started, and with the calls that run. Every
    /// caller awaits the same end.
    pub(crate) async fn close(&self) {
        self.ended.cancel();
        let calls = async {
            // Each call gives its place back within the grace of a cancelled one.
            let all = u32::try_from(self.server.0.settings.max_calls).unwrap_or(u32::MAX);
            let _ = self.calls.acquire_many(all).await;
        };
        let owner = async {
            if let Some(agent) = self.owner.get() {
                self.server.0.leave(agent.id());
                agent.close(Pending::Keep).await;
            }
        };
        tokio::join!(calls, owner);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.ended.cancel();
        if let Some(agent) = self.owner.get() {
            self.server.0.leave(agent.id());
            drop(agent.close(Pending::Keep));
        }
    }
}
