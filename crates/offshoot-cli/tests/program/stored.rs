//! Durable sessions: crash, resume, listing, a full disk.

use serde_json::{Value, json};

use crate::support::{Place, Stream};

fn listed(place: &Place) -> Vec<Value> {
    let output = place
        .offshoot(&["sessions", "--store", "store", "--json"])
        .output()
        .expect("the program");
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("an array")
}

#[test]
fn after_a_crash_the_resumed_root_is_told_of_the_lost_child_and_task() {
    let place = Place::new();
    let crashed = place.events(
        json!({"prompt": "one", "agents": {
            "root": [
                {"calls": [
                    {"name": "subagent", "args": {"description": "c", "prompt": "p"}},
                    {"name": "bash", "args": {"command": "sleep 5", "run_in_background": true}}]},
                {"text": "a"}],
            "c": [{"hang": true}]},
            "inputs": [
                {"at": {"idle": "root"}, "to": "root", "mode": "inject", "text": "kept"},
                {"at": {"idle": "root"}, "mode": "crash"}]}),
        &["--store", "store"],
    );
    assert_eq!(crashed.code, Some(86), "{}", crashed.stderr);
    assert_eq!(crashed.result, Value::Null);
    // What was handed out before the crash was printed; what was accepted after is in the store.
    let idle = crashed.events.last().expect("an event");
    assert_eq!(idle["event"]["status"], "idle");
    let root = crashed.events[0]["session"]
        .as_str()
        .expect("an id")
        .to_owned();
    let statuses: Vec<_> = listed(&place).iter().map(|s| s["status"].clone()).collect();
    assert_eq!(statuses, ["interrupted", "interrupted"]);

    let resumed = place.events(
        json!({"agents": {"root": [{"text": "told", "repeat": "forever"}]}}),
        &["--store", "store", "--resume", &root],
    );
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    assert_eq!(resumed.kind("subagent/settled")[0]["outcome"], "lost");
    assert_eq!(resumed.kind("task/settled")[0]["status"], "failed");
    assert!(resumed.asked("root").contains(&"kept"));
    assert_eq!(resumed.result["session"], root.as_str());

    let again = place.events(
        json!({"agents": {"root": [{"text": "x"}]}}),
        &["--store", "store", "--resume", &root],
    );
    // Nothing is left to do: the run follows the session's last turn.
    assert_eq!(
        (again.code, &again.result["text"]),
        (Some(0), &json!("told"))
    );
    assert!(again.kind("turn/start").is_empty());
}

#[test]
fn a_prompt_is_added_to_a_resumed_session() {
    let place = Place::new();
    let script = json!({"agents": {"root": [{"text": "echo ${last_message}"}]}});
    let first = place.events(script.clone(), &["one", "--store", "store"]);
    let root = first.result["session"].as_str().expect("an id").to_owned();
    let second = place.events(script, &["two", "--store", "store", "--resume", &root]);
    assert_eq!(second.result["text"], "echo two");
    assert_eq!(second.events[0]["event"]["resumed"], true);
    assert_eq!(second.result["usage"]["input"], 10);
    let sessions = listed(&place);
    assert_eq!(sessions.len(), 1);
    assert_eq!(
        (&sessions[0]["turns"], &sessions[0]["status"]),
        (&json!(2), &json!("completed"))
    );
}

#[test]
fn sessions_are_a_tree_and_damage_is_shown() {
    let place = Place::new();
    let run = place.events(
        json!({"prompt": "one", "agents": {
            "root": [
                {"calls": [{"name": "subagent", "args": {"description": "c", "prompt": "p"}}]},
                {"text": "a", "open": ["go"]}, {"text": "b"}],
            "c": [{"await": ["go"], "text": "xyz"}]}}),
        &["--store", "store"],
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    std::fs::write(place.path("store/damaged.jsonl"), "no header\n").expect("a file");
    let sessions = listed(&place);
    let root = sessions
        .iter()
        .find(|s| s["label"] == "root")
        .expect("the root");
    let child = sessions
        .iter()
        .find(|s| s["label"] == "c")
        .expect("the child");
    assert_eq!(root["parent"], Value::Null);
    assert_eq!(child["parent"], root["id"]);
    assert_eq!(
        (&root["mode"], &child["mode"]),
        (&json!("root"), &json!("continuable"))
    );
    assert_eq!(child["status"], "completed");
    assert_eq!(child["turns"], 1);
    let log = std::fs::metadata(place.path(&format!(
        "store/{}.jsonl",
        child["id"].as_str().expect("an id")
    )));
    assert_eq!(child["bytes"], log.expect("a log").len());
    let last = run
        .events
        .iter()
        .rev()
        .find(|line| line["label"] == "c" && line.get("seq").is_some());
    assert_eq!(child["last_activity"], last.expect("an event")["time"]);
    assert_eq!(child["usage"]["output"], 3);
    assert_eq!(root["usage"]["total_output"], 1 + 1 + 3);
    assert!(
        sessions
            .iter()
            .any(|s| s["status"] == "damaged" && s["error"].is_string())
    );
    let output = place
        .offshoot(&["sessions", "--store", "store"])
        .output()
        .expect("the program");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        text.contains("damaged") && text.contains("  continuable  completed"),
        "{text}"
    );

    let id = child["id"].as_str().expect("an id");
    let script = place.path("script.json").display().to_string();
    let args = [
        "run", "--script", &script, "--store", "store", "--resume", id,
    ];
    let refused = place.offshoot(&args).output().expect("the program");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("expected a root session"));
}

