//! Where children live is somebody else's: what it says twice, too early, too late or not at all.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::sync::{Arc, Mutex};

use offshoot_agent::{AgentId, AgentSettings, MemoryStore, Message, Pending, RunId};
use offshoot_subagent::{
    Authority, Destination, Outcome, Report, Reported, Residency, Settlement, StopReply,
    SubagentSettings, TreeUsage, Verb, Waiting,
};
use support::{Act, Break, Broken, Far, Gate, Refusing, World, request, soon};

fn one() -> SubagentSettings {
    SubagentSettings {
        max_live_children: 1,
        ..SubagentSettings::default()
    }
}

/// A world whose host breaks where it is told to.
fn breaking(answer: Option<Gate>) -> (World, Broken) {
    let mut made = None;
    let (store, agents) = (Arc::new(MemoryStore::default()), AgentSettings::default());
    let world = World::hosted(store, one(), agents, |home| {
        let broken = Broken::new(home, answer);
        Arc::new(made.insert(broken).clone())
    });
    (world, made.unwrap())
}

/// An opening that strays and comes when its residency was taken back must not bring it back.
#[tokio::test(start_paused = true)]
async fn what_was_retracted_is_not_revived_by_a_late_repetition() {
    let mut made = None;
    let store = Refusing::default();
    let refuse = store.refuse();
    let agents = AgentSettings::default();
    let world = World::hosted(Arc::new(store), one(), agents, |home| {
        Arc::new(made.insert(Broken::new(home, None)).clone())
    });
    let broken = made.unwrap();
    let root = world.root();
    let (run, child) = world.child(&root, "child", []).await;
    world.settled(&root, &run).await;
    soon("rest", root.rest()).await;
    for resumed in [false, true] {
        refuse.events("subagent/started");
        let code = match resumed {
            true => {
                let sent = world.subagents.send(&root, child.id().as_str(), "x", 0);
                sent.await.unwrap_err().code()
            }
            false => {
                let started = world.subagents.start(request(&root, "new")).await;
                started.unwrap_err().code()
            }
        };
        assert_eq!(code, "LOG_FAILED", "{resumed}");
        soon("the end of it", root.scope().unheld()).await;
        refuse.nothing();
        let again = broken.reopen().await.map(drop);
        let code = again.map_err(|error| error.code());
        assert_eq!(code, Err("DUPLICATE_RUN"), "resumed: {resumed}");
    }
    world.close(&root).await;
}

fn settlement() -> Report {
    Report::Settled(Settlement {
        outcome: Outcome::Completed,
        text: "a second time".to_owned(),
        cut: false,
        error: None,
        usage: TreeUsage::default(),
        stopped: Vec::new(),
        generation: 1,
    })
}

fn waiting(turn: u64) -> Report {
    Report::Waiting(Waiting {
        turn,
        text: String::new(),
        works: vec!["task x".to_owned()],
        parked: 0,
        generation: 1,
    })
}

