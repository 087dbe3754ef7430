//! Structured answers of children in this process.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use offshoot_agent::{
    Agent, AgentHost, AgentKit, AgentSettings, AgentSpec, CallId, CallRequest, Event, EventRecord,
    Finish, MemoryStore, ObserverGuard, Pending, Prompt, PromptSection, Tool, ToolCall, ToolFilter,
    ToolOutput, ToolSet, Usage,
};
use offshoot_inprocess::{Fork, Spawn};
use offshoot_loop::{LoopSettings, Model, ModelError, ModelLoop, ModelReply, ModelRequest};
use offshoot_subagent::{
    ChildRequest, OneShotResult, Outcome, OutputSchema, SubagentSettings, Subagents,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const TOOL: &str = "structured_output";

type Said = Result<ModelReply, ModelError>;

/// Answers each agent, by its label, with a list; without one it never answers.
#[derive(Default)]
struct Lists {
    replies: Mutex<HashMap<String, VecDeque<Said>>>,
    asked: Mutex<Vec<ModelRequest>>,
    /// What has arrived of a reply before it ends, or does not.
    partial: Mutex<&'static str>,
}

impl Model for Lists {
    fn request(&self, request: ModelRequest) -> BoxFuture<'_, Said> {
        Box::pin(async move {
            let label = request.agent.label().to_owned();
            request.partial.push(*self.partial.lock().unwrap());
            self.asked.lock().unwrap().push(request);
            let next = {
                let mut replies = self.replies.lock().unwrap();
                replies.get_mut(&label).and_then(VecDeque::pop_front)
            };
            match next {
                Some(said) => said,
                None => std::future::pending().await,
            }
        })
    }
}

fn says(text: &str) -> Said {
    Ok(ModelReply {
        text: text.to_owned(),
        calls: Vec::new(),
        finish: Finish::Stop,
        usage: Usage::default(),
    })
}

fn calls<const N: usize>(calls: [(&str, &str, Value); N]) -> Said {
    let calls = calls.map(|(id, name, args)| CallRequest {
        id: CallId(id.to_owned()),
        name: name.to_owned(),
        args,
    });
    Ok(ModelReply {
        text: String::new(),
        calls: calls.into(),
        finish: Finish::ToolCalls,
        usage: Usage::default(),
    })
}

fn gives(answer: Value) -> Said {
    calls([("c", TOOL, answer)])
}

/// Says what it was called with.
struct Echo {
    schema: Value,
    called: Mutex<Vec<Value>>,
}

impl Tool for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn description(&self) -> &'static str {
        "echoes"
    }

    fn input_schema(&self) -> &Value {
        &self.schema
    }

    fn is_parallel_safe(&self, _: &Value) -> bool {
        true
    }

    fn call(&self, call: ToolCall) -> BoxFuture<'_, ToolOutput> {
        self.called.lock().unwrap().push(call.args.clone());
        Box::pin(std::future::ready(ToolOutput::text(call.args.to_string())))
    }
}

struct World {
    subagents: Subagents,
    model: Arc<Lists>,
    echo: Arc<Echo>,
    root: Agent,
    events: Arc<Mutex<Vec<EventRecord>>>,
    _guard: ObserverGuard,
}

impl World {
    fn new() -> Self {
        let host = AgentHost::new(Arc::new(MemoryStore::default()), AgentSettings::default());
        let subagents = Subagents::new(host.clone(), SubagentSettings::default());
        subagents.register(Arc::new(Spawn)).unwrap();
        subagents.register(Arc::new(Fork)).unwrap();
        let events: Arc<Mutex<Vec<EventRecord>>> = Arc::default();
        let seen = Arc::clone(&events);
        let guard = host.hub.observe(Arc::new(move |record: &EventRecord| {
            seen.lock().unwrap().push(record.clone());
        }));
        let model: Arc<Lists> = Arc::default();
        let echo = Arc::new(Echo {
            schema: json!({ "type": "object" }),
            called: Mutex::default(),
        });
        let kit = AgentKit {
            driver: Arc::new(ModelLoop::new(model.clone(), LoopSettings::default())),
            tools: ToolSet::new([echo.clone() as Arc<dyn Tool>]),
            prompt: Prompt::new([
                PromptSection::persona("You are the base."),
                PromptSection::for_tool("echo", 120, "About echo."),
            ]),
        };
        let root = Agent::create(&host, None, AgentSpec::root(kit))
            .unwrap()
            .into_agent();
        root.start();
        Self {
            subagents,
            model,
            echo,
            root,
            events,
            _guard: guard,
        }
    }