#[test]
fn a_full_disk_is_an_error_that_names_the_file() {
    // /dev/full takes nothing: a stdout that cannot be written to.
    let place = Place::new();
    let script = place.script(json!({"prompt": "hi", "agents": {"root": [{"text": "a"}]}}));
    for json in [&["--json"][..], &[]] {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .expect("/dev/full");
        let args = [&["run", "--script", &script], json].concat();
        let output = place
            .offshoot(&args)
            .stdout(full)
            .output()
            .expect("the program");
        assert_eq!(output.status.code(), Some(1));
        let run = Stream::of(&output);
        assert!(
            run.stderr.contains("stdout: No space left"),
            "{}",
            run.stderr
        );
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    }
}

#[test]
fn a_log_that_cannot_grow_ends_the_run_with_its_place_and_loses_nothing() {
    let place = Place::new();
    let script = place.script(json!({"prompt": "hi", "agents": {"root": [
        {"text": "x".repeat(100_000), "calls": [{"name": "task_list", "args": {}}]}, {"text": "b"}]}}));
    // As on a full disk, a write fails; the file may have 16 or 32 KiB.
    let limited = format!(
        "ulimit -f 32; exec {} run --json --store store --script {script}",
        env!("CARGO_BIN_EXE_offshoot")
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &limited])
        .current_dir(place.path(""))
        .output()
        .expect("sh");
    let run = Stream::of(&output);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert_eq!(run.result["outcome"], "error");
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    assert!(
        run.stderr.contains("store/") && run.stderr.contains("File too large"),
        "{}",
        run.stderr
    );
    let root = run.result["session"].as_str().expect("an id");
    let log = std::fs::read_to_string(place.path(&format!("store/{root}.jsonl"))).expect("a log");
    let logged = log.lines().skip(1).count();
    let printed = run
        .events
        .iter()
        .filter(|line| line.get("seq").is_some())
        .count();
    assert_eq!(
        logged, printed,
        "what was printed was accepted, and the other way round"
    );
}

#[test]
fn a_torn_last_line_is_cut_off_and_reported_for_a_root_and_for_a_child() {
    let place = Place::new();
    let run = place.events(
        json!({"prompt": "one", "agents": {
            "root": [
                {"calls": [{"name": "subagent", "args": {"description": "c", "prompt": "p"}}]},
                {"text": "a", "open": ["go"]}, {"text": "b"}],
            "c": [{"await": ["go"], "text": "xyz"}]}}),
        &["--store", "store"],
    );
    let root = run.result["session"].as_str().expect("an id").to_owned();
    let child = run.kind("subagent/started")[0]["child"].as_str();
    let child = child.expect("an id").to_owned();
    for (id, torn) in [(&root, "{\"seq\":99,\"ti"), (&child, "{\"x")] {
        let path = place.path(&format!("store/{id}.jsonl"));
        let mut log = std::fs::read_to_string(&path).expect("a log");
        log.push_str(torn);
        std::fs::write(path, log).expect("a file");
    }
    let sessions = listed(&place);
    let torn: Vec<_> = sessions.iter().map(|s| s["torn_bytes"].clone()).collect();
    assert_eq!(torn, [13, 3]);
    let output = place
        .offshoot(&["sessions", "--store", "store"])
        .output()
        .expect("the program");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("(its last line is torn: 13 bytes)"), "{text}");

    let resume = |inputs: Value| {
        place.events(
            json!({"agents": {"root": [{"text": "x", "repeat": "forever"}], "c": [{"text": "y"}]}, "inputs": inputs}),
            &["two", "--store", "store", "--resume", &root, "--timeout", "20"],
        )
    };
    let again = json!([{"at": {"idle": "root"}, "to": "c", "mode": "followup", "text": "again"}]);
    let resumed = resume(again);
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    let note = |id: &str, bytes: u64| {
        format!("offshoot: session {id}: the last line was torn, its {bytes} bytes were cut off\n")
    };
    let notes = note(&root, 13) + &note(&child, 3);
    assert_eq!(resumed.stderr, notes);
    assert_eq!(resume(json!([])).stderr, "");
    assert!(listed(&place).iter().all(|s| s.get("torn_bytes").is_none()));
}
