//! A driver whose steps are released by the test, a host around it, and readable logs.

#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "each test file is a program of its own and uses a part of this"
)]

mod invariants;
pub mod model;
mod stage;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use offshoot_agent::{
    Agent, AgentHost, AgentId, AgentKit, AgentSettings, AgentSpec, Event, EventRecord, JsonlStore,
    MemoryStore, Message, ObserverGuard, Pending, Prompt, SessionStore, Source, StoredEvent,
    ToolSet, TurnDriver,
};

pub use invariants::{Fate, Ledger, check, check_closed};
pub use stage::{Manner, ScriptDriver, Stage, Step, stage};

/// A bound on waits for something that must happen. The clock is virtual, or the wait is short.
pub const SOON: Duration = Duration::from_secs(60);

/// A host with a recording observer, and the stage that its agents' steps appear on.
pub struct World {
    pub host: AgentHost,
    pub stage: Stage,
    pub driver: Arc<ScriptDriver>,
    pub records: Arc<Mutex<Vec<EventRecord>>>,
    _observer: ObserverGuard,
}

impl World {
    pub fn new() -> Self {
        Self::with(Manner::Polite, AgentSettings::default())
    }

    pub fn with(manner: Manner, settings: AgentSettings) -> Self {
        Self::over(Arc::new(MemoryStore::default()), manner, settings)
    }

    pub fn in_folder(folder: &Path) -> Self {
        let store = JsonlStore::open_folder(folder).expect("a store in a temporary folder");
        Self::over(Arc::new(store), Manner::Polite, AgentSettings::default())
    }

    pub fn over(store: Arc<dyn SessionStore>, manner: Manner, settings: AgentSettings) -> Self {
        let host = AgentHost::new(store, settings);
        let (driver, stage) = stage(manner);
        let records: Arc<Mutex<Vec<EventRecord>>> = Arc::default();
        let sink = Arc::clone(&records);
        let observer = host.hub.observe(Arc::new(move |record: &EventRecord| {
            sink.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(record.clone());
        }));
        Self {
            host,
            stage,
            driver: Arc::new(driver),
            records,
            _observer: observer,
        }
    }

    pub fn kit(&self) -> AgentKit {
        let driver: Arc<dyn TurnDriver> = self.driver.clone();
        kit(driver)
    }

    pub fn spec(&self) -> AgentSpec {
        AgentSpec::root(self.kit())
    }

    /// A started root agent.
    pub fn agent(&self) -> Agent {
        let agent = Agent::create(&self.host, None, self.spec())
            .expect("an agent")
            .into_agent();
        agent.start();
        agent
    }

    pub fn log(&self, agent: &Agent) -> Vec<StoredEvent> {
        self.host.store.read(agent.id()).expect("the agent's log")
    }

    /// The log as short lines, without `session/start`.
    pub fn trace(&self, agent: &Agent) -> Vec<String> {
        check(&self.log(agent));
        trace(&self.log(agent))
    }

    /// What the observer saw of the agent's status.
    pub fn statuses(&self, id: &AgentId) -> Vec<String> {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records
            .iter()
            .filter(|record| record.session == *id)
            .filter_map(|record| match &record.event {
                Event::AgentStatus { status } => Some(format!("{status:?}").to_lowercase()),
                _ => None,
            })
            .collect()
    }

    /// Closes the agent, checks its whole log, and returns what became of each message.
    pub async fn finish(&self, agent: Agent) -> Ledger {
        let report = agent.close(Pending::Keep).await;
        let dropped = self.driver.dropped() > 0;
        let clean = report.failures.is_empty() && report.holds_left == 0;
        assert!(
            clean && (dropped || report.is_clean()),
            "closing: {report:?}"
        );
        let statuses = self.statuses(agent.id());
        assert!(
            statuses.windows(2).all(|pair| pair[0] != pair[1]),
            "a status was announced twice: {statuses:?}"
        );
        assert_eq!(
            statuses[statuses.len() - 2..],
            ["closing", "closed"],
            "the last announcements"
        );
        check_closed(&self.log(&agent))
    }
}

