//! A runtime over a scripted model, tools that are called by hand, and tasks that tests drive.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test file is a program of its own and uses a part of this"
)]

mod recorded;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use offshoot_agent::{
    Agent, AgentHost, AgentId, AgentKit, AgentSettings, AgentSpec, CallId, Event, EventRecord,
    Extension, MemoryStore, Message, ObserverGuard, Pending, Prompt, SessionStore, StepKey,
    ToolCall, ToolOutput,
};
use offshoot_inprocess::{Fork, Spawn};
use offshoot_loop::script::{Gates, Script};
use offshoot_loop::{LoopSettings, Model, ModelLoop, ScriptedModel};
use offshoot_subagent::{Provider, RunRule, SubagentSettings, Subagents};
use offshoot_task::{TaskConfig, TaskId, TaskOutcome, TaskRegistry, TaskSpec};
use offshoot_tools::{BashSettings, SubagentToolSettings, TaskRule, Toolbox, ToolsSettings};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

pub use recorded::{Recorded, Recording};

/// A bound on waits for something that must happen.
pub const SOON: Duration = Duration::from_secs(60);

/// Runs `future` to its end, which must come.
pub async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(SOON, future).await {
        Ok(output) => output,
        Err(_) => panic!("never came: {what}"),
    }
}

/// How a runtime differs from the default.
#[derive(Clone)]
pub struct Setup {
    pub tools: ToolsSettings,
    pub tasks: TaskConfig,
    pub subagents: SubagentSettings,
    pub agents: AgentSettings,
    pub provider: Option<Arc<dyn Provider>>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            tools: ToolsSettings {
                bash: Some(BashSettings::default()),
                subagents: vec![SubagentToolSettings::default()],
                ..ToolsSettings::default()
            },
            tasks: TaskConfig::default(),
            subagents: SubagentSettings::default(),
            agents: AgentSettings::default(),
            provider: None,
        }
    }
}

pub struct World {
    pub host: AgentHost,
    pub tasks: TaskRegistry,
    pub subagents: Subagents,
    pub toolbox: Toolbox,
    pub gates: Gates,
    pub events: Arc<Mutex<Vec<EventRecord>>>,
    kit: AgentKit,
    _guard: ObserverGuard,
}

impl World {
    /// Every request is answered with "ok".
    pub fn new() -> Self {
        Self::with(Setup::default())
    }

    pub fn with(setup: Setup) -> Self {
        let agents = json!({
            "root": [{"text": "ok", "repeat": "forever"}],
            "*": [{"text": "ok", "repeat": "forever"}],
        });
        Self::plays(agents, setup)
    }

    pub fn plays(agents: Value, setup: Setup) -> Self {
        Self::over(Arc::new(MemoryStore::default()), agents, setup)
    }

    pub fn over(store: Arc<dyn SessionStore>, agents: Value, setup: Setup) -> Self {
        let mut agents = agents;
        // What opens gates is the test; a script has to name somebody.
        agents["(the test)"] = json!([{ "open": gates_of(&agents) }]);
        let script = json!({"agents": agents}).to_string();
        let script = Script::parse(&script, "test").unwrap();
        let gates = Gates::new();
        let model = ScriptedModel::new(&script, gates.clone());
        let scripted = model.event_rules();
        let driver = ModelLoop::new(Arc::new(model), LoopSettings::default());
        let mut host = AgentHost::new(store, setup.agents);
        let mut rules = scripted;
        rules.extend([
            Arc::new(TaskRule) as _,
            Arc::new(RunRule) as _,
            Arc::new(Recording) as _,
        ]);
        host.event_rules = rules.into();
        let tasks = TaskRegistry::new(setup.tasks);
        let subagents = Subagents::new(host.clone(), setup.subagents);
        subagents.register(Arc::new(Spawn)).unwrap();
        subagents.register(Arc::new(Fork)).unwrap();
        if let Some(provider) = setup.provider {
            subagents.register(provider).unwrap();
        }
        let toolbox = Toolbox::install(&tasks, &subagents, setup.tools);
        let kit = AgentKit {
            driver: Arc::new(driver),
            tools: toolbox.tools.clone(),
            prompt: Prompt::new(toolbox.sections.iter().cloned()),
        };
        let events: Arc<Mutex<Vec<EventRecord>>> = Arc::default();
        let seen = Arc::clone(&events);
        let guard = host.hub.observe(Arc::new(move |record: &EventRecord| {
            seen.lock().unwrap().push(record.clone());
        }));
        Self {
            host,
            tasks,
            subagents,
            toolbox,
            gates,
            events,
            kit,
            _guard: guard,
        }
    }

    pub fn root(&self) -> Agent {
        let spec = AgentSpec::root(self.kit.clone());
        let root = Agent::create(&self.host, None, spec).unwrap().into_agent();
        root.start();
        root
    }

    /// A root that a later process goes on with.
    pub fn resume(&self, id: &AgentId) -> Agent {
        let (fields, kit) = (serde_json::Map::new(), self.kit.clone());
        let root = Agent::resume(&self.host, None, id, fields, kit)
            .unwrap()
            .into_agent();
        self.subagents.recover(&root);
        root.start();
        root
    }

