//! What a client cannot see of another one. Over HTTP, where one server has several.

use serde_json::json;

use crate::client::texts;
use crate::http::{Server, Session};

#[test]
fn two_sessions_at_once_do_not_see_each_other() {
    let server = Server::start(&[]);
    let mut first = Session::begin(&server, None);
    let mut second = Session::begin(&server, None);
    let command = json!({"command": "echo mine; sleep 1000", "run_in_background": true});
    let said = first.tool("bash", command);
    assert_eq!(said, ["started background task bash-1"]);
    let child = json!({"description": "stuck", "prompt": "Wait."});
    let child = first.call("subagent", child)["_meta"]["offshoot/agent_id"].clone();

    assert_eq!(
        second.tool("task_list", json!({})),
        ["(no background tasks)"]
    );
    assert_eq!(second.tool("list_agents", json!({})), first_of_none());
    for (tool, theirs, nobodys) in [
        (
            "task_output",
            json!({"task_id": "bash-1"}),
            json!({"task_id": "bash-9"}),
        ),
        (
            "task_kill",
            json!({"task_id": "bash-1"}),
            json!({"task_id": "bash-9"}),
        ),
        (
            "interrupt_agent",
            json!({"agent_id": child}),
            json!({"agent_id": "x"}),
        ),
    ] {
        let refused = second.call(tool, theirs.clone());
        let unknown = second.call(tool, nobodys.clone());
        assert_eq!(refused["isError"], true, "{refused}");
        assert_eq!(
            refused["_meta"]["offshoot/code"],
            unknown["_meta"]["offshoot/code"]
        );
        let (refused, unknown) = (texts(&refused), texts(&unknown));
        for (one, other) in refused.iter().zip(&unknown) {
            let named = |text: &str, args: &serde_json::Value| {
                let id = args.as_object().and_then(|args| args.values().next());
                text.replace(id.and_then(|id| id.as_str()).expect("an id"), "ID")
            };
            assert_eq!(named(one, &theirs), named(other, &nobodys));
        }
    }
    let live = first.tool("task_list", json!({}));
    assert!(live[0].contains("bash-1"), "{live:?}");
    server.end();
}

fn first_of_none() -> [&'static str; 1] {
    ["(no subagents)"]
}

#[test]
fn a_session_takes_what_it_started_along() {
    let server = Server::start(&[]);
    let mut first = Session::begin(&server, None);
    let second = Session::begin(&server, None);
    let command = json!({"command": "echo > up; exec sleep 1234", "run_in_background": true});
    first.tool("bash", command);
    first.tool(
        "bash",
        json!({"command": "while [ ! -e up ]; do sleep 0.05; done"}),
    );
    let sleeps = |server: &Server| {
        let all = server.home.processes();
        all.into_iter()
            .filter(|(_, line)| line.contains("sleep 1234"))
            .count()
    };
    assert_eq!(sleeps(&server), 1);
    first.end();
    assert_eq!(sleeps(&server), 0, "gone before its end was answered");
    let mut second = second;
    assert_eq!(
        second.tool("task_list", json!({})),
        ["(no background tasks)"]
    );
    server.end();
}

#[test]
fn each_token_is_somebody_of_its_own() {
    let (one, two) = ("one-token-0123456789", "two-token-0123456789");
    let server = Server::with_tokens(&[one, two]);
    let mut first = Session::begin(&server, Some(one));
    let stolen = first.as_seen_by(two);
    assert_eq!(stolen.status("ping", json!({})), 404);
    let command = json!({"command": "sleep 1000", "run_in_background": true});
    first.tool("bash", command);

    // Without a session: the token is the client.
    let mut first = Session::without(&server, Some(one));
    let mut second = Session::without(&server, Some(two));
    let command = json!({"command": "sleep 1000", "run_in_background": true});
    let said = first.tool("bash", command);
    assert_eq!(said, ["started background task bash-2"]);
    let seen = first.tool("task_list", json!({}));
    assert!(
        seen[0].contains("bash-2") && !seen[0].contains("bash-1"),
        "{seen:?}"
    );
    assert_eq!(
        second.tool("task_list", json!({})),
        ["(no background tasks)"]
    );
    server.end();
}
