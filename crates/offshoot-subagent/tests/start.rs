//! Starting a continuable child: what it leaves in the stream, and what it leaves when it is refused.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use offshoot_agent::{Agent, Pending, ToolFilter};
use offshoot_subagent::{Capabilities, ChildRequest, Mode, StartError, SubagentSettings};
use support::{Act, Fault, Gate, Odd, Refusing, World, request, soon};
use tokio_util::sync::CancellationToken;

#[tokio::test(start_paused = true)]
async fn a_resident_child_costs_nothing_while_it_works() {
    let world = World::new();
    let root = world.root();
    let gate = Gate::default();
    let (started, child) = world
        .child(&root, "child", [Act::after(&gate, Act::Say("done"))])
        .await;
    let before = child.epoch();
    // A paused clock moves only when nothing is runnable: a watcher that spins would stop it.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(child.epoch() - before < 10);
    gate.open();
    world.settled(&root, &started).await;
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn ids_come_at_acceptance_and_events_in_order() {
    let world = World::new();
    let root = world.root();
    let gate = Gate::default();
    let (started, child) = world
        .child(&root, "child", [Act::after(&gate, Act::Say("done"))])
        .await;
    assert!(child.with_projection(|p| p.knows_message(&started.message_id)));
    assert_eq!(child.depth(), 1);
    assert_eq!(child.parent_id(), Some(root.id()));
    let start = child.with_projection(|p| p.start().cloned()).unwrap();
    assert_eq!(start.extra("mode"), Some("continuable"));
    assert_eq!(start.extra("provider"), Some("spawn"));
    assert_eq!(start.extra("run_id"), Some(started.run_id.as_str()));
    let lines = [
        "child session/start",
        "root subagent/started child",
        "child inbox/inserted user",
        "child turn/start 1",
    ];
    let places = lines.map(|line| world.position(line));
    assert!(places.is_sorted(), "{places:?}");
    gate.open();
    world.settled(&root, &started).await;
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn t11_the_65th_child_of_a_tree_is_refused_and_a_settled_one_frees_its_place() {
    let world = World::new();
    let root = world.root();
    let gate = Gate::default();
    let mut started = Vec::new();
    for n in 0..64 {
        let label = format!("child{n}");
        let (run, _) = world
            .child(&root, &label, [Act::after(&gate, Act::Say("done"))])
            .await;
        started.push(run);
    }
    let error = world.subagents.start(request(&root, "late")).await;
    let error = error.unwrap_err();
    assert!(
        matches!(error, StartError::TooMany { limit: 64 }),
        "{error}"
    );
    assert_eq!(error.code(), "CAPACITY_EXCEEDED");
    assert!(error.to_string().contains("limit: 64"), "{error}");
    let other = world.root();
    world.child(&other, "elsewhere", []).await;
    gate.open();
    for run in &started {
        world.settled(&root, run).await;
    }
    soon("rest", root.rest()).await;
    world.child(&root, "again", []).await;
    world.close(&other).await;
    soon("rest", root.rest()).await;
    world.close(&root).await;
}

fn one() -> SubagentSettings {
    SubagentSettings {
        max_live_children: 1,
        ..SubagentSettings::default()
    }
}

/// After a refusal nothing is left, and the only place is free.
async fn place_is_free(world: &World, root: &offshoot_agent::Agent) {
    assert_eq!(root.scope().holds(), 0, "a hold is left");
    let run = world.subagents.start(request(root, "next")).await;
    let run = run.expect("the place is free");
    world.settled(root, &run).await;
    soon("rest", root.rest()).await;
}

#[tokio::test(start_paused = true)]
async fn every_refusal_is_typed_and_frees_the_place() {
    let world = World::with(one());
    let odd = Odd::new(Fault::None);
    world.odd(&Odd {
        capabilities: Capabilities::default(),
        ..odd
    });
    let root = world.root();
    let filter = ToolFilter {
        allow: Some(vec!["no-such-tool".to_owned()]),
        deny: None,
    };
    let to = |provider: &str| ChildRequest {
        provider: provider.to_owned(),
        ..request(&root, "child")
    };
    let rows = [
        ("NO_PROVIDER", to("missing")),
        ("UNSUPPORTED_CAPABILITY", to("odd")),
        (
            "EMPTY_PROMPT",
            ChildRequest {
                prompt: " \n".to_owned(),
                ..to("spawn")
            },
        ),
        (
            "INVALID_TOOL_FILTER",
            ChildRequest {
                tool_filter: Some(filter),
                ..to("spawn")
            },
        ),
    ];
    for (code, request) in rows {
        let error = world.subagents.start(request.clone()).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        if code != "UNSUPPORTED_CAPABILITY" {
            let run = world.subagents.run(request, CancellationToken::new());
            assert_eq!(run.await.unwrap_err().code(), code, "of a one-shot run");
        }
        place_is_free(&world, &root).await;
    }
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_fails_or_panics_is_a_failed_start() {
    for fault in [Fault::SeedFails, Fault::SeedPanics, Fault::SeedPanicsAtOnce] {
        let world = World::with(one());
        world.odd(&Odd::new(fault));
        let root = world.root();
        let request = ChildRequest {
            provider: "odd".to_owned(),
            ..request(&root, "child")
        };
        let service = world.subagents.clone();
        let start = tokio::spawn(async move { service.start(request).await });
        let error = start.await.expect("no panic gets out").unwrap_err();
        assert_eq!(error.code(), "PROVIDER_FAILED", "{fault:?}: {error}");
        place_is_free(&world, &root).await;
        world.close(&root).await;
    }
}

#[tokio::test(start_paused = true)]
async fn b107_children_are_refused_beyond_the_depth() {
    let world = World::new();
    let root = world.root();
    let gate = Gate::default();
    let mut parent = root.clone();
    for depth in 1..=3 {
        let label = format!("d{depth}");
        let (_, child) = world
            .child(&parent, &label, [Act::after(&gate, Act::Say("done"))])
            .await;
        assert_eq!(child.depth(), depth);
        parent = child;
    }
    let error = world.subagents.start(request(&parent, "d4")).await;
    let error = error.unwrap_err();
    assert!(matches!(
        error,
        StartError::TooDeep {
            depth: 4,
            max_depth: 3
        }
    ));
    assert!(error.to_string().contains("limit: 3"), "{error}");
    gate.open();
    soon("rest", root.rest()).await;
    // One child settles after the other, from the bottom.
    let settled = [
        "d2 subagent/settled d3 completed",
        "d1 subagent/settled d2 completed",
    ];
    assert!(settled.map(|line| world.position(line)).is_sorted());
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn b028_a_closing_parent_starts_nothing() {
    let world = World::new();
    let root = world.root();
    let (arrived, gate) = (Gate::default(), Gate::default());
    world
        .child(&root, "slow", [Act::at(&arrived, &gate, Act::Say("done"))])
        .await;
    arrived.opened().await;
    let closing = root.close(Pending::Keep);
    let error = world.subagents.start(request(&root, "late")).await;
    assert_eq!(error.unwrap_err().code(), "PARENT_CLOSING");
    let run = world
        .subagents
        .run(request(&root, "late"), CancellationToken::new());
    assert_eq!(run.await.unwrap_err().code(), "PARENT_CLOSING");
    closing.await;
    assert!(!world.trace().iter().any(|line| line.starts_with("late")));
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn a_parent_that_closes_while_the_provider_prepares_gets_no_child() {
    let world = World::with(one());
    let gate = Gate::default();
    world.odd(&Odd {
        slow_start: Some(gate.clone()),
        ..Odd::new(Fault::None)
    });
    let root = world.root();
    let request = ChildRequest {
        provider: "odd".to_owned(),
        ..request(&root, "child")
    };
    let service = world.subagents.clone();
    let start = tokio::spawn(async move { service.start(request).await });
    tokio::task::yield_now().await;
    let closing = root.close(Pending::Keep);
    gate.open();
    let error = start.await.unwrap().unwrap_err();
    assert_eq!(error.code(), "PARENT_CLOSING", "{error}");
    closing.await;
    assert_eq!(world.host.store.sessions().unwrap().len(), 1);
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn a_start_that_cannot_be_recorded_leaves_nothing() {
    for kind in ["subagent/started", "session/start"] {
        let store = Refusing::default();
        let refuse = store.refuse();
        let world = World::over(Arc::new(store), one());
        let root = world.root();
        refuse.events(kind);
        let error = world
            .subagents
            .start(request(&root, "child"))
            .await
            .unwrap_err();
        refuse.nothing();
        assert!(
            error.to_string().contains("disk is full"),
            "{kind}: {error}"
        );
        assert_eq!(
            world.host.store.sessions().unwrap(),
            [root.id().clone()],
            "{kind}: no session is left that nobody knows of"
        );
        refuse.events(kind);
        let run = world
            .subagents
            .run(request(&root, "run"), CancellationToken::new());
        let error = run.await.unwrap_err();
        refuse.nothing();
        assert_eq!(error.code(), "PROVIDER_FAILED", "{kind}: {error}");
        assert_eq!(
            world.host.store.sessions().unwrap().len(),
            1,
            "{kind}: of a run"
        );
        place_is_free(&world, &root).await;
        // Nothing is left that the end would have to wait for.
        let before = tokio::time::Instant::now();
        world.close(&root).await;
        assert!(before.elapsed() < Duration::from_secs(1), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_its_caller_was_refused_is_not_announced() {
    let store = Refusing::default();
    let refuse = store.refuse();
    let kind = "inbox/inserted";
    let world = World::over(Arc::new(store), one());
    let root = world.root();
    refuse.events(kind);
    let error = world
        .subagents
        .start(request(&root, "child"))
        .await
        .unwrap_err();
    assert_eq!(error.code(), "LOG_FAILED", "{error}");
    soon("the end of it", root.scope().unheld()).await;
    refuse.nothing();
    // What was recorded as started is recorded as settled, and nobody is told of it.
    assert_eq!(world.extensions(root.id(), "subagent/settled").len(), 1);
    assert!(world.accepted(root.id(), "settled").is_empty());
    place_is_free(&world, &root).await;
    world.close(&root).await;
}

/// Whoever is begun with another one's past, or goes on with its own, is as deep as its ancestors say.
#[tokio::test(start_paused = true)]
async fn b107_a_fork_and_a_resumed_child_are_as_deep_as_before() {
    let world = World::with(SubagentSettings {
        max_depth: 2,
        ..SubagentSettings::default()
    });
    let root = world.root();
    let gate = Gate::default();
    let stay = [Act::after(&gate, Act::Say("done"))];
    let (_, child) = world.child(&root, "child", stay).await;
    let fork = ChildRequest {
        provider: "fork".to_owned(),
        ..request(&child, "fork")
    };
    let refused: Arc<Mutex<Vec<&str>>> = Arc::default();
    let tries = |label: &'static str| {
        let (service, seen) = (world.subagents.clone(), Arc::clone(&refused));
        move |agent: Agent| async move {
            assert_eq!(agent.depth(), 2);
            for provider in ["spawn", "fork"] {
                let asked = ChildRequest {
                    provider: provider.to_owned(),
                    ..request(&agent, label)
                };
                let error = service.start(asked).await.unwrap_err();
                seen.lock().unwrap().push(error.code());
            }
        }
    };
    let acts = [
        Act::work(tries("first"), Act::Say("one")),
        Act::work(tries("again"), Act::Say("two")),
    ];
    world.cast.plays("fork", acts);
    let started = world.subagents.start(fork).await.unwrap();
    world.settled(&child, &started).await;
    let sent = world
        .subagents
        .send(&child, started.child.as_str(), "again", 0);
    sent.await.unwrap();
    gate.open();
    soon("rest", root.rest()).await;
    assert_eq!(*refused.lock().unwrap(), ["DEPTH_LIMIT"; 4]);
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn modes_have_names() {
    assert_eq!(Mode::OneShot.to_string(), "one-shot");
    assert_eq!(Mode::Continuable.to_string(), "continuable");
}
