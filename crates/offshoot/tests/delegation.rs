//! Delegation through the facade, with a scripted model.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use offshoot::Runtime;
use offshoot::agent::{AgentHandle, EventRecord, Message};
use offshoot::config::Config;
use offshoot::driver::ScriptedModel;
use offshoot::driver::script::{Gates, Script};

struct Played {
    runtime: Runtime,
    root: AgentHandle,
    events: Arc<Mutex<Vec<serde_json::Value>>>,
}

impl Played {
    fn texts(&self, kind: &str) -> Vec<String> {
        let events = self.events.lock().expect("the events");
        let events = events.iter().filter(|event| event["event"]["type"] == kind);
        events.map(|event| event["event"].to_string()).collect()
    }
}

/// Plays a script until its root is at rest.
async fn play(script: &str) -> Played {
    let script = Script::parse(script, "test").expect("a script");
    let model = ScriptedModel::new(&script, Gates::new());
    let runtime = Runtime::builder(Config::default()).model(Arc::new(model));
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&events);
    let observer = move |record: &EventRecord| {
        let record = serde_json::to_value(record).expect("an event");
        seen.lock().expect("the events").push(record);
    };
    let guard = runtime.events().observe(Arc::new(observer));
    let root = runtime.create_root().expect("a root");
    let prompt = script.prompt.clone().unwrap_or_default();
    root.followup(Message::user(prompt)).expect("acceptance");
    let rest = tokio::time::timeout(Duration::from_secs(20), root.rest()).await;
    if rest.is_err() {
        let events = events.lock().expect("the events");
        let lines: Vec<_> = events.iter().map(ToString::to_string).collect();
        panic!("not at rest:\n{}", lines.join("\n"));
    }
    runtime.close(&root).await;
    drop(guard);
    Played {
        runtime,
        root,
        events,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_is_told_how_its_child_ended() {
    let played = play(include_str!("../../../tests/scenarios/settlement.json")).await;
    let facts = played.root.with_projection(|p| p.facts().clone());
    assert!(facts.text.contains("CHILD_RESULT 42 KiB"), "{}", facts.text);
    assert_eq!(played.texts("subagent/settled").len(), 1);
    assert!(played.runtime.host().agents.list().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_command_is_told_as_killed() {
    let played = play(include_str!("../../../tests/scenarios/kill.json")).await;
    let facts = played.root.with_projection(|p| p.facts().clone());
    assert_eq!(
        facts.text,
        "ANSWER task bash-1 had already finished [status: killed, signal: SIGTERM]"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_waits_for_its_own_task() {
    let played = play(include_str!("../../../tests/scenarios/waiting-child.json")).await;
    let facts = played.root.with_projection(|p| p.facts().clone());
    assert!(facts.text.contains("17 files"), "{}", facts.text);
}
