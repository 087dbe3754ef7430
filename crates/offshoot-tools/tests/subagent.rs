//! The delegation tool: which way a call goes, and what each ending is to the model.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use offshoot_agent::{AgentId, Message, ToolFilter};
use offshoot_subagent::{
    Capabilities, Mode, Outcome, Provider, ProviderError, Run, RunRequest, RunResult,
};
use offshoot_tools::SubagentToolSettings;
use serde_json::{Value, json};
use support::{Setup, World, soon};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

fn one_shot() -> Setup {
    let mut setup = Setup::default();
    setup.tools.subagents = vec![SubagentToolSettings {
        mode: Mode::OneShot,
        ..SubagentToolSettings::default()
    }];
    setup
}

fn child(replies: Value) -> Value {
    json!({"root": [{"text": "ok", "repeat": "forever"}], "job": replies})
}

fn args(background: Value) -> Value {
    json!({"description": "job", "prompt": "p", "run_in_background": background})
}

#[tokio::test(start_paused = true)]
async fn b128_b130_b131_the_flag_and_the_mode_decide_the_way() {
    let rows = [
        (Mode::Continuable, true, json!(null), "continuable"),
        (Mode::Continuable, true, json!(true), "continuable"),
        (Mode::Continuable, true, json!("False"), "foreground"),
        (Mode::OneShot, true, json!(null), "foreground"),
        (Mode::OneShot, true, json!(true), "background"),
        (Mode::OneShot, true, json!(false), "foreground"),
        (Mode::OneShot, false, json!(null), "foreground"),
        (Mode::Continuable, false, json!(null), "foreground"),
        (Mode::Continuable, false, json!(false), "foreground"),
        (Mode::Continuable, false, json!(true), "refused"),
        (Mode::OneShot, false, json!(true), "refused"),
    ];
    for (mode, background, flag, way) in rows {
        let mut setup = Setup::default();
        setup.tools.subagents[0].mode = mode;
        setup.tools.subagents[0].background = background;
        let world = World::with(setup);
        let root = world.root();
        let tool = root.kit().tools.get("subagent").unwrap();
        let parameter = &tool.input_schema()["properties"]["run_in_background"];
        assert_eq!(parameter.is_object(), background);
        if background {
            let default = if mode == Mode::Continuable {
                "Default true"
            } else {
                "Default false"
            };
            assert!(parameter["description"].as_str().unwrap().contains(default));
        }
        let sections: Vec<_> = world
            .toolbox
            .sections
            .iter()
            .map(|s| s.key.as_str())
            .collect();
        let guided = sections.contains(&"tool:subagent");
        assert_eq!(guided, background && mode == Mode::Continuable);
        let output = world.call(&root, "subagent", args(flag.clone())).await;
        if way == "refused" {
            assert_eq!(output.code.as_deref(), Some("BACKGROUND_DISABLED"));
            assert!(world.extensions("subagent/started").is_empty());
        } else {
            assert_eq!(
                output.value.unwrap()["kind"],
                way,
                "{mode} {background} {flag}"
            );
        }
        soon("rest", root.rest()).await;
        world.close(&root).await;
    }
}

#[tokio::test(start_paused = true)]
async fn t14_a_foreground_failure_is_an_error_with_its_parts() {
    let rows = [
        (json!([{"text": "42 files match"}]), "42 files match", None),
        (json!([{"text": ""}]), "(it left no message)", None),
        (
            json!([{"text": "half", "finish": "max_tokens"}]),
            "the subagent ran out of tokens\n[partial output: the run did not complete]\nhalf",
            Some("SUBAGENT_MAX_TOKENS"),
        ),
        (
            json!([{"finish": "refusal"}]),
            "the subagent declined the work",
            Some("SUBAGENT_REFUSED"),
        ),
        (
            json!([{"error": "429 slow down"}]),
            "the subagent failed\nDiagnostic: 429 slow down",
            Some("SUBAGENT_FAILED"),
        ),
    ];
    for (replies, text, code) in rows {
        let world = World::plays(child(replies), one_shot());
        let root = world.root();
        let output = world.call(&root, "subagent", args(json!(false))).await;
        let expected = code.map_or(text.to_owned(), |_| format!("Error: {text}"));
        assert_eq!(output.text, expected, "b119");
        assert_eq!(output.code.as_deref(), code);
        assert_eq!(output.value.unwrap()["kind"], "foreground");
        assert_eq!(world.extensions("subagent/settled").len(), 1);
        assert!(world.accepted(&root, "settled").is_empty());
        world.close(&root).await;
    }
}