    fn replies<const N: usize>(&self, label: &str, said: [Said; N]) {
        let mut replies = self.model.replies.lock().unwrap();
        replies.insert(label.to_owned(), said.into());
    }

    fn request(&self, label: &str) -> ChildRequest {
        ChildRequest {
            output_schema: Some(count()),
            ..ChildRequest::new(self.root.clone(), "spawn", label, "Count.")
        }
    }

    async fn run(&self, request: ChildRequest) -> OneShotResult {
        let run = self.subagents.run(request, CancellationToken::new());
        let run = tokio::time::timeout(Duration::from_secs(60), run);
        run.await.expect("an end").unwrap()
    }

    async fn answer<const N: usize>(&self, said: [Said; N]) -> OneShotResult {
        self.replies("child", said);
        self.run(self.request("child")).await
    }

    fn asked(&self, label: &str) -> Vec<ModelRequest> {
        let asked = self.model.asked.lock().unwrap();
        let of = |it: &&ModelRequest| it.agent.label() == label;
        asked.iter().filter(of).cloned().collect()
    }

    /// What calls of `label` came to: id, code.
    fn results(&self, label: &str) -> Vec<(String, String)> {
        let events = self.events.lock().unwrap();
        let of = events.iter().filter(|it| &*it.label == label);
        of.filter_map(|it| match &it.event {
            Event::ToolResult { result, .. } => Some((
                result.call_id.0.clone(),
                result.code.clone().unwrap_or_else(|| "ok".to_owned()),
            )),
            _ => None,
        })
        .collect()
    }

    async fn close(self) {
        self.root.close(Pending::Keep).await;
        assert!(self.subagents.host().agents.list().is_empty());
    }
}

/// An object with a whole number called `n`, and nothing else.
fn count() -> OutputSchema {
    OutputSchema::new(json!({
        "type": "object",
        "properties": { "n": { "type": "integer", "minimum": 0 } },
        "required": ["n"],
        "additionalProperties": false,
    }))
    .unwrap()
}

fn names(request: &ModelRequest) -> Vec<String> {
    let names = request.tools.iter().map(|tool| tool.name().to_owned());
    names.collect()
}

#[tokio::test(start_paused = true)]
async fn s64_s65_a_valid_answer_is_the_runs_and_ends_the_turn() {
    let world = World::new();
    let result = world
        .answer([gives(json!({ "n": 3 })), says("never")])
        .await;
    assert_eq!(result.outcome, Outcome::Completed);
    assert_eq!(result.structured, Some(json!({ "n": 3 })));
    assert_eq!(result.diagnostic, None);
    assert_eq!(
        world.asked("child").len(),
        1,
        "the model is not asked again"
    );
    assert_eq!(world.results("child"), [("c".to_owned(), "ok".to_owned())]);
    world.close().await;
}

#[tokio::test(start_paused = true)]
async fn s66_calls_before_the_answer_run_and_calls_after_it_are_denied() {
    let world = World::new();
    let reply = calls([
        ("a", "echo", json!({ "at": "before" })),
        ("b", TOOL, json!({ "n": 1 })),
        ("c", "echo", json!({ "at": "after" })),
        ("d", TOOL, json!({ "n": 2 })),
    ]);
    let result = world.answer([reply, says("never")]).await;
    assert_eq!(result.structured, Some(json!({ "n": 1 })), "the first one");
    let codes = [
        ("a", "ok"),
        ("b", "ok"),
        ("c", "TURN_ENDED"),
        ("d", "TURN_ENDED"),
    ];
    let codes = codes.map(|(id, code)| (id.to_owned(), code.to_owned()));
    assert_eq!(world.results("child"), codes);
    let called = world.echo.called.lock().unwrap().clone();
    assert_eq!(called, [json!({ "at": "before" })]);
    world.close().await;
}

