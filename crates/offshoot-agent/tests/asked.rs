//! What asks for a turn is a message that waits, and not a mark that outlives it. (Of one that is latched
//! while a cancelled turn unwinds: `cancel`.)

mod support;

use std::sync::Arc;

use offshoot_agent::{
    Agent, AgentHost, AgentId, AgentSettings, CancelCause, MemoryStore, Pending, Resumed,
    SendError, SessionStore,
};
use support::{Manner, Stage, World, from_agent, notice, soon, user};

fn id() -> AgentId {
    "s".parse().expect("an id")
}

/// A session in which a message that may wake waits, resumed by a host that lets nothing run by itself
/// and takes two messages; not started.
async fn resumed() -> (AgentHost, Agent, Stage) {
    let world = World::new();
    let agent = world.agent();
    agent.followup(user("old")).expect("accepted");
    agent.cancel(CancelCause::Interrupt, Pending::Keep);
    soon("idle", agent.idle()).await;
    let log = world.log(&agent);
    let store = MemoryStore::default();
    let mut writer = store.create(&id(), 0).expect("a session");
    writer.append(0, &log).expect("an append");
    drop(writer);
    let settings = AgentSettings {
        auto_wake: false,
        inbox_capacity: 2,
        ..AgentSettings::default()
    };
    let host = AgentHost::new(Arc::new(store), settings);
    let (driver, stage) = support::stage(Manner::Polite);
    let kit = support::kit(Arc::new(driver));
    let agent = Agent::resume(&host, None, &id(), Default::default(), kit)
        .expect("the session")
        .into_agent();
    (host, agent, stage)
}

/// A261: who asked before the start and took it back has asked for nothing.
#[tokio::test(start_paused = true)]
async fn a261_a_message_that_was_taken_back_before_the_start_asks_for_nothing() {
    for how in ["withdrawn", "discarded"] {
        let (_host, agent, mut stage) = resumed().await;
        let asked = agent.steer(from_agent("asked")).expect("accepted");
        match how {
            "withdrawn" => assert!(agent.withdraw(&asked.message_id, "changed")),
            _ => assert!(!agent.cancel(CancelCause::Parent, Pending::Discard)),
        }
        agent.notify(notice("told", 1), true).expect("accepted");
        agent.start();
        assert!(agent.is_at_rest(), "{how}: nobody asks");
        tokio::task::yield_now().await;
        assert!(stage.ready().is_none(), "{how}");
        agent.close(Pending::Keep).await;
    }
}

/// A261: what took its place asks in its stead, and there is room for one that asks as long as none does.
#[tokio::test(start_paused = true)]
async fn a261_what_asks_before_the_start_is_a_message_that_waits() {
    let (_host, agent, mut stage) = resumed().await;
    let first = agent.steer(from_agent("first")).expect("accepted");
    agent.withdraw(&first.message_id, "changed");
    agent.inject(user("quiet")).expect("accepted");
    let second = agent.steer(from_agent("second")).expect("one may ask");
    let full = agent.steer(from_agent("third"));
    assert!(matches!(full, Err(SendError::Full(3))), "{full:?}");
    agent
        .replace(&second.message_id, from_agent("better"))
        .expect("it waits");
    agent.start();
    let step = stage.next().await;
    assert_eq!(step.read(), ["quiet", "better", "old"]);
    step.complete();
    soon("idle", agent.idle()).await;
    agent.close(Pending::Keep).await;
}

/// A261: the wish to go on with what is parked is for all of it, not for the first of it.
#[tokio::test(start_paused = true)]
async fn a261_a_wish_to_go_on_outlives_the_first_of_what_is_parked() {
    for by_discard in [false, true] {
        let mut world = World::with(Manner::Deaf, AgentSettings::default());
        let agent = world.agent();
        agent.followup(user("a")).expect("accepted");
        let step = world.stage.next().await;
        for name in ["b", "c"] {
            agent.followup(user(name)).expect("accepted");
        }
        agent.cancel(CancelCause::Interrupt, Pending::Keep);
        assert_eq!(agent.resume_parked().expect("open"), Resumed::Later);
        if by_discard {
            agent.cancel(CancelCause::Interrupt, Pending::Discard);
        } else {
            assert!(agent.withdraw(&"b".parse().expect("an id"), "changed"));
        }
        step.complete();
        if !by_discard {
            let step = world.stage.next().await;
            assert_eq!(step.read(), ["c"]);
            step.complete();
        }
        soon("idle", agent.idle()).await;
        assert!(world.stage.ready().is_none());
        world.finish(agent).await;
    }
}

/// A261: the wish before the start is for what waits then.
#[tokio::test(start_paused = true)]
async fn a261_a_wish_before_the_start_is_for_what_waits_then() {
    for taken_back in [false, true] {
        let (_host, agent, mut stage) = resumed().await;
        assert_eq!(agent.resume_parked().expect("open"), Resumed::Later);
        if taken_back {
            assert!(agent.withdraw(&"old".parse().expect("an id"), "changed"));
            agent.notify(notice("told", 1), true).expect("accepted");
        }
        agent.start();
        if taken_back {
            assert!(agent.is_at_rest());
        } else {
            let step = stage.next().await;
            assert_eq!(step.read(), ["old"]);
            step.complete();
        }
        soon("idle", agent.idle()).await;
        agent.close(Pending::Keep).await;
    }
}
