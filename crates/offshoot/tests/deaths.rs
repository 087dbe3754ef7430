//! A process that dies again and again, also while it tells what the one before left behind.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use offshoot::Runtime;
use offshoot::agent::{AgentHandle, AgentId, Message};
use offshoot::config::ConfigLayers;
use offshoot::driver::ScriptedModel;
use offshoot::driver::script::{Gates, Script};
use serde_json::Value;

const FIRST: &str = r#"{"prompt": "one", "agents": {
    "root": [
        {"calls": [
            {"name": "bash", "args": {"command": "echo a", "run_in_background": true}},
            {"name": "subagent", "args":
                {"description": "back", "prompt": "p", "run_in_background": true}},
            {"name": "subagent", "args": {"description": "c", "prompt": "p", "run_in_background": false}},
            {"name": "subagent", "args": {"description": "d", "prompt": "p", "run_in_background": false}}]},
        {"text": "root", "repeat": "forever"}],
    "*": [{"text": "child", "repeat": "forever"}]}}"#;

const NEXT: &str = r#"{"prompt": "two", "agents": {
    "root": [{"text": "went on", "repeat": "forever"}],
    "*": [{"text": "child", "repeat": "forever"}]}}"#;

fn runtime(folder: &Path, mode: &str, script: &str) -> Runtime {
    let config = format!(
        "[[subagent]]\ntool_name = \"subagent\"\nprovider = \"spawn\"\nbackground_mode = \"{mode}\"\n"
    );
    let layers = ConfigLayers::new().toml("a test", &config);
    let config = layers.and_then(|layers| layers.build());
    let script = Script::parse(script, "test").expect("a script");
    let model = ScriptedModel::new(&script, Gates::new());
    let builder = Runtime::builder(config.expect("a configuration")).cwd(folder);
    let builder = builder.sessions_in(folder.join("store")).expect("a store");
    builder.model(Arc::new(model))
}

async fn rest(runtime: &Runtime, root: &AgentHandle) {
    let rest = tokio::time::timeout(Duration::from_secs(60), root.rest()).await;
    rest.expect("it comes to rest");
    runtime.close(root).await;
}

type Files = BTreeMap<String, String>;

fn files(folder: &Path) -> Files {
    let files = std::fs::read_dir(folder.join("store")).expect("the store");
    let files = files.map(|file| file.expect("a file").path());
    let files = files.map(|path| {
        let name = path.file_name().expect("a name").to_string_lossy();
        (
            name.into_owned(),
            std::fs::read_to_string(&path).expect("a log"),
        )
    });
    files.collect()
}

/// The store after a process has gone on with the root in it, and died behind this line of the root's log.
async fn gone_on(mut stored: Files, mode: &str, root: &AgentId, lines: usize) -> Files {
    let log = stored
        .get_mut(&format!("{root}.jsonl"))
        .expect("the root's log");
    *log = log.split_inclusive('\n').take(lines).collect();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("store")).expect("a folder");
    for (name, content) in &stored {
        std::fs::write(folder.path().join("store").join(name), content).expect("a log");
    }
    let runtime = runtime(folder.path(), mode, NEXT);
    let root = runtime.resume_root(root).expect("the session");
    rest(&runtime, &root).await;
    files(folder.path())
}

/// How often an agent was told of each task and each run that it was not told of as the result of a call.
fn told(log: &str) -> BTreeMap<String, usize> {
    let mut told = BTreeMap::new();
    for line in log.lines().skip(1) {
        let event = &serde_json::from_str::<Value>(line).expect("JSON")["event"];
        let source = &event["message"]["source"];
        let (of, by) = match event["type"].as_str().unwrap_or_default() {
            "task/started" => (&event["task_id"], 0),
            "subagent/started" if event["task_id"].is_null() => (&event["run_id"], 0),
            "inbox/inserted" if source["kind"] == "task" => (&source["task_id"], 1),
            "inbox/inserted" if source["kind"] == "settled" => (&source["run_id"], 1),
            _ => continue,
        };
        let of = of.as_str().expect("a name").to_owned();
        *told.entry(of).or_default() += by;
    }
    told
}

#[tokio::test]
async fn each_task_and_run_that_was_cut_is_told_once_wherever_the_next_process_dies() {
    for mode in ["one-shot", "continuable"] {
        let folder = tempfile::tempdir().expect("a folder");
        let runtime = runtime(folder.path(), mode, FIRST);
        let root = runtime.create_root().expect("a root");
        root.followup(Message::user("one")).expect("acceptance");
        rest(&runtime, &root).await;
        let (id, stored) = (root.id().clone(), files(folder.path()));
        let name = format!("{id}.jsonl");
        // The first death is in the middle of everything: nothing that was started has ended.
        let log: Vec<_> = stored[&name].lines().collect();
        let is_end = |line: &&str| {
            let ends = [
                "/settled\"",
                "\"tool/result\"",
                "\"kind\":\"task\"",
                "\"kind\":\"settled\"",
            ];
            ends.iter().any(|end| line.contains(end))
        };
        let cut: Vec<_> = log
            .iter()
            .take_while(|line| !line.contains("\"step/end\""))
            .collect();
        let mut seq = 0;
        let mut first = String::new();
        for line in cut.into_iter().filter(|line| !is_end(line)) {
            let mut line: Value = serde_json::from_str(line).expect("JSON");
            if line["seq"].is_u64() {
                line["seq"] = seq.into();
                seq += 1;
            }
            first += &format!("{line}\n");
        }
        let started = first.matches("/started\"").count();
        assert!(started >= 4, "{first}");
        let mut stored = stored;
        stored.insert(name.clone(), first.clone());
        let from = first.lines().count();
        let second = gone_on(stored, mode, &id, from).await;
        let lines = second[&name].lines().count();
        let all = told(&second[&name]);
        assert!(all.values().all(|times| *times == 1), "{mode}: {all:?}");
        for at in from..=lines {
            let third = gone_on(second.clone(), mode, &id, at).await;
            assert_eq!(
                told(&third[&name]),
                all,
                "{mode}, behind line {at} of {lines}"
            );
        }
    }
}
