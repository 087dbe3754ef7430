//! Subagents in this process.
//!
//! - [`Spawn`]: a child that begins with nothing but its prompt.
//! - [`Fork`]: a child that begins with its parent's finished turns.
//!
//! Both work with their parent's driver, tools and prompt, as far as the delegation does not narrow
//! them.

mod capture;
mod run;

use futures::future::BoxFuture;
use offshoot_agent::{Agent, Event, StoredEvent};
use offshoot_subagent::{Capabilities, Provider, ProviderError, Run, RunRequest};

/// Makes children that begin with nothing but their prompt.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spawn;

/// Makes children that begin with their parent's finished turns.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fork;

impl Provider for Spawn {
    fn name(&self) -> &'static str {
        "spawn"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::in_process(false)
    }

    fn start(&self, request: RunRequest) -> BoxFuture<'_, Result<Box<dyn Run>, ProviderError>> {
        Box::pin(async move { run::start(request, None).await })
    }
}

impl Provider for Fork {
    fn name(&self) -> &'static str {
        "fork"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::in_process(true)
    }

    fn start(&self, request: RunRequest) -> BoxFuture<'_, Result<Box<dyn Run>, ProviderError>> {
        Box::pin(async move {
            let seed = finished_turns(&request.child.parent)?;
            run::start(request, seed).await
        })
    }

    fn seed<'a>(
        &'a self,
        parent: &'a Agent,
    ) -> BoxFuture<'a, Result<Option<Vec<StoredEvent>>, ProviderError>> {
        Box::pin(async move { finished_turns(parent) })
    }
}

/// The agent's log up to the end of its last finished turn; nothing when it has not finished one.
fn finished_turns(agent: &Agent) -> Result<Option<Vec<StoredEvent>>, ProviderError> {
    let read = agent.host().store.read(agent.id());
    let mut events = read.map_err(|error| {
        ProviderError::new(format!("the parent's session could not be read: {error}"))
    })?;
    let end = events
        .iter()
        .rposition(|stored| matches!(stored.event, Event::TurnEnd { .. }));
    Ok(end.map(|end| {
        events.truncate(end + 1);
        events
    }))
}
