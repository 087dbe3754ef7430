//! A tree whose agents act at random, and a host that interferes.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use offshoot_agent::{
    Agent, AgentHost, AgentKit, AgentSettings, AgentSpec, CallId, CallRequest, CancelCause,
    EventRecord, Finish, MemoryStore, Message, ObserverGuard, Pending, Prompt, Status,
    TurnEndReason, Usage,
};
use offshoot_inprocess::{Fork, Spawn};
use offshoot_loop::{LoopSettings, Model, ModelError, ModelLoop, ModelReply, ModelRequest};
use offshoot_subagent::{Authority, Mode, RunRule, SubagentSettings, Subagents, Verb};
use offshoot_task::{StoppedBy, TaskConfig, TaskOutcome, TaskRegistry, TaskSpec};
use offshoot_tools::{BashSettings, SubagentToolSettings, TaskRule, Toolbox, ToolsSettings};
use serde_json::{Value, json};

use crate::recorded::{Recorded, Recording};
use crate::sabotage::{Sabotage, Saboteur};

/// A small generator of numbers; the same seed gives the same ones everywhere.
#[derive(Debug)]
pub struct Dice(AtomicU64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1))
    }

    pub fn below(&self, n: u64) -> u64 {
        let mut x = self.0.load(Ordering::Relaxed);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.0.store(x, Ordering::Relaxed);
        (x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
    }

    pub fn chance(&self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

struct Acting {
    dice: Arc<Dice>,
    tasks: TaskRegistry,
    /// How many more agents may be started.
    agents: AtomicUsize,
    /// How many more requests do anything but end.
    requests: AtomicUsize,
}

impl Acting {
    fn take(counter: &AtomicUsize) -> bool {
        counter
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
            .is_ok()
    }

    /// A task that ends by itself, when it is stopped, or only when it is aborted.
    fn begin_task(&self, agent: &Agent, generation: u64) {
        let millis = self.dice.below(4000);
        let kind = self.dice.below(6);
        let spec = TaskSpec::new("fake", "something").generation(generation);
        let spec = if kind == 5 {
            spec.deadline(Duration::from_millis(500))
        } else {
            spec
        };
        // A refusal is a fine answer.
        let _ = self.tasks.start(agent.scope(), spec, |context| {
            Ok(async move {
                let work = async {
                    tokio::time::sleep(Duration::from_millis(millis)).await;
                    match kind {
                        0 => TaskOutcome::failed("it broke").with_output("half"),
                        1 => panic!("it panicked"),
                        2 => TaskOutcome::completed().with_output("x".repeat(6000)),
                        _ => TaskOutcome::completed().with_output("done"),
                    }
                };
                if kind == 4 {
                    // Deaf to stops.
                    return work.await;
                }
                tokio::select! {
                    outcome = work => outcome,
                    () = context.cancelled() => TaskOutcome::killed(),
                }
            })
        });
    }

    fn call(&self, agent: &Agent, n: u64) -> CallRequest {
        let child = agent.with_projection(|p| {
            let recorded = p.fold::<Recorded>();
            let children = recorded.0.iter().filter(|e| e.kind == "subagent/started");
            let children: Vec<_> = children.filter_map(|e| e.field("child")).collect();
            (!children.is_empty()).then(|| {
                let at = usize::try_from(self.dice.below(children.len() as u64)).unwrap_or(0);
                children[at].to_owned()
            })
        });
        let task = agent.with_projection(|p| {
            let recorded = p.fold::<Recorded>();
            let mut tasks = recorded.0.iter().filter(|e| e.kind == "task/started");
            tasks
                .next_back()
                .and_then(|e| e.field("task_id"))
                .map(str::to_owned)
        });
        let parent = agent.parent_id().map(ToString::to_string);
        let delegate = |name: &str, background: bool| {
            let args =
                json!({"description": "kid", "prompt": "work", "run_in_background": background});
            (name.to_owned(), args)
        };
        let (name, args): (String, Value) = match self.dice.below(12) {
            0..=3 if Self::take(&self.agents) => match self.dice.below(6) {
                0 => delegate("run", true),
                1 => delegate("run", false),
                2 => delegate("fork", true),
                _ => delegate("subagent", true),
            },
            4 | 5 if child.is_some() => (
                "send_message".to_owned(),
                json!({"agent_id": child, "message": "more"}),
            ),
            6 if parent.is_some() => (
                "send_message".to_owned(),
                json!({"agent_id": parent, "message": "found"}),
            ),
            7 if child.is_some() => ("interrupt_agent".to_owned(), json!({"agent_id": child})),
            8 if task.is_some() => ("task_kill".to_owned(), json!({"task_id": task})),
            9 if task.is_some() => (
                "task_output".to_owned(),
                json!({"task_id": task, "wait": true, "timeout_ms": 1 + self.dice.below(3000)}),
            ),
            10 => ("list_agents".to_owned(), json!({"scope": "descendants"})),
            _ => ("task_list".to_owned(), json!({})),
        };
        CallRequest {
            id: CallId(format!("c{n}")),
            name,
            args,
        }
    }
}

impl Model for Acting {
    fn request(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelReply, ModelError>> {
        Box::pin(async move {
            let dice = &self.dice;
            tokio::time::sleep(Duration::from_millis(dice.below(800))).await;
            let usage = Usage {
                input: 10,
                output: 1,
            };
            let says = |text: &str, finish| ModelReply {
                text: text.to_owned(),
                calls: Vec::new(),
                finish,
                usage,
            };
            if !Self::take(&self.requests) {
                return Ok(says("enough", Finish::Stop));
            }
            let generation = request
                .agent
                .current_turn()
                .map_or(0, |(_, generation)| generation);
            if dice.chance(35) {
                self.begin_task(&request.agent, generation);
            }
            match dice.below(20) {
                0 => Err(ModelError::new("the model failed")),
                1 => panic!("the model panicked"),
                2 => Ok(says("half", Finish::MaxTokens)),
                3 => Ok(says("", Finish::Refusal)),
                4 => {
                    tokio::time::sleep(Duration::from_secs(20)).await;
                    Ok(says("late", Finish::Stop))
                }
                5..=9 => Ok(says("done", Finish::Stop)),
                _ => {
                    let calls = (0..=dice.below(3)).map(|n| self.call(&request.agent, n));
                    Ok(ModelReply {
                        calls: calls.collect(),
                        ..says("going on", Finish::ToolCalls)
                    })
                }
            }
        })
    }
}

pub struct Tree {
    dice: Arc<Dice>,
    host: AgentHost,
    tasks: TaskRegistry,
    subagents: Subagents,
    root: Agent,
    _toolbox: Toolbox,
    events: Arc<Mutex<Vec<EventRecord>>>,
    _guard: ObserverGuard,
}

impl Tree {
    /// A tree whose children live in this process, or in one that is sabotaged.
    pub fn grow(seed: u64, sabotage: Option<Sabotage>) -> Self {
        let dice = Arc::new(Dice::new(seed));
        // One tree in twenty is a large one.
        let large = seed.is_multiple_of(20);
        let settings = AgentSettings {
            max_steps_per_turn: 8,
            cancel_grace: Duration::from_secs(2),
            max_wake_chain: 1 + dice.below(8),
            ..AgentSettings::default()
        };
        let mut host = AgentHost::new(Arc::new(MemoryStore::default()), settings);
        host.event_rules = Arc::new([Arc::new(TaskRule), Arc::new(RunRule), Arc::new(Recording)]);
        let tasks = TaskRegistry::new(TaskConfig {
            max_live_per_owner: 4,
            teardown_grace: Duration::from_secs(2),
            kill_grace: Some(Duration::from_secs(3)),
            ..TaskConfig::default()
        });
        let subagents = Subagents::hosted(
            host.clone(),
            SubagentSettings {
                max_depth: 4,
                max_live_children: if large { 64 } else { 20 },
                waiting_after: Duration::from_secs(1),
                ..SubagentSettings::default()
            },
            |home| match sabotage {
                Some(what) => Arc::new(Saboteur::new(home, what)),
                None => Arc::new(home),
            },
        );
        subagents.register(Arc::new(Spawn)).unwrap();
        subagents.register(Arc::new(Fork)).unwrap();
        let tool = |tool_name: &str, provider: &str, mode| SubagentToolSettings {
            tool_name: tool_name.to_owned(),
            provider: provider.to_owned(),
            mode,
            ..SubagentToolSettings::default()
        };
        let mut tools = ToolsSettings {
            bash: None::<BashSettings>,
            subagents: vec![
                tool("subagent", "spawn", Mode::Continuable),
                tool("fork", "fork", Mode::Continuable),
                tool("run", "spawn", Mode::OneShot),
            ],
            ..ToolsSettings::default()
        };
        tools.notices.wake = dice.chance(80);
        let toolbox = Toolbox::install(&tasks, &subagents, tools);
        let model = Acting {
            dice: Arc::clone(&dice),
            tasks: tasks.clone(),
            agents: AtomicUsize::new(if large { 200 } else { 40 }),
            requests: AtomicUsize::new(if large { 800 } else { 200 }),
        };
        let kit = AgentKit {
            driver: Arc::new(ModelLoop::new(Arc::new(model), LoopSettings::default())),
            tools: toolbox.tools.clone(),
            prompt: Prompt::default(),
        };
        let events: Arc<Mutex<Vec<EventRecord>>> = Arc::default();
        let seen = Arc::clone(&events);
        let guard = host.hub.observe(Arc::new(move |record: &EventRecord| {
            seen.lock().unwrap().push(record.clone());
        }));
        let root = Agent::create(&host, None, AgentSpec::root(kit))
            .unwrap()
            .into_agent();
        root.start();
        Self {
            dice,
            host,
            tasks,
            subagents,
            root,
            _toolbox: toolbox,
            events,
            _guard: guard,
        }
    }

    /// Lets the tree act until it is at rest, or closes it in the middle; then closes it.
    pub async fn play(self) -> (Vec<EventRecord>, Agent) {
        self.root.followup(Message::user("go")).unwrap();
        for _ in 0..self.dice.below(25) {
            tokio::time::sleep(Duration::from_millis(self.dice.below(1500))).await;
            self.interfere().await;
        }
        if self.dice.chance(75) {
            self.until_rest().await;
            assert_eq!(self.root.scope().holds(), 0, "at rest with holds");
            let live = self.host.agents.list();
            assert_eq!(live.len(), 1, "at rest with children: {live:?}");
        }
        let report = self.root.close(Pending::Keep).await;
        assert!(report.is_clean(), "{report:?}");
        self.host.hub.drained().await;
        assert!(self.host.agents.list().is_empty());
        let events = self.events.lock().unwrap().clone();
        (events, self.root)
    }

    /// Waits until the root is at rest. Messages that an interrupt has parked keep their child, until
    /// somebody sends it another one; nothing else may keep anybody.
    async fn until_rest(&self) {
        let long = Duration::from_secs(1000);
        while tokio::time::timeout(long, self.root.rest()).await.is_err() {
            let agents = self.host.agents.list();
            let parked: Vec<_> = agents.iter().filter(|agent| is_parked(agent)).collect();
            assert!(!parked.is_empty(), "nothing moves: {}", describe(&agents));
            for agent in parked {
                agent.steer(Message::user("go on")).unwrap();
            }
        }
    }

    async fn interfere(&self) {
        let agents = self.host.agents.list();
        let at = usize::try_from(self.dice.below(agents.len() as u64)).unwrap_or(0);
        let agent = &agents[at];
        let verb = [Verb::Followup, Verb::Steer, Verb::Inject]
            [usize::try_from(self.dice.below(3)).unwrap_or(0)];
        // Whatever is refused is refused.
        match self.dice.below(9) {
            0 | 1 => {
                let message = Message::user("a word");
                if agent.depth() == 0 {
                    let _ = agent.steer(message);
                } else {
                    let id = agent.id();
                    let _ = self
                        .subagents
                        .deliver(Authority::Host, id, message, verb)
                        .await;
                }
            }
            2 => {
                let _ = agent.cancel(CancelCause::User, Pending::Keep);
            }
            3 => {
                let _ = agent.cancel(CancelCause::Parent, Pending::Discard);
            }
            4 => {
                let _ = self.subagents.interrupt(Authority::Host, agent.id());
            }
            5 => {
                let _ = self.subagents.dispose(agent.id());
            }
            6 => {
                for task in self.tasks.list(agent.scope().id()) {
                    let owner = agent.scope().id();
                    let _ = self.tasks.kill(owner, &task.id, StoppedBy::Human, None);
                }
            }
            7 if agent.depth() > 0 => drop(agent.close(Pending::Keep)),
            _ => {
                // A cold child, if there is one.
                let cold = self.subagents.list(&self.root, true);
                if let Some(child) = cold.last() {
                    let id = &child.id;
                    let message = Message::user("again");
                    let _ = self
                        .subagents
                        .deliver(Authority::Host, id, message, verb)
                        .await;
                }
            }
        }
    }
}

fn is_parked(agent: &Agent) -> bool {
    let quiet = agent.status() == Status::Idle && agent.scope().holds() == 0;
    let interrupted = agent.with_projection(|p| {
        p.facts().end == Some(TurnEndReason::Aborted) && p.inbox().has_waking()
    });
    quiet && interrupted
}

fn describe(agents: &[Agent]) -> String {
    let lines = agents.iter().map(|agent| {
        let inbox = agent.with_projection(|p| p.inbox().len());
        format!(
            "\n{} at {}: {:?}, {} holds, {inbox} wait, {:?}",
            agent.label(),
            agent.depth(),
            agent.status(),
            agent.scope().holds(),
            agent.with_projection(|p| p.facts().clone())
        )
    });
    lines.collect()
}