#[tokio::test(start_paused = true)]
async fn s68_s83_an_answer_that_does_not_fit_is_refused_and_given_again_in_the_turn() {
    let world = World::new();
    let result = world
        .answer([
            gives(json!({ "n": "three" })),
            gives(json!({})),
            // The same id as the refused ones.
            gives(json!({ "n": 3 })),
        ])
        .await;
    assert_eq!(result.outcome, Outcome::Completed);
    assert_eq!(
        result.structured,
        Some(json!({ "n": 3 })),
        "only what was taken"
    );
    let asked = world.asked("child");
    assert_eq!(asked.len(), 3);
    assert!(asked.iter().all(|it| it.key.turn == 1), "one turn");
    let codes: Vec<_> = world
        .results("child")
        .into_iter()
        .map(|(_, code)| code)
        .collect();
    assert_eq!(codes, ["INVALID_ARGUMENTS", "INVALID_ARGUMENTS", "ok"]);
    world.close().await;
}

#[tokio::test(start_paused = true)]
async fn s68_how_often_an_answer_is_refused_is_bounded() {
    let world = World::new();
    let wrong = || gives(json!({ "n": -1 }));
    let said = [
        wrong(),
        wrong(),
        wrong(),
        wrong(),
        wrong(),
        gives(json!({ "n": 1 })),
    ];
    let result = world.answer(said).await;
    assert_eq!(result.outcome, Outcome::Error);
    assert_eq!(result.structured, None);
    assert_eq!(world.asked("child").len(), 5);
    let said = result.diagnostic.unwrap();
    assert!(
        said.starts_with("5 answers did not fit the schema"),
        "{said}"
    );
    assert!(said.contains("/n"), "it says where: {said}");
    world.close().await;
}

#[tokio::test(start_paused = true)]
async fn s69_an_end_without_an_answer_is_an_error_that_says_so() {
    let world = World::new();
    let result = world
        .answer([says("There are three."), says("never")])
        .await;
    assert_eq!(result.outcome, Outcome::Error);
    assert_eq!(
        result.diagnostic.as_deref(),
        Some("it ended without calling structured_output")
    );
    assert_eq!(result.text, "There are three.", "what it said is kept");
    assert_eq!(world.asked("child").len(), 1, "it is not asked again");
    world.close().await;

    let world = World::new();
    let result = world
        .answer([gives(json!({ "n": null })), says("I give up.")])
        .await;
    let said = result.diagnostic.unwrap();
    assert!(
        said.contains("without a structured answer that fits"),
        "{said}"
    );
    world.close().await;
}

#[tokio::test(start_paused = true)]
async fn s69_a_cancelled_child_is_aborted_though_it_gave_no_answer() {
    let world = World::new();
    let cancel = CancellationToken::new();
    let (service, request, stop) = (
        world.subagents.clone(),
        world.request("child"),
        cancel.clone(),
    );
    let run = tokio::spawn(async move { service.run(request, stop).await });
    tokio::time::sleep(Duration::from_millis(10)).await;
    cancel.cancel();
    let result = run.await.unwrap().unwrap();
    assert_eq!(
        (result.outcome, result.structured),
        (Outcome::Aborted, None)
    );
    assert_eq!(result.diagnostic, None);
    world.close().await;
}

