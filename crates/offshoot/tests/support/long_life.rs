//! A session whose agent has had very many tasks and runs, which are all over.

#![allow(
    unreachable_pub,
    clippy::expect_used,
    reason = "shared by a test and a bench"
)]

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use offshoot::Runtime;
use offshoot::agent::{AgentId, Message};
use offshoot::config::ConfigLayers;
use offshoot::driver::script::{Gates, Script};
use offshoot::driver::{Model, ScriptedModel};
use serde_json::Value;

const SCRIPT: &str = r#"{"prompt": "one", "agents": {
    "root": [
        {"calls": [{"name": "subagent", "args":
            {"description": "c", "prompt": "p", "run_in_background": true}}]},
        {"calls": [{"name": "task_output", "args": {"task_id": "subagent-1", "wait": true}}]},
        {"text": "root", "repeat": "forever"}],
    "c": [{"text": "child"}]}}"#;

/// The configuration under which a delegation in the background is a task.
const CONFIG: &str = "[[subagent]]\ntool_name = \"subagent\"\nprovider = \"spawn\"\nbackground_mode = \"one-shot\"\n";

/// A runtime that keeps its sessions below this folder, and whose model has nothing to say.
pub fn runtime(folder: &Path) -> Runtime {
    let model = offshoot::model(|_| async { Ok(offshoot::say("")) });
    with(folder, model)
}

fn with(folder: &Path, model: Arc<dyn Model>) -> Runtime {
    let layers = ConfigLayers::new().toml("a test", CONFIG);
    let config = layers
        .and_then(|layers| layers.build())
        .expect("a configuration");
    let builder = Runtime::builder(config).cwd(folder);
    let builder = builder.sessions_in(folder.join("store")).expect("a store");
    builder.model(model)
}

/// The session of a root that has had a one-shot run as a background task again and again, until its log is
/// of this size, and how many there were.
pub async fn lived(folder: &Path, bytes: u64) -> (AgentId, u64) {
    let script = Script::parse(SCRIPT, "a script").expect("a script");
    let runtime = with(folder, Arc::new(ScriptedModel::new(&script, Gates::new())));
    let root = runtime.create_root().expect("a root");
    root.followup(Message::user("one")).expect("acceptance");
    let rest = tokio::time::timeout(Duration::from_secs(60), root.rest()).await;
    rest.expect("it comes to rest");
    runtime.close(&root).await;
    let id = root.id().clone();
    let path = folder.join("store").join(format!("{id}.jsonl"));
    let log = std::fs::read_to_string(&path).expect("the log");
    let lines = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let lines: Vec<_> = lines.collect();
    let is_of = |line: &&Value| {
        let kind = line["event"]["type"].as_str().unwrap_or_default();
        kind.starts_with("task/") || kind.starts_with("subagent/")
    };
    let past: Vec<_> = lines.iter().filter(is_of).cloned().collect();
    assert_eq!(past.len(), 4, "{past:?}");
    let mut seq = lines.last().expect("a line")["seq"]
        .as_u64()
        .expect("a number");
    let mut size = log.len() as u64;
    let file = File::options().append(true).open(&path).expect("the log");
    let mut file = BufWriter::new(file);
    let mut count = 1;
    while size < bytes {
        count += 1;
        for line in &past {
            seq += 1;
            let mut line = line.clone();
            line["seq"] = seq.into();
            // In the order of their making, as ids are.
            for (field, id) in [
                ("task_id", format!("subagent-{count}")),
                ("run_id", format!("zzzzzzzzzzzzzzzz{count:010}")),
                ("child", format!("zzzzzzzzzzzzzzzy{count:010}")),
            ] {
                if let Some(value) = line["event"].get_mut(field) {
                    *value = id.into();
                }
            }
            let text = format!("{line}\n");
            file.write_all(text.as_bytes()).expect("a line");
            size += text.len() as u64;
        }
    }
    file.flush().expect("the log");
    (id, count)
}

/// The most memory that this process ever had, in KiB.
pub fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let size = line.and_then(|line| line.split_whitespace().next());
    size.and_then(|size| size.parse().ok()).unwrap_or(0)
}
