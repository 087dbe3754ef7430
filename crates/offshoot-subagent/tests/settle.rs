//! Settlement: children first, then the child, then the notice, then the parent's hold.

mod support;

use std::time::Duration;

use offshoot_agent::{AgentSettings, CancelCause, MemoryStore, Pending, Status, TurnEndReason};
use offshoot_subagent::{Authority, StopReply, SubagentSettings, TreeUsage};
use support::{Act, Gate, World, request, runs_at, soon};

#[tokio::test(start_paused = true)]
async fn b007_every_ending_is_told_exactly_once() {
    let agents = AgentSettings {
        max_steps_per_turn: 2,
        ..AgentSettings::default()
    };
    let rows: Vec<(&str, &str, Vec<Act>)> = vec![
        ("completed", "finished", vec![Act::Say("the answer")]),
        (
            "error",
            "failed: 429 slow down",
            vec![Act::Fail("429 slow down")],
        ),
        (
            "error",
            "failed: the driver panicked: boom",
            vec![Act::Panic("boom")],
        ),
        ("refusal", "declined", vec![Act::Refuse]),
        (
            "max_tokens",
            "ran out of tokens",
            vec![Act::MaxTokens("half an")],
        ),
        (
            "error",
            "failed",
            vec![Act::GoOn("one"), Act::GoOn("two"), Act::GoOn("three")],
        ),
    ];
    for (outcome, words, acts) in rows {
        let world = World::made_of(
            std::sync::Arc::new(MemoryStore::default()),
            SubagentSettings::default(),
            agents.clone(),
        );
        let root = world.root();
        world.cast.plays("child", acts);
        let run = world
            .subagents
            .start(request(&root, "child"))
            .await
            .unwrap();
        let settled = world.settled(&root, &run).await;
        assert_eq!(settled.field("outcome"), Some(outcome));
        soon("rest", root.rest()).await;
        let notices = world.accepted(root.id(), "settled");
        assert_eq!(notices.len(), 1, "{outcome}");
        assert!(
            notices[0].to_text().contains(words),
            "{}",
            notices[0].to_text()
        );
        assert_eq!(notices[0].source.field("outcome"), Some(outcome));
        assert_eq!(notices[0].source.field("run_id"), Some(run.run_id.as_str()));
        assert_eq!(
            world.count("root turn/start 1"),
            1,
            "an idle parent is woken once"
        );
        world.close(&root).await;
    }
}

