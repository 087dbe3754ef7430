//! What the service makes of a provider that says too much, nothing, or ends late.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use offshoot_agent::{AgentId, Pending};
use offshoot_subagent::{
    Capabilities, ChildRequest, Outcome, Provider, ProviderError, Run, RunRequest, RunResult,
    StartError, SubagentSettings,
};
use support::{Fault, Gate, Odd, World, request, soon};
use tokio_util::sync::CancellationToken;

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
