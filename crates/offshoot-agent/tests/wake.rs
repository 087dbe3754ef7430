//! No wake is lost and no turn overlaps, however sends and ends fall together.

mod support;

use std::sync::Arc;
use std::time::Duration;

use offshoot_agent::{
    Agent, AgentHost, AgentSettings, AgentSpec, CancelCause, MemoryStore, Pending, Placement,
    SendError, Status,
};
use support::{Fate, Manner, ScriptDriver, World, notice, user};

/// A host whose agents' steps return at once.
fn fast() -> (AgentHost, Arc<ScriptDriver>, AgentSpec) {
    let host = AgentHost::new(Arc::new(MemoryStore::default()), AgentSettings::default());
    let (driver, stage) = support::stage(Manner::Polite);
    drop(stage);
    let driver = Arc::new(driver);
    let spec = AgentSpec::root(support::kit(driver.clone()));
    (host, driver, spec)
}

async fn bounded<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(Duration::from_secs(30), future).await {
        Ok(output) => output,
        Err(_) => panic!("never came: {what}"),
    }
}

/// Each message is sent while the turn of the one before it ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_send_that_races_with_the_end_of_a_turn_is_read() {
    let (host, driver, spec) = fast();
    let agent = Agent::create(&host, None, spec)
        .expect("an agent")
        .into_agent();
    agent.start();
    const MESSAGES: usize = 4_000;
    let senders: Vec<_> = (0..2)
        .map(|sender| {
            let agent = agent.clone();
            tokio::spawn(async move {
                for n in 0..MESSAGES / 2 {
                    let message = user(&format!("m{sender}-{n}"));
                    let sent = if n % 2 == 0 {
                        agent.followup(message)
                    } else {
                        agent.steer(message)
                    };
                    let id = sent.expect("accepted").message_id;
                    if n % 3 == 0 {
                        // Meets the drive at its retirement again and again.
                        agent
                            .until_projection(|p| (!p.inbox().contains(&id)).then_some(()))
                            .await;
                    }
                }
            })
        })
        .collect();
    for sender in senders {
        bounded("a sender", sender).await.expect("no panic");
    }
    bounded("idle", agent.idle()).await;
    agent.close(Pending::Keep).await;
    let ledger = support::check_closed(&host.store.read(agent.id()).expect("the log"));
    assert_eq!(ledger.all(Fate::Read).len(), MESSAGES, "a wake was lost");
    assert_eq!(driver.most_at_once(), 1);
}

/// B011: two notices pushed at once start one turn at a time, and both are read.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b011_two_notices_at_once_never_overlap_turns() {
    let (host, driver, spec) = fast();
    let agent = Agent::create(&host, None, spec)
        .expect("an agent")
        .into_agent();
    agent.start();
    for n in 0..1_000 {
        let pushes: Vec<_> = ["x", "y"]
            .into_iter()
            .map(|side| {
                let agent = agent.clone();
                tokio::spawn(async move { agent.notify(notice(&format!("{side}{n}"), 1), true) })
            })
            .collect();
        for push in pushes {
            bounded("a push", push)
                .await
                .expect("no panic")
                .expect("accepted");
        }
    }
    bounded("idle", agent.idle()).await;
    agent.close(Pending::Keep).await;
    let ledger = support::check_closed(&host.store.read(agent.id()).expect("the log"));
    assert_eq!(ledger.all(Fate::Read).len(), 2_000);
    assert_eq!(driver.most_at_once(), 1);
}

