//! Delegation tools beside each other: what each gives its children, structured answers, and runs that
//! do not stop.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use offshoot_agent::{AgentId, MemoryStore, ToolFilter};
use offshoot_subagent::{
    Capabilities, ChildRequest, Mode, OutputSchema, Provider, ProviderError, Run, RunRequest,
    RunResult,
};
use offshoot_tools::SubagentToolSettings;
use serde_json::{Value, json};
use support::{Setup, World, soon};

/// Keeps what it was asked for and starts nothing.
#[derive(Clone, Default)]
struct Sees(Arc<Mutex<Vec<ChildRequest>>>);

impl Provider for Sees {
    fn name(&self) -> &'static str {
        "sees"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::in_process(false)
    }

    fn start(&self, request: RunRequest) -> BoxFuture<'_, Result<Box<dyn Run>, ProviderError>> {
        self.0.lock().unwrap().push(request.child);
        Box::pin(std::future::ready(Err(ProviderError::new("seen"))))
    }
}

fn args(background: Value) -> Value {
    json!({ "description": "the work", "prompt": "Do it.", "run_in_background": background })
}

#[tokio::test(start_paused = true)]
async fn s260_s261_two_tools_give_their_children_what_each_was_configured_with() {
    let sees = Sees::default();
    let filter = ToolFilter {
        allow: None,
        deny: Some(vec!["bash".to_owned()]),
    };
    let mut setup = Setup {
        provider: Some(Arc::new(sees.clone())),
        ..Setup::default()
    };
    setup.tools.subagents = vec![
        SubagentToolSettings {
            tool_name: "review".to_owned(),
            provider: "sees".to_owned(),
            mode: Mode::OneShot,
            persona: Some("You review.".to_owned()),
            tool_filter: Some(filter.clone()),
            ..SubagentToolSettings::default()
        },
        SubagentToolSettings {
            tool_name: "plain".to_owned(),
            provider: "sees".to_owned(),
            mode: Mode::OneShot,
            ..SubagentToolSettings::default()
        },
        SubagentToolSettings::default(),
    ];
    let world = World::with(setup);
    let root = world.root();
    for tool in ["review", "plain"] {
        let refused = world.call(&root, tool, args(json!(false))).await;
        assert_eq!(
            refused.code.as_deref(),
            Some("PROVIDER_FAILED"),
            "{}",
            refused.text
        );
    }
    let started = world.call(&root, "subagent", args(json!(true))).await;
    assert!(
        started.text.starts_with("started subagent "),
        "{}",
        started.text
    );
    let seen = std::mem::take(&mut *sees.0.lock().unwrap());
    let [review, plain] = seen.as_slice() else {
        panic!("{} requests", seen.len());
    };
    assert_eq!(review.persona.as_deref(), Some("You review."));
    assert_eq!(
        review.tool_filter,
        Some(filter),
        "no empty list for the absent one"
    );
    assert_eq!(
        (review.label.as_str(), review.prompt.as_str()),
        ("the work", "Do it.")
    );
    assert_eq!(
        (&plain.persona, &plain.tool_filter),
        (&None, &None),
        "absent"
    );
    assert_eq!(plain.output_schema, None);
    soon("rest", root.rest()).await;
    world.close(&root).await;
}

fn structured() -> Setup {
    let schema = json!({
        "type": "object",
        "properties": { "n": { "type": "integer" } },
        "required": ["n"],
    });
    let mut setup = Setup::default();
    setup.tools.subagents = vec![SubagentToolSettings {
        tool_name: "count".to_owned(),
        mode: Mode::OneShot,
        output_schema: Some(OutputSchema::new(schema).unwrap()),
        ..SubagentToolSettings::default()
    }];
    setup
}

fn counts(replies: Value) -> World {
    let agents = json!({ "root": [{ "text": "ok", "repeat": "forever" }], "the work": replies });
    World::over(Arc::new(MemoryStore::default()), agents, structured())
}

