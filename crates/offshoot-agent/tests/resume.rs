//! What survives the death of the process: a log that is cut at any place, and one that is opened
//! while it has a writer.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use offshoot_agent::{
    Agent, AgentId, AgentSettings, AgentSpec, CancelCause, Event, Extension, Flushed, JsonlStore,
    OpenError, Pending, Placement, Projection, Resumed, SessionStore, StoreError, StoredEvent,
};
use support::{Fate, Manner, World, from_agent, notice, soon, user};

fn session() -> AgentId {
    "s".parse().expect("an id")
}

fn file(folder: &Path) -> std::path::PathBuf {
    folder.join("s.jsonl")
}

/// A life with everything in it: turns of all kinds, calls, parked and discarded messages.
async fn eventful_life(world: &mut World) -> Agent {
    let spec = AgentSpec {
        id: Some(session()),
        ..world.spec()
    };
    let agent = Agent::create(&world.host, None, spec)
        .expect("an agent")
        .into_agent();
    agent.start();
    agent.inject(user("quiet")).expect("accepted");
    agent.followup(user("first")).expect("accepted");
    let step = world.stage.next().await;
    step.say("calls", &["c1", "c2"]);
    step.call("c1");
    agent.notify(notice("n1", 2), true).expect("accepted");
    step.answer("c1");
    step.go_on();
    let step = world.stage.next().await;
    agent.followup(user("second")).expect("accepted");
    agent.steer(from_agent("third")).expect("accepted");
    step.complete();
    let step = world.stage.next().await;
    step.say("three", &[]);
    step.complete();
    let step = world.stage.next().await;
    agent.followup(user("gone")).expect("accepted");
    agent.withdraw(&"gone".parse().expect("an id"), "changed");
    agent.followup(user("kept")).expect("accepted");
    step.fail();
    support::soon("idle", agent.idle()).await;
    agent.steer(user("cut")).expect("accepted");
    agent.cancel(CancelCause::Interrupt, Pending::Keep);
    support::soon("idle", agent.idle()).await;
    agent
        .record(Extension::new("task/started"))
        .expect("recorded");
    agent.inject(user("last")).expect("accepted");
    agent
}

/// Opens a session, lets all that waits run to the end, and gives its final log.
async fn live_on(folder: &Path) -> Vec<StoredEvent> {
    let mut world = World::in_folder(folder);
    let agent = Agent::resume(
        &world.host,
        None,
        &session(),
        Default::default(),
        world.kit(),
    )
    .expect("the session")
    .into_agent();
    let live = agent.with_projection(|p| p.inbox().clone());
    let folded = Projection::of(&world.log(&agent)).inbox().clone();
    assert_eq!(live, folded, "the log says what the agent knows");
    agent.start();
    agent.followup(user("after")).expect("accepted");
    loop {
        tokio::select! {
            biased;
            _ = agent.idle() => break,
            step = world.stage.next() => step.complete(),
        }
    }
    let log = world.log(&agent);
    world.finish(agent).await;
    log
}

fn ids(events: &[StoredEvent]) -> BTreeSet<String> {
    events
        .iter()
        .filter_map(|stored| match &stored.event {
            Event::InboxInserted { message, .. } => Some(message.id.to_string()),
            _ => None,
        })
        .collect()
}