/// A message is accepted before the agent settles, and is read; or it is refused, by type.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_send_that_races_with_settling_is_read_or_refused() {
    let (host, _, spec) = fast();
    let (mut read, mut refused) = (0, 0);
    for _ in 0..1_000 {
        let agent = Agent::create(&host, None, spec.clone())
            .expect("an agent")
            .into_agent();
        agent.start();
        let closer = tokio::spawn({
            let agent = agent.clone();
            async move {
                while !agent.close_if_settled() {
                    agent.rest().await;
                }
                agent.close(Pending::Keep).await;
            }
        });
        let sent = agent.followup(user("m"));
        bounded("closed", closer).await.expect("no panic");
        let ledger = support::check_closed(&host.store.read(agent.id()).expect("the log"));
        match sent {
            Ok(_) => {
                read += 1;
                assert_eq!(ledger.of("m"), Some(Fate::Read));
            }
            Err(SendError::Closing | SendError::Closed) => {
                refused += 1;
                assert_eq!(ledger.of("m"), None);
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(read + refused, 1_000);
}

/// Cancels of both kinds, in the middle of it all: what is accepted is read, waits, or is discarded.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cancels_among_sends_lose_and_double_nothing() {
    let (host, driver, spec) = fast();
    let agent = Agent::create(&host, None, spec)
        .expect("an agent")
        .into_agent();
    agent.start();
    let sender = tokio::spawn({
        let agent = agent.clone();
        async move {
            for n in 0..3_000 {
                agent.steer(user(&format!("m{n}"))).expect("accepted");
                if n % 7 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        }
    });
    let canceller = tokio::spawn({
        let agent = agent.clone();
        async move {
            for n in 0..1_000 {
                let pending = if n % 5 == 0 {
                    Pending::Discard
                } else {
                    Pending::Keep
                };
                agent.cancel(CancelCause::Interrupt, pending);
                tokio::task::yield_now().await;
            }
        }
    });
    bounded("the sender", sender).await.expect("no panic");
    bounded("the canceller", canceller).await.expect("no panic");
    bounded("idle", agent.idle()).await;
    agent.steer(user("last")).expect("accepted");
    bounded("idle", agent.idle()).await;
    agent.close(Pending::Keep).await;
    let ledger = support::check_closed(&host.store.read(agent.id()).expect("the log"));
    assert_eq!(
        ledger.all(Fate::Waits),
        [""; 0],
        "the last wake reads it all"
    );
    assert_eq!(ledger.0.len(), 3_001);
    assert_eq!(driver.most_at_once(), 1);
}

/// Decision 7: a chain of automatic wakes ends, and independent work wakes all the same.
#[tokio::test(start_paused = true)]
async fn a_chain_of_wakes_has_an_end() {
    let settings = AgentSettings {
        max_wake_chain: 3,
        ..AgentSettings::default()
    };
    let mut world = World::with(Manner::Polite, settings);
    let agent = world.agent();
    agent.followup(user("start")).expect("accepted");
    let mut turns = 0;
    let parked = loop {
        let step = world.stage.next().await;
        turns += 1;
        let generation = step.context.generation() + 1;
        step.complete();
        agent.idle().await;
        let delivered = agent
            .notify(notice(&format!("n{generation}"), generation), true)
            .expect("accepted");
        if delivered.placement != Placement::TurnStarted {
            break delivered;
        }
    };
    assert_eq!((turns, parked.placement), (4, Placement::Parked));
    assert_eq!(agent.status(), Status::Idle);
    let independent = agent.notify(notice("other", 1), true).expect("accepted");
    assert_eq!(independent.placement, Placement::TurnStarted);
    let step = world.stage.next().await;
    assert_eq!(step.read(), ["n4", "other"], "the quiet one is read then");
    step.complete();
    agent.idle().await;
    world.finish(agent).await;
}

/// Decision 7: what a chain has left behind does not make independent work a part of it.
#[tokio::test(start_paused = true)]
async fn independent_work_after_a_chain_that_was_too_long_wakes_again() {
    let settings = AgentSettings {
        max_wake_chain: 1,
        ..AgentSettings::default()
    };
    let mut world = World::with(Manner::Polite, settings);
    let agent = world.agent();
    let parked = agent.notify(notice("too-long", 2), true).expect("accepted");
    assert_eq!(parked.placement, Placement::Parked);
    agent.followup(user("work")).expect("accepted");
    assert_eq!(agent.current_turn(), Some((1, 0)));
    let step = world.stage.next().await;
    assert_eq!(step.read(), ["too-long", "work"]);
    assert_eq!(step.context.generation(), 0);
    step.complete();
    agent.idle().await;
    let own = agent.notify(notice("own", 1), true).expect("accepted");
    assert_eq!(own.placement, Placement::TurnStarted, "of the user's task");
    world.stage.next().await.complete();
    agent.idle().await;
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_has_the_least_generation_of_what_woke_it() {
    for (quiet, waking, expected) in [
        (vec![4], vec![3], 3),
        (vec![1], vec![3], 3),
        (vec![], vec![5, 2, 7], 2),
        (vec![9], vec![4, 0], 0),
    ] {
        let mut world = World::new();
        let agent = Agent::create(&world.host, None, world.spec())
            .expect("an agent")
            .into_agent();
        for (wake, generations) in [(false, quiet), (true, waking)] {
            for generation in generations {
                let message = notice(&format!("n{generation}"), generation);
                agent.notify(message, wake).expect("accepted");
            }
        }
        // All of it opens one turn.
        agent.start();
        assert_eq!(agent.current_turn(), Some((1, expected)));
        let step = world.stage.next().await;
        assert_eq!(step.context.generation(), expected);
        step.complete();
        agent.idle().await;
        world.finish(agent).await;
    }
}

/// What is read in the middle of a turn: independent work is not at the limit of the chain that it
/// joins, and a turn is no longer a chain for what it is told of its own tasks, nor a shorter one.
#[tokio::test(start_paused = true)]
async fn a_message_in_the_middle_of_a_turn_takes_its_generation_down_and_never_up() {
    let mut world = World::new();
    let agent = world.agent();
    agent.notify(notice("opens", 5), true).expect("accepted");
    let mut expected = [
        (notice("own-task", 6), true, 5),
        (notice("quiet", 1), false, 5),
        (notice("an-older-chain", 3), true, 3),
        (user("independent"), true, 0),
        (notice("last", 1), true, 0),
    ]
    .into_iter();
    let mut now = 5;
    loop {
        let step = world.stage.next().await;
        assert_eq!(step.context.generation(), now, "{:?}", step.read());
        assert_eq!(agent.current_turn(), Some((1, now)));
        let Some((message, wake, then)) = expected.next() else {
            step.complete();
            break;
        };
        now = then;
        match message.source.is_user() {
            true => agent.steer(message),
            false => agent.notify(message, wake),
        }
        .expect("accepted");
        step.complete();
    }
    agent.idle().await;
    let folded = offshoot_agent::Projection::of(&world.log(&agent));
    assert_eq!(folded.turn(), 1);
    world.finish(agent).await;
}

/// A quiet notice of a chain that is too long is read when there is a turn anyway; it opens none, not
/// even after a turn that has used its steps up.
#[tokio::test(start_paused = true)]
async fn a_chain_that_is_too_long_opens_no_turn_after_a_turn_either() {
    let settings = AgentSettings {
        max_wake_chain: 1,
        max_steps_per_turn: 2,
        ..AgentSettings::default()
    };
    let mut world = World::with(Manner::Polite, settings);
    let agent = world.agent();
    agent.notify(notice("n1", 1), true).expect("accepted");
    for n in 1..=2 {
        let step = world.stage.next().await;
        let message = notice(&format!("too-long-{n}"), 2);
        let delivered = agent.notify(message, true).expect("accepted");
        assert_eq!(delivered.placement, Placement::NextStep);
        step.complete();
    }
    support::soon("idle", agent.idle()).await;
    assert_eq!(agent.with_projection(|p| p.turn()), 1);
    let ledger = world.finish(agent).await;
    assert_eq!(ledger.all(Fate::Waits), ["too-long-2"]);
}

/// B086: what a send says is what happens.
#[tokio::test(start_paused = true)]
async fn b086_a_steer_to_an_idle_agent_starts_a_turn() {
    let mut world = World::new();
    let agent = world.agent();
    let delivered = agent.steer(support::from_agent("hello")).expect("accepted");
    assert_eq!(delivered.placement, Placement::TurnStarted);
    world.stage.next().await.complete();
    agent.idle().await;
    world.finish(agent).await;
}

/// B101: two agents that message each other in their turns wait for nobody.
#[tokio::test(start_paused = true)]
async fn b101_two_agents_that_message_each_other_do_not_deadlock() {
    let mut world = World::new();
    let (one, two) = (world.agent(), world.agent());
    one.followup(user("a")).expect("accepted");
    let first = world.stage.next().await;
    two.followup(user("b")).expect("accepted");
    let second = world.stage.next().await;
    two.steer(support::from_agent("from-one"))
        .expect("accepted");
    one.steer(support::from_agent("from-two"))
        .expect("accepted");
    first.complete();
    second.complete();
    for _ in 0..2 {
        world.stage.next().await.complete();
    }
    one.idle().await;
    two.idle().await;
    assert_eq!(world.finish(one).await.of("from-two"), Some(Fate::Read));
    assert_eq!(world.finish(two).await.of("from-one"), Some(Fate::Read));
}
