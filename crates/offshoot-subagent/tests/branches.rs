//! Ends that fail: of a log, of a teardown, of a branch. Nobody else is kept, and the parent is told.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::sync::Arc;

use offshoot_agent::{Agent, AgentSpec, Pending, RunId, Status};
use offshoot_subagent::{Descriptor, Mode, StopReply, SubagentSettings};
use support::{Act, Gate, Refusing, World, request, runs_at, soon};

fn two() -> SubagentSettings {
    SubagentSettings {
        max_live_children: 2,
        ..SubagentSettings::default()
    }
}

#[tokio::test(start_paused = true)]
async fn s168_a_live_agent_that_nobody_manages_is_not_adopted() {
    let world = World::new();
    let root = world.root();
    let described = Descriptor {
        mode: Mode::Continuable,
        provider: "spawn".to_owned(),
        persona: None,
        tool_filter: None,
    };
    for extra in [serde_json::Map::new(), described.to_fields(&RunId::fresh())] {
        let spec = AgentSpec {
            label: "wild".to_owned(),
            parent: Some(root.id().clone()),
            depth: 1,
            extra,
            ..AgentSpec::root(world.kit())
        };
        let wild = Agent::create(&world.host, Some(root.scope()), spec)
            .unwrap()
            .into_agent();
        wild.start();
        let before = world.events.lock().unwrap().len();
        let sent = world.subagents.send(&root, wild.id().as_str(), "x", 0);
        let error = sent.await.unwrap_err();
        assert_eq!(error.code(), "NOT_RESUMABLE", "{error}");
        let disposed = world.subagents.dispose(wild.id());
        assert_ne!(disposed.ok(), Some(StopReply::Requested));
        assert_eq!(
            world.events.lock().unwrap().len(),
            before,
            "nothing happened"
        );
        assert_eq!(runs_at(&wild), (Status::Idle, 0));
        assert_eq!(root.scope().holds(), 0);
        soon("its end", wild.close(Pending::Keep)).await;
    }
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn s177_a_child_whose_log_fails_is_told_as_failed_and_keeps_nobody() {
    let store = Refusing::default();
    let refuse = store.refuse();
    let world = World::over(Arc::new(store), two());
    let root = world.root();
    let (reached, gate) = (Gate::default(), Gate::default());
    let acts = [Act::at(&reached, &gate, Act::Say("never written"))];
    let (bad, child) = world.child(&root, "bad", acts).await;
    let (good, _) = world
        .child(&root, "good", [Act::after(&gate, Act::Say("fine"))])
        .await;
    reached.opened().await;
    refuse.everything_of(child.id());
    gate.open();
    let settled = world.settled(&root, &good).await;
    assert_eq!(settled.field("outcome"), Some("completed"));
    let settled = world.settled(&root, &bad).await;
    assert_eq!(settled.field("outcome"), Some("error"));
    soon("rest", root.rest()).await;
    let notices = world.accepted(root.id(), "settled");
    assert_eq!(notices.len(), 2);
    let told = notices.iter().map(offshoot_agent::Message::to_text);
    let told = told.filter(|text| text.contains("disk is full")).count();
    assert_eq!(told, 1);
    world.child(&root, "next", []).await;
    soon("rest", root.rest()).await;
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn s178_a_teardown_that_fails_is_told_with_every_cause() {
    for panics in [false, true] {
        let world = World::with(two());
        let root = world.root();
        let gate = Gate::default();
        let (run, child) = world
            .child(&root, "child", [Act::after(&gate, Act::Say("the answer"))])
            .await;
        let fail = async || Err("it is stuck".to_owned());
        child.scope().on_close("the first thing", fail).unwrap();
        let fail = async move || {
            assert!(!panics, "it broke");
            Err("it is stuck, too".to_owned())
        };
        child.scope().on_close("the second thing", fail).unwrap();
        gate.open();
        let settled = world.settled(&root, &run).await;
        assert_eq!(settled.field("outcome"), Some("error"));
        soon("rest", root.rest()).await;
        let notices = world.accepted(root.id(), "settled");
        assert_eq!(notices.len(), 1);
        let text = notices[0].to_text();
        for part in ["the first thing", "it is stuck", "the second thing"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(text.contains("it broke"), panics, "{text}");
        world.child(&root, "next", []).await;
        soon("rest", root.rest()).await;
        world.close(&root).await;
    }
}

#[tokio::test(start_paused = true)]
async fn s180_s188_the_end_of_a_subtree_is_its_own_though_a_part_of_it_fails() {
    let world = World::new();
    let root = world.root();
    let gate = Gate::default();
    let stay = || [Act::after(&gate, Act::Say("done"))];
    let (cut, top) = world.child(&root, "top", stay()).await;
    let (_, below) = world.child(&top, "below", stay()).await;
    let (_, lowest) = world.child(&below, "lowest", stay()).await;
    let (kept, sibling) = world.child(&root, "sibling", stay()).await;
    let (_, nephew) = world.child(&sibling, "nephew", stay()).await;
    let fail = async || Err("it is stuck".to_owned());
    lowest.scope().on_close("a thing of its own", fail).unwrap();
    tokio::task::yield_now().await;
    assert_eq!(
        world.subagents.dispose(top.id()).unwrap(),
        StopReply::Requested
    );
    let settled = world.settled(&root, &cut).await;
    assert_eq!(settled.field("outcome"), Some("aborted"));
    // The failing one is an error in its own parent's session, and kept nobody above it.
    let order = [
        "below subagent/settled lowest error",
        "top subagent/settled below aborted",
        "root subagent/settled top aborted",
    ];
    assert!(order.map(|line| world.position(line)).is_sorted());
    let late = world.subagents.start(request(&top, "late")).await;
    assert_eq!(late.unwrap_err().code(), "PARENT_CLOSING");
    for agent in [&sibling, &nephew] {
        assert_eq!(agent.status(), Status::Running);
    }
    world.child(&sibling, "another", []).await;
    gate.open();
    let settled = world.settled(&root, &kept).await;
    assert_eq!(settled.field("outcome"), Some("completed"));
    soon("rest", root.rest()).await;
    world.close(&root).await;
}