/// A process can die between any two bytes that it writes.
#[tokio::test(start_paused = true)]
async fn a_log_that_is_cut_anywhere_loses_and_doubles_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut world = World::in_folder(folder.path());
    let agent = eventful_life(&mut world).await;
    let bytes = std::fs::read(file(folder.path())).expect("the log");
    drop(agent);
    let lines: Vec<usize> = (0..bytes.len())
        .filter(|at| bytes[*at] == b'\n')
        .map(|at| at + 1)
        .collect();
    assert!(lines.len() > 40, "a life with something in it");
    // At each end of a line, one byte before it, and in the middle of each line.
    let cuts = lines.windows(2).flat_map(|pair| {
        let (from, to) = (pair[0], pair[1]);
        [from, from + 1, from.midpoint(to), to - 1]
    });
    for cut in cuts.chain([bytes.len()]) {
        let copy = tempfile::tempdir().expect("a folder");
        std::fs::write(file(copy.path()), &bytes[..cut]).expect("a cut log");
        let store = JsonlStore::existing(copy.path()).expect("the store");
        let before = store.read(&session()).expect("what is whole");
        if before.is_empty() {
            let world = World::in_folder(copy.path());
            let empty = Agent::resume(
                &world.host,
                None,
                &session(),
                Default::default(),
                world.kit(),
            );
            assert!(matches!(empty, Err(OpenError::Empty(_))), "{empty:?}");
            continue;
        }
        let accepted = ids(&before);
        let after = live_on(copy.path()).await;
        assert_eq!(after[..before.len()], before[..], "cut at {cut}");
        let ledger = support::check_closed(&after);
        assert!(
            ledger.all(Fate::Waits).is_empty(),
            "cut at {cut}: {ledger:?}"
        );
        for id in &accepted {
            assert!(
                matches!(ledger.of(id), Some(Fate::Read | Fate::Discarded)),
                "cut at {cut}: {id} is {:?}",
                ledger.of(id)
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_open_turn_is_closed_on_the_record_and_only_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut world = World::in_folder(folder.path());
    let spec = AgentSpec {
        id: Some(session()),
        ..world.spec()
    };
    let agent = Agent::create(&world.host, None, spec)
        .expect("an agent")
        .into_agent();
    agent.start();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    step.say("calls", &["c1", "c2", "c3"]);
    step.call("c1");
    step.answer("c1");
    step.call("c2");
    let bytes = std::fs::read(file(folder.path())).expect("the log");
    let copy = tempfile::tempdir().expect("a folder");
    std::fs::write(file(copy.path()), bytes).expect("a copy");
    for activation in [2, 3] {
        let world = World::in_folder(copy.path());
        let agent = Agent::resume(
            &world.host,
            None,
            &session(),
            Default::default(),
            world.kit(),
        )
        .expect("the session")
        .into_agent();
        let trace = world.trace(&agent);
        let repair = trace
            .iter()
            .position(|line| line == "result c2 OUTCOME_UNKNOWN");
        let repair = repair.expect("the dispatched call is answered");
        assert_eq!(
            trace[repair..],
            [
                "result c2 OUTCOME_UNKNOWN",
                "call c3",
                "result c3 ABORTED_BEFORE_DISPATCH",
                "end step 1/1",
                "end turn 1 interrupted",
            ]
        );
        assert_eq!(agent.with_projection(|p| p.activations()), activation);
        world.finish(agent).await;
    }
    drop(step);
}

#[tokio::test(start_paused = true)]
async fn a_second_writer_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = World::in_folder(folder.path());
    let spec = AgentSpec {
        id: Some(session()),
        ..world.spec()
    };
    let agent = Agent::create(&world.host, None, spec.clone())
        .expect("an agent")
        .into_agent();
    agent.start();
    let other = World::in_folder(folder.path());
    let refused = Agent::resume(
        &other.host,
        None,
        &session(),
        Default::default(),
        other.kit(),
    );
    assert!(
        matches!(refused, Err(OpenError::Store(StoreError::Locked(_)))),
        "{refused:?}"
    );
    let refused = Agent::create(&other.host, None, spec);
    assert!(matches!(
        refused,
        Err(OpenError::Store(StoreError::Exists(_)))
    ));
    assert!(other.host.amend(&session(), |_| Vec::new()).is_err());
    agent.inject(user("still-mine")).expect("accepted");
    world.finish(agent).await;
    let agent = Agent::resume(
        &other.host,
        None,
        &session(),
        Default::default(),
        other.kit(),
    )
    .expect("it is free now")
    .into_agent();
    assert!(agent.with_projection(|p| p.inbox().contains(&"still-mine".parse().expect("an id"))));
    other.finish(agent).await;
}

/// A quiet message waits over a restart without a turn; a waking one runs at the start.
#[tokio::test(start_paused = true)]
async fn what_waits_survives_and_only_what_wakes_runs() {
    for (wake, turns) in [(false, 0), (true, 1)] {
        let folder = tempfile::tempdir().expect("a folder");
        let world = World::in_folder(folder.path());
        let spec = AgentSpec {
            id: Some(session()),
            ..world.spec()
        };
        let agent = Agent::create(&world.host, None, spec)
            .expect("an agent")
            .into_agent();
        if wake {
            agent.steer(user("a")).expect("accepted");
        } else {
            agent.inject(user("a")).expect("accepted");
        }
        world.finish(agent).await;
        let world = World::in_folder(folder.path());
        let agent = Agent::resume(
            &world.host,
            None,
            &session(),
            Default::default(),
            world.kit(),
        )
        .expect("the session")
        .into_agent();
        let mut world = world;
        agent.start();
        tokio::task::yield_now().await;
        assert_eq!(agent.with_projection(|p| p.turn()), turns);
        if let Some(step) = world.stage.ready() {
            step.complete();
        }
        soon("idle", agent.idle()).await;
        let ledger = world.finish(agent).await;
        let fate = if wake { Fate::Read } else { Fate::Waits };
        assert_eq!(ledger.of("a"), Some(fate));
    }
}

/// Decision 25 over a restart: the log tells of a user's stop, also when messages were kept.
#[tokio::test(start_paused = true)]
async fn a_users_stop_survives_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut world = World::in_folder(folder.path());
    let spec = AgentSpec {
        id: Some(session()),
        ..world.spec()
    };
    let agent = Agent::create(&world.host, None, spec)
        .expect("an agent")
        .into_agent();
    agent.start();
    agent.followup(user("a")).expect("accepted");
    let _step = world.stage.next().await;
    agent.inject(user("kept")).expect("accepted");
    agent.cancel(CancelCause::User, Pending::Keep);
    support::soon("idle", agent.idle()).await;
    let live = agent.notify(notice("n1", 1), true).expect("accepted");
    assert_eq!(live.placement, Placement::Parked);
    world.finish(agent).await;
    let mut world = World::in_folder(folder.path());
    let agent = Agent::resume(
        &world.host,
        None,
        &session(),
        Default::default(),
        world.kit(),
    )
    .expect("the session")
    .into_agent();
    agent.start();
    let resumed = agent.notify(notice("n2", 1), true).expect("accepted");
    assert_eq!(
        resumed.placement,
        Placement::Parked,
        "as before the restart"
    );
    agent.steer(from_agent("work")).expect("accepted");
    let step = world.stage.next().await;
    assert_eq!(step.read(), ["kept", "n1", "n2", "work"]);
    step.complete();
    support::soon("idle", agent.idle()).await;
    world.finish(agent).await;
}

