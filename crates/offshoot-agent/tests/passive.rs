//! Passive messages: they are shown with whatever else is read, and cost no request of their own.

mod support;

use std::sync::Arc;

use offshoot_agent::{
    Agent, AgentHost, AgentId, AgentSettings, MemoryStore, Placement, Resumed, SessionStore, Target,
};
use support::{Fate, Manner, World, notice, soon, user};

/// A272: neither an idle agent nor one whose turn ends does anything for it, and the next step that there
/// is anyway reads it.
#[tokio::test(start_paused = true)]
async fn a272_a_passive_message_costs_no_step_and_no_turn() {
    let mut world = World::new();
    let agent = world.agent();
    let idle = agent.inject_passively(user("p1")).expect("accepted");
    assert_eq!((idle.placement, idle.ahead), (Placement::Parked, 0));
    assert!(agent.is_at_rest());
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    assert_eq!(step.read(), ["p1", "a"]);
    let running = agent.inject_passively(user("p2")).expect("accepted");
    assert_eq!(running.placement, Placement::Parked);
    step.go_on();
    let step = world.stage.next().await;
    assert_eq!(step.read(), ["p2"], "a step that is owed reads it");
    agent.inject_passively(user("p3")).expect("accepted");
    step.complete();
    soon("idle", agent.idle()).await;
    assert!(world.stage.ready().is_none(), "the turn has ended");
    assert_eq!(agent.with_projection(|p| p.turn()), 1);
    // A quiet message does have a step, and takes it along.
    agent.followup(user("b")).expect("accepted");
    let step = world.stage.next().await;
    assert_eq!(step.read(), ["p3", "b"]);
    agent.inject_passively(user("p4")).expect("accepted");
    agent.inject(user("quiet")).expect("accepted");
    step.complete();
    let step = world.stage.next().await;
    assert_eq!(
        (step.at(), step.read().concat()),
        ("2/2".into(), "p4quiet".into())
    );
    agent.inject_passively(user("p5")).expect("accepted");
    step.complete();
    soon("idle", agent.idle()).await;
    let ledger = world.finish(agent).await;
    assert_eq!(ledger.all(Fate::Waits), ["p5"]);
}

/// In another place of its list, or replaced, it stays what it is; for a turn of its own it is a quiet one.
#[tokio::test(start_paused = true)]
async fn a272_a_passive_message_stays_one_while_it_waits_for_a_step() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    let first = agent.inject_passively(user("p1")).expect("accepted");
    let second = agent.inject_passively(user("p2")).expect("accepted");
    let better = agent
        .replace(&first.message_id, user("better"))
        .expect("it waits");
    assert_eq!(better.placement, Placement::Parked);
    agent
        .reorder(
            &second.message_id,
            Target::NextStep,
            Some(&better.message_id),
        )
        .expect("it waits");
    step.complete();
    soon("idle", agent.idle()).await;
    assert_eq!(agent.with_projection(|p| p.turn()), 1);
    // Who asks for what is parked has it.
    assert_eq!(agent.resume_parked().expect("open"), Resumed::TurnStarted);
    let step = world.stage.next().await;
    assert_eq!(step.read(), ["p2", "better"]);
    let third = agent.inject_passively(user("p3")).expect("accepted");
    agent
        .reorder(&third.message_id, Target::NextTurn, None)
        .expect("it waits");
    step.complete();
    let step = world.stage.next().await;
    assert_eq!((step.at(), step.read()), ("3/1".into(), vec!["p3".into()]));
    step.complete();
    soon("idle", agent.idle()).await;
    world.finish(agent).await;
}

/// A wait for news of the next step sleeps on, and neither a followup nor a notice is held up.
#[tokio::test(start_paused = true)]
async fn a272_a_passive_message_interrupts_nobody_who_waits() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    let arrival = tokio::spawn({
        let agent = agent.clone();
        async move { agent.next_step_arrival().await }
    });
    agent.inject_passively(user("p")).expect("accepted");
    tokio::task::yield_now().await;
    assert!(!arrival.is_finished());
    agent.notify(notice("n", 1), true).expect("accepted");
    soon("the arrival", arrival).await.expect("no panic");
    step.complete();
    let step = world.stage.next().await;
    assert_eq!(step.read(), ["p", "n"]);
    step.complete();
    soon("idle", agent.idle()).await;
    world.finish(agent).await;
}

/// The log tells it: it is passive in the next process, too.
#[tokio::test(start_paused = true)]
async fn a272_a_passive_message_is_one_after_a_restart() {
    let world = World::new();
    let agent = world.agent();
    agent.inject_passively(user("p")).expect("accepted");
    let log = world.log(&agent);
    let store = MemoryStore::default();
    let id: AgentId = "s".parse().expect("an id");
    let mut writer = store.create(&id, 0).expect("a session");
    writer.append(0, &log).expect("an append");
    drop(writer);
    let host = AgentHost::new(Arc::new(store), AgentSettings::default());
    let (driver, mut stage) = support::stage(Manner::Polite);
    let kit = support::kit(Arc::new(driver));
    let agent = Agent::resume(&host, None, &id, Default::default(), kit)
        .expect("the session")
        .into_agent();
    agent.start();
    assert!(agent.is_at_rest());
    agent.followup(user("a")).expect("accepted");
    agent.followup(user("b")).expect("accepted");
    for read in [vec!["p", "a"], vec!["b"]] {
        let step = stage.next().await;
        assert_eq!(step.read(), read);
        step.complete();
    }
    soon("idle", agent.idle()).await;
    agent.close(offshoot_agent::Pending::Keep).await;
}