#[tokio::test(start_paused = true)]
async fn every_ending_of_a_background_run_is_one_of_its_task() {
    let rows = [
        (
            json!([{"text": "the answer"}]),
            "completed",
            None,
            "the answer",
        ),
        (
            json!([{"error": "429 slow down"}]),
            "failed",
            Some("error; diagnostic: 429 slow down"),
            "",
        ),
        (
            json!([{"text": "half", "finish": "max_tokens"}]),
            "failed",
            Some("max-tokens"),
            "[partial output: the run did not complete]\n> half",
        ),
        (
            json!([{"finish": "refusal"}]),
            "failed",
            Some("refusal"),
            "",
        ),
    ];
    for (replies, status, detail, output) in rows {
        let world = World::plays(child(replies), one_shot());
        let root = world.root();
        let started = world.call(&root, "subagent", args(json!(true))).await;
        assert_eq!(
            started.text, "started background subagent task subagent-1",
            "t197"
        );
        soon("rest", root.rest()).await;
        let settled = world.extensions("task/settled");
        assert_eq!(settled.len(), 1, "b007");
        assert_eq!(settled[0].field("status"), Some(status));
        assert_eq!(settled[0].field("detail"), detail);
        let notices = world.accepted(&root, "task");
        assert_eq!(notices.len(), 1);
        assert!(
            notices[0].to_text().ends_with(output),
            "{}",
            notices[0].to_text()
        );
        let run = &world.extensions("subagent/settled")[0];
        assert_eq!(
            world.extensions("subagent/started")[0].field("task_id"),
            Some("subagent-1")
        );
        assert_eq!(run.field("task_id"), Some("subagent-1"));
        assert!(
            world.accepted(&root, "settled").is_empty(),
            "the task's notice tells it"
        );
        world.close(&root).await;
    }
}

