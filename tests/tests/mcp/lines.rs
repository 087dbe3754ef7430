//! What a client may send wrong: each has a clear answer, and the session goes on.

use serde_json::{Value, json};

use crate::client::{Client, modern, texts};

#[track_caller]
fn assert_error(answer: &Value, code: i64, words: &str) {
    assert_eq!(answer["error"]["code"], code, "{answer}");
    let message = answer["error"]["message"].as_str().expect("a message");
    assert!(message.contains(words), "{answer}");
}

#[track_caller]
fn assert_usable(client: &mut Client) {
    let said = client.tool("bash", json!({"command": "echo still here"}));
    assert_eq!(said, ["still here\n[status: completed, exit code: 0]"]);
}

#[test]
fn the_tools_are_those_of_the_committed_snapshots() {
    let mut client = Client::new(&[]);
    let answer = client.request("tools/list", json!({}));
    let listed = answer["result"]["tools"].as_array().expect("tools").clone();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/mcp");
    let files = std::fs::read_dir(folder).expect("the snapshots");
    let mut count = 0;
    for file in files {
        let text = std::fs::read_to_string(file.expect("a file").path()).expect("a snapshot");
        let snapshot: Value = serde_json::from_str(&text).expect("JSON");
        assert!(listed.contains(&snapshot), "{snapshot} in {listed:?}");
        count += 1;
    }
    assert_eq!(listed.len(), count);
    client.end();
}

#[test]
fn nothing_that_comes_before_the_handshake_ends_the_session() {
    let mut client = Client::silent(&[]);
    client.notify("notifications/initialized", json!({}));
    client.notify("notifications/cancelled", json!({"requestId": 7}));
    client.send(&json!({"jsonrpc": "2.0", "id": 5, "result": {}}));
    let answer = client.request("no/such/method", json!({}));
    assert!(answer["error"]["code"].is_i64(), "{answer}");
    let answer = client.request("tools/list", json!({}));
    assert!(answer["error"]["code"].is_i64(), "{answer}");
    let answer = client.request("ping", json!({}));
    assert_eq!(answer["result"], json!({}));
    let info = client.initialize();
    assert_eq!(info["protocolVersion"], "2025-11-25");
    assert_eq!(info["serverInfo"]["name"], "offshoot");
    assert_usable(&mut client);
    client.end();
}

#[test]
fn both_generations_are_negotiated() {
    let mut client = Client::silent(&[]);
    let found = client.request("server/discover", json!({"_meta": modern(json!({}))}));
    let versions = found["result"]["supportedVersions"].as_array();
    let versions = versions.expect("versions").clone();
    assert!(versions.contains(&json!("2026-07-28")), "{found}");
    assert!(versions.contains(&json!("2025-11-25")), "{found}");
    let listed = client.request("tools/list", json!({"_meta": modern(json!({}))}));
    assert_eq!(listed["result"]["resultType"], "complete", "{listed}");
    let params = json!({
        "name": "bash", "arguments": {"command": "echo modern"}, "_meta": modern(json!({})),
    });
    let answer = client.request("tools/call", params);
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    client.end();
    let mut client = Client::silent(&[]);
    let params = json!({
        "protocolVersion": "1999-01-01",
        "capabilities": {},
        "clientInfo": {"name": "old", "version": "1"},
    });
    let answer = client.request("initialize", params);
    assert!(answer["result"]["protocolVersion"].is_string(), "{answer}");
    client.end();
}

#[test]
fn a_line_that_is_no_message_is_answered_without_repeating_it() {
    let mut client = Client::new(&[]);
    for (line, code, words) in [
        ("garbage", -32700, "not JSON"),
        ("{\"secret\": \"hunter2\"", -32700, "not JSON"),
        ("[]", -32600, "batches"),
        ("5", -32600, "batches"),
        (
            "{\"id\": 1, \"method\": \"ping\"}",
            -32600,
            "\"jsonrpc\": \"2.0\"",
        ),
        (
            "{\"jsonrpc\": \"2.0\", \"id\": null, \"method\": \"ping\"}",
            -32600,
            "an id",
        ),
        (
            "{\"jsonrpc\": \"2.0\", \"id\": {}, \"method\": \"ping\"}",
            -32600,
            "an id",
        ),
        (
            "{\"jsonrpc\": \"2.0\", \"method\": 5, \"secret\": \"hunter2\"}",
            -32600,
            "expected",
        ),
    ] {
        client.peer.send(line);
        let answer = client.wait_for(|message| message["error"].is_object());
        assert_error(&answer, code, words);
        assert!(!answer.to_string().contains("hunter2"), "{answer}");
    }
    client.peer.write(b"\xff\xfe\n").expect("it reads");
    let answer = client.wait_for(|message| message["error"].is_object());
    assert_error(&answer, -32700, "not JSON");
    let nested = "[".repeat(100_000);
    client.peer.send(&nested);
    let answer = client.wait_for(|message| message["error"].is_object());
    assert_error(&answer, -32700, "not JSON");
    assert_usable(&mut client);
    client.end();
}