#[tokio::test(start_paused = true)]
async fn s70_a_child_that_fails_keeps_its_own_end() {
    let failed = Err(ModelError {
        message: "429 slow down".to_owned(),
        usage: Usage::default(),
    });
    let refused = Ok(ModelReply {
        finish: Finish::Refusal,
        ..says("no").unwrap()
    });
    let cut = Ok(ModelReply {
        finish: Finish::MaxTokens,
        ..says("half").unwrap()
    });
    for (said, outcome, diagnostic) in [
        (failed, Outcome::Error, Some("429 slow down")),
        (refused, Outcome::Refusal, None),
        (cut, Outcome::MaxTokens, None),
    ] {
        let world = World::new();
        let result = world.answer([said]).await;
        assert_eq!(result.outcome, outcome);
        assert_eq!(result.diagnostic.as_deref(), diagnostic, "{outcome}");
        world.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn s75_s80_the_instruction_and_the_tool_are_added_last_to_that_child_only() {
    let world = World::new();
    world.replies("child", [gives(json!({ "n": 1 }))]);
    world.replies("plain", [says("done")]);
    world.run(world.request("child")).await;
    let plain = ChildRequest {
        output_schema: None,
        ..world.request("plain")
    };
    let result = world.run(plain).await;
    assert_eq!(
        (result.outcome, result.structured),
        (Outcome::Completed, None)
    );
    let (child, plain) = (&world.asked("child")[0], &world.asked("plain")[0]);
    assert_eq!(names(child), ["echo", TOOL]);
    assert_eq!(names(plain), ["echo"]);
    assert_eq!(plain.system, "You are the base.\n\nAbout echo.");
    let added = child
        .system
        .strip_prefix(&plain.system)
        .expect("the base is kept");
    assert!(added.contains("call structured_output once"), "{added}");
    assert_eq!(
        child.tools.get(TOOL).unwrap().input_schema(),
        count().schema()
    );
    world.close().await;
}

#[tokio::test(start_paused = true)]
async fn s78_children_of_a_structured_child_do_not_see_its_tool() {
    let world = World::new();
    let run = {
        let (service, request) = (world.subagents.clone(), world.request("child"));
        tokio::spawn(async move { service.run(request, CancellationToken::new()).await })
    };
    let child = loop {
        let agents = world.subagents.host().agents.list();
        match agents.into_iter().find(|agent| agent.label() == "child") {
            Some(child) => break child,
            None => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    };
    world.replies("below", [says("done")]);
    let below = ChildRequest::new(child.clone(), "spawn", "below", "Help.");
    assert_eq!(world.run(below).await.outcome, Outcome::Completed);
    let asked = &world.asked("below")[0];
    assert_eq!(names(asked), ["echo"]);
    assert_eq!(asked.system, "You are the base.\n\nAbout echo.");
    let filtered = ChildRequest {
        tool_filter: Some(ToolFilter {
            allow: None,
            deny: Some(vec![TOOL.to_owned()]),
        }),
        ..ChildRequest::new(child, "spawn", "below", "Help.")
    };
    let error = world
        .subagents
        .run(filtered, CancellationToken::new())
        .await;
    assert_eq!(error.unwrap_err().code(), "INVALID_TOOL_FILTER");
    world.root.close(Pending::Keep).await;
    assert_eq!(run.await.unwrap().unwrap().outcome, Outcome::Aborted);
    world.close().await;
}

#[tokio::test(start_paused = true)]
async fn s79_two_structured_children_have_each_their_own_schema() {
    let world = World::new();
    let name = OutputSchema::new(json!({
        "type": "object",
        "properties": { "name": { "type": "string" } },
        "required": ["name"],
    }))
    .unwrap();
    world.replies(
        "one",
        [gives(json!({ "name": "x" })), gives(json!({ "n": 1 }))],
    );
    world.replies(
        "two",
        [gives(json!({ "n": 1 })), gives(json!({ "name": "x" }))],
    );
    let two = ChildRequest {
        output_schema: Some(name),
        ..world.request("two")
    };
    let (one, two) = tokio::join!(world.run(world.request("one")), world.run(two));
    assert_eq!(one.structured, Some(json!({ "n": 1 })));
    assert_eq!(two.structured, Some(json!({ "name": "x" })));
    assert_eq!(world.asked("one").len(), 2);
    assert_eq!(world.asked("two").len(), 2);
    world.close().await;
}

#[tokio::test(start_paused = true)]
async fn s81_s82_the_tool_goes_with_its_child_and_is_unknown_elsewhere() {
    let world = World::new();
    world.answer([gives(json!({ "n": 1 }))]).await;
    world.replies("plain", [gives(json!({ "n": 1 })), says("done")]);
    let plain = ChildRequest {
        output_schema: None,
        ..world.request("plain")
    };
    let result = world.run(plain).await;
    assert_eq!(
        (result.outcome, result.structured),
        (Outcome::Completed, None)
    );
    assert_eq!(
        world.results("plain"),
        [("c".to_owned(), "UNKNOWN_TOOL".to_owned())]
    );
    assert!(world.root.kit().tools.get(TOOL).is_none());
    world.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_filter_of_the_parents_tools_does_not_hide_the_childs_own() {
    let world = World::new();
    world.replies("child", [gives(json!({ "n": 1 }))]);
    let request = ChildRequest {
        tool_filter: Some(ToolFilter {
            allow: None,
            deny: Some(vec!["echo".to_owned()]),
        }),
        ..world.request("child")
    };
    let result = world.run(request).await;
    assert_eq!(result.structured, Some(json!({ "n": 1 })));
    assert_eq!(names(&world.asked("child")[0]), [TOOL]);
    world.close().await;
}

#[tokio::test(start_paused = true)]
async fn s22_without_a_message_what_was_streamed_is_the_text() {
    let plain = |world: &World| ChildRequest {
        output_schema: None,
        ..world.request("child")
    };
    let world = World::new();
    *world.model.partial.lock().unwrap() = "so far";
    world.replies("child", [Err(ModelError::new("cut off"))]);
    let result = world.run(plain(&world)).await;
    assert_eq!(
        (result.outcome, result.text.as_str()),
        (Outcome::Error, "so far")
    );
    assert_eq!(result.diagnostic.as_deref(), Some("cut off"));
    let cancel = CancellationToken::new();
    let (service, request, stop) = (world.subagents.clone(), plain(&world), cancel.clone());
    let run = tokio::spawn(async move { service.run(request, stop).await });
    tokio::time::sleep(Duration::from_millis(10)).await;
    cancel.cancel();
    let result = run.await.unwrap().unwrap();
    assert_eq!(
        (result.outcome, result.text.as_str()),
        (Outcome::Aborted, "so far")
    );
    world.close().await;
}

#[tokio::test(start_paused = true)]
async fn s117_a_fork_gives_a_structured_answer_after_its_past() {
    let world = World::new();
    world.replies("root", [says("noted")]);
    world
        .root
        .followup(offshoot_agent::Message::user("Three files."))
        .unwrap();
    world.root.idle().await;
    world.replies("child", [gives(json!({ "n": 3 }))]);
    let request = ChildRequest {
        provider: "fork".to_owned(),
        ..world.request("child")
    };
    let result = world.run(request).await;
    assert_eq!(result.structured, Some(json!({ "n": 3 })));
    assert!(world.asked("child")[0].history.len() > 1, "with its past");
    world.close().await;
}

#[tokio::test(start_paused = true)]
async fn s71_a_schema_is_refused_before_there_is_a_child() {
    let no = |schema: Value| OutputSchema::new(schema).unwrap_err().to_string();
    let object = "expected a JSON schema of an object, with \"type\": \"object\" at its top";
    assert_eq!(no(json!("text")), object);
    assert_eq!(no(json!({ "type": "array" })), object);
    assert_eq!(no(json!({ "properties": {} })), object);
    for key in ["anyOf", "oneOf", "allOf", "not", "if"] {
        let said = no(json!({ "type": "object", key: [] }));
        assert!(said.starts_with(key), "{said}");
    }
    let remote = json!({ "$ref": "https://schemas.invalid/x.json" });
    let said = no(json!({ "type": "object", "properties": { "x": remote } }));
    assert!(said.starts_with("$ref is not supported"), "{said}");
    let said = no(json!({ "type": "object", "properties": { "x": { "type": "strin" } } }));
    assert!(said.starts_with("not a JSON schema: "), "{said}");
    let said = no(json!({ "type": "object", "$schema": "https://schemas.invalid/draft" }));
    assert!(said.starts_with("not a JSON schema: "), "{said}");
    let long = json!({ "type": "object", "description": "x".repeat(70_000) });
    assert!(no(long).contains("limit: 65536"));
    // What an answer may be is no schema.
    let named = json!({ "type": "object", "properties": { "$ref": { "const": { "$ref": "x" } } } });
    assert!(OutputSchema::new(named).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_continuable_child_is_refused_a_schema() {
    let world = World::new();
    let error = world
        .subagents
        .start(world.request("child"))
        .await
        .unwrap_err();
    assert_eq!(error.code(), "UNSUPPORTED_CAPABILITY");
    assert!(error.to_string().contains("structured output"), "{error}");
    world.close().await;
}