#[tokio::test(start_paused = true)]
async fn b127_a_killed_run_is_killed_when_its_child_is_gone_and_keeps_what_it_said() {
    let replies = json!([
        {"text": "so far", "calls": [{"name": "list_agents"}], "usage": {"input": 5000, "output": 7}},
        {"hang": true},
    ]);
    let world = World::plays(child(replies), one_shot());
    let root = world.root();
    assert!(
        !world
            .call(&root, "subagent", args(json!(true)))
            .await
            .is_error
    );
    tokio::time::sleep(Duration::from_millis(10)).await;
    let kill = json!({"task_id": "subagent-1", "reason": "changed my mind"});
    assert!(!world.call(&root, "task_kill", kill).await.is_error);
    let wait = json!({"task_id": "subagent-1", "wait": true});
    let read = world.call(&root, "task_output", wait).await;
    assert_eq!(
        read.text,
        "[partial output: the run did not complete]\nso far\n[status: killed]"
    );
    let settled = &world.extensions("subagent/settled")[0];
    assert_eq!(settled.field("outcome"), Some("aborted"));
    assert_eq!(settled.fields["usage"]["input"], 5000);
    assert_eq!(world.host.agents.list().len(), 1, "only the root");
    soon("rest", root.rest()).await;
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn b026_the_tasks_of_a_run_are_stopped_and_named() {
    let agents = json!({
        "root": [{"text": "ok", "repeat": "forever"}],
        "job": [{"text": "done", "await": ["begun"]}],
    });
    for background in [false, true] {
        let world = Arc::new(World::plays(agents.clone(), one_shot()));
        let root = world.root();
        let call = world.call(&root, "subagent", args(json!(background)));
        let begin = async {
            let child = soon("the child", async {
                loop {
                    let agents = world.host.agents.list();
                    if let Some(child) = agents.into_iter().find(|a| a.label() == "job") {
                        return child;
                    }
                    tokio::task::yield_now().await;
                }
            })
            .await;
            let task = world.task(&child, "a server");
            world.gates.open("begun");
            task
        };
        let (output, (id, _end)) = tokio::join!(call, begin);
        let note = format!("done\n[stopped with the run: task {id} (a server)]");
        if background {
            soon("rest", root.rest()).await;
            let text = world.accepted(&root, "task")[0].to_text();
            assert!(text.ends_with(&format!("\n> {note}")), "{text}");
        } else {
            assert_eq!(output.text, note);
        }
        let events = world.extensions("task/settled");
        assert_eq!(
            events[0].field("task_id"),
            Some(id.to_string().as_str()),
            "before the run's own"
        );
        assert_eq!(events[0].field("status"), Some("killed"));
        world.close(&root).await;
    }
}

/// A provider that is slow to start, and says how it was treated.
#[derive(Clone, Default)]
struct Slow {
    /// Whether it gives up when it is cancelled, or starts all the same.
    stubborn: bool,
    fails: Option<&'static str>,
    disposed: Arc<AtomicUsize>,
}

struct SlowRun(AgentId, Slow, CancellationToken);

impl Provider for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::in_process(false)
    }

    fn seed<'a>(
        &'a self,
        _: &'a offshoot_agent::Agent,
    ) -> BoxFuture<'a, Result<Option<Vec<offshoot_agent::StoredEvent>>, ProviderError>> {
        Box::pin(async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            Ok(None)
        })
    }

    fn start(&self, mut request: RunRequest) -> BoxFuture<'_, Result<Box<dyn Run>, ProviderError>> {
        Box::pin(async move {
            let ready = tokio::time::sleep(Duration::from_secs(10));
            if self.stubborn {
                ready.await;
            } else {
                tokio::select! {
                    () = ready => {}
                    () = request.cancel.cancelled() => return Err(ProviderError::new("gave up")),
                }
            }
            if let Some(fault) = self.fails {
                return Err(ProviderError::new(fault));
            }
            let child = AgentId::fresh();
            request.publish(&child)?;
            Ok(Box::new(SlowRun(child, self.clone(), request.cancel)) as Box<dyn Run>)
        })
    }
}

impl Run for SlowRun {
    fn child(&self) -> &AgentId {
        &self.0
    }

