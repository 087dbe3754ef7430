//! How agents begin and end: creation, the registry, closing, owners.

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use offshoot_agent::{
    Agent, AgentId, AgentSettings, AgentSpec, CancelCause, Event, Extension, OpenError, Pending,
    Placement, SendError, Status, StoreError, StoredEvent,
};
use offshoot_core::Scope;
use support::{Fate, Manner, World, notice, soon, user};
use tokio::time::Instant;

fn id(text: &str) -> AgentId {
    text.parse().expect("an id")
}

fn named(world: &World, name: &str) -> AgentSpec {
    AgentSpec {
        id: Some(id(name)),
        ..world.spec()
    }
}

#[tokio::test(start_paused = true)]
async fn a_live_agent_is_listed_until_it_has_closed() {
    let world = World::new();
    let agent = Agent::create(&world.host, None, named(&world, "a"))
        .expect("an agent")
        .into_agent();
    assert_eq!(world.host.agents.get(&id("a")), Some(agent.clone()));
    assert_eq!(
        world.host.agents.by_scope(agent.scope().id()),
        Some(agent.clone())
    );
    assert_eq!(world.host.agents.list(), std::slice::from_ref(&agent));
    agent.start();
    let closing = agent.close(Pending::Keep);
    assert!(world.host.agents.get(&id("a")).is_some(), "while it closes");
    closing.await;
    assert_eq!(agent.status(), Status::Closed);
    assert!(world.host.agents.get(&id("a")).is_none());
    assert!(world.host.agents.by_scope(agent.scope().id()).is_none());
}

#[tokio::test(start_paused = true)]
async fn an_id_is_used_once_in_a_store() {
    let world = World::new();
    let agent = Agent::create(&world.host, None, named(&world, "a"))
        .expect("an agent")
        .into_agent();
    let second = Agent::create(&world.host, None, named(&world, "a"));
    assert!(matches!(
        second,
        Err(OpenError::Store(StoreError::Exists(_)))
    ));
    assert_eq!(
        world.host.agents.list(),
        std::slice::from_ref(&agent),
        "the first is untouched"
    );
    agent.close(Pending::Keep).await;
    let third = Agent::create(&world.host, None, named(&world, "a"));
    assert!(third.is_err(), "the session is still there");
}

#[tokio::test(start_paused = true)]
async fn a_live_session_is_not_resumed() {
    let folder = tempfile::tempdir().expect("a folder");
    for world in [World::new(), World::in_folder(folder.path())] {
        let agent = Agent::create(&world.host, None, named(&world, "a"))
            .expect("an agent")
            .into_agent();
        let second = Agent::resume(&world.host, None, &id("a"), Default::default(), world.kit());
        assert!(matches!(second, Err(OpenError::Live(_))), "{second:?}");
        agent.start();
        agent.inject(user("still-works")).expect("accepted");
        world.finish(agent).await;
    }
}

/// Decision 16: each refusal to make an agent has a stable code, also one that comes of the store.
#[tokio::test(start_paused = true)]
async fn a_refusal_to_make_an_agent_has_a_code() {
    let world = World::new();
    let live = Agent::create(&world.host, None, world.spec())
        .expect("an agent")
        .into_agent();
    let code = |spec: AgentSpec, owner: Option<&Scope>| {
        let refused = Agent::create(&world.host, owner, spec);
        refused.expect_err("refused").code()
    };
    let with_id = |id: &AgentId| AgentSpec {
        id: Some(id.clone()),
        ..world.spec()
    };
    assert_eq!(code(with_id(live.id()), None), "SESSION_EXISTS");
    let id = AgentId::fresh();
    let own = AgentSpec {
        parent: Some(id.clone()),
        ..with_id(&id)
    };
    assert_eq!(code(own, None), "OWN_PARENT");
    let past = world.log(&live);
    let late = AgentSpec {
        seed: Some(vec![StoredEvent {
            seq: 1,
            ..past[0].clone()
        }]),
        ..world.spec()
    };
    assert_eq!(code(late, None), "BAD_SEED");
    let mut unreadable = world.spec();
    unreadable.extra.insert("label".into(), 1.into());
    assert_eq!(code(unreadable, None), "UNSTORABLE");
    let owner = Scope::root("owner");
    owner.close().await;
    assert_eq!(code(world.spec(), Some(&owner)), "OWNER_CLOSING");

    let resume = |id: &AgentId| {
        let resumed = Agent::resume(&world.host, None, id, Default::default(), world.kit());
        resumed.expect_err("refused").code()
    };
    assert_eq!(resume(live.id()), "AGENT_LIVE");
    assert_eq!(resume(&id), "SESSION_NOT_FOUND");
    world.finish(live).await;
}