    /// What a tool answers to a call by hand, not committed.
    pub async fn answer(&self, agent: &Agent, tool: &str, args: Value) -> ToolOutput {
        self.answer_until(agent, tool, args, CancellationToken::new())
            .await
    }

    pub async fn answer_until(
        &self,
        agent: &Agent,
        tool: &str,
        args: Value,
        cancel: CancellationToken,
    ) -> ToolOutput {
        let tool = Arc::clone(agent.kit().tools.get(tool).unwrap());
        tool.call(call(agent, args, cancel)).await
    }

    /// What a tool answers, as the log would take it.
    pub async fn call(&self, agent: &Agent, tool: &str, args: Value) -> ToolOutput {
        let mut output = self.answer(agent, tool, args).await;
        if let Some(commit) = output.take_commit() {
            commit();
        }
        output
    }

    /// A task that ends when it is told to.
    pub fn task(&self, agent: &Agent, label: &str) -> (TaskId, Ending) {
        self.task_of(agent, TaskSpec::new("render", label))
    }

    pub fn task_of(&self, agent: &Agent, spec: TaskSpec) -> (TaskId, Ending) {
        let (end, ended) = tokio::sync::oneshot::channel();
        let id = self.tasks.start(agent.scope(), spec, |context| {
            Ok(async move {
                tokio::select! {
                    biased;
                    outcome = ended => outcome.unwrap_or_else(|_| TaskOutcome::failed("left")),
                    () = context.cancelled() => TaskOutcome::killed(),
                }
            })
        });
        (id.unwrap(), Ending(end))
    }

    /// Messages of one kind of source that an agent accepted.
    pub fn accepted(&self, agent: &Agent, kind: &str) -> Vec<Message> {
        let events = self.events.lock().unwrap();
        events
            .iter()
            .filter(|record| record.session == *agent.id())
            .filter_map(|record| match &record.event {
                Event::InboxInserted { message, .. } if message.source.kind == kind => {
                    Some(Message::clone(message))
                }
                _ => None,
            })
            .collect()
    }

    pub fn extensions(&self, kind: &str) -> Vec<Extension> {
        let events = self.events.lock().unwrap();
        events
            .iter()
            .filter_map(|record| match &record.event {
                Event::Extension(event) if event.kind == kind => Some((**event).clone()),
                _ => None,
            })
            .collect()
    }

    pub fn discarded(&self, agent: &Agent) -> Vec<String> {
        let events = self.events.lock().unwrap();
        let own = events.iter().filter(|r| r.session == *agent.id());
        own.filter_map(|record| match &record.event {
            Event::InboxDiscarded { cause, .. } => Some(cause.clone()),
            _ => None,
        })
        .collect()
    }

    /// The results of an agent's calls, in order.
    pub fn results(&self, label: &str) -> Vec<(String, Option<String>)> {
        let events = self.events.lock().unwrap();
        let own = events.iter().filter(|record| &*record.label == label);
        own.filter_map(|record| match &record.event {
            Event::ToolResult { result, .. } => Some((result.text.clone(), result.code.clone())),
            _ => None,
        })
        .collect()
    }

    pub fn turns(&self, agent: &Agent) -> u64 {
        agent.with_projection(|p| p.turn())
    }

    /// Waits until a task's end was delivered.
    pub async fn settled(&self, agent: &Agent, id: &TaskId) {
        let id = id.to_string();
        soon(
            "the end of a task",
            agent.until_projection(|p| {
                let recorded = p.fold::<Recorded>();
                let mut recorded = recorded.0.iter();
                recorded
                    .any(|e| e.kind == "task/settled" && e.field("task_id") == Some(&id))
                    .then_some(())
            }),
        )
        .await;
    }

    pub async fn close(&self, root: &Agent) {
        soon("the end", root.close(Pending::Keep)).await;
        assert_eq!(root.scope().holds(), 0);
    }
}

fn gates_of(agents: &Value) -> Vec<Value> {
    let lists = agents
        .as_object()
        .into_iter()
        .flat_map(|agents| agents.values());
    let replies = lists.filter_map(Value::as_array).flatten();
    let gates = replies
        .filter_map(|reply| reply["await"].as_array())
        .flatten();
    gates.cloned().collect()
}

fn next_step() -> u64 {
    static STEP: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    STEP.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

pub fn call(agent: &Agent, args: Value, cancel: CancellationToken) -> ToolCall {
    ToolCall {
        agent: agent.clone(),
        call_id: CallId("c1".to_owned()),
        args,
        key: StepKey {
            session: agent.id().clone(),
            activation: 1,
            turn: 1,
            // Each call is a step of its own.
            step: next_step(),
            attempt: 1,
        },
        generation: 0,
        cancel,
    }
}

/// Ends a task.
pub struct Ending(tokio::sync::oneshot::Sender<TaskOutcome>);

impl Ending {
    pub fn with(self, outcome: TaskOutcome) {
        assert!(self.0.send(outcome).is_ok(), "the task had ended");
    }

    pub fn output(self, text: &str) {
        self.with(TaskOutcome::completed().with_output(text));
    }
}
