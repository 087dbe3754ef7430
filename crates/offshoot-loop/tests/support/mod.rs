//! A model that answers with a list, tools that take their time, and an agent of both.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file is a program of its own and uses a part of this"
)]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use offshoot_agent::{
    Agent, AgentHost, AgentKit, AgentSettings, AgentSpec, CallId, CallRequest, Event, Finish,
    HistoryItem, MemoryStore, Message, Prompt, PromptSection, SessionStore, Tool, ToolCall,
    ToolOutput, ToolSet, TurnEndReason, Usage,
};
use offshoot_loop::{LoopSettings, Model, ModelError, ModelLoop, ModelReply, ModelRequest};
use serde_json::{Value, json};

pub type Said = Result<ModelReply, ModelError>;

/// Answers with a list; what it was asked is kept.
#[derive(Default)]
pub struct Listed {
    pub replies: Mutex<VecDeque<Said>>,
    pub asked: Mutex<Vec<ModelRequest>>,
    /// Text that has arrived when the request fails or is cancelled.
    pub partial: &'static str,
    pub hangs: bool,
}

impl Model for Listed {
    fn request(&self, request: ModelRequest) -> BoxFuture<'_, Said> {
        Box::pin(async move {
            request.partial.push(self.partial);
            self.asked.lock().unwrap().push(request);
            let next = self.replies.lock().unwrap().pop_front();
            if self.hangs && next.is_none() {
                std::future::pending::<()>().await;
            }
            next.unwrap_or_else(|| Ok(says("done")))
        })
    }
}

pub fn says(text: &str) -> ModelReply {
    ModelReply {
        text: text.to_owned(),
        calls: Vec::new(),
        finish: Finish::Stop,
        usage: Usage {
            input: 1,
            output: 1,
        },
    }
}

pub fn calls<const N: usize>(calls: [(&str, &str, Value); N]) -> Said {
    let calls = calls.map(|(id, name, args)| CallRequest {
        id: CallId(id.to_owned()),
        name: name.to_owned(),
        args,
    });
    Ok(ModelReply {
        calls: calls.into(),
        finish: Finish::ToolCalls,
        ..says("")
    })
}

/// `slow` and `alone` take as long as they are told; `panic` panics.
pub struct Sleeper {
    pub name: &'static str,
    pub schema: Value,
    pub running: Arc<AtomicUsize>,
    pub most: Arc<AtomicUsize>,
    pub committed: Arc<Mutex<Vec<String>>>,
}

impl Tool for Sleeper {
    fn name(&self) -> &str {
        self.name
    }

    fn description(&self) -> &'static str {
        "takes its time"
    }

    fn input_schema(&self) -> &Value {
        &self.schema
    }

    fn is_parallel_safe(&self, args: &Value) -> bool {
        assert!(args.get("unclassifiable").is_none(), "what is that");
        self.name != "alone"
    }

    fn call(&self, call: ToolCall) -> BoxFuture<'_, ToolOutput> {
        Box::pin(async move {
            assert_ne!(self.name, "panic", "the tool broke");
            let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(running, Ordering::SeqCst);
            let millis = call.args["ms"].as_u64().unwrap_or(0);
            tokio::time::sleep(Duration::from_millis(millis)).await;
            self.running.fetch_sub(1, Ordering::SeqCst);
            let (committed, id) = (Arc::clone(&self.committed), call.call_id.to_string());
            ToolOutput::text(format!("{} {}", self.name, call.args))
                .on_commit(move || committed.lock().unwrap().push(id))
        })
    }
}

pub struct World {
    pub agent: Agent,
    pub model: Arc<Listed>,
    pub most: Arc<AtomicUsize>,
    pub committed: Arc<Mutex<Vec<String>>>,
}

impl World {
    pub fn new(model: Listed, max_parallel_tools: usize) -> Self {
        let (running, most) = (Arc::default(), Arc::<AtomicUsize>::default());
        let committed: Arc<Mutex<Vec<String>>> = Arc::default();
        let tools = ["slow", "alone", "panic"].map(|name| {
            Arc::new(Sleeper {
                name,
                schema: json!({"type": "object"}),
                running: Arc::clone(&running),
                most: Arc::clone(&most),
                committed: Arc::clone(&committed),
            }) as Arc<dyn Tool>
        });
        let settings = LoopSettings {
            max_parallel_tools: max_parallel_tools.try_into().unwrap(),
            ..LoopSettings::default()
        };
        let prompt = Prompt::new([
            PromptSection::persona("You are a test."),
            PromptSection::for_tool("slow", 100, "Be patient."),
            PromptSection::for_tool("absent", 100, "Never shown."),
        ]);
        let store = Arc::new(MemoryStore::default());
        let mut world = Self::of(model, settings, ToolSet::new(tools), prompt, store);
        (world.most, world.committed) = (most, committed);
        world
    }

    pub fn of(
        model: Listed,
        settings: LoopSettings,
        tools: ToolSet,
        prompt: Prompt,
        store: Arc<dyn SessionStore>,
    ) -> Self {
        let model = Arc::new(model);
        let asks = Arc::clone(&model) as Arc<dyn Model>;
        let kit = AgentKit {
            driver: Arc::new(ModelLoop::new(asks, settings)),
            tools,
            prompt,
        };
        let host = AgentHost::new(store, AgentSettings::default());
        let agent = Agent::create(&host, None, AgentSpec::root(kit))
            .unwrap()
            .into_agent();
        agent.start();
        Self {
            agent,
            model,
            most: Arc::default(),
            committed: Arc::default(),
        }
    }

    pub fn replies(replies: impl IntoIterator<Item = Said>) -> Self {
        let model = Listed {
            replies: Mutex::new(replies.into_iter().collect()),
            ..Listed::default()
        };
        Self::new(model, 10)
    }

    pub async fn turn(&self) -> TurnEndReason {
        self.agent.followup(Message::user("go")).unwrap();
        self.agent.idle().await;
        self.agent.with_projection(|p| p.facts().end).unwrap()
    }

    /// Calls and results as they are in the log: `call a`, `result a CODE`.
    pub fn trace(&self) -> Vec<String> {
        let log = self.agent.host().store.read(self.agent.id()).unwrap();
        let lines = log.iter().filter_map(|stored| match &stored.event {
            Event::ToolCall { call_id, .. } => Some(format!("call {call_id}")),
            Event::ToolResult { result, .. } => {
                let code = result.code.as_deref().unwrap_or("ok");
                Some(format!("result {} {code}", result.call_id))
            }
            Event::MessageAssistant { message, .. } if !message.text.is_empty() => {
                Some(format!("say {} {:?}", message.text, message.finish))
            }
            _ => None,
        });
        lines.collect()
    }

    pub fn results(&self) -> Vec<String> {
        self.agent.with_projection(|p| {
            let results = p.history().iter().filter_map(|item| match item {
                HistoryItem::ToolResult(result) => Some(result.text.clone()),
                _ => None,
            });
            results.collect()
        })
    }
}
