//! How a connection ends, and that nothing is left of it.

use offshoot_peers::Home;
use offshoot_tests::program;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::client::{Client, WHILE, home};

/// Something of everything that may run for a client: a command that is deaf, a task, a child.
fn busy(args: &[&str]) -> Client {
    let mut client = Client::new(args);
    let deaf = "trap '' TERM HUP; echo up > up; while :; do sleep 1000; done";
    client.tool("bash", json!({"command": deaf, "run_in_background": true}));
    client.tool(
        "subagent",
        json!({"description": "stuck", "prompt": "Wait."}),
    );
    client.ask_tool("bash", json!({"command": "sleep 1000"}));
    let waited = "while [ ! -e up ]; do sleep 0.05; done";
    client.tool("bash", json!({"command": waited}));
    client
}

#[test]
fn the_end_of_the_input_ends_everything() {
    let client = busy(&[]);
    client.end();
}

#[test]
fn a_signal_ends_everything() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut client = busy(&[]);
        let id = i32::try_from(client.peer.id()).ok();
        let id = id.and_then(rustix::process::Pid::from_raw).expect("an id");
        rustix::process::kill_process(id, signal).expect("a process");
        assert!(client.peer.ended(WHILE).success());
        client.home.assert_no_process_left();
    }
}

#[test]
fn a_client_that_stops_reading_and_goes_leaves_nothing() {
    let mut client = busy(&[]);
    // Far more than a pipe holds, and nobody reads it.
    for _ in 0..8 {
        let loud = json!({"command": "head -c 30000 /dev/zero | tr '\\0' x"});
        client.ask_tool("bash", loud);
    }
    client.peer.kill();
    client.home.assert_no_process_left();
}

#[test]
fn what_was_asked_before_the_end_of_the_input_is_answered() {
    let (home, script) = home();
    let mut peer = home
        .command(program())
        .args(["mcp", "--script"])
        .arg(script)
        .spawn();
    let messages = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "lines", "version": "1"},
        }}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}),
    ];
    for message in messages {
        peer.send(&message.to_string());
    }
    peer.close_input();
    let mut ids = Vec::new();
    while let Some(line) = peer.line(WHILE) {
        let message: Value = serde_json::from_str(&line).expect("JSON");
        ids.push(message["id"].clone());
    }
    assert_eq!(ids, [1, 2]);
    assert!(peer.ended(WHILE).success());
    home.assert_no_process_left();
}

#[test]
fn a_client_that_only_looks_leaves_no_session() {
    let store = Home::new();
    let folder = store.work().join("store");
    let folder = folder.to_str().expect("a path");
    let mut client = Client::new(&["--store", folder]);
    client.request("tools/list", json!({}));
    client.end();
    let sessions = store
        .command(program())
        .args(["sessions", "--json", "--store", folder]);
    assert_eq!(sessions.run(WHILE).success().trim(), "[]");
}

/// An agent behind ACP that takes its prompt and then hears nothing any more.
const DEAF_AGENT: &str = r#"#!/bin/bash
trap '' TERM HUP INT
answer() { id=${1#*\"id\":}; echo "{\"jsonrpc\":\"2.0\",\"id\":${id%%[,\}]*},\"result\":$2}"; }
read -r line; answer "$line" '{"protocolVersion":1}'
read -r line; answer "$line" '{"sessionId":"s"}'
read -r line; echo > up
while :; do sleep 1000; done
"#;

#[test]
fn an_agent_that_hears_nothing_ends_with_the_connection() {
    let (deaf, _) = home();
    let agent = deaf.folder().join("agent");
    std::fs::write(&agent, DEAF_AGENT).expect("a script");
    let config = deaf.folder().join("config.toml");
    let entry = format!(
        "[[acp]]\nname = \"deaf\"\ncommand = \"bash\"\nargs = [{agent:?}]\nexit_grace_ms = 600000\ncancel_grace_ms = 600000\n\
         [[subagent]]\ntool_name = \"ask\"\nprovider = \"deaf\"\nbackground_mode = \"one-shot\"\n"
    );
    std::fs::write(&config, entry).expect("a file");
    let mut client = Client::new(&["--config", config.to_str().expect("a path")]);
    let ask = json!({"description": "deaf", "prompt": "Go.", "run_in_background": true});
    client.tool("ask", ask);
    let waited = "while [ ! -e up ]; do sleep 0.05; done";
    client.tool("bash", json!({"command": waited}));
    let began = std::time::Instant::now();
    client.end();
    // Its own graces are ten minutes.
    let took = began.elapsed();
    assert!(took < WHILE, "{took:?}");
}

#[test]
fn a_stored_connection_goes_on_with_its_subagents() {
    let store = Home::new();
    let folder = store.work().join("store");
    let folder = folder.to_str().expect("a path");
    let mut client = Client::new(&["--store", folder]);
    let id = client.ask_tool(
        "subagent",
        json!({"description": "kept", "prompt": "Answer."}),
    );
    let child = client.answer(id)["result"]["_meta"]["offshoot/agent_id"].clone();
    let child = child.as_str().expect("an id").to_owned();
    client.tool(
        "bash",
        json!({"command": "sleep 1000", "run_in_background": true}),
    );
    client.end();
    let sessions = store
        .command(program())
        .args(["sessions", "--json", "--store", folder]);
    let sessions: Value = serde_json::from_str(&sessions.run(WHILE).success()).expect("JSON");
    let sessions = sessions.as_array().expect("sessions");
    let root = sessions.iter().find(|session| session["parent"].is_null());
    let root = root.expect("a root")["id"]
        .as_str()
        .expect("an id")
        .to_owned();

    let mut client = Client::new(&["--store", folder, "--resume", &root]);
    let said = client.tool("list_agents", json!({}));
    assert!(said[0].contains(&child), "{said:?}");
    let message = json!({"agent_id": child, "message": "And now?"});
    let said = client.tool("send_message", message);
    assert!(said[0].contains("resumed"), "{said:?}");
    client.end();
}
