//! What a message and an idle agent cost the allocator. Counts, not times: the same on every machine,
//! so that a change that makes either dearer is seen. The bounds are what was reached, and a little.

#![allow(clippy::print_stdout, reason = "the counts are worth reading")]

use std::alloc::System;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use offshoot_agent::{
    Agent, AgentHost, AgentKit, AgentSettings, AgentSpec, DriverError, MemoryStore, Message,
    Pending, Prompt, StepContext, StepOutcome, ToolSet, TurnDriver,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, Stats, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const AGENTS: usize = 1_000;
const MESSAGES: usize = 1_000;

struct Noop;

impl TurnDriver for Noop {
    fn step<'a>(&'a self, _: &'a StepContext) -> BoxFuture<'a, Result<StepOutcome, DriverError>> {
        std::future::ready(Ok(StepOutcome::Completed)).boxed()
    }
}

fn kept(change: Stats) -> usize {
    let freed = change.bytes_deallocated;
    change.bytes_allocated.saturating_sub(freed)
}

/// One test: the counts are the process's.
#[tokio::test]
async fn a_message_and_an_idle_agent_cost_the_allocator_little() {
    let host = AgentHost::new(Arc::new(MemoryStore::default()), AgentSettings::default());
    let spec = AgentSpec::root(AgentKit {
        driver: Arc::new(Noop),
        tools: ToolSet::default(),
        prompt: Prompt::default(),
    });
    let started = || {
        let agent = Agent::create(&host, None, spec.clone()).expect("an agent");
        agent.start();
        agent.into_agent()
    };
    let mut agents = Vec::with_capacity(AGENTS);

    let region = Region::new(ALLOCATOR);
    agents.extend((0..AGENTS).map(|_| started()));
    let idle = kept(region.change()) / AGENTS;

    let agent = started();
    let messages: Vec<_> = (0..MESSAGES).map(|_| Message::user("hello")).collect();
    let region = Region::new(ALLOCATOR);
    for message in messages {
        agent.followup(message).expect("accepted");
        agent.idle().await;
    }
    let change = region.change();
    let (blocks, left) = (change.allocations / MESSAGES, kept(change) / MESSAGES);
    println!("idle agent: {idle} B; message: {blocks} blocks, {left} B kept");

    let turns = agent.with_projection(|projection| projection.turn());
    assert_eq!(turns, MESSAGES as u64, "each message had its turn");
    assert!(idle <= 1_840, "an idle agent keeps {idle} B");
    assert!(blocks <= 10, "a message takes {blocks} blocks");
    assert!(left <= 850, "a message and its turn keep {left} B");
    for agent in agents {
        agent.close(Pending::Keep).await;
    }
    agent.close(Pending::Keep).await;
}