#[tokio::test(start_paused = true)]
async fn b007_stopping_and_disposal_are_told_exactly_once() {
    for dispose in [false, true] {
        let world = World::new();
        let root = world.root();
        let (arrived, gate) = (Gate::default(), Gate::default());
        let (run, child) = world
            .child(&root, "child", [Act::at(&arrived, &gate, Act::Say("done"))])
            .await;
        arrived.opened().await;
        if dispose {
            assert_eq!(
                world.subagents.dispose(child.id()).unwrap(),
                StopReply::Requested
            );
        } else {
            child.cancel(CancelCause::Parent, Pending::Discard);
        }
        let settled = world.settled(&root, &run).await;
        assert_eq!(settled.field("outcome"), Some("aborted"));
        assert_eq!(
            world.subagents.dispose(child.id()).unwrap(),
            StopReply::Settled
        );
        soon("rest", root.rest()).await;
        let notices = world.accepted(root.id(), "settled");
        assert_eq!(notices.len(), 1);
        // B008: without words it says so.
        let text = notices[0].to_text();
        assert!(text.contains("left no closing message"), "{text}");
        world.close(&root).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_notice_is_accepted_while_its_child_still_holds_the_parent() {
    let world = World::new();
    let root = world.root();
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let holds = std::sync::Arc::clone(&seen);
    let parent = root.clone();
    let guard = world.host.hub.observe(std::sync::Arc::new(
        move |record: &offshoot_agent::EventRecord| {
            if let offshoot_agent::Event::InboxInserted { message, .. } = &record.event
                && message.source.kind == "settled"
            {
                holds.lock().unwrap().push(parent.scope().holds());
            }
        },
    ));
    let (run, _) = world.child(&root, "child", []).await;
    world.settled(&root, &run).await;
    soon("rest", root.rest()).await;
    drop(guard);
    assert_eq!(*seen.lock().unwrap(), [1]);
    let order = [
        "child agent/status Closed",
        "root subagent/settled child completed",
        "root inbox/inserted settled",
    ];
    assert!(order.map(|line| world.position(line)).is_sorted());
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn b089_a_message_of_the_child_is_read_before_its_notice() {
    for busy in [false, true] {
        let world = World::new();
        let root = world.root();
        let (arrived, gate) = (Gate::default(), Gate::default());
        if busy {
            world
                .cast
                .plays("root", [Act::at(&arrived, &gate, Act::Say("ok"))]);
            root.followup(offshoot_agent::Message::user("go")).unwrap();
            arrived.opened().await;
        }
        let (service, parent) = (world.subagents.clone(), root.id().to_string());
        let send = move |child: offshoot_agent::Agent| async move {
            let sent = service.send(&child, &parent, "a finding", 0).await;
            sent.unwrap();
        };
        world
            .cast
            .plays("child", [Act::work(send, Act::Say("done"))]);
        let run = world
            .subagents
            .start(request(&root, "child"))
            .await
            .unwrap();
        world.settled(&root, &run).await;
        gate.open();
        soon("rest", root.rest()).await;
        let order = ["root message/user agent", "root message/user settled"];
        assert!(
            order.map(|line| world.position(line)).is_sorted(),
            "busy: {busy}"
        );
        world.close(&root).await;
    }
}

#[tokio::test(start_paused = true)]
async fn two_children_that_settle_at_once_cost_a_busy_parent_one_step() {
    let world = World::new();
    let root = world.root();
    let (arrived, gate) = (Gate::default(), Gate::default());
    world
        .cast
        .plays("root", [Act::at(&arrived, &gate, Act::Say("ok"))]);
    root.followup(offshoot_agent::Message::user("go")).unwrap();
    arrived.opened().await;
    let (a, _) = world.child(&root, "a", []).await;
    let (b, _) = world.child(&root, "b", []).await;
    world.settled(&root, &a).await;
    world.settled(&root, &b).await;
    gate.open();
    soon("rest", root.rest()).await;
    assert_eq!(world.count("root step/start 1/2"), 1);
    assert_eq!(world.count("root step/start 1/3"), 0);
    assert_eq!(world.count("root turn/start 2"), 0);
    assert_eq!(world.count("root message/user settled"), 2);
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn a_closing_parent_is_told_quietly_and_starts_no_turn() {
    let world = World::new();
    let root = world.root();
    let gate = Gate::default();
    world
        .child(&root, "child", [Act::after(&gate, Act::Say("done"))])
        .await;
    world.close(&root).await;
    assert_eq!(world.count("root subagent/settled child aborted"), 1);
    assert_eq!(world.count("root inbox/inserted settled quiet"), 1);
    assert_eq!(world.count("root turn/start 1"), 0);
    let order = [
        "root inbox/inserted settled quiet",
        "root agent/status Closed",
    ];
    assert!(order.map(|line| world.position(line)).is_sorted());
}

#[tokio::test(start_paused = true)]
async fn a_tree_settles_child_first_though_its_middle_is_disposed() {
    let world = World::new();
    let root = world.root();
    let gate = Gate::default();
    let (run, child) = world
        .child(&root, "child", [Act::after(&gate, Act::Say("c"))])
        .await;
    let (_, grandchild) = world
        .child(&child, "grandchild", [Act::after(&gate, Act::Say("g"))])
        .await;
    let (_, lowest) = world
        .child(&grandchild, "lowest", [Act::after(&gate, Act::Say("l"))])
        .await;
    assert_eq!(
        world.subagents.dispose(child.id()).unwrap(),
        StopReply::Requested
    );
    world.settled(&root, &run).await;
    let order = [
        "lowest agent/status Closed",
        "grandchild subagent/settled lowest aborted",
        "grandchild agent/status Closed",
        "child subagent/settled grandchild aborted",
        "child agent/status Closed",
        "root subagent/settled child aborted",
    ];
    assert!(order.map(|line| world.position(line)).is_sorted());
    assert_eq!(lowest.status(), Status::Closed);
    soon("rest", root.rest()).await;
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn t20_usage_rolls_up_through_the_tree() {
    let world = World::new();
    let root = world.root();
    let gate = Gate::default();
    let (run, child) = world
        .child(&root, "child", [Act::after(&gate, Act::Say("12345"))])
        .await;
    let (_, _) = world.child(&child, "below", [Act::Say("1234567")]).await;
    soon("the child's child", child.scope().unheld()).await;
    gate.open();
    let settled = world.settled(&root, &run).await;
    let usage: TreeUsage = serde_json::from_value(settled.fields["usage"].clone()).unwrap();
    // The child answered once in its own turn and once to the notice of its child.
    let own = (usage.input, usage.output);
    let below = (
        usage.total_input - usage.input,
        usage.total_output - usage.output,
    );
    assert_eq!(own, (20, 9));
    assert_eq!(below, (10, 7));
    soon("rest", root.rest()).await;
    let (own, total) = root.usage();
    assert_eq!(total.input - own.input, 30);
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn t3_a_child_that_waits_is_mentioned_once_a_quiet_period() {
    let world = World::new();
    let root = world.root();
    world.cast.plays("child", [Act::Say("started the build")]);
    let work = std::sync::Arc::clone(&world.work);
    let begin = move |child: offshoot_agent::Agent| async move {
        work.begin(&child, "task bash-1 (build)")
    };
    world
        .cast
        .plays("waiter", [Act::work(begin, Act::Say("started the build"))]);
    let run = world
        .subagents
        .start(request(&root, "waiter"))
        .await
        .unwrap();
    let child = world.born(&run.child);
    world.until_idle_and_waiting(&child).await;
    assert_eq!(runs_at(&child), (Status::Idle, 1));
    tokio::time::sleep(Duration::from_millis(29_990)).await;
    assert!(world.accepted(root.id(), "waiting").is_empty());
    tokio::time::sleep(Duration::from_millis(20)).await;
    let told = world.accepted(root.id(), "waiting");
    assert_eq!(told.len(), 1);
    let text = told[0].to_text();
    assert!(text.contains("task bash-1 (build)"), "{text}");
    assert!(text.contains("started the build"), "{text}");
    assert!(text.contains("is not finished"), "b016: {text}");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.accepted(root.id(), "waiting").len(), 1, "once");
    // Another turn is another quiet period.
    let sent = world
        .subagents
        .send(&root, child.id().as_str(), "and?", 0)
        .await;
    sent.unwrap();
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(world.accepted(root.id(), "waiting").len(), 2);
    world.work.end(child.id());
    let settled = world.settled(&root, &run).await;
    assert_eq!(settled.field("outcome"), Some("completed"));
    soon("rest", root.rest()).await;
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn t3_an_interrupt_of_a_waiting_child_stops_its_work_and_it_settles_aborted() {
    let world = World::new();
    let root = world.root();
    let work = std::sync::Arc::clone(&world.work);
    let begin =
        move |child: offshoot_agent::Agent| async move { work.begin(&child, "task bash-1") };
    world
        .cast
        .plays("waiter", [Act::work(begin, Act::Say("waiting"))]);
    let run = world
        .subagents
        .start(request(&root, "waiter"))
        .await
        .unwrap();
    let child = world.born(&run.child);
    world.until_idle_and_waiting(&child).await;
    let reply = world
        .subagents
        .interrupt(Authority::Agent(&root), child.id());
    assert_eq!(reply.unwrap(), StopReply::Requested);
    let settled = world.settled(&root, &run).await;
    assert_eq!(settled.field("outcome"), Some("aborted"));
    soon("rest", root.rest()).await;
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_that_comes_too_late_changes_no_outcome() {
    let world = World::new();
    let root = world.root();
    let done = Gate::default();
    let acts = [Act::after(&done, Act::Say("done"))];
    let (run, child) = world.child(&root, "child", acts).await;
    // Something that the child's end has to wait for.
    let (closing, gate) = (Gate::default(), Gate::default());
    let (reached, go) = (closing.clone(), gate.clone());
    let slow = async move || {
        reached.open();
        go.opened().await;
        Ok(())
    };
    child.scope().on_close("something slow", slow).unwrap();
    done.open();
    closing.opened().await;
    assert_eq!(child.status(), Status::Closing);
    let reply = world
        .subagents
        .interrupt(Authority::Agent(&root), child.id());
    assert_eq!(reply.unwrap(), StopReply::Requested, "its host is asked");
    gate.open();
    let settled = world.settled(&root, &run).await;
    assert_eq!(settled.field("outcome"), Some("completed"));
    soon("rest", root.rest()).await;
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn t8_the_end_of_many_children_that_are_deaf_takes_one_grace() {
    let world = World::new();
    let root = world.root();
    for n in 0..20 {
        let label = format!("deaf{n}");
        world.child(&root, &label, [Act::Deaf]).await;
    }
    let (_, deaf) = world.child(&root, "top", [Act::Deaf]).await;
    world.child(&deaf, "below", [Act::Deaf]).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let before = tokio::time::Instant::now();
    world.close(&root).await;
    let took = before.elapsed();
    assert!(took < Duration::from_secs(7), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn b005_work_of_a_child_keeps_it_and_a_message_wakes_the_same_residency() {
    let world = World::new();
    let root = world.root();
    let work = std::sync::Arc::clone(&world.work);
    let begin =
        move |child: offshoot_agent::Agent| async move { work.begin(&child, "task bash-1") };
    world.cast.plays(
        "waiter",
        [Act::work(begin, Act::Say("waiting")), Act::Say("again")],
    );
    let run = world
        .subagents
        .start(request(&root, "waiter"))
        .await
        .unwrap();
    let child = world.born(&run.child);
    world.until_idle_and_waiting(&child).await;
    let sent = world
        .subagents
        .send(&root, child.id().as_str(), "more", 0)
        .await
        .unwrap();
    assert_eq!(sent.destination.as_str(), "idle");
    soon(
        "the second turn",
        child.until_projection(|p| {
            (p.turn() == 2 && p.facts().end == Some(TurnEndReason::Completed)).then_some(())
        }),
    )
    .await;
    assert_eq!(world.count("root subagent/started waiter"), 1);
    world.work.end(child.id());
    world.settled(&root, &run).await;
    soon("rest", root.rest()).await;
    assert_eq!(world.accepted(root.id(), "settled").len(), 1);
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn b014_a_settled_child_stays_settled() {
    let world = World::new();
    let root = world.root();
    let (a, child) = world.child(&root, "a", []).await;
    world.settled(&root, &a).await;
    let (b, _) = world.child(&root, "b", []).await;
    world.settled(&root, &b).await;
    assert_eq!(world.subagents.list(&root, true).len(), 2);
    soon("rest", root.rest()).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(world.extensions(root.id(), "subagent/started").len(), 2);
    assert!(world.host.agents.get(child.id()).is_none());
    world.close(&root).await;
}
