//! What is left of the words of a child that did not do its work, and what went wrong beside it.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::sync::Arc;

use offshoot_agent::{Agent, AgentId, Event, EventRecord, Message, ObserverGuard, Status};
use offshoot_subagent::{Authority, ChildRequest, Outcome, RunResult, Started, StopReply, Verb};
use support::{Act, Gate, World, request, soon};
use tokio_util::sync::CancellationToken;

async fn run(world: &World, root: &Agent, acts: impl IntoIterator<Item = Act>) -> RunResult {
    world.cast.plays("run", acts);
    let run = world
        .subagents
        .run(request(root, "run"), CancellationToken::new());
    let result = soon("the end of the run", run).await.unwrap();
    let mut shown = RunResult::new(result.outcome, result.text);
    shown.diagnostic = result.diagnostic;
    shown
}

#[tokio::test(start_paused = true)]
async fn s19_s52_an_empty_last_message_does_not_hide_the_one_before() {
    let world = World::new();
    let root = world.root();
    let result = run(&world, &root, [Act::GoOn("the answer"), Act::Say("")]).await;
    assert_eq!(
        (result.outcome, result.text.as_str()),
        (Outcome::Completed, "the answer")
    );
    let result = run(&world, &root, [Act::GoOn("the answer"), Act::MaxTokens("")]).await;
    assert_eq!(
        (result.outcome, result.text.as_str()),
        (Outcome::MaxTokens, "the answer")
    );
    world.close(&root).await;
}

/// The words of the notice of a child's end, and its outcome.
async fn told(world: &World, root: &Agent, started: &Started) -> (String, String) {
    let settled = world.settled(root, started).await;
    soon("rest", root.rest()).await;
    let notice = world.accepted(root.id(), "settled").pop().unwrap();
    let outcome = settled.field("outcome").unwrap().to_owned();
    (outcome, notice.to_text())
}

const NOTHING: &str = "It left no closing message.";

#[tokio::test(start_paused = true)]
async fn s209_a_child_out_of_tokens_is_told_with_what_it_wrote() {
    let world = World::new();
    let root = world.root();
    let (started, _) = world
        .child(&root, "child", [Act::MaxTokens("half an answer")])
        .await;
    let (outcome, words) = told(&world, &root, &started).await;
    assert_eq!(outcome, "max_tokens");
    assert!(words.contains("ran out of tokens"), "{words}");
    assert!(words.contains("the work is not complete"), "{words}");
    assert!(
        words.ends_with("half an answer\n[cut off by the token limit]"),
        "{words}"
    );
    world.close(&root).await;
}

/// Starts a child whose first turn says something while a second message waits.
async fn two_turns(world: &World, root: &Agent, second: Act) -> Started {
    let (arrived, gate) = (Gate::default(), Gate::default());
    let first = Act::at(&arrived, &gate, Act::Say("the first answer"));
    let (started, child) = world.child(root, "child", [first, second]).await;
    arrived.opened().await;
    let more = Message::user("more");
    let sent = world
        .subagents
        .deliver(Authority::Agent(root), child.id(), more, Verb::Followup);
    sent.await.unwrap();
    gate.open();
    started
}

#[tokio::test(start_paused = true)]
async fn s211_a_turn_that_fails_at_once_keeps_the_answer_before_it() {
    let world = World::new();
    let root = world.root();
    let started = two_turns(&world, &root, Act::Fail("429 slow down")).await;
    let (outcome, words) = told(&world, &root, &started).await;
    assert_eq!(outcome, "error");
    assert!(words.contains("failed: 429 slow down"), "{words}");
    assert!(words.ends_with("the first answer"), "{words}");
    world.close(&root).await;
}

/// Does something as the child's turn begins, before its first step.
fn as_turn_begins(
    world: &World,
    turn: u64,
    act: impl Fn(&AgentId) + Send + Sync + 'static,
) -> ObserverGuard {
    world
        .host
        .hub
        .observe(Arc::new(move |record: &EventRecord| {
            let begins =
                matches!(record.event, Event::TurnStart { turn: begun, .. } if begun == turn);
            if begins && &*record.label == "child" {
                act(&record.session);
            }
        }))
}

