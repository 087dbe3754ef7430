//! Long calls as tasks of the protocol, for clients that know tasks.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Client, modern};

fn knowing() -> Value {
    modern(json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}))
}

fn call(client: &mut Client, command: &str) -> Value {
    let params = json!({"name": "bash", "arguments": {"command": command}, "_meta": knowing()});
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
