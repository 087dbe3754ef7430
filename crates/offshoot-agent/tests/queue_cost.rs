//! What an accepted message costs does not grow with what waits before it.

#![allow(clippy::print_stdout, reason = "the figures are worth reading")]

use std::alloc::System;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use offshoot_agent::{
    Agent, AgentHost, AgentKit, AgentSettings, AgentSpec, DriverError, MemoryStore, Message,
    Pending, Prompt, StepContext, StepOutcome, ToolSet, TurnDriver,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const DEEP: usize = 20_000;
const BLOCK: usize = 200;

struct Noop;

impl TurnDriver for Noop {
    fn step<'a>(&'a self, _: &'a StepContext) -> BoxFuture<'a, Result<StepOutcome, DriverError>> {
        std::future::ready(Ok(StepOutcome::Completed)).boxed()
    }
}

/// The least that a block of messages took, of each of some blocks: time, and bytes of the allocator.
fn least(agent: &Agent, blocks: usize) -> (Duration, usize) {
    let block = || {
        let messages: Vec<_> = (0..BLOCK).map(|_| Message::user("hello")).collect();
        let region = Region::new(ALLOCATOR);
        let began = Instant::now();
        for message in messages {
            agent.inject(message).expect("accepted");
        }
        (began.elapsed(), region.change().bytes_allocated)
    };
    let blocks: Vec<_> = (0..blocks).map(|_| block()).collect();
    let time = blocks.iter().map(|(time, _)| *time).min();
    let bytes = blocks.iter().map(|(_, bytes)| *bytes).min();
    (time.expect("a block"), bytes.expect("a block"))
}

/// A273. One test: the counts are the process's. The time is the least of many blocks, and its bound far
/// from what a walk over the queue would take, so that others on the machine do not matter.
#[tokio::test]
async fn a273_what_a_message_costs_does_not_grow_with_the_queue() {
    let settings = AgentSettings {
        inbox_capacity: 2 * DEEP,
        ..AgentSettings::default()
    };
    let host = AgentHost::new(Arc::new(MemoryStore::default()), settings);
    let kit = AgentKit {
        driver: Arc::new(Noop),
        tools: ToolSet::default(),
        prompt: Prompt::default(),
    };
    let agent = Agent::create(&host, None, AgentSpec::root(kit)).expect("an agent");
    agent.start();
    // Somebody looks at the queue meanwhile, as a wait for a message does.
    let watching = host.subscribe();
    let (first_time, first_bytes) = least(&agent, 10);
    least(&agent, DEEP / BLOCK - 20);
    let (deep_time, deep_bytes) = least(&agent, 10);
    let waiting = agent.with_projection(|projection| projection.inbox().len());
    assert_eq!(waiting, DEEP);
    println!(
        "{BLOCK} messages: {first_time:?}, {first_bytes} B; behind many: {deep_time:?}, {deep_bytes} B"
    );
    assert!(
        deep_bytes <= first_bytes + first_bytes / 10,
        "{first_bytes} B at first, {deep_bytes} B behind {DEEP} messages"
    );
    assert!(
        deep_time <= first_time * 10,
        "{first_time:?} at first, {deep_time:?} behind {DEEP} messages"
    );
    // Neither does reading all of it: once a message.
    let began = Instant::now();
    agent.steer(Message::user("go")).expect("accepted");
    agent.idle().await;
    println!("read in {:?}", began.elapsed());
    assert!(agent.with_projection(|projection| projection.inbox().is_empty()));
    drop(watching);
    agent.close(Pending::Keep).await;
}
