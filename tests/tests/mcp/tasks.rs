//! Long calls as tasks of the protocol, for clients that know tasks.

use std::time::Duration;

use offshoot_peers::Home;
use offshoot_tests::program;
use serde_json::{Value, json};

use crate::client::{Client, WHILE, modern};

fn knowing() -> Value {
    modern(json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}))
}

fn call(client: &mut Client, command: &str) -> Value {
    call_of(client, "bash", json!({"command": command}))
}

fn call_of(client: &mut Client, tool: &str, args: Value) -> Value {
    let params = json!({"name": tool, "arguments": args, "_meta": knowing()});
    client.request("tools/call", params)["result"].clone()
}

fn about(client: &mut Client, method: &str, id: &Value) -> Value {
    client.request(method, json!({"taskId": id, "_meta": knowing()}))
}

fn ended(client: &mut Client, id: &Value) -> Value {
    loop {
        let task = about(client, "tasks/get", id)["result"].clone();
        if task["status"] != "working" {
            return task;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_long_call_becomes_a_task_with_the_result_that_the_call_would_have_had() {
    let mut client = Client::silent(&[]);
    let task = call(
        &mut client,
        "while [ ! -e go ]; do sleep 0.05; done; echo done",
    );
    assert_eq!(task["resultType"], "task", "{task}");
    assert_eq!(task["status"], "working");
    let id = task["taskId"].clone();
    let looked = about(&mut client, "tasks/get", &id)["result"].clone();
    assert_eq!(looked["status"], "working", "{looked}");
    assert_eq!(looked["resultType"], "complete");
    std::fs::write(client.home.work().join("go"), "").expect("a file");
    for _ in 0..2 {
        let task = ended(&mut client, &id);
        assert_eq!(task["status"], "completed", "{task}");
        let result = &task["result"];
        assert_eq!(result["isError"], false);
        assert_eq!(
            result["content"],
            json!([{"type": "text", "text": "done\n[status: completed, exit code: 0]"}])
        );
    }
    // It was told by polling: no notice of it follows.
    let quick = call(&mut client, "echo quick");
    assert_eq!(quick["resultType"], "complete", "{quick}");
    assert_eq!(
        quick["content"].as_array().map(Vec::len),
        Some(1),
        "{quick}"
    );
    client.end();
}

#[test]
fn a_killed_server_has_its_tasks_on_record_and_the_next_one_tells_of_them_once() {
    let store = Home::new();
    let folder = store.work().join("store");
    let folder = folder.to_str().expect("a path");
    let mut client = Client::silent(&["--store", folder]);
    assert_eq!(call(&mut client, "true")["resultType"], "complete");
    let id = call(&mut client, "exec sleep 4321")["taskId"].clone();
    let id = id.as_str().expect("an id");
    client.peer.kill();
    let sessions = store
        .command(program())
        .args(["sessions", "--json", "--store", folder]);
    let sessions: Value = serde_json::from_str(&sessions.run(WHILE).success()).expect("JSON");
    let root = sessions[0]["id"].as_str().expect("an id").to_owned();

    let mut client = Client::silent(&["--store", folder, "--resume", &root]);
    let said = call_of(&mut client, "task_list", json!({}))["content"].to_string();
    assert_eq!(said.matches("lost in a restart").count(), 1, "{said}");
    assert!(said.contains(id), "{said}");
    let said = call_of(&mut client, "task_list", json!({}))["content"].to_string();
    assert!(!said.contains("lost"), "{said}");
    let answer = about(&mut client, "tasks/get", &json!(id));
    assert!(answer["error"].is_object(), "{answer}");
    client.end();
}

#[test]
fn a_task_that_is_cancelled_stops_its_work() {
    let mut client = Client::silent(&[]);
    let id = call(&mut client, "exec sleep 4321")["taskId"].clone();
    let answer = about(&mut client, "tasks/cancel", &id);
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    let task = ended(&mut client, &id);
    assert_eq!(task["status"], "cancelled", "{task}");
    let again = about(&mut client, "tasks/cancel", &id);
    assert!(again["result"].is_object(), "{again}");
    let gone = call(&mut client, "pgrep -f 'sleep 432[1]' || echo gone");
    assert_eq!(
        gone["content"][0]["text"],
        "gone\n[status: completed, exit code: 0]"
    );
    client.end();
}

#[test]
fn an_id_that_is_no_task_of_the_client_has_one_answer() {
    let mut client = Client::silent(&[]);
    let first = about(&mut client, "tasks/get", &json!("call-1"));
    call(&mut client, "sleep 1000");
    for method in ["tasks/get", "tasks/cancel"] {
        for id in ["call-9", "bash-1", "nonsense", ""] {
            let answer = about(&mut client, method, &json!(id));
            assert_eq!(answer["error"], first["error"], "{answer}");
            assert_eq!(answer["error"]["code"], -32602);
        }
    }
    client.end();
}

#[test]
fn who_does_not_know_tasks_waits_for_the_result() {
    let mut client = Client::silent(&[]);
    let params = json!({
        "name": "bash", "arguments": {"command": "sleep 1.5; echo done"}, "_meta": modern(json!({})),
    });
    let answer = client.request("tools/call", params);
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    let params = json!({"taskId": "call-1", "_meta": modern(json!({}))});
    let refused = client.request("tasks/get", params);
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
    client.end();
}

#[test]
fn a_subagent_that_is_waited_for_becomes_a_task_too() {
    let mut client = Client::silent(&[]);
    let arguments = json!({"description": "stuck", "prompt": "Wait.", "run_in_background": false});
    let params = json!({"name": "subagent", "arguments": arguments, "_meta": knowing()});
    let task = client.request("tools/call", params)["result"].clone();
    assert_eq!(task["resultType"], "task", "{task}");
    let id = task["taskId"].clone();
    about(&mut client, "tasks/cancel", &id);
    assert_eq!(ended(&mut client, &id)["status"], "cancelled");
    client.end();
}

/// The ids of as many calls at once, each a task that waits for a file.
fn waiting(client: &mut Client, count: usize) -> Vec<Value> {
    let command = "while [ ! -e go ]; do sleep 0.2; done";
    let params = json!({"name": "bash", "arguments": {"command": command}, "_meta": knowing()});
    let asked: Vec<u64> = (0..count)
        .map(|_| client.ask("tools/call", params.clone()))
        .collect();
    let ids = asked.into_iter().map(|id| {
        let task = client.answer(id)["result"].clone();
        assert_eq!(task["resultType"], "task", "{task}");
        task["taskId"].clone()
    });
    ids.collect()
}

#[test]
fn calls_that_are_tasks_take_no_place_of_a_background_task_and_no_tool_shows_them() {
    let mut client = Client::silent(&[]);
    let waiting = waiting(&mut client, 30);
    for _ in 0..10 {
        let params = json!({
            "name": "bash", "arguments": {"command": "sleep 1000", "run_in_background": true},
            "_meta": knowing(),
        });
        let started = client.request("tools/call", params)["result"].clone();
        assert_eq!(started["isError"], false, "{started}");
    }
    let params = json!({"name": "task_list", "arguments": {}, "_meta": knowing()});
    let listed = client.request("tools/call", params.clone())["result"].clone();
    let text = listed["content"][0]["text"].as_str().expect("a text");
    assert_eq!(
        text.lines().filter(|line| line.contains("bash-")).count(),
        10,
        "{text}"
    );
    assert!(!text.contains("call"), "{text}");
    std::fs::write(client.home.work().join("go"), "").expect("a file");
    for id in &waiting {
        assert_eq!(ended(&mut client, id)["status"], "completed");
    }
    let listed = client.request("tools/call", params)["result"].clone();
    let blocks = listed["content"].as_array().map(Vec::len);
    assert_eq!(blocks, Some(1), "no notice of them: {listed}");
    client.end();
}

#[test]
fn calls_do_not_push_out_the_records_of_background_tasks_nor_are_told() {
    let mut client = Client::silent(&["--set", "tasks.retain_finished=1"]);
    let tool = |client: &mut Client, name: &str, arguments: Value| {
        let params = json!({"name": name, "arguments": arguments, "_meta": knowing()});
        let result = client.request("tools/call", params)["result"].clone();
        assert_eq!(result["isError"], false, "{result}");
        crate::client::texts(&result)
    };
    let command = json!({"command": "echo kept", "run_in_background": true});
    let mut told = tool(&mut client, "bash", command).split_off(1);
    let wait = json!({"task_id": "bash-1", "wait": true});
    told.extend(tool(&mut client, "task_output", wait).split_off(1));
    for _ in 0..20 {
        told.extend(tool(&mut client, "bash", json!({"command": "true"})).split_off(1));
    }
    let again = tool(&mut client, "task_output", json!({"task_id": "bash-1"}));
    assert!(
        again[0].contains("[status: completed, exit code: 0]"),
        "{again:?}"
    );
    let of_others: Vec<_> = told
        .iter()
        .filter(|notice| !notice.contains("bash-1"))
        .collect();
    assert!(of_others.is_empty(), "{of_others:?}");
    client.end();
}