#[tokio::test(start_paused = true)]
async fn s64_a_structured_answer_is_the_value_and_the_text_of_a_call() {
    let gives =
        |n: Value| json!({ "calls": [{ "name": "structured_output", "args": { "n": n } }] });
    let world = counts(json!([gives(json!("three")), gives(json!(3))]));
    let root = world.root();
    let answer = world.call(&root, "count", args(json!(false))).await;
    assert_eq!(
        (answer.is_error, answer.text.as_str()),
        (false, r#"{"n":3}"#)
    );
    let value = answer.value.unwrap();
    assert_eq!(value["structured"], json!({ "n": 3 }));
    assert_eq!(value["outcome"], "completed");
    let first = world.results("the work");
    assert!(
        first[0].0.contains("/n"),
        "the child was told where: {first:?}"
    );
    world.close(&root).await;

    let world = counts(json!([gives(json!(3))]));
    let root = world.root();
    let started = world.call(&root, "count", args(json!(true))).await;
    assert!(!started.is_error, "{}", started.text);
    soon("rest", root.rest()).await;
    let notice = world.accepted(&root, "task").pop().unwrap();
    assert!(
        notice.to_text().contains(r#"{"n":3}"#),
        "{}",
        notice.to_text()
    );
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn s69_a_child_without_its_structured_answer_is_a_failed_call_that_says_so() {
    let world = counts(json!([{ "text": "There are three." }]));
    let root = world.root();
    let answer = world.call(&root, "count", args(json!(false))).await;
    assert_eq!(answer.code.as_deref(), Some("SUBAGENT_FAILED"));
    assert!(
        answer
            .text
            .contains("Diagnostic: it ended without calling structured_output"),
        "{}",
        answer.text
    );
    assert!(
        answer.text.contains("There are three."),
        "kept and marked: {}",
        answer.text
    );
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_shows_its_schema_and_its_children_are_told_how_they_end() {
    let world = counts(json!([{ "text": "no" }]));
    let root = world.root();
    let tool = root.kit().tools.get("count").unwrap();
    assert!(
        tool.description().contains(r#""n":{"type":"integer"}"#),
        "{}",
        tool.description()
    );
    let _ = world.call(&root, "count", args(json!(false))).await;
    let told = world
        .events
        .lock()
        .unwrap()
        .iter()
        .find_map(|record| match &record.event {
            offshoot_agent::Event::InboxInserted { message, .. } if record.depth == 1 => {
                Some(message.to_text())
            }
            _ => None,
        });
    let told = told.unwrap();
    assert!(
        told.contains("The answer that you give at the end"),
        "{told}"
    );
    assert!(!told.contains("Your last message is"), "{told}");
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn s266_s284_a_fork_is_described_as_one_and_sees_what_its_parent_sees() {
    let mut setup = Setup::default();
    setup.tools.subagents = vec![SubagentToolSettings {
        provider: "fork".to_owned(),
        ..SubagentToolSettings::default()
    }];
    let world = World::with(setup);
    let root = world.root();
    let said = root
        .kit()
        .tools
        .get("subagent")
        .unwrap()
        .description()
        .to_owned();
    assert!(said.contains("begins with this conversation"), "{said}");
    assert!(!said.contains("begins without"), "{said}");
    let started = world.call(&root, "subagent", args(json!(null))).await;
    let id: AgentId = started.value.unwrap()["agent_id"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let child = world.host.agents.get(&id).unwrap();
    let shown = |agent: &offshoot_agent::Agent| {
        let kit = agent.kit();
        let tools = kit.tools.iter().map(|tool| {
            format!(
                "{} {} {}",
                tool.name(),
                tool.description(),
                tool.input_schema()
            )
        });
        (tools.collect::<Vec<_>>(), kit.prompt.render(&kit.tools))
    };
    assert_eq!(shown(&child), shown(&root), "byte for byte");
    soon("rest", root.rest()).await;
    world.close(&root).await;
}

/// A provider whose runs do not stop when they are told to.
#[derive(Clone, Default)]
struct DeafProvider {
    disposed: Arc<AtomicUsize>,
}

struct DeafRun(AgentId, DeafProvider);

impl Provider for DeafProvider {
    fn name(&self) -> &'static str {
        "deaf"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn start(&self, mut request: RunRequest) -> BoxFuture<'_, Result<Box<dyn Run>, ProviderError>> {
        Box::pin(async move {
            let child = AgentId::fresh();
            request.publish(&child)?;
            Ok(Box::new(DeafRun(child, self.clone())) as Box<dyn Run>)
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
            tokio::time::sleep(Duration::from_secs(5)).await;
            self.1.disposed.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_killed_run_that_is_deaf_is_disposed_before_it_is_told_and_says_so() {
    let deaf = DeafProvider::default();
    let mut setup = Setup {
        provider: Some(Arc::new(deaf.clone())),
        ..Setup::default()
    };
    setup.tools.subagents = vec![SubagentToolSettings {
        provider: "deaf".to_owned(),
        mode: Mode::OneShot,
        ..SubagentToolSettings::default()
    }];
    let world = World::with(setup);
    let root = world.root();
    let started = world.call(&root, "subagent", args(json!(true))).await;
    assert!(!started.is_error, "{}", started.text);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = tokio::time::Instant::now();
    let kill = world
        .call(&root, "task_kill", json!({ "task_id": "subagent-1" }))
        .await;
    assert!(!kill.is_error, "{}", kill.text);
    soon("rest", root.rest()).await;
    assert!(
        before.elapsed() < Duration::from_secs(30),
        "{:?}",
        before.elapsed()
    );
    assert_eq!(deaf.disposed.load(Ordering::SeqCst), 1);
    let settled = world.extensions("task/settled").pop().unwrap();
    assert_eq!(settled.field("status"), Some("killed"));
    let detail = settled.field("detail").unwrap();
    assert!(detail.contains("did not end within 10 s"), "{detail}");
    let kinds: Vec<_> = {
        let events = world.events.lock().unwrap();
        let kinds = events.iter().filter_map(|record| match &record.event {
            offshoot_agent::Event::Extension(event) => Some(event.kind.clone()),
            _ => None,
        });
        kinds.filter(|kind| kind.ends_with("/settled")).collect()
    };
    assert_eq!(
        kinds,
        ["subagent/settled", "task/settled"],
        "disposed, recorded, told"
    );
    world.close(&root).await;
}
