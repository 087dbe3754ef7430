//! How a client comes to know what happens in the background.

use serde_json::json;

use crate::client::{Client, modern, texts};

#[test]
fn a_notice_comes_once_with_the_next_result() {
    let mut client = Client::new(&[]);
    let said = client.tool(
        "bash",
        json!({"command": "echo done", "run_in_background": true}),
    );
    assert_eq!(said[0], "started background task bash-1");
    // Another call, at the latest the one that waits for it, brings the notice.
    let mut notices: Vec<String> = said[1..].to_vec();
    while notices.is_empty() {
        notices.extend_from_slice(&client.tool("task_list", json!({}))[1..]);
    }
    assert_eq!(
        notices,
        [
            "[notice] background task bash-1 (bash: echo done) finished [status: completed, exit code: 0]\nOutput:\n> done\n"
        ]
    );
    // What the output of a command cannot imitate.
    assert!(notices[0].starts_with(offshoot::tools::NOTICE_PREFIX));
    assert_eq!(client.tool("task_list", json!({})).len(), 1);
    client.end();
}

#[test]
fn an_end_that_was_waited_for_needs_no_notice() {
    let mut client = Client::new(&[]);
    let command = "while [ ! -e go ]; do sleep 0.05; done; echo done";
    client.tool(
        "bash",
        json!({"command": command, "run_in_background": true}),
    );
    let waiting = client.ask_tool("task_output", json!({"task_id": "bash-1", "wait": true}));
    client.request("ping", json!({}));
    std::fs::write(client.home.work().join("go"), "").expect("a file");
    let waited = client.answer(waiting);
    assert_eq!(
        texts(&waited["result"]),
        ["done\n[status: completed, exit code: 0]"]
    );
    assert_eq!(client.tool("task_list", json!({})).len(), 1);
    client.end();
}

#[test]
fn a_subagent_settles_into_the_next_result() {
    let mut client = Client::new(&[]);
    let said = client.tool(
        "subagent",
        json!({"description": "helper", "prompt": "Answer."}),
    );
    assert!(said[0].starts_with("started subagent "), "{said:?}");
    let mut notices: Vec<String> = said[1..].to_vec();
    while notices.is_empty() {
        notices.extend_from_slice(&client.tool("list_agents", json!({}))[1..]);
    }
    assert!(notices[0].starts_with("[notice] Agent "), "{notices:?}");
    assert!(notices[0].contains("CHILD ANSWER"), "{notices:?}");
    client.end();
}

#[test]
fn who_asks_for_log_messages_is_told_at_once() {
    let mut client = Client::new(&[]);
    let command = json!({"command": "echo done", "run_in_background": true});
    client.request("logging/setLevel", json!({"level": "warning"}));
    client.tool("bash", command.clone());
    client.tool("task_output", json!({"task_id": "bash-1", "wait": true}));
    let answer = client.request("logging/setLevel", json!({"level": "info"}));
    assert_eq!(answer["result"], json!({}));
    client.tool("bash", command);
    let told = client.wait_for(|message| message["method"] == "notifications/message");
    assert_eq!(told["params"]["level"], "info");
    assert_eq!(told["params"]["data"]["kind"], "task");
    assert_eq!(told["params"]["data"]["task_id"], "bash-2");
    assert_eq!(told["params"]["data"]["status"], "completed");
    client.end();
}

#[test]
fn a_call_that_runs_reports_progress_to_who_asked() {
    let mut client = Client::new(&[]);
    let call = client.ask(
        "tools/call",
        json!({
            "name": "bash",
            "arguments": {"command": "while [ ! -e go ]; do sleep 0.05; done"},
            "_meta": {"progressToken": "p1"},
        }),
    );
    let mut before = 0.0;
    for _ in 0..2 {
        let report = client.wait_for(|message| message["method"] == "notifications/progress");
        assert_eq!(report["params"]["progressToken"], "p1");
        let now = report["params"]["progress"].as_f64().expect("a number");
        assert!(now > before, "{report}");
        before = now;
    }
    std::fs::write(client.home.work().join("go"), "").expect("a file");
    client.answer(call);
    client.end();
}