/// Decision 25: a notice that the stop came after does not begin a turn either when the session goes on;
/// what somebody asked for does, and the wish to go on.
#[tokio::test(start_paused = true)]
async fn after_a_users_stop_a_restart_begins_with_no_notice() {
    for kept in [None, Some(user("go-on")), Some(from_agent("go-on"))] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut world = World::in_folder(folder.path());
        let spec = AgentSpec {
            id: Some(session()),
            ..world.spec()
        };
        let agent = Agent::create(&world.host, None, spec)
            .expect("an agent")
            .into_agent();
        agent.start();
        agent.followup(user("a")).expect("accepted");
        let _step = world.stage.next().await;
        let early = agent.notify(notice("early", 1), true).expect("accepted");
        assert_eq!(early.placement, Placement::NextStep);
        let asked = kept.is_some();
        if let Some(message) = kept {
            agent.followup(message).expect("accepted");
        }
        agent.cancel(CancelCause::User, Pending::Keep);
        soon("idle", agent.idle()).await;
        world.finish(agent).await;

        let mut world = World::in_folder(folder.path());
        let agent = resumed(&world);
        agent.start();
        assert_eq!(agent.is_at_rest(), !asked);
        if !asked {
            assert_eq!(agent.resume_parked().expect("open"), Resumed::TurnStarted);
        }
        let step = world.stage.next().await;
        let read = ["early", "go-on"];
        assert_eq!(step.read(), read[..1 + usize::from(asked)]);
        step.complete();
        soon("idle", agent.idle()).await;
        world.finish(agent).await;
    }
}