#[tokio::test(start_paused = true)]
async fn a_report_that_comes_again_is_seen_as_one_and_has_no_effect() {
    let world = World::new();
    let root = world.root();
    let gate = Gate::default();
    let acts = [Act::after(&gate, Act::Say("done")), Act::Say("again")];
    let (run, child) = world.child(&root, "child", acts).await;
    let of = Residency {
        child: child.id().clone(),
        run: run.run_id.clone(),
    };
    for (report, expected) in [
        (waiting(1), Reported::Told),
        (waiting(1), Reported::Duplicate),
        (waiting(0), Reported::Duplicate),
        (waiting(2), Reported::Told),
    ] {
        assert_eq!(world.subagents.report(&of, &report).await, expected);
    }
    assert_eq!(world.accepted(root.id(), "waiting").len(), 2);
    gate.open();
    world.settled(&root, &run).await;
    soon("rest", root.rest()).await;
    let again = world.subagents.report(&of, &settlement()).await;
    assert_eq!(again, Reported::Duplicate, "its parent's session knows");
    // While the child has another residency, one of the first is still a duplicate.
    let (reached, hold) = (Gate::default(), Gate::default());
    world
        .cast
        .plays("child", [Act::at(&reached, &hold, Act::Say("more"))]);
    let sent = world.subagents.send(&root, child.id().as_str(), "x", 0);
    assert_eq!(sent.await.unwrap().destination, Destination::Resumed);
    let again = world.subagents.report(&of, &settlement()).await;
    assert_eq!(again, Reported::Duplicate);
    hold.open();
    soon("rest", root.rest()).await;
    assert_eq!(world.extensions(root.id(), "subagent/settled").len(), 2);
    assert_eq!(world.accepted(root.id(), "settled").len(), 2);
    // And what nobody here started is unknown.
    for (child, run) in [
        (child.id().clone(), RunId::fresh()),
        (AgentId::fresh(), run.run_id.clone()),
        (root.id().clone(), run.run_id.clone()),
    ] {
        let of = Residency { child, run };
        let told = world.subagents.report(&of, &settlement()).await;
        assert_eq!(told, Reported::Unknown);
    }
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn a_report_after_the_end_was_asked_for_is_late() {
    let world = World::new();
    let root = world.root();
    let (reached, gate) = (Gate::default(), Gate::default());
    let acts = [Act::at(&reached, &gate, Act::Deaf)];
    let (run, child) = world.child(&root, "child", acts).await;
    reached.opened().await;
    let of = Residency {
        child: child.id().clone(),
        run: run.run_id.clone(),
    };
    for expected in [StopReply::Requested, StopReply::Ending] {
        assert_eq!(world.subagents.dispose(child.id()).unwrap(), expected);
    }
    let told = world.subagents.report(&of, &waiting(1)).await;
    assert_eq!(told, Reported::Late);
    world.settled(&root, &run).await;
    assert!(world.accepted(root.id(), "waiting").is_empty());
    soon("rest", root.rest()).await;
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_fails_or_panics_is_a_typed_error_and_keeps_no_place() {
    for (at, code) in [
        (Break::OpenFails, "HOST_FAILED"),
        (Break::OpenPanics, "HOST_FAILED"),
        (Break::DeliverFails, "HOST_FAILED"),
        (Break::DeliverPanics, "HOST_FAILED"),
    ] {
        let (world, broken) = breaking(None);
        let root = world.root();
        broken.breaks(at);
        let error = world.subagents.start(request(&root, "child")).await;
        let error = error.unwrap_err();
        assert_eq!(error.code(), code, "{at:?}: {error}");
        soon("the end of what there was", root.scope().unheld()).await;
        broken.breaks(Break::Nothing);
        // What its caller was refused is not announced, but on the record when it had begun.
        assert!(world.accepted(root.id(), "settled").is_empty(), "{at:?}");
        let begun = world.extensions(root.id(), "subagent/started").len();
        let ended = world.extensions(root.id(), "subagent/settled").len();
        assert_eq!(begun, ended, "{at:?}");
        let (run, child) = world.child(&root, "next", []).await;
        world.settled(&root, &run).await;
        soon("rest", root.rest()).await;
        broken.breaks(at);
        let sent = world.subagents.send(&root, child.id().as_str(), "x", 0);
        let code = match at {
            Break::OpenFails | Break::OpenPanics => "NOT_RESUMABLE",
            _ => code,
        };
        let error = sent.await.unwrap_err();
        assert_eq!(error.code(), code, "{at:?}: {error}");
        soon("the end of what there was", root.scope().unheld()).await;
        world.close(&root).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_of_which_its_host_says_no_more_is_lost_and_told_once() {
    for at in [Break::ReportsEnd, Break::ReportsPanic] {
        let (world, broken) = breaking(None);
        let root = world.root();
        broken.breaks(at);
        let run = world
            .subagents
            .start(request(&root, "child"))
            .await
            .unwrap();
        broken.breaks(Break::Nothing);
        let settled = world.settled(&root, &run).await;
        assert_eq!(settled.field("outcome"), Some("lost"), "{at:?}");
        soon("rest", root.rest()).await;
        assert_eq!(world.accepted(root.id(), "settled").len(), 1);
        // Its place is free; what still runs of it nobody waits for.
        let (run, _) = world.child(&root, "next", []).await;
        world.settled(&root, &run).await;
        soon("rest", root.rest()).await;
        soon("the end", root.close(Pending::Keep)).await;
    }
}

/// A start whose caller goes away while the host still works on it ends as a whole child.
#[tokio::test(start_paused = true)]
async fn an_opening_that_is_dropped_goes_on_and_is_told() {
    let answer = Gate::default();
    let (world, broken) = breaking(Some(answer.clone()));
    let root = world.root();
    let (service, asked) = (world.subagents.clone(), request(&root, "child"));
    let start = tokio::spawn(async move { service.start(asked).await });
    broken.arrived.opened().await;
    start.abort();
    assert!(start.await.unwrap_err().is_cancelled());
    assert_eq!(root.scope().holds(), 1, "it holds its parent all the while");
    answer.open();
    soon("rest", root.rest()).await;
    assert_eq!(world.count("root subagent/settled child completed"), 1);
    assert_eq!(world.accepted(root.id(), "settled").len(), 1);
    world.close(&root).await;
}

/// A parent that closes waits for a child that is being made, which then ends.
#[tokio::test(start_paused = true)]
async fn s191_a_parent_that_closes_waits_for_a_child_that_is_being_made() {
    let answer = Gate::default();
    let (world, broken) = breaking(Some(answer.clone()));
    let root = world.root();
    let (service, asked) = (world.subagents.clone(), request(&root, "child"));
    let start = tokio::spawn(async move { service.start(asked).await });
    broken.arrived.opened().await;
    let mut closing = Box::pin(root.close(Pending::Keep));
    let early = tokio::time::timeout(std::time::Duration::from_secs(1), &mut closing).await;
    assert!(early.is_err(), "something of it is alive");
    answer.open();
    let report = soon("the end", closing).await;
    assert!(report.is_clean(), "{report:?}");
    let error = start.await.unwrap().unwrap_err();
    assert_eq!(error.code(), "PARENT_CLOSING", "{error}");
    assert_eq!(world.extensions(root.id(), "subagent/settled").len(), 1);
    assert!(world.accepted(root.id(), "settled").is_empty());
    world.close(&root).await;
}

/// Messages to a child that is being resumed wait for it, in their order.
#[tokio::test(start_paused = true)]
async fn messages_to_a_child_that_is_being_resumed_wait_for_it() {
    let (world, broken) = breaking(None);
    let root = world.root();
    let (run, child) = world.child(&root, "child", []).await;
    world.settled(&root, &run).await;
    soon("rest", root.rest()).await;
    broken.breaks(Break::OpenFails);
    let id = child.id().clone();
    let error = world.subagents.send(&root, id.as_str(), "no", 0).await;
    assert_eq!(error.unwrap_err().code(), "NOT_RESUMABLE");
    broken.breaks(Break::Nothing);
    let send = |n: usize| {
        let (service, root, id) = (world.subagents.clone(), root.clone(), id.clone());
        tokio::spawn(async move { service.send(&root, id.as_str(), &n.to_string(), 0).await })
    };
    let sends: Vec<_> = (0..8).map(send).collect();
    for (n, send) in sends.into_iter().enumerate() {
        let sent = soon("a message", send).await.unwrap().unwrap();
        assert_eq!(sent.destination == Destination::Resumed, n == 0, "{n}");
    }
    soon("rest", root.rest()).await;
    assert_eq!(world.count("child session/start resumed"), 1);
    assert_eq!(world.count("child message/user agent"), 8);
    world.close(&root).await;
}

/// Whole trees over many connections: nothing is lost, and nothing happens twice.
#[tokio::test(start_paused = true)]
async fn whatever_a_connection_does_each_end_is_told_once_and_each_message_read_once() {
    let mut repeated = 0;
    for seed in 0..100 {
        let far: Arc<Mutex<Option<Far>>> = Arc::default();
        let made = Arc::clone(&far);
        let (store, agents) = (Arc::new(MemoryStore::default()), AgentSettings::default());
        let world = World::hosted(store, SubagentSettings::default(), agents, |home| {
            Arc::new(made.lock().unwrap().insert(Far::new(home, seed)).clone())
        });
        let root = world.root();
        let gate = Gate::default();
        let stay = || [Act::after(&gate, Act::Say("done"))];
        let (_, child) = world.child(&root, "child", stay()).await;
        world.child(&child, "below", stay()).await;
        let (_, cut) = world.child(&root, "cut", [Act::Hang]).await;
        let mut sent = 0;
        for n in 0..4_u64 {
            if (seed + n).is_multiple_of(3) {
                gate.open();
                tokio::time::sleep(std::time::Duration::from_millis(seed % 7)).await;
            }
            let to = world.subagents.send(&root, child.id().as_str(), "more", 0);
            to.await.unwrap();
            sent += 1;
        }
        let again = Message::user("twice");
        for expected in [None, Some("DUPLICATE_MESSAGE")] {
            let to =
                world
                    .subagents
                    .deliver(Authority::Host, child.id(), again.clone(), Verb::Followup);
            assert_eq!(to.await.err().map(|error| error.code()), expected);
        }
        let reply = world.subagents.interrupt(Authority::Agent(&root), cut.id());
        assert_eq!(reply.unwrap(), StopReply::Requested);
        gate.open();
        soon("rest", root.rest()).await;
        let started = world.extensions(root.id(), "subagent/started").len();
        let settled = world.extensions(root.id(), "subagent/settled").len();
        assert_eq!(started, settled, "{seed}");
        let notices = world.accepted(root.id(), "settled");
        let told = notices.iter().filter_map(|n| n.source.field("run_id"));
        let told: std::collections::HashSet<_> = told.collect();
        assert_eq!(told.len(), notices.len(), "told twice: {seed}");
        // Nobody is told of a residency that a refused message brought about.
        assert!(settled - told.len() <= 1, "{seed}");
        assert_eq!(world.count("child message/user agent"), sent, "{seed}");
        let twice = world.count("child message/user user");
        assert_eq!(twice, 2, "its task and what came twice: {seed}");
        assert_eq!(world.count("cut turn/end 1 Aborted"), 1, "{seed}");
        world.close(&root).await;
        // What strays comes when all is over.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        repeated += far.lock().unwrap().as_ref().unwrap().check();
    }
    assert!(repeated > 500, "{repeated}");
}
