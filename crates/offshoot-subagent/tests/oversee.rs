//! What a parent does with the children that it has: interrupts and listings.

mod support;

use std::sync::Arc;

use offshoot_agent::{AgentId, Message, Status, TurnEndReason};
use offshoot_subagent::{Authority, ChildStatus, Destination, StopReply, Verb};
use support::{Act, Gate, World, request, soon};

#[tokio::test(start_paused = true)]
async fn t24_after_an_interrupt_parked_messages_wait_for_the_next_one() {
    let world = World::new();
    let root = world.root();
    let arrived = Gate::default();
    let (run, child) = world
        .child(
            &root,
            "child",
            [Act::at(&arrived, &Gate::default(), Act::Hang)],
        )
        .await;
    arrived.opened().await;
    let parked = Message::user("parked");
    let to = world
        .subagents
        .deliver(Authority::Host, child.id(), parked, Verb::Followup)
        .await;
    to.unwrap();
    let reply = world
        .subagents
        .interrupt(Authority::Agent(&root), child.id());
    assert_eq!(reply.unwrap(), StopReply::Requested);
    soon("idle", child.idle()).await;
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    assert_eq!(child.status(), Status::Idle, "it stays");
    assert_eq!(
        child.with_projection(|p| p.facts().end),
        Some(TurnEndReason::Aborted)
    );
    let to = world
        .subagents
        .send(&root, child.id().as_str(), "go on", 0)
        .await
        .unwrap();
    assert_eq!(to.destination, Destination::Idle);
    let settled = world.settled(&root, &run).await;
    assert_eq!(settled.field("outcome"), Some("completed"));
    let texts: Vec<_> = child.with_projection(|p| {
        p.history()
            .iter()
            .filter_map(|item| match item {
                offshoot_agent::HistoryItem::User(m) => Some(m.to_text()),
                _ => None,
            })
            .collect()
    });
    assert!(texts.iter().any(|t| t == "parked") && texts.iter().any(|t| t.contains("go on")));
    assert_eq!(world.count("root subagent/started child"), 1);
    soon("rest", root.rest()).await;
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn s229_only_ancestors_interrupt_and_the_descendants_go_on() {
    let world = World::new();
    let root = world.root();
    let gate = Gate::default();
    let stay = || [Act::after(&gate, Act::Say("done"))];
    let (_, child) = world.child(&root, "child", stay()).await;
    let (_, sibling) = world.child(&root, "sibling", stay()).await;
    let (run, grandchild) = world.child(&child, "grandchild", stay()).await;
    let (_, lowest) = world.child(&grandchild, "lowest", stay()).await;
    tokio::task::yield_now().await;
    let nobody = AgentId::fresh();
    for (who, target) in [
        (&sibling, grandchild.id()),
        (&grandchild, child.id()),
        (&child, child.id()),
        (&root, &nobody),
    ] {
        let error = world
            .subagents
            .interrupt(Authority::Agent(who), target)
            .unwrap_err();
        assert_eq!(error.code(), "UNKNOWN_AGENT");
    }
    let error = world.subagents.interrupt(Authority::Host, &nobody);
    assert_eq!(error.unwrap_err().code(), "UNKNOWN_AGENT");
    assert_eq!(grandchild.status(), Status::Running);
    let reply = world
        .subagents
        .interrupt(Authority::Agent(&root), grandchild.id());
    assert_eq!(reply.unwrap(), StopReply::Requested);
    soon("idle", grandchild.idle()).await;
    assert_eq!(
        (lowest.status(), child.status()),
        (Status::Running, Status::Running)
    );
    gate.open();
    let settled = world.settled(&child, &run).await;
    // Its own child's notice woke it once more, so it did end well.
    assert_eq!(settled.field("outcome"), Some("completed"));
    let reply = world
        .subagents
        .interrupt(Authority::Agent(&root), grandchild.id());
    assert_eq!(
        reply.unwrap(),
        StopReply::Settled,
        "a no-op, and it says so"
    );
    soon("rest", root.rest()).await;
    assert_eq!(
        world.extensions(child.id(), "subagent/started").len(),
        1,
        "no resume"
    );
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn a_listing_has_every_continuable_child_in_order() {
    let world = World::new();
    let root = world.root();
    assert!(world.subagents.list(&root, true).is_empty());
    let gate = Gate::default();
    let (a, settled) = world.child(&root, "a", []).await;
    world.settled(&root, &a).await;
    let (_, running) = world
        .child(&root, "b", [Act::after(&gate, Act::Say("done"))])
        .await;
    let (_, below) = world
        .child(&running, "below", [Act::after(&gate, Act::Say("done"))])
        .await;
    let run = world
        .subagents
        .run(request(&root, "one-shot"), Default::default());
    run.await.unwrap();
    let work = Arc::clone(&world.work);
    let begin = move |child: offshoot_agent::Agent| async move { work.begin(&child, "task x") };
    world
        .cast
        .plays("w", [Act::work(begin, Act::Say("waiting"))]);
    let waiting = world.subagents.start(request(&root, "w")).await.unwrap();
    let waiting = world.born(&waiting.child);
    world.until_idle_and_waiting(&waiting).await;
    let rows = |descendants| -> Vec<_> {
        let listed = world.subagents.list(&root, descendants);
        listed
            .into_iter()
            .map(|row| (row.label, row.status, row.depth))
            .collect()
    };
    let children = [
        ("a".to_owned(), ChildStatus::Ready, 1),
        ("b".to_owned(), ChildStatus::Running, 1),
        ("w".to_owned(), ChildStatus::Waiting, 1),
    ];
    assert_eq!(rows(false), children);
    let mut tree = children.to_vec();
    tree.insert(2, ("below".to_owned(), ChildStatus::Running, 2));
    assert_eq!(rows(true), tree);
    // B127, decision 20: usage is in the value, also of a child that is not resident.
    let listed = world.subagents.list(&root, true);
    assert_eq!(listed[0].id, *settled.id());
    assert_eq!(listed[2].parent, *running.id());
    assert_eq!(listed[2].id, *below.id());
    assert_eq!(listed[3].works, ["task x"]);
    world.work.end(waiting.id());
    gate.open();
    soon("rest", root.rest()).await;
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn t20_a_listing_knows_what_a_settled_child_cost() {
    let world = World::new();
    let root = world.root();
    let (run, _) = world.child(&root, "a", [Act::Say("12345")]).await;
    world.settled(&root, &run).await;
    soon("rest", root.rest()).await;
    let listed = world.subagents.list(&root, false);
    assert_eq!(
        (listed[0].usage.input, listed[0].usage.total_output),
        (10, 5)
    );
    world.close(&root).await;
}
