//! One-shot runs as tasks: what a start, a stop and a disposal that go wrong come to.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use offshoot_agent::AgentId;
use offshoot_subagent::{
    Capabilities, Mode, Outcome, Provider, ProviderError, Run, RunRequest, RunResult, StopSignal,
};
use offshoot_task::TaskConfig;
use offshoot_tools::SubagentToolSettings;
use serde_json::{Value, json};
use support::{Setup, World, soon};

/// A provider whose starts take ten seconds, and whose runs end when they are told to, or at once.
#[derive(Clone, Default)]
struct Staged {
    /// What a start that is stopped says that it could not undo.
    left: Option<&'static str>,
    /// What a disposal fails with.
    dispose: Option<&'static str>,
    /// Its runs go on until they are stopped.
    endless: bool,
    /// How its starts take a stop; otherwise they give up.
    faulty: Option<Faulty>,
    starts: Arc<AtomicUsize>,
}

/// A start that does not say what became of it.
#[derive(Clone, Copy)]
enum Faulty {
    Deaf,
    Panics,
}

struct StagedRun(AgentId, Staged, StopSignal);

impl Provider for Staged {
    fn name(&self) -> &'static str {
        "staged"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::in_process(false)
    }

    fn start(&self, mut request: RunRequest) -> BoxFuture<'_, Result<Box<dyn Run>, ProviderError>> {
        self.starts.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(10)) => {}
                () = request.cancel.cancelled() => {
                    match self.faulty {
                        Some(Faulty::Deaf) => std::future::pending().await,
                        Some(Faulty::Panics) => panic!("lost its head"),
                        None => {}
                    }
                    return Err(match self.left {
                        Some(left) => ProviderError::not_undone(left),
                        None => ProviderError::new("gave up"),
                    });
                }
            }
            let child = AgentId::fresh();
            request.publish(&child)?;
            let run = StagedRun(child, self.clone(), request.stop_signal());
            Ok(Box::new(run) as Box<dyn Run>)
        })
    }
}

impl Run for StagedRun {
    fn child(&self) -> &AgentId {
        &self.0
    }

    fn result(&mut self) -> BoxFuture<'_, Result<RunResult, ProviderError>> {
        Box::pin(async move {
            let mut outcome = Outcome::Completed;
            if self.1.endless {
                self.2.stopped().await;
                outcome = Outcome::Aborted;
            }
            let text = format!("42 {:?}", self.2.reason());
            Ok(RunResult::new(outcome, text))
        })
    }

    fn dispose(self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>> {
        Box::pin(async move {
            match self.1.dispose {
                Some(fault) => Err(ProviderError::new(fault)),
                None => Ok(()),
            }
        })
    }
}

fn tool(name: &str, provider: &str) -> SubagentToolSettings {
    SubagentToolSettings {
        tool_name: name.to_owned(),
        provider: provider.to_owned(),
        mode: Mode::OneShot,
        ..SubagentToolSettings::default()
    }
}

fn staged(provider: &Staged) -> World {
    let mut setup = Setup::default();
    setup.tools.subagents = vec![tool("subagent", "staged")];
    setup.provider = Some(Arc::new(provider.clone()));
    World::with(setup)
}

fn args(background: bool) -> Value {
    json!({"description": "job", "prompt": "p", "run_in_background": background})
}

