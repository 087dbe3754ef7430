//! Subagents that are other programs.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Place, Stream};

/// A parent that asks one program and repeats what came back.
fn asks(process: Value, call: Value) -> Value {
    json!({
        "config": {
            "process": [process],
            "subagent": [{ "provider": "cli", "background_mode": "one-shot" }]
        },
        "prompt": "Ask.",
        "agents": { "root": [
            { "calls": [{ "name": "subagent", "args": call }] },
            { "text": "${last_result}" },
            { "text": "${last_notice}" }
        ]}
    })
}

fn of<'a>(stream: &'a Stream, kind: &str) -> Vec<&'a Value> {
    let events = stream.events.iter().map(|line| &line["event"]);
    events.filter(|event| event["type"] == kind).collect()
}

#[test]
fn a_program_answers_a_call_in_the_foreground() {
    let place = Place::new();
    let process = json!({ "name": "cli", "command": "cat" });
    let call = json!({ "description": "echo", "prompt": "Say this." });
    let stream = place.events(asks(process, call), &[]);
    assert_eq!(stream.code, Some(0), "{}", stream.stderr);
    assert_eq!(stream.result["text"], "Say this.");
    let started = of(&stream, "subagent/started");
    let settled = of(&stream, "subagent/settled");
    assert_eq!((started.len(), settled.len()), (1, 1));
    assert_eq!(started[0]["provider"], "cli");
    assert_eq!(settled[0]["outcome"], "completed");
    assert_eq!(settled[0]["child"], started[0]["child"]);
}

#[test]
fn a_program_in_the_background_is_a_task_with_one_notice() {
    let place = Place::new();
    let process = json!({
        "name": "cli", "command": "sh", "args": ["-c", "echo \"{\\\"a\\\": {\\\"b\\\": \\\"found\\\"}}\"; pwd >here"],
        "answer": "a.b", "cwd": "sub"
    });
    std::fs::create_dir(place.path("sub")).expect("a folder");
    let call = json!({ "description": "look", "prompt": "Look.", "run_in_background": true });
    let stream = place.events(asks(process, call), &[]);
    assert_eq!(stream.code, Some(0), "{}", stream.stderr);
    assert_eq!(of(&stream, "task/settled")[0]["status"], "completed");
    assert!(
        stream.result["text"]
            .as_str()
            .expect("a text")
            .contains("found"),
        "{}",
        stream.result
    );
    assert!(place.path("sub/here").exists(), "it ran in its folder");
}

#[test]
fn a_program_that_fails_or_is_missing_is_an_error_of_the_call_alone() {
    let place = Place::new();
    for (process, part) in [
        (json!({ "name": "cli", "command": "false" }), "exit code: 1"),
        (
            json!({ "name": "cli", "command": "no-such-program-anywhere" }),
            "cannot start no-such-program-anywhere",
        ),
        (
            json!({ "name": "cli", "command": "sleep", "args": ["1000000"], "timeout_ms": 50 }),
            "deadline exceeded (0.05 s)",
        ),
    ] {
        let call = json!({ "description": "try", "prompt": "Try." });
        let stream = place.events(asks(process, call), &[]);
        assert_eq!(stream.code, Some(0), "{}", stream.stderr);
        let text = stream.result["text"].as_str().expect("a text");
        assert!(text.contains(part), "expected {part:?} in {text}");
    }
}

#[test]
fn a_secret_that_a_program_may_see_is_in_no_diagnostic() {
    let place = Place::new();
    for given in ["env", "env_allow"] {
        let mut process = json!({
            "name": "cli", "command": "sh", "args": ["-c", "echo \"bad key $OUR_API_KEY\" >&2; exit 3"]
        });
        process[given] = match given {
            "env" => json!({ "OUR_API_KEY": "k-12345" }),
            _ => json!(["OUR_API_KEY"]),
        };
        let call = json!({ "description": "try", "prompt": "Try." });
        let script = place.script(asks(process, call));
        let mut command = place.offshoot(&["run", "--json", "--script", &script]);
        let output = command.env("OUR_API_KEY", "k-12345").output();
        let stream = Stream::of(&output.expect("the program"));
        let text = stream.result["text"].as_str().expect("a text");
        assert!(text.contains("bad key [OUR_API_KEY]"), "{given}: {text}");
        assert!(!format!("{stream:?}").contains("k-12345"), "{given}");
    }
}