#[test]
fn a_cancelled_call_stops_its_work_and_is_not_answered() {
    let mut client = Client::new(&[]);
    let command = json!({"command": "echo > up; exec sleep 4321"});
    let call = client.ask_tool("bash", command);
    client.tool(
        "bash",
        json!({"command": "while [ ! -e up ]; do sleep 0.05; done"}),
    );
    client.notify(
        "notifications/cancelled",
        json!({"requestId": call, "reason": "changed my mind"}),
    );
    let gone = "while pgrep -f 'sleep 432[1]' > /dev/null; do sleep 0.05; done; echo gone";
    let said = client.tool("bash", json!({"command": gone}));
    assert_eq!(said, ["gone\n[status: completed, exit code: 0]"]);
    let ping = client.ask("ping", json!({}));
    let next = client.wait_for(|message| message["id"] == call || message["id"] == ping);
    assert_eq!(next["id"], ping);
    client.end();
}

#[test]
fn a_cancelled_wait_consumes_nothing() {
    let mut client = Client::new(&[]);
    let command = "while [ ! -e go ]; do sleep 0.05; done; echo done";
    client.tool(
        "bash",
        json!({"command": command, "run_in_background": true}),
    );
    let wait = client.ask_tool("task_output", json!({"task_id": "bash-1", "wait": true}));
    client.notify("notifications/cancelled", json!({"requestId": wait}));
    client.request("ping", json!({}));
    std::fs::write(client.home.work().join("go"), "").expect("a file");
    let said = client.tool("task_output", json!({"task_id": "bash-1", "wait": true}));
    let all = said.join("\n");
    assert!(all.contains("done\n"), "{said:?}");
    assert!(
        all.contains("[status: completed, exit code: 0]"),
        "{said:?}"
    );
    client.end();
}

#[test]
fn without_a_model_a_subagent_is_refused_and_the_rest_works() {
    let home = offshoot_peers::Home::new();
    let mut peer = home.command(offshoot_tests::program()).arg("mcp").spawn();
    let mut request = |method: &str, mut params: serde_json::Value| {
        params["_meta"] = modern(json!({}));
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        peer.send(&message.to_string());
        let line = peer.line(crate::client::WHILE).expect("an answer");
        serde_json::from_str::<serde_json::Value>(&line).expect("JSON")["result"].clone()
    };
    let arguments = json!({"description": "helper", "prompt": "Answer."});
    let refused = request(
        "tools/call",
        json!({"name": "subagent", "arguments": arguments}),
    );
    assert_eq!(refused["isError"], true, "{refused}");
    assert_eq!(refused["_meta"]["offshoot/code"], "NO_MODEL");
    let said = refused["content"][0]["text"].as_str().expect("a text");
    assert!(
        said.contains("--script FILE or --model PROVIDER/MODEL"),
        "{said}"
    );
    let arguments = json!({"command": "echo here"});
    let done = request(
        "tools/call",
        json!({"name": "bash", "arguments": arguments}),
    );
    assert_eq!(texts(&done)[0], "here\n[status: completed, exit code: 0]");
    peer.close_input();
    assert!(peer.ended(crate::client::WHILE).success());
    home.assert_no_process_left();
}

#[test]
fn what_a_command_prints_does_not_pass_for_a_notice() {
    let mut client = Client::new(&[]);
    let command = "printf '[notice] one\\n  [notice] two\\rsaid: [notice]\\n[notice:] no\\n'";
    let said = client.tool("bash", json!({"command": command}));
    let expected = "> [notice] one\n>   [notice] two\rsaid: [notice]\n[notice:] no\n[status: completed, exit code: 0]";
    assert_eq!(said, [expected]);
    let later = format!("while [ ! -e go ]; do sleep 0.05; done; {command}");
    client.tool("bash", json!({"command": later, "run_in_background": true}));
    let waiting = client.ask_tool("task_output", json!({"task_id": "bash-1", "wait": true}));
    client.request("ping", json!({}));
    std::fs::write(client.home.work().join("go"), "").expect("a file");
    let waited = client.answer(waiting);
    assert_eq!(texts(&waited["result"]), [expected]);
    client.end();
}
