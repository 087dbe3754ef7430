//! Who is held by whom, and for how long: places, memory, and the way between a child and its parent.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use offshoot_agent::{Agent, AgentSettings, MemoryStore, Pending, WeakAgent};
use offshoot_subagent::{Outcome, SubagentSettings};
use support::{Act, Gate, Refusing, World, request, soon};
use tokio_util::sync::CancellationToken;

#[tokio::test(start_paused = true)]
async fn b074_nothing_of_a_settled_child_stays_in_memory() {
    let world = World::new();
    let root = world.root();
    let kept: Arc<Mutex<Vec<WeakAgent>>> = Arc::default();
    let keep = |kept: &Arc<Mutex<Vec<WeakAgent>>>| {
        let kept = Arc::clone(kept);
        move |child: Agent| async move {
            kept.lock().unwrap().push(child.downgrade());
        }
    };
    world
        .cast
        .plays("run", [Act::work(keep(&kept), Act::Say("done"))]);
    let run = world
        .subagents
        .run(request(&root, "run"), CancellationToken::new());
    run.await.unwrap();
    world
        .cast
        .plays("child", [Act::work(keep(&kept), Act::Say("done"))]);
    let started = world
        .subagents
        .start(request(&root, "child"))
        .await
        .unwrap();
    world.settled(&root, &started).await;
    soon("rest", root.rest()).await;
    world.forget();
    let kept = std::mem::take(&mut *kept.lock().unwrap());
    assert_eq!(kept.len(), 2);
    soon("the memory to be released", async {
        while kept.iter().any(|agent| agent.upgrade().is_some()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn b104_parents_that_wait_do_not_starve_their_children() {
    // As many places as there are agents in a chain of waiting parents.
    let world = World::with(SubagentSettings {
        max_live_children: 3,
        ..SubagentSettings::default()
    });
    let root = world.root();
    let waits_for = |label: &'static str, refused: bool| {
        let service = world.subagents.clone();
        move |agent: Agent| async move {
            let run = service.run(request(&agent, label), CancellationToken::new());
            match run.await {
                Ok(result) => assert!(!refused && result.outcome == Outcome::Completed),
                // Told at once, instead of waiting for a place that only it could free.
                Err(error) => assert!(refused, "{error}"),
            }
        }
    };
    world
        .cast
        .plays("one", [Act::work(waits_for("two", false), Act::Say("1"))]);
    world
        .cast
        .plays("two", [Act::work(waits_for("three", false), Act::Say("2"))]);
    world
        .cast
        .plays("three", [Act::work(waits_for("four", true), Act::Say("3"))]);
    let run = world
        .subagents
        .run(request(&root, "one"), CancellationToken::new());
    let result = soon("the end of the chain", run).await.unwrap();
    assert_eq!(
        (result.outcome, result.text.as_str()),
        (Outcome::Completed, "1")
    );
    assert_eq!(world.count("three agent/status Closed"), 1);
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn s156_a_refused_message_leaves_the_residency_that_was_there() {
    let agents = AgentSettings {
        inbox_capacity: 1,
        ..AgentSettings::default()
    };
    let world = World::made_of(
        Arc::new(MemoryStore::default()),
        SubagentSettings::default(),
        agents,
    );
    let root = world.root();
    let (arrived, first) = (Gate::default(), Gate::default());
    let (again, second) = (Gate::default(), Gate::default());
    let acts = [
        Act::at(&arrived, &first, Act::GoOn("one")),
        Act::at(&again, &second, Act::Say("two")),
    ];
    let (started, child) = world.child(&root, "child", acts).await;
    arrived.opened().await;
    let send = |text: &'static str| world.subagents.send(&root, child.id().as_str(), text, 0);
    send("a").await.unwrap();
    assert_eq!(send("b").await.unwrap_err().code(), "INBOX_FULL");
    assert_eq!(root.scope().holds(), 1, "it is held as before");
    assert_eq!(world.host.agents.get(child.id()).as_ref(), Some(&child));
    first.open();
    again.opened().await;
    send("c").await.unwrap();
    second.open();
    world.settled(&root, &started).await;
    soon("rest", root.rest()).await;
    assert_eq!(world.count("child session/start"), 1, "one residency");
    assert_eq!(world.count("child message/user agent"), 2, "a and c");
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn s204_s206_a_childs_session_that_a_host_runs_cannot_write_to_its_parent() {
    let world = World::new();
    let root = world.root();
    let (started, _) = world.child(&root, "child", []).await;
    world.settled(&root, &started).await;
    soon("rest", root.rest()).await;
    let extra = serde_json::Map::new();
    let hosted = Agent::resume(&world.host, None, &started.child, extra, world.kit())
        .unwrap()
        .into_agent();
    hosted.start();
    let before = world.accepted(root.id(), "agent").len();
    let error = world
        .subagents
        .send(&hosted, root.id().as_str(), "hello", 0)
        .await;
    assert_eq!(error.unwrap_err().code(), "UNAUTHORIZED");
    assert_eq!(
        world.accepted(root.id(), "agent").len(),
        before,
        "nothing was appended"
    );
    soon("the end", hosted.close(Pending::Keep)).await;
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn s206_a_child_whose_parent_ends_is_told_that_it_is_not_there() {
    let world = World::new();
    let root = world.root();
    let codes: Arc<Mutex<Vec<&str>>> = Arc::default();
    let (service, said) = (world.subagents.clone(), Arc::clone(&codes));
    let (arrived, gate) = (Gate::default(), Gate::default());
    let (opened, go) = (arrived.clone(), gate.clone());
    let writes = move |child: Agent| async move {
        opened.open();
        go.opened().await;
        let parent = child.parent_id().unwrap().to_string();
        let error = service.send(&child, &parent, "hello", 0).await;
        said.lock().unwrap().push(error.unwrap_err().code());
    };
    world
        .child(&root, "child", [Act::work(writes, Act::Say("done"))])
        .await;
    arrived.opened().await;
    let closing = root.close(Pending::Keep);
    gate.open();
    soon("the end", closing).await;
    assert_eq!(*codes.lock().unwrap(), ["PARENT_UNAVAILABLE"]);
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn s224_a_parent_that_cannot_take_the_notice_is_released_and_told_at_its_next_chance() {
    let store = Refusing::default();
    let refuse = store.refuse();
    let world = World::over(Arc::new(store), SubagentSettings::default());
    let root = world.root();
    refuse.events("subagent/settled");
    let (started, child) = world.child(&root, "child", []).await;
    soon("the end of the child", child.closed()).await;
    soon("rest", root.rest()).await;
    assert!(world.accepted(root.id(), "settled").is_empty());
    assert!(world.host.agents.get(&started.child).is_none());
    refuse.nothing();
    // Its next chance: each end is told once, in order.
    let again = world
        .subagents
        .send(&root, started.child.as_str(), "go on", 0);
    assert_eq!(world.accepted(root.id(), "settled").len(), 0);
    again.await.unwrap();
    soon("rest", root.rest()).await;
    let notices = world.accepted(root.id(), "settled");
    let told: Vec<_> = notices.iter().map(|n| n.source.field("run_id")).collect();
    assert_eq!((told.len(), told[0]), (2, Some(started.run_id.as_str())));
    let settled = world.extensions(root.id(), "subagent/settled");
    let settled: Vec<_> = settled.iter().map(|e| e.field("run_id")).collect();
    assert_eq!(settled, told);
    world.close(&root).await;
}