/// Decision 25: the user's next message lifts the stop, also one before the cancelled turn has ended.
#[tokio::test(start_paused = true)]
async fn a_users_message_in_the_turn_that_the_user_stopped_ends_the_stop() {
    for (stopped_again, replaces) in [(false, false), (false, true), (true, false)] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut world = World::in_folder(folder.path());
        let spec = AgentSpec {
            id: Some(session()),
            ..world.spec()
        };
        let agent = Agent::create(&world.host, None, spec)
            .expect("an agent")
            .into_agent();
        agent.start();
        agent.followup(user("a")).expect("accepted");
        let _step = world.stage.next().await;
        let quiet = agent.inject(from_agent("kept")).expect("accepted");
        agent.cancel(CancelCause::User, Pending::Keep);
        match replaces {
            true => agent.replace(&quiet.message_id, user("go-on")),
            false => agent.inject(user("go-on")),
        }
        .expect("accepted");
        if stopped_again {
            agent.cancel(CancelCause::User, Pending::Keep);
        }
        support::soon("idle", agent.idle()).await;
        let stopped = |agent: &Agent| agent.with_projection(|p| p.stopped_by_user());
        assert_eq!(stopped(&agent), stopped_again, "live");
        world.finish(agent).await;
        let world = World::in_folder(folder.path());
        let agent = resumed(&world);
        assert_eq!(stopped(&agent), stopped_again, "after a restart");
        world.finish(agent).await;
    }
}

/// A stop of an idle agent is a stop as well, until the user's next message, and no restart ends it.
#[tokio::test(start_paused = true)]
async fn a_users_stop_of_an_idle_agent_survives_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = World::in_folder(folder.path());
    let spec = AgentSpec {
        id: Some(session()),
        ..world.spec()
    };
    let agent = Agent::create(&world.host, None, spec)
        .expect("an agent")
        .into_agent();
    agent.start();
    assert!(!agent.cancel(CancelCause::User, Pending::Keep));
    let log = world.log(&agent);
    let stop = &log.last().expect("an event").event;
    assert!(matches!(stop, Event::AgentStopped { cause } if cause == "user"));
    world.finish(agent).await;
    let mut world = World::in_folder(folder.path());
    let agent = resumed(&world);
    agent.start();
    let parked = agent.notify(notice("n", 1), true).expect("accepted");
    assert_eq!(parked.placement, Placement::Parked);
    agent.followup(user("again")).expect("accepted");
    let step = world.stage.next().await;
    assert_eq!(step.read(), ["n", "again"]);
    step.complete();
    support::soon("idle", agent.idle()).await;
    let woken = agent.notify(notice("n2", 1), true).expect("accepted");
    assert_eq!(woken.placement, Placement::TurnStarted);
    world.stage.next().await.complete();
    support::soon("idle", agent.idle()).await;
    world.finish(agent).await;
}

fn resumed(world: &World) -> Agent {
    let extra = Default::default();
    Agent::resume(&world.host, None, &session(), extra, world.kit())
        .expect("the session")
        .into_agent()
}