/// Starts a run in the background, and lets `seconds` pass.
async fn begin(world: &World, root: &offshoot_agent::Agent, seconds: u64) {
    let output = world.call(root, "subagent", args(true)).await;
    assert!(!output.is_error, "{}", output.text);
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

async fn kill(world: &World, root: &offshoot_agent::Agent, id: &str, reason: Value) {
    let args = json!({"task_id": id, "reason": reason});
    let output = world.call(root, "task_kill", args).await;
    assert!(!output.is_error, "{}", output.text);
}

#[tokio::test(start_paused = true)]
async fn s274_t200_a_start_that_is_stopped_is_killed_unless_it_could_not_be_undone() {
    for (left, status, detail) in [
        (None, "killed", None),
        (
            Some("process 17 could not be killed"),
            "failed",
            Some("process 17 could not be killed"),
        ),
    ] {
        let world = staged(&Staged {
            left,
            ..Staged::default()
        });
        let root = world.root();
        begin(&world, &root, 1).await;
        kill(&world, &root, "subagent-1", Value::Null).await;
        soon("rest", root.rest()).await;
        let settled = world.extensions("task/settled");
        assert_eq!(settled.len(), 1);
        assert_eq!(settled[0].field("status"), Some(status));
        assert_eq!(settled[0].field("detail"), detail);
        assert!(world.extensions("subagent/started").is_empty());
        world.close(&root).await;
    }
}

/// Killed is what is known to be undone, and a start that never said is not.
#[tokio::test(start_paused = true)]
async fn s274_t200_a_stopped_start_that_never_answers_is_failed() {
    for (faulty, detail) in [
        (
            Faulty::Deaf,
            "the start did not end within 10 s after it was stopped, and was dropped",
        ),
        (
            Faulty::Panics,
            "the provider panicked in start: lost its head",
        ),
    ] {
        let world = staged(&Staged {
            faulty: Some(faulty),
            ..Staged::default()
        });
        let root = world.root();
        begin(&world, &root, 1).await;
        kill(&world, &root, "subagent-1", Value::Null).await;
        soon("rest", root.rest()).await;
        let settled = world.extensions("task/settled");
        assert_eq!(settled.len(), 1);
        assert_eq!(settled[0].field("status"), Some("failed"));
        assert_eq!(settled[0].field("detail"), Some(detail));
        assert!(world.extensions("subagent/started").is_empty());
        world.close(&root).await;
    }
}

#[tokio::test(start_paused = true)]
async fn s275_the_reason_of_a_kill_reaches_the_run() {
    for (reason, said) in [
        (json!("not needed"), Some("not needed")),
        (Value::Null, None),
    ] {
        let world = staged(&Staged {
            endless: true,
            ..Staged::default()
        });
        let root = world.root();
        begin(&world, &root, 20).await;
        kill(&world, &root, "subagent-1", reason).await;
        soon("rest", root.rest()).await;
        let settled = &world.extensions("task/settled")[0];
        assert_eq!(settled.field("status"), Some("killed"));
        let args = json!({"task_id": "subagent-1"});
        let output = world.call(&root, "task_output", args).await;
        assert!(
            output.text.contains(&format!("42 {said:?}")),
            "{}",
            output.text
        );
        world.close(&root).await;
    }
}

#[tokio::test(start_paused = true)]
async fn s267_t201_an_answer_and_a_failed_disposal_are_both_shown() {
    let world = staged(&Staged {
        dispose: Some("it would not end"),
        ..Staged::default()
    });
    let root = world.root();
    begin(&world, &root, 0).await;
    soon("rest", root.rest()).await;
    let settled = &world.extensions("task/settled")[0];
    assert_eq!(settled.field("status"), Some("failed"));
    assert_eq!(
        settled.field("detail"),
        Some("completed; diagnostic: dispose failed: it would not end")
    );
    let notice = world.accepted(&root, "task")[0].to_text();
    assert!(notice.ends_with("> 42 None"), "{notice}");
    let output = soon("the end", world.call(&root, "subagent", args(false))).await;
    assert!(output.is_error);
    for part in ["could not be closed", "it would not end", "Its answer:\n42"] {
        assert!(output.text.contains(part), "{}", output.text);
    }
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn s276_t199_a_refused_task_starts_no_child_and_uses_no_id() {
    let provider = Staged::default();
    let mut setup = Setup {
        tasks: TaskConfig {
            max_live_per_owner: 1,
            ..TaskConfig::default()
        },
        provider: Some(Arc::new(provider.clone())),
        ..Setup::default()
    };
    setup.tools.subagents = vec![tool("subagent", "staged")];
    let world = World::with(setup);
    let root = world.root();
    let (id, end) = world.task(&root, "frame");
    let refused = world.call(&root, "subagent", args(true)).await;
    assert_eq!(refused.code.as_deref(), Some("LIMIT_REACHED"));
    assert_eq!(provider.starts.load(Ordering::SeqCst), 0);
    assert!(world.extensions("subagent/started").is_empty());
    end.output("done");
    world.settled(&root, &id).await;
    let started = world.call(&root, "subagent", args(true)).await;
    assert_eq!(started.text, "started background subagent task subagent-1");
    soon("rest", root.rest()).await;
    assert_eq!(provider.starts.load(Ordering::SeqCst), 1);
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn s281_a_stopped_start_does_not_touch_its_sibling() {
    let world = staged(&Staged::default());
    let root = world.root();
    begin(&world, &root, 1).await;
    begin(&world, &root, 1).await;
    kill(&world, &root, "subagent-1", Value::Null).await;
    soon("rest", root.rest()).await;
    let settled = world.extensions("task/settled");
    let ends: Vec<_> = settled
        .iter()
        .map(|event| {
            (
                event.field("task_id").unwrap(),
                event.field("status").unwrap(),
            )
        })
        .collect();
    assert_eq!(
        ends,
        [("subagent-1", "killed"), ("subagent-2", "completed")]
    );
    assert!(
        world.accepted(&root, "task")[0]
            .to_text()
            .ends_with("> 42 None")
    );
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn s260_tools_of_several_kinds_work_beside_each_other() {
    let mut setup = Setup::default();
    setup.tools.subagents = vec![tool("subagent", "spawn"), tool("staged_job", "staged")];
    setup.provider = Some(Arc::new(Staged::default()));
    let agents = json!({
        "root": [{"text": "ok", "repeat": "forever"}],
        "job": [{"text": "from a child"}],
    });
    let world = World::plays(agents, setup);
    let root = world.root();
    let (one, other) = tokio::join!(
        world.call(&root, "subagent", args(false)),
        world.call(&root, "staged_job", args(false)),
    );
    assert_eq!(
        (one.text.as_str(), other.text.as_str()),
        ("from a child", "42 None")
    );
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn b038_a_live_run_that_has_said_something_shows_its_status_only() {
    let mut setup = Setup::default();
    setup.tools.subagents = vec![tool("subagent", "spawn")];
    let agents = json!({
        "root": [{"text": "ok", "repeat": "forever"}],
        "job": [
            {"text": "half a thought", "calls": [{"name": "list_agents", "args": {}}]},
            {"await": ["go"], "text": "the answer"},
        ],
    });
    let world = World::plays(agents, setup);
    let root = world.root();
    begin(&world, &root, 1).await;
    let said = world.results("job");
    assert_eq!(said.len(), 1, "it is at its second step");
    let args = json!({"task_id": "subagent-1"});
    let output = world.call(&root, "task_output", args).await;
    assert_eq!(output.text, "(no new output)\n[status: running]");
    world.gates.open("go");
    soon("rest", root.rest()).await;
    assert!(
        world.accepted(&root, "task")[0]
            .to_text()
            .ends_with("> the answer")
    );
    world.close(&root).await;
}