/// What could not be made leaves nothing: no session, no entry, no event.
#[tokio::test(start_paused = true)]
async fn an_agent_that_could_not_be_made_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    for world in [World::new(), World::in_folder(folder.path())] {
        let owner = Scope::root("owner");
        owner.close().await;
        let refused = Agent::create(&world.host, Some(&owner), named(&world, "a"));
        assert!(
            matches!(refused, Err(OpenError::OwnerClosing)),
            "{refused:?}"
        );
        let mut reserved = named(&world, "a");
        reserved.extra.insert("depth".into(), 7.into());
        let refused = Agent::create(&world.host, None, reserved);
        assert!(matches!(refused, Err(OpenError::Append(_))), "{refused:?}");
        assert!(world.host.agents.list().is_empty());
        assert_eq!(world.host.store.sessions().expect("a listing"), []);
        assert!(world.records.lock().expect("no panic").is_empty());
        let agent = Agent::create(&world.host, None, named(&world, "a"))
            .expect("the id is free")
            .into_agent();
        agent.start();
        world.finish(agent).await;
    }
}

/// Before anything was made: no session, no entry, no scope in the owner's.
#[test]
fn an_agent_is_not_made_outside_a_runtime() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = World::in_folder(folder.path());
    let owner = Scope::root("owner");
    let refused = Agent::create(&world.host, Some(&owner), named(&world, "a"));
    assert!(matches!(refused, Err(OpenError::NoRuntime)), "{refused:?}");
    let kit = world.kit();
    let refused = Agent::resume(&world.host, Some(&owner), &id("a"), Default::default(), kit);
    assert!(matches!(refused, Err(OpenError::NoRuntime)), "{refused:?}");
    let left = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(left, 0);
    assert!(world.host.agents.list().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_seed_must_be_a_whole_past() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    let open = world.log(&agent);
    step.say("hello", &[]);
    step.complete();
    support::soon("idle", agent.idle()).await;
    // What waits when the past ends, and may wake, is its own agent's.
    agent.inject(user("quiet")).expect("accepted");
    agent.followup(user("parked")).expect("accepted");
    agent.cancel(CancelCause::Interrupt, Pending::Keep);
    support::soon("idle", agent.idle()).await;
    assert_eq!(agent.with_projection(|p| p.inbox().len()), 2);
    let whole = world.log(&agent);
    let seeds = [open, whole[1..].to_vec()];
    for seed in seeds {
        let spec = AgentSpec {
            seed: Some(seed),
            ..named(&world, "fork")
        };
        let refused = Agent::create(&world.host, None, spec);
        assert!(matches!(refused, Err(OpenError::BadSeed(_))), "{refused:?}");
    }
    let spec = AgentSpec {
        seed: Some(whole.clone()),
        depth: 1,
        ..named(&world, "fork")
    };
    let fork = Agent::create(&world.host, None, spec)
        .expect("a fork")
        .into_agent();
    fork.start();
    assert!(
        fork.with_projection(|p| p.inbox().is_empty()),
        "B085, A285: no input is inherited"
    );
    tokio::task::yield_now().await;
    assert!(world.stage.ready().is_none(), "and none is worked on twice");
    let again = fork.followup(user("a")).expect_err("it is in the past");
    assert_eq!(again.code(), "DUPLICATE_MESSAGE");
    fork.followup(user("b")).expect("accepted");
    let step = world.stage.next().await;
    assert_eq!(step.at(), "3/1", "numbering goes on");
    assert_eq!(step.context.history().len(), 3);
    step.complete();
    fork.idle().await;
    let seqs: Vec<_> = world.log(&fork).iter().map(|stored| stored.seq).collect();
    assert_eq!(seqs, (0..seqs.len() as u64).collect::<Vec<_>>());
    fork.close(Pending::Keep).await;
    let fork = Agent::resume(
        &world.host,
        None,
        &id("fork"),
        Default::default(),
        world.kit(),
    )
    .expect("the fork")
    .into_agent();
    assert_eq!(fork.depth(), 1, "the fork's own birth counts");
    fork.close(Pending::Keep).await;
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn closing_refuses_senders_by_type_and_takes_notices_quietly() {
    let mut world = World::with(Manner::Deaf, AgentSettings::default());
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    assert!(agent.begin_close(Pending::Keep));
    assert!(!agent.begin_close(Pending::Discard), "it closes already");
    assert_eq!(agent.status(), Status::Closing);
    for refused in [
        agent.followup(user("b")),
        agent.steer(user("c")),
        agent.inject(user("d")),
    ] {
        assert!(matches!(refused, Err(SendError::Closing)), "{refused:?}");
    }
    let delivered = agent.notify(notice("n", 1), true).expect("a notice");
    assert_eq!(delivered.placement, Placement::Parked);
    agent
        .record(Extension::new("task/settled"))
        .expect("a record");
    step.complete();
    soon("the end of the turn", agent.idle()).await;
    let ledger = world.finish(agent.clone()).await;
    assert_eq!(ledger.of("n"), Some(Fate::Waits));
    for refused in [
        agent.followup(user("e")),
        agent.notify(notice("m", 1), true),
    ] {
        assert!(matches!(refused, Err(SendError::Closed)), "{refused:?}");
    }
    assert!(agent.record(Extension::new("task/settled")).is_err());
    assert!(!agent.cancel(CancelCause::User, Pending::Discard));
    assert!(!agent.withdraw(&"n".parse().expect("an id"), "late"));
    assert_eq!(agent.failure(), None, "nothing failed");
    assert_eq!(world.statuses(agent.id()), ["running", "closing", "closed"]);
}

#[tokio::test(start_paused = true)]
async fn idle_is_the_end_of_the_turn_also_while_closing() {
    let mut world = World::with(Manner::Deaf, AgentSettings::default());
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    agent.begin_close(Pending::Keep);
    let idle = tokio::spawn({
        let agent = agent.clone();
        async move { agent.idle().await }
    });
    tokio::task::yield_now().await;
    assert!(!idle.is_finished(), "its turn runs");
    step.complete();
    soon("idle", idle).await.expect("no panic");
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn closing_is_one_transaction_for_every_caller() {
    let mut world = World::with(Manner::Deaf, AgentSettings::default());
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let _step = world.stage.next().await;
    let begun = Instant::now();
    let first = agent.close(Pending::Keep);
    drop(agent.close(Pending::Discard));
    let (one, two) = tokio::join!(first, agent.close(Pending::Keep));
    assert!(Arc::ptr_eq(&one, &two));
    assert_eq!(
        begun.elapsed().as_secs(),
        5,
        "a hanging step is dropped after the grace"
    );
    agent.closed().await;
    agent.closing().await;
    let third = agent.close(Pending::Keep).await;
    assert!(Arc::ptr_eq(&one, &third));
    support::check_closed(&world.log(&agent));
}

#[tokio::test(start_paused = true)]
async fn discarding_at_the_end_discards_everything_once() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let _step = world.stage.next().await;
    agent.followup(user("b")).expect("accepted");
    agent.inject(user("c")).expect("accepted");
    agent.begin_close(Pending::Discard);
    agent.notify(notice("n", 1), true).expect("accepted");
    let ledger = world.finish(agent.clone()).await;
    assert_eq!(ledger.of("a"), Some(Fate::Read));
    assert_eq!(ledger.all(Fate::Discarded), ["b", "c", "n"]);
    assert!(
        world
            .trace(&agent)
            .contains(&"discard b disposed".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn a_discard_at_the_end_names_the_end_also_after_an_interrupt() {
    let world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    agent.cancel(CancelCause::Interrupt, Pending::Keep);
    agent.begin_close(Pending::Discard);
    agent.scope().close().await;
    agent.closed().await;
    assert!(
        world
            .trace(&agent)
            .contains(&"discard a disposed".to_owned())
    );
    assert!(
        world
            .trace(&agent)
            .contains(&"end turn 1 aborted interrupt".to_owned())
    );
}

/// Decision 8: the end of an agent ends, whatever its settings and its driver do.
#[tokio::test(start_paused = true)]
async fn a_step_that_never_ends_does_not_keep_the_session() {
    let settings = AgentSettings {
        cancel_grace: Duration::from_secs(1_000_000),
        ..AgentSettings::default()
    };
    let mut world = World::with(Manner::Deaf, settings);
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    let report = agent.close(Pending::Keep).await;
    assert!(!report.is_clean(), "it is reported");
    assert_eq!(agent.status(), Status::Closed);
    assert_eq!(world.host.agents.get(agent.id()), None);
    let before = world.log(&agent);
    support::check_closed(&before);
    assert!(step.context.record_result(support::result_of("c")).is_err());
    step.complete();
    soon("the end of the drive", agent.idle()).await;
    assert_eq!(world.log(&agent), before, "nothing is appended any more");
    assert_eq!(world.statuses(agent.id()), ["running", "closing", "closed"]);
}

#[tokio::test(start_paused = true)]
async fn what_the_agent_started_is_closed_before_its_log() {
    let world = World::new();
    let agent = world.agent();
    let order: Arc<Mutex<Vec<&str>>> = Arc::default();
    let child = Agent::create(&world.host, Some(agent.scope()), named(&world, "child"))
        .expect("a child")
        .into_agent();
    child.start();
    let (parent, seen) = (agent.clone(), Arc::clone(&order));
    child
        .scope()
        .on_close("tell the parent", async move || {
            parent
                .notify(notice("settled", 1), true)
                .map_err(|error| error.to_string())?;
            seen.lock().expect("no panic").push("child");
            Ok(())
        })
        .expect("open");
    agent.begin_close(Pending::Keep);
    let ledger = world.finish(agent.clone()).await;
    assert_eq!(*order.lock().expect("no panic"), ["child"]);
    assert_eq!(child.status(), Status::Closed);
    assert_eq!(
        ledger.of("settled"),
        Some(Fate::Waits),
        "a closing lineage gets it quietly"
    );
}

/// An owner that closes ends its agents: no turn starts any more from that moment, and what runs is
/// cancelled, also while the agent's own children still close.
#[tokio::test(start_paused = true)]
async fn an_agent_ends_with_its_owner() {
    let mut world = World::new();
    let owner = Scope::root("owner");
    let agent = Agent::create(&world.host, Some(&owner), named(&world, "a"))
        .expect("an agent")
        .into_agent();
    agent.start();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    agent
        .scope()
        .on_close("a slow child", async move || {
            let _ = gone.await;
            Ok(())
        })
        .expect("open");
    let closing = owner.close();
    soon("the cancellation", step.context.cancelled()).await;
    soon("the end of the turn", agent.idle()).await;
    let refused = agent.followup(user("b"));
    assert!(matches!(refused, Err(SendError::Closing)), "{refused:?}");
    let delivered = agent.notify(notice("n", 1), true).expect("a notice");
    assert_eq!(delivered.placement, Placement::Parked);
    assert_eq!(agent.status(), Status::Closing);
    go.send(()).expect("the cleanup waits");
    assert!(soon("closed", closing).await.is_clean());
    assert_eq!(agent.status(), Status::Closed);
    let refused = Agent::create(&world.host, Some(&owner), named(&world, "late"));
    assert!(matches!(refused, Err(OpenError::OwnerClosing)));
    support::check_closed(&world.log(&agent));
    assert_eq!(world.statuses(agent.id()), ["running", "closing", "closed"]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_agent_whose_owner_closes_is_closing_at_once() {
    let world = World::new();
    let owner = Scope::root("owner");
    let agent = Agent::create(&world.host, Some(&owner), named(&world, "a"))
        .expect("an agent")
        .into_agent();
    agent.start();
    let closing = agent.scope().close();
    assert!(matches!(agent.followup(user("b")), Err(SendError::Closing)));
    assert!(!agent.close_if_settled(), "it closes already");
    closing.await;
    support::check_closed(&world.log(&agent));
}

#[tokio::test(start_paused = true)]
async fn only_a_settled_agent_closes_by_itself() {
    let mut world = World::new();
    let unstarted = Agent::create(&world.host, None, world.spec())
        .expect("an agent")
        .into_agent();
    assert!(!unstarted.close_if_settled(), "it was not started");
    unstarted.close(Pending::Keep).await;

    let agent = world.agent();
    let hold = agent.scope().hold().expect("open");
    assert!(!agent.close_if_settled(), "something is alive");
    assert!(!agent.is_at_rest());
    drop(hold);
    agent.followup(user("a")).expect("accepted");
    let _step = world.stage.next().await;
    assert!(!agent.close_if_settled(), "it runs");
    agent.followup(user("parked")).expect("accepted");
    agent.cancel(CancelCause::Interrupt, Pending::Keep);
    support::soon("idle", agent.idle()).await;
    assert!(
        !agent.close_if_settled(),
        "decision 24: a message is parked behind an interrupt"
    );
    assert!(agent.withdraw(&"parked".parse().expect("an id"), "changed"));
    agent.inject(user("quiet")).expect("accepted");
    assert!(agent.is_at_rest());
    assert!(agent.close_if_settled(), "a quiet message keeps nothing");
    assert!(!agent.close_if_settled(), "once");
    let ledger = world.finish(agent).await;
    assert_eq!(ledger.of("quiet"), Some(Fate::Waits));
}

#[tokio::test(start_paused = true)]
async fn rest_waits_for_the_turn_and_for_what_is_held() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    let hold = agent.scope().hold().expect("open");
    let rest = tokio::spawn({
        let agent = agent.clone();
        async move { agent.rest().await }
    });
    step.complete();
    support::soon("idle", agent.idle()).await;
    tokio::task::yield_now().await;
    assert!(!rest.is_finished(), "something is held");
    drop(hold);
    soon("rest", rest).await.expect("no panic");
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_can_be_closed_from_a_thread_without_a_runtime() {
    let world = World::new();
    let agent = world.agent();
    let (handle, done) = (agent.clone(), tokio::sync::oneshot::channel());
    let (send, receive) = done;
    std::thread::spawn(move || {
        let _ = send.send(handle.close(Pending::Keep));
    });
    let closing = receive.await.expect("the thread closed it");
    assert!(soon("closed", closing).await.is_clean());
}

/// Weakness 6: an agent whose runtime is gone is not running for ever.
#[test]
fn a_wake_after_the_runtime_is_gone_leaves_no_running_agent() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime")
    };
    let first = runtime();
    let (world, agent) = first.block_on(async {
        let world = World::new();
        let agent = world.agent();
        agent.followup(user("a")).expect("accepted");
        (world, agent)
    });
    drop(first);
    assert_eq!(
        agent.status(),
        Status::Idle,
        "the drive was dropped unpolled"
    );
    let refused = agent.followup(user("b"));
    assert!(matches!(refused, Err(SendError::RuntimeGone)));
    assert_eq!(agent.status(), Status::Idle);
    let ends: Vec<_> = world
        .trace(&agent)
        .into_iter()
        .filter(|line| line.starts_with("end turn"))
        .collect();
    assert_eq!(ends, ["end turn 1 interrupted"]);
    runtime().block_on(soon("idle", agent.idle()));
}

#[tokio::test(start_paused = true)]
async fn an_event_of_this_crates_vocabulary_is_not_recorded_as_anothers() {
    let world = World::new();
    let agent = world.agent();
    let reserved = [
        Extension::new("turn/start"),
        Extension::new("inbox/discarded").with("message_id", "a"),
        Extension::new("task/started").with("type", "turn/end"),
    ];
    for extension in reserved {
        let refused = agent.record(extension);
        assert!(matches!(refused, Err(SendError::Log(_))), "{refused:?}");
    }
    agent
        .record(Extension::new("task/started").with("task_id", "t-1"))
        .expect("recorded");
    assert!(matches!(
        &world.log(&agent).last().expect("an event").event,
        Event::Extension(extension) if extension.field("task_id") == Some("t-1")
    ));
    world.finish(agent).await;
}