/// Without `auto_wake` a resumed agent waits to be asked, whatever waits and whatever it is told.
#[tokio::test(start_paused = true)]
async fn without_auto_wake_a_resumed_agent_waits_to_be_asked() {
    for asked_before_the_start in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let world = World::in_folder(folder.path());
        let spec = AgentSpec {
            id: Some(session()),
            ..world.spec()
        };
        let agent = Agent::create(&world.host, None, spec)
            .expect("an agent")
            .into_agent();
        agent.followup(user("kept")).expect("accepted");
        world.finish(agent).await;

        let mut world = World::in_folder(folder.path());
        world.host.settings = Arc::new(AgentSettings {
            auto_wake: false,
            ..AgentSettings::default()
        });
        let agent = resumed(&world);
        agent.notify(notice("lost", 1), true).expect("accepted");
        if asked_before_the_start {
            agent.steer(from_agent("go-on")).expect("accepted");
            agent.start();
        } else {
            agent.start();
            assert!(agent.is_at_rest(), "nothing runs by itself");
            let asked = agent.steer(from_agent("go-on")).expect("accepted");
            assert_eq!(asked.placement, Placement::TurnStarted);
        }
        let step = world.stage.next().await;
        assert_eq!(step.read(), ["lost", "go-on", "kept"]);
        step.complete();
        support::soon("idle", agent.idle()).await;
        world.finish(agent).await;
    }
}

/// A256: a flush returns when everything accepted survives a loss of power, and says when nothing can.
#[tokio::test(start_paused = true)]
async fn a_flush_says_whether_what_was_accepted_is_durable() {
    let folder = tempfile::tempdir().expect("a folder");
    for (world, flushed) in [
        (World::in_folder(folder.path()), Flushed::Durable),
        (World::new(), Flushed::Volatile),
    ] {
        let agent = world.agent();
        agent.inject(user("a")).expect("accepted");
        assert_eq!(agent.flush().expect("a flush"), flushed);
        agent.clone().close(Pending::Keep).await;
        let error = agent.flush().expect_err("it has no log any more");
        assert_eq!(error.code(), "SESSION_NOT_FOUND");
    }
}

/// A program that knows its vocabulary does not go on with a session that says more.
#[tokio::test(start_paused = true)]
async fn an_event_that_the_program_does_not_know_is_refused_unless_it_is_ignorable() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut world = World::in_folder(folder.path());
    let spec = AgentSpec {
        id: Some(session()),
        ..world.spec()
    };
    let agent = Agent::create(&world.host, None, spec)
        .expect("an agent")
        .into_agent();
    agent.record(Extension::new("a/known")).expect("recorded");
    let seen = Extension::new("b/seen").ignorable();
    agent.record(seen).expect("recorded");
    world.finish(agent).await;
    let known = |kinds: &[&str]| {
        let kinds = kinds.iter().map(|kind| (*kind).to_owned());
        Some(Arc::new(kinds.collect()))
    };
    world.host.event_types = known(&["a/known"]);
    let agent = resumed(&world);
    assert_eq!(
        agent.with_projection(|p| p.extensions().count()),
        1,
        "what is ignorable is in the log alone"
    );
    world.finish(agent).await;
    let before = std::fs::read(file(folder.path())).expect("the log");
    let mut world = World::in_folder(folder.path());
    world.host.event_types = known(&["a/other"]);
    let kit = world.kit();
    let refused = Agent::resume(&world.host, None, &session(), Default::default(), kit);
    let error = refused.expect_err("an unknown event");
    let OpenError::Store(error) = error else {
        panic!("{error}");
    };
    assert_eq!(error.code(), "UNKNOWN_EVENT");
    assert_eq!(
        error.to_string(),
        "session s, event 1: an event of the unknown type a/known: a newer version wrote this session"
    );
    assert_eq!(std::fs::read(file(folder.path())).expect("the log"), before);
    world.host.event_types = None;
    let agent = resumed(&world);
    world.finish(agent).await;
}

