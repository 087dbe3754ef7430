//! The registry of providers, and what is left of a provider that has gone.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::sync::Arc;

use futures::future::BoxFuture;
use offshoot_agent::{
    Agent, AgentKit, AgentSpec, Prompt, PromptSection, Tool, ToolCall, ToolFilter, ToolOutput,
    ToolSet,
};
use offshoot_inprocess::Spawn;
use offshoot_subagent::{ChildRequest, ChildStatus, Descriptor, Mode, Outcome};
use serde_json::{Value, json};
use support::{Act, Fault, Gate, Odd, World, request, soon};
use tokio_util::sync::CancellationToken;

fn odd(root: &Agent) -> ChildRequest {
    ChildRequest {
        provider: "odd".to_owned(),
        ..request(root, "run")
    }
}

#[tokio::test(start_paused = true)]
async fn s1_a_registered_provider_is_listed_and_starts_and_a_removed_one_does_not() {
    let world = World::new();
    let root = world.root();
    world.odd(&Odd::new(Fault::None));
    assert_eq!(
        world.subagents.providers(),
        ["spawn", "fork", "odd"],
        "in order"
    );
    let run = world
        .subagents
        .run(odd(&root), CancellationToken::new())
        .await;
    assert_eq!(run.unwrap().outcome, Outcome::Completed);
    assert!(world.subagents.unregister("odd"));
    assert!(!world.subagents.unregister("odd"), "it is gone already");
    assert_eq!(world.subagents.providers(), ["spawn", "fork"]);
    assert_eq!(world.subagents.capabilities("odd"), None);
    let error = world
        .subagents
        .run(odd(&root), CancellationToken::new())
        .await;
    assert_eq!(error.unwrap_err().code(), "NO_PROVIDER");
    world.odd(&Odd::new(Fault::None));
    let run = world
        .subagents
        .run(odd(&root), CancellationToken::new())
        .await;
    assert_eq!(
        run.unwrap().outcome,
        Outcome::Completed,
        "the name was free"
    );
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn s3_a_second_provider_of_a_name_and_one_without_a_name_are_refused() {
    let world = World::new();
    let error = world.subagents.register(Arc::new(Spawn)).unwrap_err();
    assert_eq!(error.code(), "DUPLICATE_PROVIDER");
    assert!(error.to_string().contains("spawn"), "{error}");
    struct Nameless;
    impl offshoot_subagent::Provider for Nameless {
        fn name(&self) -> &'static str {
            " "
        }
        fn capabilities(&self) -> offshoot_subagent::Capabilities {
            offshoot_subagent::Capabilities::default()
        }
        fn start(
            &self,
            _: offshoot_subagent::RunRequest,
        ) -> BoxFuture<'_, Result<Box<dyn offshoot_subagent::Run>, offshoot_subagent::ProviderError>>
        {
            unreachable!("it was not registered")
        }
    }
    let error = world.subagents.register(Arc::new(Nameless)).unwrap_err();
    assert_eq!(error.code(), "INVALID_PROVIDER_NAME");
    assert_eq!(world.subagents.providers(), ["spawn", "fork"]);
}

#[tokio::test(start_paused = true)]
async fn s108_a_provider_that_is_removed_keeps_its_runs() {
    let world = World::new();
    let root = world.root();
    let (arrived, gate) = (Gate::default(), Gate::default());
    world
        .cast
        .plays("run", [Act::at(&arrived, &gate, Act::Say("done"))]);
    let (service, asked) = (world.subagents.clone(), request(&root, "run"));
    let run = tokio::spawn(async move { service.run(asked, CancellationToken::new()).await });
    arrived.opened().await;
    assert!(world.subagents.unregister("spawn"));
    gate.open();
    let result = soon("the end of the run", run).await.unwrap().unwrap();
    assert_eq!(
        (result.outcome, result.text.as_str()),
        (Outcome::Completed, "done")
    );
    let late = world.subagents.start(request(&root, "late")).await;
    assert_eq!(late.unwrap_err().code(), "NO_PROVIDER");
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn s154_s244_children_of_a_provider_that_has_gone_are_listed_and_resumed() {
    let world = World::new();
    let root = world.root();
    let (started, _) = world.child(&root, "child", []).await;
    world.settled(&root, &started).await;
    soon("rest", root.rest()).await;
    assert!(world.subagents.unregister("spawn"));
    let listed = world.subagents.list(&root, false);
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (&listed[0].id, listed[0].status),
        (&started.child, ChildStatus::Ready)
    );
    world.cast.plays("child", [Act::Say("again")]);
    let sent = world
        .subagents
        .send(&root, started.child.as_str(), "go on", 0)
        .await;
    sent.unwrap();
    soon("rest", root.rest()).await;
    let runs = world.extensions(root.id(), "subagent/settled");
    assert_eq!(runs.len(), 2);
    assert!(
        runs.iter()
            .all(|run| run.field("provider") == Some("spawn"))
    );
    let notice = world.accepted(root.id(), "settled").pop().unwrap();
    assert!(notice.to_text().ends_with("again"), "{}", notice.to_text());
    world.close(&root).await;
}