    fn result(&mut self) -> BoxFuture<'_, Result<RunResult, ProviderError>> {
        Box::pin(async move {
            let outcome = if self.2.is_cancelled() {
                Outcome::Aborted
            } else {
                Outcome::Completed
            };
            Ok(RunResult::new(outcome, "42"))
        })
    }

    fn dispose(self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>> {
        Box::pin(async move {
            self.1.disposed.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
    }
}

fn slow(provider: &Slow) -> Setup {
    let mut setup = one_shot();
    setup.tools.subagents[0].provider = "slow".to_owned();
    setup.provider = Some(Arc::new(provider.clone()));
    setup
}

#[tokio::test(start_paused = true)]
async fn b113_b118_a_kill_during_the_start_is_seen_by_the_start() {
    for (stubborn, seconds) in [(false, 1), (true, 10)] {
        let provider = Slow {
            stubborn,
            ..Slow::default()
        };
        let world = World::with(slow(&provider));
        let root = world.root();
        let before = Instant::now();
        let started = world.call(&root, "subagent", args(json!(true))).await;
        assert_eq!(before.elapsed(), Duration::ZERO, "the id comes at once");
        assert!(!started.is_error, "{}", started.text);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let read = world
            .call(&root, "task_output", json!({"task_id": "subagent-1"}))
            .await;
        assert_eq!(read.text, "(no new output)\n[status: running]");
        let kill = world
            .call(&root, "task_kill", json!({"task_id": "subagent-1"}))
            .await;
        assert!(!kill.is_error);
        soon("rest", root.rest()).await;
        assert_eq!(before.elapsed().as_secs(), seconds);
        assert_eq!(
            world.extensions("task/settled")[0].field("status"),
            Some("killed")
        );
        assert_eq!(
            provider.disposed.load(Ordering::SeqCst),
            usize::from(stubborn)
        );
        world.close(&root).await;
    }
}

#[tokio::test(start_paused = true)]
async fn b076_a_start_that_fails_later_is_a_failed_task_with_one_notice() {
    let provider = Slow {
        fails: Some("No such file or directory (os error 2)"),
        ..Slow::default()
    };
    let world = World::with(slow(&provider));
    let root = world.root();
    assert!(
        !world
            .call(&root, "subagent", args(json!(true)))
            .await
            .is_error
    );
    soon("rest", root.rest()).await;
    let settled = &world.extensions("task/settled")[0];
    assert_eq!(settled.field("status"), Some("failed"));
    assert!(settled.field("detail").unwrap().contains("os error 2"));
    assert_eq!(world.accepted(&root, "task").len(), 1);
    let output = world.call(&root, "subagent", args(json!(false))).await;
    assert_eq!(output.code.as_deref(), Some("PROVIDER_FAILED"));
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_starts_nothing_and_a_cancelled_wait_ends_the_run() {
    let world = World::plays(
        child(json!([{"text": "so far", "calls": [{"name": "list_agents"}]}, {"hang": true}])),
        one_shot(),
    );
    let root = world.root();
    let cancel = CancellationToken::new();
    let call = world.answer_until(&root, "subagent", args(json!(false)), cancel.clone());
    let (output, ()) = tokio::join!(call, async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        cancel.cancel();
    });
    assert_eq!(output.code.as_deref(), Some("SUBAGENT_ABORTED"), "b116");
    assert!(
        output
            .text
            .contains("[partial output: the run did not complete]\nso far"),
        "{}",
        output.text
    );
    for flag in [true, false] {
        let late = world
            .answer_until(&root, "subagent", args(json!(flag)), cancel.clone())
            .await;
        assert_eq!(late.code.as_deref(), Some("ABORTED_BEFORE_DISPATCH"));
    }
    assert_eq!(world.extensions("subagent/started").len(), 1);
    // B031: after the id is out the call's signal is nothing to the run.
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn s146_a_call_that_is_cancelled_while_its_provider_prepares_leaves_no_child() {
    let mut setup = slow(&Slow::default());
    setup.tools.subagents[0].mode = Mode::Continuable;
    let world = World::with(setup);
    let root = world.root();
    let cancel = CancellationToken::new();
    let call = world.answer_until(&root, "subagent", args(json!(true)), cancel.clone());
    let (output, ()) = tokio::join!(call, async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        cancel.cancel();
    });
    assert_eq!(output.code.as_deref(), Some("ABORTED"), "{}", output.text);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(world.extensions("subagent/started").is_empty());
    assert_eq!(root.scope().holds(), 0);
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn guidance_is_in_the_first_message_and_only_where_it_can_be_followed() {
    for (filter, guided) in [
        (None, true),
        (
            Some(ToolFilter {
                allow: None,
                deny: Some(vec!["send_message".to_owned()]),
            }),
            false,
        ),
    ] {
        let mut setup = Setup::default();
        setup.tools.subagents[0].tool_filter = filter;
        let world = World::with(setup);
        let root = world.root();
        let output = world
            .call(&root, "subagent", args(json!(null)))
            .await
            .value
            .unwrap();
        let child: AgentId = output["agent_id"].as_str().unwrap().parse().unwrap();
        soon("rest", root.rest()).await;
        let first = first_message(&world, &child);
        assert!(first.starts_with('p'));
        assert_eq!(
            first.contains(&format!("{:?}", root.id().as_str())),
            guided,
            "{first}"
        );
        world.close(&root).await;
    }
    let world = World::with(one_shot());
    let root = world.root();
    assert!(
        !world
            .call(&root, "subagent", args(json!(false)))
            .await
            .is_error
    );
    let child = world.extensions("subagent/started")[0]
        .field("child")
        .unwrap()
        .parse()
        .unwrap();
    assert!(
        first_message(&world, &child).contains("background tasks that still run then are stopped"),
        "t3"
    );
    world.close(&root).await;
}

fn first_message(world: &World, agent: &AgentId) -> String {
    let log = world.host.store.read(agent).unwrap();
    let mut messages = log.iter().filter_map(|stored| match &stored.event {
        offshoot_agent::Event::MessageUser { message, .. } => Some(message.to_text()),
        _ => None,
    });
    messages.next().unwrap()
}

/// B106, B110, B112: many in one reply, beyond the limits, through the loop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b106_b110_b112_many_calls_of_one_reply_are_started_or_refused_by_limit() {
    let calls: Vec<_> = (0..32)
        .map(|n| json!({"id": format!("c{n}"), "name": "subagent", "args": {"description": "kid", "prompt": "p"}}))
        .collect();
    let agents = json!({
        "root": [{"calls": calls}, {"text": "ok", "repeat": "forever"}],
        "kid": [
            {"calls": [{"name": "subagent", "args": {"description": "deep", "prompt": "p"}}]},
            {"text": "echo ${last_result}"},
        ],
    });
    let mut setup = Setup::default();
    setup.subagents.max_depth = 1;
    setup.subagents.max_live_children = 64;
    let world = World::plays(agents.clone(), setup.clone());
    let root = world.root();
    root.followup(Message::user("go")).unwrap();
    soon("rest", root.rest()).await;
    let results = world.results("root");
    assert_eq!(
        results
            .iter()
            .filter(|(text, _)| text.starts_with("started subagent "))
            .count(),
        32
    );
    let notices = world.accepted(&root, "settled");
    assert_eq!(notices.len(), 32);
    assert!(
        notices.iter().all(|n| n.to_text().contains("limit: 1")),
        "b112: {}",
        notices[0].to_text()
    );
    assert!(
        notices
            .iter()
            .all(|n| n.source.field("outcome") == Some("completed"))
    );
    world.close(&root).await;

    setup.subagents.max_live_children = 4;
    let mut held = agents;
    held["kid"] = json!([{"text": "done", "await": ["go"]}]);
    let world = World::plays(held, setup);
    let root = world.root();
    root.followup(Message::user("go")).unwrap();
    soon("idle", root.idle()).await;
    let results = world.results("root");
    let refused = results
        .iter()
        .filter(|(_, code)| code.as_deref() == Some("CAPACITY_EXCEEDED"));
    assert_eq!(refused.count(), 28);
    assert!(results.iter().any(|(text, _)| text.contains("limit: 4")));
    world.gates.open("go");
    soon("rest", root.rest()).await;
    assert_eq!(world.accepted(&root, "settled").len(), 4);
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn b101_two_that_message_each_other_do_not_wait_for_each_other() {
    let agents = json!({
        "root": [
            {"calls": [{"name": "subagent", "args": {"description": "job", "prompt": "p"}}]},
            {"calls": [{"name": "send_message", "args": {"agent_id": "${child}", "message": "from above"}}]},
            {"text": "ok", "repeat": "forever"},
        ],
        "job": [
            {"calls": [{"name": "send_message", "args": {"agent_id": "${parent}", "message": "from below"}}]},
            {"text": "done", "repeat": "forever"},
        ],
    });
    let world = World::plays(agents, Setup::default());
    let root = world.root();
    root.followup(Message::user("go")).unwrap();
    soon("rest", root.rest()).await;
    let texts: Vec<_> = world
        .accepted(&root, "agent")
        .iter()
        .map(Message::to_text)
        .collect();
    assert_eq!(texts.len(), 1);
    assert!(texts[0].ends_with("from below"));
    let said: Vec<_> = world
        .results("root")
        .into_iter()
        .map(|(text, _)| text)
        .collect();
    assert!(
        said[1].starts_with("message delivered to agent "),
        "{said:?}"
    );
    assert!(root.with_projection(|p| p.inbox().is_empty()));
    world.close(&root).await;
}