/// An interrupt after a user's stop does not end the stop.
#[tokio::test(start_paused = true)]
async fn the_fold_and_the_agent_agree_on_a_users_stop() {
    let mut world = World::with(Manner::Polite, Default::default());
    let agent = world.agent();
    let agree = |what: &str| {
        let folded = Projection::of(&world.host.store.read(agent.id()).expect("the log"));
        let live = agent.with_projection(|p| p.stopped_by_user());
        assert_eq!(live, folded.stopped_by_user(), "{what}");
        live
    };
    agent.followup(user("a")).expect("accepted");
    let _step = world.stage.next().await;
    agent.cancel(CancelCause::User, Pending::Keep);
    support::soon("idle", agent.idle()).await;
    assert!(agree("after the stop"));
    agent.steer(from_agent("b")).expect("accepted");
    let _step = world.stage.next().await;
    agent.cancel(CancelCause::Interrupt, Pending::Keep);
    support::soon("idle", agent.idle()).await;
    assert!(agree("after an interrupt of other work"));
    agent.steer(from_agent("c")).expect("accepted");
    let _step = world.stage.next().await;
    agent.cancel(CancelCause::User, Pending::Keep);
    agent.followup(user("d")).expect("accepted");
    let step = world.stage.next().await;
    assert!(!agree("the user wrote in the abort window"));
    step.complete();
    support::soon("idle", agent.idle()).await;
    assert!(!agree("and was read"));
    world.finish(agent).await;
}

/// A fork that was cut before its own birth is no session, and not the one that it came from.
#[tokio::test(start_paused = true)]
async fn a_fork_that_was_cut_before_its_birth_is_empty() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut world = World::in_folder(folder.path());
    let source = world.agent();
    source.followup(user("a")).expect("accepted");
    world.stage.next().await.complete();
    source.idle().await;
    let spec = AgentSpec {
        id: Some(session()),
        seed: Some(world.log(&source)),
        depth: 1,
        ..world.spec()
    };
    let fork = Agent::create(&world.host, None, spec)
        .expect("a fork")
        .into_agent();
    world.finish(fork).await;
    world.finish(source).await;
    let path = file(folder.path());
    let bytes = std::fs::read(&path).expect("the log");
    let birth = 1 + String::from_utf8_lossy(&bytes)
        .lines()
        .position(|line| line.contains("\"inherited\":{"))
        .expect("the birth");
    let mut seen = 0;
    for (index, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
        seen += 1;
        if seen >= birth {
            break;
        }
        std::fs::write(&path, &bytes[..=index]).expect("a cut log");
        let store = JsonlStore::existing(folder.path()).expect("the store");
        assert_eq!(store.first(&session()).expect("readable"), None);
        let empty = Agent::resume(
            &world.host,
            None,
            &session(),
            Default::default(),
            world.kit(),
        );
        assert!(matches!(empty, Err(OpenError::Empty(_))), "{empty:?}");
    }
    assert!(seen >= birth);
}

#[test]
fn a_log_that_lacks_its_beginning_is_corrupt() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = JsonlStore::open_folder(folder.path()).expect("a store");
    let event = |seq| StoredEvent {
        seq,
        time: offshoot_core::Timestamp::from_millis(0),
        event: Extension::new("a/b").into(),
    };
    let mut log = store.create(&session(), 0).expect("a session");
    log.append(0, &[event(0), event(1)]).expect("an append");
    drop(log);
    let text = std::fs::read_to_string(file(folder.path())).expect("the log");
    let mut lines: Vec<_> = text.lines().collect();
    lines.remove(1);
    std::fs::write(file(folder.path()), lines.join("\n") + "\n").expect("a damaged log");
    let error = store.open(&session(), &mut |_| {});
    let error = error.expect_err("corrupt").to_string();
    assert!(
        error.ends_with("s.jsonl:2: expected seq 0, found 1"),
        "{error}"
    );
}

#[test]
fn a_folder_can_be_opened_by_many_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    JsonlStore::open_folder(folder.path()).expect("a store");
                }
            });
        }
    });
}