pub fn kit(driver: Arc<dyn TurnDriver>) -> AgentKit {
    AgentKit {
        driver,
        tools: ToolSet::default(),
        prompt: Prompt::default(),
    }
}

/// A human's message whose id is its text, so that logs read well.
pub fn user(name: &str) -> Message {
    message(Source::user(), name)
}

/// Another agent's message.
pub fn from_agent(name: &str) -> Message {
    let sender: AgentId = "other".parse().expect("an id");
    message(Source::agent(&sender, 0), name)
}

/// A notice of the runtime with this generation.
pub fn notice(name: &str, generation: u64) -> Message {
    message(
        Source::new("task", generation).with("task_id", "shell-1"),
        name,
    )
}

pub fn message(source: Source, name: &str) -> Message {
    let mut message = Message::text(source, name);
    message.id = name.parse().expect("a name that can be an id");
    message
}

pub fn trace(events: &[StoredEvent]) -> Vec<String> {
    events
        .iter()
        .filter(|stored| !matches!(stored.event, Event::SessionStart(_)))
        .map(|stored| line(&stored.event))
        .collect()
}

fn name(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).expect("a plain value");
    value.as_str().unwrap_or_default().to_owned()
}

/// One event as one short line.
pub fn line(event: &Event) -> String {
    match event {
        Event::InboxInserted {
            target,
            wake,
            message,
            before,
            passive,
        } => {
            let quiet = match (wake, passive) {
                (true, _) => "",
                (false, false) => " quiet",
                (false, true) => " passive",
            };
            let before = before
                .as_ref()
                .map_or(String::new(), |before| format!(" before {before}"));
            format!("insert {} {}{quiet}{before}", message.id, name(target))
        }
        Event::InboxMoved {
            message_id,
            target,
            before,
        } => {
            let before = before
                .as_ref()
                .map_or(String::new(), |before| format!(" before {before}"));
            format!("move {message_id} {}{before}", name(target))
        }
        Event::InboxClaimed {
            message_id,
            turn,
            step,
        } => format!("claim {message_id} {turn}/{step}"),
        Event::InboxDiscarded { message_id, cause } => format!("discard {message_id} {cause}"),
        Event::TurnStart { turn, generation } => format!("turn {turn} g{generation}"),
        Event::StepStart { turn, step } => format!("step {turn}/{step}"),
        Event::StepEnd { turn, step } => format!("end step {turn}/{step}"),
        Event::MessageUser { message, .. } => format!("read {}", message.id),
        Event::MessageAssistant { message, .. } => format!("say {}", message.text),
        Event::ToolCall { call_id, .. } => format!("call {call_id}"),
        Event::ToolResult { result, .. } => format!(
            "result {}{}",
            result.call_id,
            result
                .code
                .as_ref()
                .map_or(String::new(), |code| format!(" {code}"))
        ),
        Event::TurnEnd {
            turn,
            reason,
            cause,
            ..
        } => {
            let cause = cause
                .as_ref()
                .map_or(String::new(), |cause| format!(" {cause}"));
            format!("end turn {turn} {}{cause}", name(reason))
        }
        Event::SessionStart(start) => format!("session resumed={}", start.resumed),
        Event::AgentStopped { cause } => format!("stopped by {cause}"),
        Event::AgentStatus { status } => format!("status {}", name(status)),
        Event::Extension(extension) => format!("extension {}", extension.kind),
        other => format!("{other:?}"),
    }
}

/// Runs `future` to its end, which must come.
pub async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(SOON, future).await {
        Ok(output) => output,
        Err(_) => panic!("never came: {what}"),
    }
}

pub fn result_of(id: &str) -> offshoot_agent::ToolResultRecord {
    stage::result(id)
}

pub fn call_of(id: &str) -> offshoot_agent::CallRequest {
    stage::call(id)
}

pub fn reply_of(text: &str, finish: offshoot_agent::Finish) -> offshoot_agent::AssistantMessage {
    stage::reply(text, &[], finish)
}
