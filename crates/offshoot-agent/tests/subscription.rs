//! Bounded subscriptions: order, gaps, subscribers that are slow, gone, or broken.

mod support;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{FutureExt, StreamExt};
use offshoot_agent::{
    AgentHost, AgentSettings, EventRecord, MemoryStore, Observed, Pending, Subscription,
};
use support::{World, soon, user};

fn of(capacity: usize) -> NonZeroUsize {
    capacity.try_into().expect("at least one")
}

fn line(observed: Observed) -> String {
    match observed {
        Observed::Event(record) => support::line(&record.event),
        Observed::Gap { missed } => format!("gap {missed}"),
    }
}

/// What can be taken without waiting.
fn taken(events: &mut Subscription) -> Vec<String> {
    let mut lines = Vec::new();
    while let Some(Some(observed)) = events.recv().now_or_never() {
        lines.push(line(observed));
    }
    lines
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_sees_what_an_observer_sees() {
    let mut world = World::new();
    let mut events = world.host.subscribe();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    world.stage.next().await.complete();
    soon("idle", agent.idle()).await;
    world.finish(agent).await;
    let records = world.records.lock().expect("no panic").clone();
    let seen: Vec<_> = records.iter().map(|r| support::line(&r.event)).collect();
    assert_eq!(taken(&mut events), seen);
    assert!(seen.len() > 10);
}

#[tokio::test(start_paused = true)]
async fn what_a_slow_subscriber_missed_is_counted_in_front_of_what_is_left() {
    let world = World::new();
    let mut events = world.host.hub.subscribe(of(3));
    let agent = world.agent();
    for n in 0..4 {
        agent.inject(user(&format!("m{n}"))).expect("accepted");
    }
    let inserted = |n: usize| format!("insert m{n} next_step quiet");
    assert_eq!(
        taken(&mut events),
        ["gap 2".to_owned(), inserted(1), inserted(2), inserted(3)]
    );
    for n in 4..6 {
        agent.inject(user(&format!("m{n}"))).expect("accepted");
    }
    assert_eq!(taken(&mut events), [inserted(4), inserted(5)], "no gap");
    for n in 6..9 {
        agent.inject(user(&format!("m{n}"))).expect("accepted");
    }
    // One is taken late: the place that it leaves is no gap.
    assert_eq!(events.recv().await.map(line), Some(inserted(6)));
    agent.inject(user("m9")).expect("accepted");
    assert_eq!(taken(&mut events), [inserted(7), inserted(8), inserted(9)]);
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_never_reads_holds_up_nobody_and_keeps_no_more_than_it_may() {
    let mut world = World::new();
    let deaf = world.host.hub.subscribe(of(1));
    let mut other = world.host.subscribe();
    let agent = world.agent();
    for n in 0..100 {
        agent.followup(user(&format!("m{n}"))).expect("accepted");
        world.stage.next().await.complete();
        soon("idle", agent.idle()).await;
    }
    assert!(world.host.hub.is_drained());
    let lines = taken(&mut other);
    assert_eq!(
        lines
            .iter()
            .filter(|line| line.starts_with("turn "))
            .count(),
        100
    );
    let mut deaf = deaf;
    let left = taken(&mut deaf);
    assert_eq!(
        left,
        [format!("gap {}", lines.len() - 1), "status idle".to_owned()]
    );
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_is_woken_and_its_end_is_the_hubs() {
    let world = World::new();
    let events = world.host.subscribe();
    let watching = tokio::spawn(async move {
        let mut lines = Vec::new();
        let mut events = events;
        while let Some(observed) = events.next().await {
            lines.push(line(observed));
        }
        lines
    });
    let agent = world.agent();
    tokio::task::yield_now().await;
    agent.inject(user("a")).expect("accepted");
    world.finish(agent).await;
    drop(world);
    let lines = soon("the end of the stream", watching)
        .await
        .expect("no panic");
    assert_eq!(
        lines,
        [
            "session resumed=false",
            "insert a next_step quiet",
            "status closing",
            "status closed",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_panics_or_goes_leaves_the_others() {
    let world = World::new();
    let mut stays = world.host.subscribe();
    let mut broken = world.host.subscribe();
    let gone = world.host.subscribe();
    let panics = tokio::spawn(async move {
        broken.recv().await;
        panic!("a subscriber");
    });
    drop(gone);
    let agent = world.agent();
    let panicked = soon("the panic", panics).await;
    assert!(panicked.expect_err("it panics").is_panic());
    agent.inject(user("a")).expect("accepted");
    assert_eq!(
        taken(&mut stays),
        ["session resumed=false", "insert a next_step quiet"]
    );
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_may_send_cancel_and_close() {
    let mut world = World::new();
    let mut events = world.host.subscribe();
    let agent = world.agent();
    let target = agent.clone();
    let acting = tokio::spawn(async move {
        while let Some(observed) = events.recv().await {
            match line(observed).as_str() {
                "step 1/1" => drop(target.steer(user("b"))),
                "step 1/2" => {
                    target.begin_close(Pending::Keep);
                    return;
                }
                _ => {}
            }
        }
    });
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    soon("the steer", agent.next_step_arrival()).await;
    step.complete();
    let _step = world.stage.next().await;
    soon("the end", acting).await.expect("no panic");
    soon("idle", agent.idle()).await;
    world.finish(agent).await;
}

#[tokio::test]
async fn a_hub_without_watchers_keeps_nothing() {
    let host = AgentHost::new(Arc::new(MemoryStore::default()), AgentSettings::default());
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let observer = host.hub.observe(Arc::new(move |_: &EventRecord| {
        counter.fetch_add(1, Ordering::SeqCst);
    }));
    let (driver, _stage) = support::stage(support::Manner::Polite);
    let spec = offshoot_agent::AgentSpec::root(support::kit(Arc::new(driver)));
    let agent = offshoot_agent::Agent::create(&host, None, spec)
        .expect("an agent")
        .into_agent();
    drop(observer);
    agent.inject(user("a")).expect("accepted");
    let mut late = host.subscribe();
    assert_eq!(taken(&mut late), Vec::<String>::new());
    assert_eq!(count.load(Ordering::SeqCst), 1);
}