#[test]
fn a_blank_line_is_no_message_and_has_no_answer() {
    let mut client = Client::new(&[]);
    client.peer.write(b"\n \t\r\n\r\n\n").expect("it reads");
    client.ask("ping", json!({}));
    assert_eq!(client.message()["result"], json!({}));
    client.end();
}

#[test]
fn a_line_that_is_too_long_is_skipped_and_answered() {
    let mut client = Client::new(&[]);
    let piece = vec![b'x'; 1024 * 1024];
    for _ in 0..6 {
        client.peer.write(&piece).expect("it reads");
    }
    client.peer.send("");
    let answer = client.wait_for(|message| message["error"].is_object());
    assert_error(&answer, -32600, "too long: expected at most 4194304 bytes");
    assert_usable(&mut client);
    client.end();
}

#[test]
fn wrong_parameters_and_unknown_names_are_told() {
    let mut client = Client::new(&[]);
    let answer = client.request("no/such/method", json!({}));
    assert_error(&answer, -32601, "unknown method `no/such/method`");
    let answer = client.request("tools/call", json!({"name": 5}));
    assert_error(&answer, -32602, "expected name (a text)");
    let answer = client.request("tools/call", json!({"name": "bash", "arguments": [1]}));
    assert_error(&answer, -32602, "arguments (an object)");
    let answer = client.request("tools/call", json!({"name": "frobnicate", "arguments": {}}));
    assert_error(
        &answer,
        -32602,
        "unknown tool `frobnicate`; the tools are: ",
    );
    let answer = client.request("tools/list", json!({"cursor": "x"}));
    assert_error(&answer, -32602, "unknown cursor");
    let id = client.ask_tool("bash", json!({"command": 5}));
    let answer = client.answer(id);
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert_eq!(
        answer["result"]["content"][0]["text"],
        "Error: invalid arguments: command: expected a command line, got 5"
    );
    assert_eq!(
        answer["result"]["_meta"]["offshoot/code"],
        "INVALID_ARGUMENTS"
    );
    assert_usable(&mut client);
    client.end();
}

#[test]
fn arguments_in_a_text_are_read_all_the_same() {
    let mut client = Client::new(&[]);
    let params = json!({"name": "bash", "arguments": "{\"command\": \"echo quoted\"}"});
    let answer = client.request("tools/call", params);
    assert_eq!(
        answer["result"]["content"][0]["text"],
        "quoted\n[status: completed, exit code: 0]"
    );
    client.end();
}

#[test]
fn an_id_that_is_in_use_is_refused_and_the_first_request_is_answered_once() {
    let mut client = Client::new(&[]);
    let call = |command: &str| {
        json!({
            "jsonrpc": "2.0", "id": "same", "method": "tools/call",
            "params": {"name": "bash", "arguments": {"command": command}},
        })
    };
    client.send(&call("while [ ! -e go ]; do sleep 0.05; done; echo first"));
    client.send(&call("echo second"));
    let refused = client.wait_for(|message| message["error"].is_object());
    assert_error(&refused, -32600, "the request's id is in use");
    assert!(refused.get("id").is_none_or(Value::is_null), "{refused}");
    std::fs::write(client.home.work().join("go"), "").expect("a file");
    let first = client.wait_for(|message| message["id"] == "same");
    assert_eq!(
        texts(&first["result"])[0],
        "first\n[status: completed, exit code: 0]"
    );
    let again = client.request("ping", json!({}));
    assert_eq!(again["result"], json!({}));
    client.end();
}

#[test]
fn more_calls_than_the_limit_are_refused_and_can_be_repeated() {
    let mut client = Client::new(&[]);
    let wait = json!({"command": "while [ ! -e go ]; do sleep 0.2; done"});
    let calls: Vec<u64> = (0..65)
        .map(|_| client.ask_tool("bash", wait.clone()))
        .collect();
    let refused = client.wait_for(|message| message["error"].is_object());
    assert_error(&refused, -32000, "64 calls run already");
    std::fs::write(client.home.work().join("go"), "").expect("a file");
    for id in calls.into_iter().filter(|id| refused["id"] != *id) {
        let answer = client.answer(id);
        assert_eq!(answer["result"]["isError"], false, "{answer}");
    }
    assert_usable(&mut client);
    client.end();
}

#[test]
fn a_flood_is_answered_message_by_message() {
    let mut client = Client::new(&[]);
    for _ in 0..20 {
        let ids: Vec<u64> = (0..100).map(|_| client.ask("ping", json!({}))).collect();
        for _ in 0..100 {
            client.peer.send("nonsense");
            client.notify("notifications/nothing", json!({}));
        }
        for id in ids {
            assert_eq!(client.answer(id)["result"], json!({}));
        }
        for _ in 0..100 {
            let answer = client.wait_for(|message| message["error"].is_object());
            assert_error(&answer, -32700, "not JSON");
        }
    }
    assert_usable(&mut client);
    client.end();
}
