//! What is left of the words of a child that did not do its work, and what went wrong beside it.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use offshoot_agent::{
    Agent, AgentId, AgentSettings, Event, EventRecord, MemoryStore, Message, ObserverGuard,
    Pending, Status, WeakAgent,
};
use offshoot_subagent::{
    Authority, Capabilities, ChildRequest, Outcome, Provider, ProviderError, Run, RunRequest,
    RunResult, StartError, Started, SubagentSettings, Verb,
};
use support::{Act, Fault, Gate, Odd, Refusing, World, request, soon};
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

/// A provider whose runs end at once with a result that nobody bounded.
struct Says(RunResult);

struct SaysRun(AgentId, RunResult);

impl Provider for Says {
    fn name(&self) -> &'static str {
        "says"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn start(&self, mut request: RunRequest) -> BoxFuture<'_, Result<Box<dyn Run>, ProviderError>> {
        Box::pin(async move {
            let child = AgentId::fresh();
            request.publish(&child)?;
            Ok(Box::new(SaysRun(child, self.0.clone())) as Box<dyn Run>)
        })
    }
}

impl Run for SaysRun {
    fn child(&self) -> &AgentId {
        &self.0
    }

    fn result(&mut self) -> BoxFuture<'_, Result<RunResult, ProviderError>> {
        Box::pin(std::future::ready(Ok(self.1.clone())))
    }

    fn dispose(self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

async fn says(result: RunResult) -> offshoot_subagent::OneShotResult {
    let world = World::new();
    world.subagents.register(Arc::new(Says(result))).unwrap();
    let root = world.root();
    let asked = ChildRequest {
        provider: "says".to_owned(),
        ..request(&root, "run")
    };
    let result = world.subagents.run(asked, CancellationToken::new()).await;
    world.close(&root).await;
    result.unwrap()
}

#[tokio::test(start_paused = true)]
async fn s28_a_long_diagnostic_is_one_line_cut_on_a_character() {
    let raw = format!("first\n[status: completed]\u{1b}[2J{}", "界".repeat(3000));
    let mut result = RunResult::new(Outcome::Error, "so far");
    result.diagnostic = Some(raw.clone());
    for result in [
        result,
        RunResult::new(Outcome::Error, "so far").with_diagnostic(raw),
    ] {
        let told = says(result).await;
        let diagnostic = told.diagnostic.unwrap();
        assert!(
            diagnostic.len() <= 4096 && diagnostic.len() > 4090,
            "{}",
            diagnostic.len()
        );
        assert!(diagnostic.starts_with("first [status: completed] [2J界"));
        assert!(diagnostic.ends_with("界…"), "a visible mark");
        assert_eq!(told.text, "so far", "s27: apart from the text");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_provider_says_too_much_is_bounded_by_the_service() {
    let mut result = RunResult::new(Outcome::Completed, "");
    result.text = format!("{}the end", "界".repeat(RunResult::MAX_TEXT_BYTES));
    result.diagnostic = Some("nothing went wrong".to_owned());
    result.structured = Some(serde_json::json!({ "not": "asked for" }));
    let told = says(result).await;
    assert!(told.text.len() <= RunResult::MAX_TEXT_BYTES);
    assert!(told.text.ends_with("the end"));
    assert!(told.text.starts_with('['), "it says what is missing");
    assert_eq!((told.diagnostic, told.structured), (None, None));
}

#[tokio::test(start_paused = true)]
async fn s50_a_failed_run_and_a_failed_disposal_are_both_told() {
    let world = World::new();
    world.odd(&Odd::new(Fault::ResultAndDisposeFail));
    let root = world.root();
    let asked = ChildRequest {
        provider: "odd".to_owned(),
        ..request(&root, "run")
    };
    let result = world.subagents.run(asked, CancellationToken::new()).await;
    let result = result.unwrap();
    assert_eq!(result.outcome, Outcome::Error);
    assert_eq!(
        result.diagnostic.as_deref(),
        Some("the connection was lost")
    );
    assert_eq!(result.dispose_error.as_deref(), Some("it would not go"));
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn s4_the_provider_gets_the_whole_request_and_no_way_to_continue() {
    type Seen = Arc<Mutex<Vec<(ChildRequest, String)>>>;
    struct Sees(Seen);
    impl Provider for Sees {
        fn name(&self) -> &'static str {
            "sees"
        }
        fn capabilities(&self) -> Capabilities {
            let mut all = Capabilities::in_process(false);
            all.continuable = false;
            all
        }
        fn start(&self, request: RunRequest) -> BoxFuture<'_, Result<Box<dyn Run>, ProviderError>> {
            let run = request.run_id.to_string();
            self.0.lock().unwrap().push((request.child, run));
            Box::pin(async { Err(ProviderError::new("seen")) })
        }
    }
    let world = World::new();
    let seen: Seen = Arc::default();
    world
        .subagents
        .register(Arc::new(Sees(Arc::clone(&seen))))
        .unwrap();
    let root = world.root();
    let schema = offshoot_subagent::OutputSchema::new(serde_json::json!({ "type": "object" }));
    let asked = ChildRequest {
        provider: "sees".to_owned(),
        persona: Some(String::new()),
        output_schema: schema.ok(),
        generation: 7,
        task_id: Some("subagent-1".to_owned()),
        guidance: Some("Be brief.".to_owned()),
        ..request(&root, "run")
    };
    let error = world
        .subagents
        .run(asked.clone(), CancellationToken::new())
        .await;
    assert_eq!(error.unwrap_err().code(), "PROVIDER_FAILED");
    let (got, run) = seen.lock().unwrap().pop().unwrap();
    assert!(!run.is_empty());
    assert_eq!(
        format!("{got:?}"),
        format!("{asked:?}"),
        "unchanged, an empty persona too"
    );
    let error = world.subagents.start(asked).await.unwrap_err();
    assert!(matches!(error, StartError::Unsupported { .. }), "{error}");
    assert!(seen.lock().unwrap().is_empty(), "not asked");
    assert!(
        world.extensions(root.id(), "subagent/started").is_empty(),
        "s11"
    );
    assert!(
        world.extensions(root.id(), "subagent/settled").is_empty(),
        "s11"
    );
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn s11_a_start_that_fails_before_publication_leaves_no_event() {
    for fault in [
        Fault::StartFails,
        Fault::StartPanics,
        Fault::StartPanicsAtOnce,
    ] {
        let world = World::new();
        world.odd(&Odd::new(fault));
        let root = world.root();
        let before = world.trace();
        let asked = ChildRequest {
            provider: "odd".to_owned(),
            ..request(&root, "run")
        };
        let failed = world.subagents.run(asked, CancellationToken::new()).await;
        assert!(failed.is_err());
        assert_eq!(world.trace(), before, "{fault:?}");
        world.close(&root).await;
    }
}

/// A run, or its start or its end, that does not stop is dropped in time, and the record says so; all
/// of it within what a killed task is given.
#[tokio::test(start_paused = true)]
async fn a_provider_that_is_deaf_is_given_up_in_time_and_disposed_before_it_is_told() {
    let settings = SubagentSettings::default();
    let most = settings.stop_grace + settings.dispose_grace;
    assert!(most < Duration::from_secs(30), "within the grace of a kill");
    let rows = [
        (
            Fault::Deaf,
            Some(Outcome::Aborted),
            Some("did not end within 10 s"),
            None,
        ),
        (
            Fault::DeafAndNeverDisposed,
            Some(Outcome::Aborted),
            Some("did not end within 10 s"),
            Some("did not end within 15 s"),
        ),
        (
            Fault::NeverDisposed,
            Some(Outcome::Aborted),
            None,
            Some("did not end within 15 s"),
        ),
        (Fault::DeafStart, None, None, None),
    ];
    for (fault, outcome, diagnostic, dispose) in rows {
        let world = World::new();
        let odd = Odd {
            slow_result: Some(Gate::default()),
            ..Odd::new(fault)
        };
        world.odd(&odd);
        let root = world.root();
        let asked = ChildRequest {
            provider: "odd".to_owned(),
            ..request(&root, "run")
        };
        let cancel = CancellationToken::new();
        let (service, stop) = (world.subagents.clone(), cancel.clone());
        let run = tokio::spawn(async move { service.run(asked, stop).await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = tokio::time::Instant::now();
        cancel.cancel();
        let result = soon("the end of a deaf run", run).await.unwrap();
        assert!(
            before.elapsed() <= most,
            "{fault:?}: {:?}",
            before.elapsed()
        );
        match outcome {
            // Nobody knows what is left of it.
            None => assert_eq!(result.unwrap_err().code(), "PROVIDER_FAILED", "{fault:?}"),
            Some(outcome) => {
                let result = result.unwrap();
                assert_eq!(result.outcome, outcome, "{fault:?}");
                let has = |said: &Option<String>, words: Option<&str>| match (said, words) {
                    (Some(said), Some(words)) => said.contains(words),
                    (said, words) => said.is_none() && words.is_none(),
                };
                assert!(
                    has(&result.diagnostic, diagnostic),
                    "{:?}",
                    result.diagnostic
                );
                assert!(
                    has(&result.dispose_error, dispose),
                    "{:?}",
                    result.dispose_error
                );
                assert_eq!(world.extensions(root.id(), "subagent/settled").len(), 1);
                assert_eq!(odd.live.load(std::sync::atomic::Ordering::SeqCst), 0);
            }
        }
        world.close(&root).await;
    }
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
        assert!(service.dispose(child));
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
        assert!(service.dispose(child));
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
        service.interrupt(Authority::Agent(&by), child).unwrap();
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
    assert!(world.subagents.dispose(child.id()));
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
async fn s224_a_parent_that_cannot_take_the_notice_is_released_all_the_same() {
    let refuse = Arc::new(AtomicBool::new(false));
    let store = Refusing {
        inner: MemoryStore::default(),
        refuse: Arc::clone(&refuse),
        kind: "subagent/settled",
    };
    let world = World::over(Arc::new(store), SubagentSettings::default());
    let root = world.root();
    refuse.store(true, Ordering::SeqCst);
    let (started, child) = world.child(&root, "child", []).await;
    soon("the end of the child", child.closed()).await;
    soon("rest", root.rest()).await;
    assert!(world.accepted(root.id(), "settled").is_empty());
    assert!(world.host.agents.get(&started.child).is_none());
    refuse.store(false, Ordering::SeqCst);
    let again = world
        .subagents
        .send(&root, started.child.as_str(), "go on", 0);
    again.await.unwrap();
    soon("rest", root.rest()).await;
    assert_eq!(
        world.accepted(root.id(), "settled").len(),
        1,
        "the next one is told"
    );
    world.close(&root).await;
}

/// A provider whose runs hear nothing, neither a cancel nor their disposal. Each counts its drop.
struct Deaf(Arc<Mutex<usize>>);

struct DeafRun(AgentId, Arc<Mutex<usize>>);

impl Drop for DeafRun {
    fn drop(&mut self) {
        *self.1.lock().unwrap() += 1;
    }
}

impl Provider for Deaf {
    fn name(&self) -> &'static str {
        "deaf"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn start(&self, mut request: RunRequest) -> BoxFuture<'_, Result<Box<dyn Run>, ProviderError>> {
        Box::pin(async move {
            if request.child.prompt == "never" {
                std::future::pending::<()>().await;
            }
            let child = AgentId::fresh();
            request.publish(&child)?;
            Ok(Box::new(DeafRun(child, Arc::clone(&self.0))) as Box<dyn Run>)
        })
    }
}

impl Run for DeafRun {
    fn child(&self) -> &AgentId {
        &self.0
    }

    fn result(&mut self) -> BoxFuture<'_, Result<RunResult, ProviderError>> {
        Box::pin(std::future::pending())
    }

    fn dispose(self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>> {
        Box::pin(async move {
            let _kept = self;
            std::future::pending().await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn runs_that_hear_nothing_end_within_the_grace_of_a_parent_that_closes() {
    let world = World::with(SubagentSettings {
        close_grace: Duration::from_millis(700),
        ..SubagentSettings::default()
    });
    let dropped = Arc::new(Mutex::new(0));
    world
        .subagents
        .register(Arc::new(Deaf(Arc::clone(&dropped))))
        .unwrap();
    let root = world.root();
    let runs = ["one", "two", "never"].map(|prompt| {
        let asked = ChildRequest {
            provider: "deaf".to_owned(),
            prompt: prompt.to_owned(),
            ..request(&root, prompt)
        };
        let service = world.subagents.clone();
        tokio::spawn(async move { service.run(asked, CancellationToken::new()).await })
    });
    let count = |what: &str| {
        let trace = world.trace();
        trace.iter().filter(|line| line.contains(what)).count()
    };
    while count("subagent/started") < 2 {
        tokio::task::yield_now().await;
    }
    let began = tokio::time::Instant::now();
    soon("the end", root.close(Pending::Keep)).await;
    assert_eq!(began.elapsed(), Duration::from_millis(700));
    assert_eq!(*dropped.lock().unwrap(), 2);
    assert_eq!(count("subagent/settled"), 2, "on the record");
    let [one, two, never] = runs;
    for run in [one, two] {
        let result = run.await.unwrap().unwrap();
        assert_eq!(result.outcome, Outcome::Aborted);
        let why = result.diagnostic.unwrap();
        assert!(why.contains("within 0.7 s"), "{why}");
        assert!(
            result
                .dispose_error
                .unwrap()
                .contains("its parent was closed")
        );
    }
    assert!(never.await.unwrap().is_err(), "it never began");
}
