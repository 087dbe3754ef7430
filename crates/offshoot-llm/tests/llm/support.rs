//! An agent whose model is a scripted server.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use offshoot_agent::{
    Agent, AgentHost, AgentKit, AgentSettings, AgentSpec, MemoryStore, Message, Prompt,
    PromptSection, Tool, ToolCall, ToolOutput, ToolSet, TurnEndReason,
};
use offshoot_llm::{ApiKey, LlmModel, LlmSettings, Provider, RetrySettings, Route};
use offshoot_loop::{LoopSettings, ModelLoop};
use offshoot_model_server::{ModelServer, Rule, Script};
use serde_json::{Value, json};

pub(crate) const KEY: &str = "sk-secret-0123456789";

/// Those with a wire format of their own, or a dialect.
pub(crate) const PROVIDERS: [Provider; 7] = Provider::ALL;

/// Says what it was called with; takes only an integer for `n`.
struct Echo(Value);

impl Tool for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn description(&self) -> &'static str {
        "says its arguments"
    }

    fn input_schema(&self) -> &Value {
        &self.0
    }

    fn is_parallel_safe(&self, _: &Value) -> bool {
        true
    }

    fn call(&self, call: ToolCall) -> BoxFuture<'_, ToolOutput> {
        Box::pin(async move {
            match call.args["n"].as_i64() {
                Some(n) => ToolOutput::text(format!("echo {n}")),
                None => ToolOutput::error("INVALID_ARGUMENTS", "n: expected an integer"),
            }
        })
    }
}

pub(crate) struct World {
    pub(crate) server: ModelServer,
    pub(crate) agent: Agent,
}

/// Quick, and without a second try.
pub(crate) fn once() -> LlmSettings {
    LlmSettings {
        retry: RetrySettings {
            max_retries: 0,
            ..RetrySettings::default()
        },
        ..LlmSettings::default()
    }
}

/// Tries again at once.
pub(crate) fn often() -> LlmSettings {
    LlmSettings {
        retry: RetrySettings {
            first_wait: Duration::from_millis(1),
            ..RetrySettings::default()
        },
        ..LlmSettings::default()
    }
}

pub(crate) fn route(provider: Provider, base_url: &str) -> Route {
    let route: Route = format!("{provider}/test-model").parse().unwrap();
    route.with_base_url(base_url).unwrap()
}

pub(crate) fn model(provider: Provider, base_url: &str, settings: LlmSettings) -> LlmModel {
    let key = provider.requires_key().then(|| ApiKey::new(KEY).unwrap());
    LlmModel::new(route(provider, base_url), key, settings).unwrap()
}

impl World {
    pub(crate) fn new(
        provider: Provider,
        settings: LlmSettings,
        rules: impl IntoIterator<Item = Rule>,
    ) -> Self {
        let server = ModelServer::start(Script::new(rules));
        let model = model(provider, &server.url("/v1"), settings);
        Self {
            agent: agent(model),
            server,
        }
    }

    /// Asks once and waits for the end of the turn.
    pub(crate) async fn ask(&self, text: &str) -> TurnEndReason {
        self.agent.followup(Message::user(text)).unwrap();
        self.agent.idle().await;
        self.agent.with_projection(|p| p.facts().end).unwrap()
    }

    pub(crate) fn text(&self) -> String {
        self.agent.with_projection(|p| p.facts().text.clone())
    }

    pub(crate) fn events(&self) -> Vec<Value> {
        let log = self.agent.host().store.read(self.agent.id()).unwrap();
        log.iter()
            .map(|stored| serde_json::to_value(&stored.event).unwrap())
            .collect()
    }

    pub(crate) fn of_type(&self, kind: &str) -> Vec<Value> {
        let events = self.events().into_iter();
        events.filter(|event| event["type"] == kind).collect()
    }

    /// What the last turn says of its failure.
    pub(crate) fn error(&self) -> String {
        let ends = self.of_type("turn/end");
        let error = ends.last().and_then(|end| end["error"].as_str());
        error.unwrap_or_default().to_owned()
    }
}

pub(crate) fn agent(model: LlmModel) -> Agent {
    let schema = json!({
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": false,
    });
    let kit = AgentKit {
        driver: Arc::new(ModelLoop::new(Arc::new(model), LoopSettings::default())),
        tools: ToolSet::new([Arc::new(Echo(schema)) as Arc<dyn Tool>]),
        prompt: Prompt::new([PromptSection::persona("You are a test.")]),
    };
    let host = AgentHost::new(Arc::new(MemoryStore::default()), AgentSettings::default());
    let agent = Agent::create(&host, None, AgentSpec::root(kit))
        .unwrap()
        .into_agent();
    agent.start();
    agent
}

/// Whether an event has this anywhere.
pub(crate) fn mentions(events: &[Value], text: &str) -> bool {
    events.iter().any(|event| event.to_string().contains(text))
}