#[test]
fn no_program_is_left_when_the_run_is_killed() {
    let place = Place::new();
    let process = json!({
        "name": "cli", "command": "sh",
        "args": ["-c", "echo $$ >new; mv new pid; exec sleep 1000000"]
    });
    let call = json!({ "description": "sleep", "prompt": "Sleep." });
    let script = place.script(asks(process, call));
    let mut run = place
        .offshoot(&["run", "--script", &script])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program");
    let pid = until(|| std::fs::read_to_string(place.path("pid")).ok());
    run.kill().expect("a kill");
    run.wait().expect("an end");
    let process = format!("/proc/{}/stat", pid.trim());
    until(|| {
        let stat = std::fs::read_to_string(&process).unwrap_or_default();
        let state = stat.rsplit_once(") ").map_or("Z", |(_, rest)| &rest[..1]);
        matches!(state, "Z" | "X").then_some(())
    });
}

fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    for _ in 0..6000 {
        if let Some(found) = found() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it did not come in time")
}

/// Answers each message as far as an agent must.
const AGENT: &str = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    result = {"initialize": {"protocolVersion": 1}, "session/new": {"sessionId": "s"}}.get(method)
    if method == "session/prompt":
        content = {"type": "text", "text": "you said: " + message["params"]["prompt"][0]["text"]}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        print(json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}}))
        result = {"stopReason": "end_turn", "usage": {"inputTokens": 4, "outputTokens": 2}}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

#[test]
fn an_external_agent_answers_and_its_tokens_are_counted() {
    let place = Place::new();
    let agent = place.file("agent.py", AGENT);
    let script = json!({
        "config": {
            "acp": [{ "name": "peer", "command": "python3", "args": [agent] }],
            "subagent": [{ "provider": "peer", "background_mode": "one-shot" }]
        },
        "prompt": "Ask.",
        "agents": { "root": [
            { "calls": [{ "name": "subagent", "args": { "description": "ask", "prompt": "Hi." } }] },
            { "text": "${last_result}" }
        ]}
    });
    let stream = place.events(script, &[]);
    assert_eq!(stream.code, Some(0), "{}", stream.stderr);
    assert_eq!(stream.result["text"], "you said: Hi.");
    let settled = of(&stream, "subagent/settled");
    assert_eq!(settled[0]["usage"]["total_output"], 2);
}

#[test]
fn a_chain_of_programs_ends_at_the_limit_of_one() {
    let place = Place::new();
    // Each asks a further run of the same script.
    let script = place.path("script.json");
    let program = env!("CARGO_BIN_EXE_offshoot");
    let process = json!({
        "name": "again", "command": program, "args": ["run", "--script", script, "--quiet"], "timeout_ms": 60000
    });
    let text = json!({
        "config": {
            "process": [process],
            "subagent": [{ "provider": "again", "background_mode": "one-shot" }],
            "limits": { "max_depth": 2 }
        },
        "prompt": "Ask.",
        "agents": { "root": [
            { "calls": [{ "name": "bash", "args": { "command": "echo x >>levels" } }] },
            { "calls": [{ "name": "subagent", "args": { "description": "again", "prompt": "Again." } }] },
            { "text": "(${last_result})" }
        ]}
    });
    std::fs::write(&script, text.to_string()).expect("a script");
    let script = script.to_str().expect("a path").to_owned();
    let run = place
        .offshoot(&["run", "--script", &script])
        .output()
        .expect("the program");
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    let levels = std::fs::read_to_string(place.path("levels")).expect("a file");
    assert_eq!(levels.lines().count(), 3, "itself and two below: {said}");
    // The last has nothing to ask with.
    assert!(said.contains("unknown tool `subagent`"), "{said}");
    let mut odd = place.offshoot(&["run", "--script", &script]);
    let odd = odd
        .env("OFFSHOOT_DEPTH", "deep")
        .output()
        .expect("the program");
    assert_eq!(odd.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&odd.stderr).contains("OFFSHOOT_DEPTH: expected a whole number")
    );
}