struct Named(&'static str, Value);

impl Tool for Named {
    fn name(&self) -> &str {
        self.0
    }

    fn description(&self) -> &'static str {
        "is there"
    }

    fn input_schema(&self) -> &Value {
        &self.1
    }

    fn call(&self, _: ToolCall) -> BoxFuture<'_, ToolOutput> {
        Box::pin(std::future::ready(ToolOutput::text("called")))
    }
}

fn kit(world: &World) -> AgentKit {
    let tool = |name| Arc::new(Named(name, json!({ "type": "object" }))) as Arc<dyn Tool>;
    AgentKit {
        tools: ToolSet::new([tool("read"), tool("write")]),
        prompt: Prompt::new([PromptSection::persona("You are the parent.")]),
        ..world.kit()
    }
}

fn seen(agent: &Agent) -> (Vec<String>, String) {
    let kit = agent.kit();
    let tools = kit.tools.iter().map(|tool| tool.name().to_owned());
    (tools.collect(), kit.prompt.render(&kit.tools))
}

#[tokio::test(start_paused = true)]
async fn s15_s149_persona_and_filter_are_kept_and_applied_again_and_what_is_absent_is_left_out() {
    let world = World::new();
    let root = Agent::create(&world.host, None, AgentSpec::root(kit(&world)))
        .unwrap()
        .into_agent();
    root.start();
    let filter = ToolFilter {
        allow: None,
        deny: Some(vec!["write".to_owned()]),
    };
    let asked = ChildRequest {
        persona: Some("You are the child.".to_owned()),
        tool_filter: Some(filter.clone()),
        ..request(&root, "child")
    };
    let started = world.subagents.start(asked).await.unwrap();
    let child = world.host.agents.get(&started.child).unwrap();
    let expected = (vec!["read".to_owned()], "You are the child.".to_owned());
    assert_eq!(seen(&child), expected, "s109: the child's only");
    assert_eq!(seen(&root).1, "You are the parent.");
    let start = child.with_projection(|p| p.start().cloned()).unwrap();
    let descriptor = Descriptor {
        mode: Mode::Continuable,
        provider: "spawn".to_owned(),
        persona: Some("You are the child.".to_owned()),
        tool_filter: Some(filter),
    };
    assert_eq!(
        Descriptor::read(&start),
        Some(descriptor),
        "as it was written"
    );
    world.settled(&root, &started).await;
    soon("rest", root.rest()).await;
    drop(child);

    let (arrived, gate) = (Gate::default(), Gate::default());
    world
        .cast
        .plays("child", [Act::at(&arrived, &gate, Act::Say("again"))]);
    let sent = world
        .subagents
        .send(&root, started.child.as_str(), "go on", 0);
    sent.await.unwrap();
    arrived.opened().await;
    let resumed = world.host.agents.get(&started.child).unwrap();
    assert_eq!(seen(&resumed), expected, "applied again");
    gate.open();
    soon("rest", root.rest()).await;

    let plain = world
        .subagents
        .start(request(&root, "plain"))
        .await
        .unwrap();
    let plain = world.host.agents.get(&plain.child).unwrap();
    let start = plain.with_projection(|p| p.start().cloned()).unwrap();
    let keys: Vec<_> = start.extra.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        ["mode", "provider", "run_id"],
        "nothing that was not asked"
    );
    assert_eq!(seen(&plain), seen(&root));
    soon("rest", root.rest()).await;
    world.close(&root).await;
}