#[tokio::test(start_paused = true)]
async fn s212_stopped_before_the_second_turns_first_step_the_first_answer_stays() {
    let world = World::new();
    let root = world.root();
    let service = world.subagents.clone();
    let _stop = as_turn_begins(&world, 2, move |child| {
        assert_eq!(service.dispose(child).unwrap(), StopReply::Requested);
    });
    let started = two_turns(&world, &root, Act::Say("never")).await;
    let (outcome, words) = told(&world, &root, &started).await;
    assert_eq!(outcome, "aborted");
    assert!(words.contains("was stopped"), "{words}");
    assert!(words.ends_with("the first answer"), "{words}");
    assert_eq!(world.count("child step/start 2/1"), 0);
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn s213_a_child_that_is_stopped_before_it_reached_the_model_left_nothing() {
    let world = World::new();
    let root = world.root();
    let service = world.subagents.clone();
    let _stop = as_turn_begins(&world, 1, move |child| {
        assert_eq!(service.dispose(child).unwrap(), StopReply::Requested);
    });
    world.cast.plays("child", [Act::Say("never")]);
    let started = world
        .subagents
        .start(request(&root, "child"))
        .await
        .unwrap();
    let (outcome, words) = told(&world, &root, &started).await;
    assert_eq!(outcome, "aborted");
    assert!(words.ends_with(NOTHING), "{words}");
    assert_eq!(world.count("child step/start 1/1"), 0);
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn s214_a_child_that_is_interrupted_before_its_first_step_left_nothing() {
    let world = World::new();
    let root = world.root();
    let (service, by) = (world.subagents.clone(), root.clone());
    let _stop = as_turn_begins(&world, 1, move |child| {
        let reply = service.interrupt(Authority::Agent(&by), child);
        assert_eq!(reply.unwrap(), StopReply::Requested);
    });
    world.cast.plays("child", [Act::Say("never")]);
    let started = world
        .subagents
        .start(request(&root, "child"))
        .await
        .unwrap();
    let child = world.host.agents.get(&started.child).unwrap();
    world.until_idle_and_waiting(&child).await;
    assert_eq!(world.count("child step/start 1/1"), 0, "no model was asked");
    // Its task was not read: it waits for the next message, and keeps the child.
    assert_eq!(child.with_projection(|p| p.inbox().len()), 1);
    assert_eq!(child.status(), Status::Idle);
    assert_eq!(
        world.subagents.dispose(child.id()).unwrap(),
        StopReply::Requested
    );
    let (outcome, words) = told(&world, &root, &started).await;
    assert_eq!(outcome, "aborted");
    assert!(words.ends_with(NOTHING), "{words}");
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn s200_s216_a_child_that_could_not_be_closed_failed_with_every_cause() {
    let world = World::new();
    let root = world.root();
    let stuck = |child: Agent| async move {
        for (what, why) in [("a socket", "it is stuck"), ("a file", "it is locked")] {
            let stuck = child
                .scope()
                .on_close(what, async move || Err(why.to_owned()));
            stuck.unwrap();
        }
    };
    let (started, _) = world
        .child(&root, "child", [Act::work(stuck, Act::Say("the answer"))])
        .await;
    let (outcome, words) = told(&world, &root, &started).await;
    assert_eq!(outcome, "error");
    for cause in ["a socket: it is stuck", "a file: it is locked"] {
        assert!(words.contains(cause), "{words}");
    }
    assert_eq!(
        root.scope().holds(),
        0,
        "the parent is released all the same"
    );
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn s113_a_fork_that_is_one_shot_is_told_after_its_session_with_its_past() {
    let world = World::new();
    let root = world.root();
    root.followup(Message::user("remember it")).unwrap();
    soon("idle", root.idle()).await;
    let asked = ChildRequest {
        provider: "fork".to_owned(),
        ..request(&root, "run")
    };
    let result = world.subagents.run(asked, CancellationToken::new()).await;
    assert_eq!(result.unwrap().text, "done");
    let order = [
        "run session/start",
        "root subagent/started run",
        "run inbox/inserted user",
        "run turn/start 2",
        "root subagent/settled run completed",
    ];
    assert!(order.map(|line| world.position(line)).is_sorted());
    let inherited = {
        let events = world.events.lock().unwrap();
        events.iter().find_map(|record| match &record.event {
            Event::SessionStart(start) => start.inherited,
            _ => None,
        })
    };
    assert_eq!(inherited.map(|it| it.turns), Some(1), "already seeded");
    world.close(&root).await;
}
