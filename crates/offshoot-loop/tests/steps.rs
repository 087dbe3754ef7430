//! The stock driver: what it records of a reply, of calls beside each other, and of a cancel.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use offshoot_agent::{
    CallId, CallRequest, CancelCause, Finish, HistoryItem, Message, Pending, TurnEndReason,
};
use offshoot_loop::{ModelError, ModelReply};
use serde_json::{Value, json};
use support::{Listed, World, calls, says};

#[tokio::test(start_paused = true)]
async fn calls_overlap_and_their_results_are_in_the_models_order() {
    let world = World::replies([calls([
        ("a", "slow", json!({"ms": 30})),
        ("b", "slow", json!({"ms": 10})),
        ("c", "slow", json!({"ms": 20})),
    ])]);
    let before = tokio::time::Instant::now();
    assert_eq!(world.turn().await, TurnEndReason::Completed);
    assert_eq!(before.elapsed().as_millis(), 30);
    let lines = [
        "call a",
        "call b",
        "call c",
        "result a ok",
        "result b ok",
        "result c ok",
        "say done Stop",
    ];
    assert_eq!(world.trace(), lines);
    assert_eq!(*world.committed.lock().unwrap(), ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_run_at_once_than_the_limit_and_some_run_alone() {
    let many: Vec<_> = (0..9)
        .map(|n| CallRequest {
            id: CallId(format!("c{n}")),
            name: if n == 4 { "alone" } else { "slow" }.to_owned(),
            args: json!({"ms": 10}),
        })
        .collect();
    let reply = ModelReply {
        calls: many,
        finish: Finish::ToolCalls,
        ..says("")
    };
    let model = Listed {
        replies: Mutex::new([Ok(reply)].into()),
        ..Listed::default()
    };
    let world = World::new(model, 3);
    let before = tokio::time::Instant::now();
    world.turn().await;
    assert_eq!(world.most.load(Ordering::SeqCst), 3);
    // 4 in two rounds, the one alone, 4 in two rounds.
    assert_eq!(before.elapsed().as_millis(), 50);
    let results: Vec<_> = world
        .trace()
        .into_iter()
        .filter(|l| l.starts_with("result"))
        .collect();
    let expected: Vec<_> = (0..9).map(|n| format!("result c{n} ok")).collect();
    assert_eq!(results, expected);
}

#[tokio::test(start_paused = true)]
async fn b148_b149_arguments_are_an_object_or_nothing() {
    let world = World::replies([calls([
        ("null", "slow", Value::Null),
        ("empty", "slow", json!("")),
        ("text", "slow", json!("{\"ms\": 1}")),
        ("array", "slow", json!([])),
        ("torn", "slow", json!("{\"task_id\":\"<t")),
        ("twice", "slow", json!("\"{}\"")),
        ("nobody", "no such\ntool", json!({})),
        ("broken", "panic", json!({})),
        ("odd", "slow", json!({"unclassifiable": 1})),
    ])]);
    assert_eq!(world.turn().await, TurnEndReason::Completed);
    let results: Vec<_> = world
        .trace()
        .into_iter()
        .filter(|l| l.starts_with("result"))
        .collect();
    assert_eq!(
        results,
        [
            "result null ok",
            "result empty ok",
            "result text ok",
            "result array INVALID_ARGUMENTS",
            "result torn INVALID_ARGUMENTS",
            "result twice INVALID_ARGUMENTS",
            "result nobody UNKNOWN_TOOL",
            "result broken TOOL_PANICKED",
            "result odd ok",
        ]
    );
    let texts = world.results();
    assert_eq!(texts[..3], ["slow {}", "slow {}", "slow {\"ms\":1}"]);
    assert!(texts[4].contains("not JSON"), "{}", texts[4]);
    assert!(texts[6].contains("unknown tool `no such tool`; the tools are: slow, alone, panic"));
    assert!(texts[7].contains("the tool broke"), "{}", texts[7]);
}

#[tokio::test(start_paused = true)]
async fn every_call_has_an_id_of_its_own() {
    let world = World::replies([calls([
        ("", "slow", json!({})),
        ("x", "slow", json!({})),
        ("x", "slow", json!({})),
        (" ", "slow", json!({})),
    ])]);
    world.turn().await;
    let calls: Vec<_> = world
        .trace()
        .into_iter()
        .filter(|l| l.starts_with("call"))
        .collect();
    assert_eq!(
        calls,
        ["call call_1_1_1", "call x", "call x_2", "call call_1_1_4"]
    );
}

#[tokio::test(start_paused = true)]
async fn b088_a_cancel_lets_what_runs_end_and_answers_the_rest() {
    let model = Listed {
        replies: Mutex::new(
            [calls([
                ("a", "slow", json!({"ms": 100})),
                ("b", "alone", json!({"ms": 100})),
                ("c", "slow", json!({})),
            ])]
            .into(),
        ),
        hangs: true,
        ..Listed::default()
    };
    let world = World::new(model, 10);
    world.agent.followup(Message::user("go")).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(world.agent.cancel(CancelCause::User, Pending::Keep));
    world.agent.idle().await;
    assert_eq!(
        world.trace(),
        [
            "call a",
            "result a ABORTED",
            "call b",
            "result b ABORTED_BEFORE_DISPATCH",
            "call c",
            "result c ABORTED_BEFORE_DISPATCH",
        ]
    );
    assert!(
        world.results()[0].starts_with("slow "),
        "what it said is kept"
    );
    assert_eq!(
        *world.committed.lock().unwrap(),
        ["a"],
        "and counts as told"
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_returns_is_dropped_uncommitted() {
    let world = World::replies([calls([("a", "slow", json!({"ms": 1_000_000}))])]);
    world.agent.followup(Message::user("go")).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let before = tokio::time::Instant::now();
    world.agent.cancel(CancelCause::User, Pending::Keep);
    world.agent.idle().await;
    assert_eq!(before.elapsed().as_secs(), 4);
    assert_eq!(world.trace(), ["call a", "result a ABORTED"]);
    assert!(world.committed.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_cut_or_declined_reply_are_never_run() {
    for (finish, end) in [
        (Finish::MaxTokens, TurnEndReason::MaxTokens),
        (Finish::Refusal, TurnEndReason::Refusal),
    ] {
        let mut reply = calls([("a", "slow", json!({}))]).unwrap();
        (reply.text, reply.finish) = ("half".to_owned(), finish);
        let world = World::replies([Ok(reply)]);
        assert_eq!(world.turn().await, end);
        assert_eq!(world.trace(), [format!("say half {finish:?}")]);
    }
}

#[tokio::test(start_paused = true)]
async fn partial_text_is_kept_when_a_request_fails_or_is_cancelled() {
    for partial in ["", "so f"] {
        let model = Listed {
            replies: Mutex::new([Err(ModelError::new("429"))].into()),
            partial,
            hangs: true,
            ..Listed::default()
        };
        let world = World::new(model, 10);
        assert_eq!(world.turn().await, TurnEndReason::Error);
        assert_eq!(
            world
                .agent
                .with_projection(|p| p.facts().error.clone())
                .as_deref(),
            Some("429")
        );
        world.agent.followup(Message::user("again")).unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        world.agent.cancel(CancelCause::User, Pending::Keep);
        world.agent.idle().await;
        let said: Vec<String> = match partial {
            "" => Vec::new(),
            text => vec![
                format!("say {text} Error"),
                format!("say {text} Interrupted"),
            ],
        };
        assert_eq!(world.trace(), said);
    }
}

#[tokio::test(start_paused = true)]
async fn b091_a_request_has_the_prompt_the_tools_and_results_right_after_their_calls() {
    let world = World::replies([calls([
        ("a", "slow", json!({"ms": 10})),
        ("b", "slow", json!({"ms": 30})),
    ])]);
    world.agent.followup(Message::user("go")).unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    world.agent.steer(Message::user("meanwhile")).unwrap();
    world.agent.idle().await;
    let asked = world.model.asked.lock().unwrap();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0].system, "You are a test.\n\nBe patient.");
    assert_eq!(asked[0].tools.iter().count(), 3);
    let kinds: Vec<_> = asked[1]
        .history
        .iter()
        .map(|item| match item {
            HistoryItem::User(message) => message.to_text(),
            HistoryItem::Assistant(_) => "reply".to_owned(),
            HistoryItem::ToolResult(result) => format!("result {}", result.call_id),
            _ => String::new(),
        })
        .collect();
    assert_eq!(kinds, ["go", "reply", "result a", "result b", "meanwhile"]);
}
