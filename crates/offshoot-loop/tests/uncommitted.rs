//! Calls beside each other while one of them waits: what is recorded meanwhile, what begins, and what is
//! shown of what is not recorded yet.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::sync::Mutex;
use std::time::Duration;

use offshoot_agent::{CallState, CancelCause, Message, Pending};
use serde_json::json;
use support::{Listed, World, calls};

/// As `a running`.
fn open(world: &World) -> Vec<String> {
    let calls = world.agent.open_calls();
    let lines = calls.iter().map(|open| {
        let state = match open.state {
            CallState::Asked => "asked",
            CallState::Running => "running",
            CallState::Settled => "settled",
            _ => "?",
        };
        format!("{} {state}", open.call.id)
    });
    lines.collect()
}

async fn at(millis: u64, began: tokio::time::Instant) {
    tokio::time::sleep_until(began + Duration::from_millis(millis)).await;
}

/// A275: a call that takes long before it does anything, as one that asks a human, is one of those that
/// run: what ended before it is recorded, and others begin.
#[tokio::test(start_paused = true)]
async fn a275_a_call_that_waits_for_leave_holds_up_neither_a_record_nor_a_start() {
    let asked = calls([
        ("a", "slow", json!({"ms": 10})),
        ("asks", "slow", json!({"ms": 1000})),
        ("c", "slow", json!({"ms": 10})),
        ("d", "slow", json!({"ms": 10})),
    ]);
    let model = Listed {
        replies: Mutex::new([asked].into()),
        ..Listed::default()
    };
    let world = World::new(model, 2);
    world.agent.followup(Message::user("go")).unwrap();
    let began = tokio::time::Instant::now();
    at(15, began).await;
    let trace = ["call a", "call asks", "result a ok", "call c"];
    assert_eq!(world.trace(), trace);
    at(25, began).await;
    assert_eq!(world.trace()[4..], ["call d"], "c has ended, and d begun");
    world.agent.idle().await;
    let trace = [
        "result asks ok",
        "result c ok",
        "result d ok",
        "say done Stop",
    ];
    assert_eq!(world.trace()[5..], trace, "in the model's order");
}

/// A276: results are recorded in the model's order; that one is there and waits for another is to be seen.
#[tokio::test(start_paused = true)]
async fn a276_a_result_that_waits_for_an_earlier_one_is_shown_as_settled() {
    let world = World::replies([calls([
        ("a", "slow", json!({"ms": 30})),
        ("b", "slow", json!({"ms": 10})),
        ("c", "alone", json!({"ms": 10})),
    ])]);
    world.agent.followup(Message::user("go")).unwrap();
    let began = tokio::time::Instant::now();
    at(5, began).await;
    assert_eq!(open(&world), ["a running", "b running", "c asked"]);
    let epoch = world.agent.epoch();
    let changed = world.agent.changed_since(epoch);
    changed.await;
    assert_eq!(began.elapsed().as_millis(), 10, "who watches is woken");
    assert_eq!(open(&world), ["a running", "b settled", "c asked"]);
    assert_eq!(
        world.trace(),
        ["call a", "call b"],
        "nothing of it is recorded"
    );
    at(35, began).await;
    assert_eq!(open(&world), ["c running"]);
    world.agent.idle().await;
    assert!(open(&world).is_empty());
    assert_eq!(
        world.trace()[2..],
        [
            "result a ok",
            "result b ok",
            "call c",
            "result c ok",
            "say done Stop"
        ]
    );
}

/// So what a cancelled step waits for is to be seen before its grace is over.
#[tokio::test(start_paused = true)]
async fn what_a_cancelled_step_still_waits_for_is_shown() {
    let world = World::replies([calls([
        ("a", "slow", json!({"ms": 1_000_000})),
        ("b", "slow", json!({"ms": 10})),
    ])]);
    world.agent.followup(Message::user("go")).unwrap();
    let began = tokio::time::Instant::now();
    at(50, began).await;
    world.agent.cancel(CancelCause::User, Pending::Keep);
    at(1000, began).await;
    assert_eq!(open(&world), ["a running", "b settled"]);
    world.agent.idle().await;
    assert!(open(&world).is_empty());
}
