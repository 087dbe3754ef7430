//! `offshoot acp`, driven over its standard input and output.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use offshoot_peers::{Home, catalog};
use serde_json::{Value, json};

use crate::support::Place;

const SOON: Duration = Duration::from_secs(60);

/// A client of the program.
struct Editor {
    agent: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    /// What came and was not asked for yet.
    seen: Vec<Value>,
}

impl Editor {
    fn of(place: &Place, script: Value, args: &[&str]) -> Self {
        let script = place.script(script);
        let mut agent = place
            .offshoot(&[&["acp", "--script", &script], args].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program");
        let input = agent.stdin.take();
        let output = BufReader::new(agent.stdout.take().expect("a pipe"));
        let (send, lines) = channel();
        std::thread::spawn(move || {
            let mut lines = output.lines().map_while(Result::ok);
            while lines.next().is_some_and(|line| send.send(line).is_ok()) {}
        });
        Self {
            agent,
            input,
            lines,
            seen: Vec::new(),
        }
    }

    fn write(&mut self, line: &str) {
        let input = self.input.as_mut().expect("an open input");
        writeln!(input, "{line}").expect("a reader");
    }

    fn send(&mut self, id: impl Into<Value>, method: &str, params: Value) {
        let request =
            json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params });
        self.write(&request.to_string());
    }

    fn notify(&mut self, method: &str, params: Value) {
        self.write(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string());
    }

    /// Waits for a message; what comes before it is kept.
    fn until(&mut self, found: impl Fn(&Value) -> bool) -> Value {
        loop {
            if let Some(at) = self.seen.iter().position(&found) {
                return self.seen.remove(at);
            }
            let line = self.lines.recv_timeout(SOON).expect("a message in time");
            self.seen.push(serde_json::from_str(&line).expect("JSON"));
        }
    }

    fn answer(&mut self, id: impl Into<Value>) -> Value {
        let id = id.into();
        self.until(|message| message.get("method").is_none() && message["id"] == id)
    }

    fn ask(&mut self, id: impl Into<Value> + Clone, method: &str, params: Value) -> Value {
        self.send(id.clone(), method, params);
        self.answer(id)
    }

    /// A session in the folder of the test.
    fn session(&mut self, place: &Place) -> Value {
        let hello = json!({ "protocolVersion": 1, "clientCapabilities": {} });
        let hello = self.ask(0, "initialize", hello);
        assert_eq!(hello["result"]["protocolVersion"], 1, "{hello}");
        let session = &hello["result"]["agentCapabilities"]["sessionCapabilities"];
        assert_eq!(session, &json!({ "close": {} }));
        let new = json!({ "cwd": place.path("."), "mcpServers": [] });
        let new = self.ask("new", "session/new", new);
        assert!(new["result"]["sessionId"].is_string(), "{new}");
        new["result"]["sessionId"].clone()
    }

    fn prompt(&mut self, id: impl Into<Value>, session: &Value, text: &str) {
        let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] });
        self.send(id, "session/prompt", prompt);
    }

    /// The updates so far.
    fn updates(&self) -> Vec<&Value> {
        let updates = self
            .seen
            .iter()
            .filter(|message| message["method"] == "session/update");
        updates
            .map(|message| &message["params"]["update"])
            .collect()
    }

    fn said(&self) -> String {
        let updates = self.updates().into_iter();
        let said = updates.filter(|update| update["sessionUpdate"] == "agent_message_chunk");
        said.filter_map(|update| update["content"]["text"].as_str())
            .collect::<Vec<_>>()
            .join("|")
    }

    /// Ends the input; the exit code.
    fn end(mut self) -> Option<i32> {
        self.input = None;
        for _ in 0..6000 {
            if let Some(status) = self.agent.try_wait().expect("a status") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it did not end")
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

#[test]
fn a_prompt_is_answered_at_rest_with_its_children_and_commands_as_tool_calls() {
    let place = Place::new();
    let script = json!({ "agents": {
        "root": [
            { "text": "Looking.", "calls": [
                { "id": "c1", "name": "subagent", "args": { "description": "look", "prompt": "Look." } },
                { "id": "c2", "name": "bash", "args": { "command": "pwd", "run_in_background": true } } ] },
            { "text": "WAITING", "open": ["go"], "repeat": 1 },
            { "text": "MORE", "repeat": "forever" }
        ],
        "look": [{ "await": ["go"], "text": "FOUND" }]
    }});
    let mut editor = Editor::of(&place, script, &[]);
    let session = editor.session(&place);
    editor.prompt(1, &session, "Go.");
    let end = editor.answer(1);
    assert_eq!(end["result"]["stopReason"], "end_turn", "{end}");
    assert!(
        editor.said().starts_with("Looking.|WAITING|MORE"),
        "{}",
        editor.said()
    );
    let updates = editor.updates();
    let of = |prefix: &str| -> Vec<&Value> {
        let mine = |update: &&&Value| {
            update["toolCallId"]
                .as_str()
                .is_some_and(|id| id.starts_with(prefix))
        };
        updates.iter().filter(mine).copied().collect()
    };
    for (prefix, title) in [
        ("call-1-c1", "subagent: look"),
        ("call-1-c2", "bash: pwd"),
        ("child-", "Subagent: look"),
        ("task-bash-1", "Background: pwd"),
    ] {
        let mine = of(prefix);
        assert_eq!(mine.first().expect(prefix)["sessionUpdate"], "tool_call");
        assert_eq!(mine[0]["title"], title);
        assert_eq!(
            mine.last().expect(prefix)["status"],
            "completed",
            "{prefix}: {mine:?}"
        );
    }
    let words = of("child-")
        .iter()
        .any(|update| update["content"][0]["content"]["text"] == "FOUND");
    assert!(words, "what the child said is shown");
    assert_eq!(editor.end(), Some(0));
}

#[test]
fn what_a_client_gets_wrong_is_answered_and_nothing_else_happens() {
    let place = Place::new();
    let script = json!({ "agents": { "root": [{ "text": "fine" }] } });
    let mut editor = Editor::of(&place, script, &[]);
    let session = editor.session(&place);
    editor.write("this is no JSON");
    editor.write("[]");
    editor.write("{\"jsonrpc\": \"2.0\", \"id\": 5}");
    editor.write("");
    assert_eq!(
        editor.until(|message| message["error"]["code"] == -32700)["id"],
        Value::Null
    );
    editor.until(|message| message["error"]["code"] == -32600);
    for (method, params, code) in [
        ("no/such", json!({}), -32601),
        (
            "session/load",
            json!({ "sessionId": "x", "cwd": "/", "mcpServers": [] }),
            -32601,
        ),
        ("session/new", json!({}), -32602),
        (
            "session/new",
            json!({ "cwd": "relative", "mcpServers": [] }),
            -32602,
        ),
        (
            "session/new",
            json!({ "cwd": "/no/such/folder", "mcpServers": [] }),
            -32602,
        ),
        (
            "session/prompt",
            json!({ "sessionId": "x", "prompt": [{ "type": "text", "text": "x" }] }),
            -32602,
        ),
        (
            "session/prompt",
            json!({ "sessionId": session, "prompt": [] }),
            -32602,
        ),
        (
            "session/prompt",
            json!({ "sessionId": session, "prompt": [{ "type": "image" }] }),
            -32602,
        ),
    ] {
        let answer = editor.ask("a-text", method, params);
        assert_eq!(answer["error"]["code"], code, "{method}: {answer}");
    }
    editor.notify("session/cancel", json!({ "sessionId": "nobody" }));
    editor.notify("session/cancel", json!({ "sessionId": session }));
    editor.notify("no/such", json!([1]));
    editor.write(&json!({ "jsonrpc": "2.0", "id": 77, "result": {} }).to_string());
    editor.prompt(1, &session, "Go.");
    assert_eq!(editor.answer(1)["result"]["stopReason"], "end_turn");
    assert_eq!(editor.said(), "fine");
    // The script has run out: the model's failure is the prompt's.
    editor.prompt(2, &session, "Again.");
    let failed = editor.answer(2);
    assert!(
        failed["error"]["message"]
            .as_str()
            .is_some_and(|text| text.contains("script exhausted")),
        "{failed}"
    );
    assert_eq!(editor.end(), Some(0));
}

#[test]
fn a_cancel_stops_the_turn_its_children_and_its_commands_and_a_second_one_changes_nothing() {
    let place = Place::new();
    let script = json!({ "agents": {
        "root": [
            { "calls": [
                { "name": "subagent", "args": { "description": "child", "prompt": "Work." } },
                { "name": "bash", "args": { "command": "echo $$ >new; mv new pid; exec sleep 1000000", "run_in_background": true } } ] },
            { "hang": true },
            { "text": "ready again" }
        ],
        "child": [{ "hang": true }]
    }});
    let mut editor = Editor::of(&place, script, &[]);
    let session = editor.session(&place);
    editor.prompt(1, &session, "Go.");
    let pid = loop {
        if let Ok(pid) = std::fs::read_to_string(place.path("pid")) {
            break pid;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let cancel = json!({ "sessionId": session });
    editor.notify("session/cancel", cancel.clone());
    editor.notify("session/cancel", cancel);
    assert_eq!(editor.answer(1)["result"]["stopReason"], "cancelled");
    let path = format!("/proc/{}", pid.trim());
    assert!(!std::path::Path::new(&path).exists(), "its command is gone");
    editor.prompt(2, &session, "Once more.");
    assert_eq!(editor.answer(2)["result"]["stopReason"], "end_turn");
    assert!(editor.said().ends_with("ready again"), "{}", editor.said());
    assert_eq!(editor.end(), Some(0));
}

#[test]
fn a_prompt_while_one_runs_is_read_at_the_next_step_and_sessions_do_not_disturb_each_other() {
    let place = Place::new();
    let script = json!({ "agents": { "root": [
        { "calls": [{ "name": "bash", "args": { "command": "touch began; while ! test -e go; do sleep 0.05; done" } }] },
        { "text": "read: ${last_message}" }
    ]}});
    let mut editor = Editor::of(&place, script, &[]);
    let first = editor.session(&place);
    editor.prompt(1, &first, "Go.");
    while !place.path("began").exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    editor.prompt(2, &first, "And this.");
    // A message that is answered says that the one before it was read.
    let second = editor.session(&place);
    assert_ne!(first, second);
    std::fs::write(place.path("go"), "").expect("a file");
    assert_eq!(editor.answer(1)["result"]["stopReason"], "end_turn");
    assert_eq!(editor.answer(2)["result"]["stopReason"], "end_turn");
    assert_eq!(editor.said(), "read: And this.");
    editor.prompt(3, &second, "Go.");
    assert_eq!(editor.answer(3)["result"]["stopReason"], "end_turn");
    assert_eq!(editor.end(), Some(0));
}

#[test]
fn a_client_that_goes_in_the_middle_leaves_no_process() {
    let place = Place::new();
    let script = json!({ "agents": { "root": [
        { "calls": [{ "name": "bash", "args": { "command": "echo $$ >new; mv new pid; exec sleep 1000000" } }] }
    ]}});
    for kill in [false, true] {
        let mut editor = Editor::of(&place, script.clone(), &[]);
        let session = editor.session(&place);
        editor.prompt(1, &session, "Go.");
        let pid = loop {
            if let Ok(pid) = std::fs::read_to_string(place.path("pid")) {
                break pid;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        if kill {
            drop(editor);
        } else {
            assert_eq!(editor.end(), Some(0));
        }
        let path = format!("/proc/{}/stat", pid.trim());
        let begun = std::time::Instant::now();
        loop {
            let stat = std::fs::read_to_string(&path).unwrap_or_default();
            if stat.is_empty() || stat.contains(") Z ") {
                break;
            }
            assert!(begun.elapsed() < SOON, "it still runs");
            std::thread::sleep(Duration::from_millis(10));
        }
        std::fs::remove_file(place.path("pid")).expect("a file");
    }
}

#[test]
fn a_line_that_is_too_long_is_answered_and_the_sessions_go_on() {
    let place = Place::new();
    let script = json!({ "agents": { "root": [{ "text": "fine" }] } });
    let mut editor = Editor::of(&place, script, &[]);
    let session = editor.session(&place);
    let long = "x".repeat(33 * 1024 * 1024);
    editor.prompt("long", &session, &long);
    let refused = editor.until(|message| message.get("error").is_some());
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    assert_eq!(refused["id"], Value::Null);
    let words = refused["error"]["message"].to_string();
    assert!(words.contains("33554432 bytes"), "{words}");
    editor.write(&format!("{long} and no JSON"));
    editor.until(|message| message["error"]["code"] == -32600);
    editor.prompt(1, &session, "Go.");
    assert_eq!(editor.answer(1)["result"]["stopReason"], "end_turn");
    assert_eq!(editor.end(), Some(0));
}

#[test]
fn what_is_no_json_is_not_repeated_in_the_answer() {
    let place = Place::new();
    let mut editor = Editor::of(&place, json!({ "agents": { "root": [] } }), &[]);
    editor.write("my secret {");
    let refused = editor.until(|message| message["error"]["code"] == -32700);
    assert!(!refused.to_string().contains("secret"), "{refused}");
    assert_eq!(editor.end(), Some(0));
}

#[test]
fn an_id_in_use_is_refused_and_its_request_goes_on() {
    let place = Place::new();
    let script = json!({ "agents": { "root": [
        { "calls": [{ "name": "bash", "args": { "command": "touch began; while ! test -e go; do sleep 0.05; done" } }] },
        { "text": "fine" }
    ]}});
    let mut editor = Editor::of(&place, script, &[]);
    let session = editor.session(&place);
    editor.prompt(7, &session, "Go.");
    for method in ["session/new", "session/prompt", "no/such"] {
        let new = json!({ "cwd": place.path("."), "mcpServers": [] });
        editor.send(7, method, new);
        let refused = editor.until(|message| message.get("error").is_some());
        assert_eq!(refused["error"]["code"], -32600, "{refused}");
        // With the id it would be an answer to the other request.
        assert_eq!(refused["id"], Value::Null);
    }
    std::fs::write(place.path("go"), "").expect("a file");
    assert_eq!(editor.answer(7)["result"]["stopReason"], "end_turn");
    // It is answered: the id is free.
    let again = json!({ "cwd": place.path("."), "mcpServers": [] });
    assert!(editor.ask(7, "session/new", again)["result"].is_object());
    assert_eq!(editor.end(), Some(0));
}

#[test]
fn a_load_without_a_store_says_what_is_missing() {
    let place = Place::new();
    let script = json!({ "agents": { "root": [{ "text": "fine" }] } });
    let mut editor = Editor::of(&place, script, &[]);
    editor.session(&place);
    let load = json!({ "sessionId": "x", "cwd": "/", "mcpServers": [] });
    let refused = editor.ask("load", "session/load", load);
    assert_eq!(refused["error"]["code"], -32601, "{refused}");
    let words = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(words.contains("--store DIR"), "{refused}");
    assert_eq!(editor.end(), Some(0));
}

#[test]
fn servers_that_a_client_offers_are_named_as_not_used() {
    let place = Place::new();
    let mut editor = Editor::of(&place, json!({ "agents": {} }), &[]);
    let hello = editor.ask(0, "initialize", json!({ "protocolVersion": 1 }));
    assert_eq!(
        hello["result"]["agentCapabilities"]["mcpCapabilities"],
        json!({ "http": false, "sse": false })
    );
    let offers = |servers: Value| json!({ "cwd": place.path("."), "mcpServers": servers });
    let none = editor.ask(1, "session/new", offers(json!([])));
    assert!(none["result"].get("_meta").is_none(), "{none}");
    let servers = json!([
        { "name": "files", "command": "/bin/files", "args": [], "env": [{ "name": "A_KEY", "value": "k-1" }] },
        { "type": "http", "name": "two\nlines\u{1b}[2J", "url": "http://host", "headers": [] },
    ]);
    let two = editor.ask(2, "session/new", offers(servers));
    let unused = json!({ "offshoot/unusedMcpServers": ["files", "two lines [2J"] });
    assert_eq!(two["result"]["_meta"], unused);
    let many = Value::from(vec![json!({ "name": "n" }); 100]);
    editor.ask(3, "session/new", offers(many));
    let mut stderr = editor.agent.stderr.take().expect("a pipe");
    assert_eq!(editor.end(), Some(0));
    let mut said = String::new();
    stderr.read_to_string(&mut said).expect("text");
    let ten = ["n"; 10].join(", ");
    let expected = format!(
        "offshoot: the client's MCP servers are not used: files, two lines [2J\n\
         offshoot: the client's MCP servers are not used: {ten}, and 90 more\n"
    );
    assert_eq!(said, expected);
}

#[test]
fn nothing_is_done_before_the_handshake() {
    let place = Place::new();
    let script = json!({ "agents": { "root": [{ "text": "fine" }] } });
    let mut editor = Editor::of(&place, script, &[]);
    let cwd = json!({ "cwd": place.path("."), "mcpServers": [], "sessionId": "x" });
    for method in [
        "session/new",
        "session/load",
        "session/prompt",
        "session/close",
        "no/such",
    ] {
        let refused = editor.ask("early", method, cwd.clone());
        assert_eq!(refused["error"]["code"], -32600, "{method}: {refused}");
    }
    let empty = editor.ask("early", "initialize", json!({}));
    assert_eq!(empty["error"]["code"], -32602, "{empty}");
    assert_eq!(
        editor.ask("early", "session/new", cwd)["error"]["code"],
        -32600
    );
    let session = editor.session(&place);
    editor.prompt(1, &session, "Go.");
    assert_eq!(editor.answer(1)["result"]["stopReason"], "end_turn");
    assert_eq!(editor.end(), Some(0));
}

#[test]
fn a_hundred_sessions_are_the_limit_and_one_that_is_closed_makes_room() {
    let place = Place::new();
    let script = json!({ "agents": { "root": [
        { "calls": [{ "name": "bash", "args": { "command": "echo $$ >new; mv new pid; exec sleep 1000000" } }] }
    ]}});
    let mut editor = Editor::of(&place, script, &["--store", "s"]);
    let first = editor.session(&place);
    let new = json!({ "cwd": place.path("."), "mcpServers": [] });
    for _ in 1..100 {
        let more = editor.ask("new", "session/new", new.clone());
        assert!(more["result"].is_object(), "{more}");
    }
    let stored = || std::fs::read_dir(place.path("s")).expect("a store").count();
    let before = stored();
    let refused = editor.ask("new", "session/new", new.clone());
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    let words = refused["error"]["message"].to_string();
    assert!(
        words.contains("100 sessions") && words.contains("session/close"),
        "{words}"
    );
    assert_eq!(stored(), before, "nothing was made");
    editor.prompt(1, &first, "Go.");
    let pid = loop {
        if let Ok(pid) = std::fs::read_to_string(place.path("pid")) {
            break pid;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let close = json!({ "sessionId": first });
    let closed = editor.ask("close", "session/close", close.clone());
    assert_eq!(closed["result"], json!({}), "{closed}");
    let path = format!("/proc/{}", pid.trim());
    assert!(!std::path::Path::new(&path).exists(), "its command is gone");
    assert_eq!(editor.answer(1)["result"]["stopReason"], "cancelled");
    assert_eq!(
        editor.ask("again", "session/close", close)["error"]["code"],
        -32602
    );
    editor.prompt(2, &first, "Go.");
    assert_eq!(editor.answer(2)["error"]["code"], -32602);
    let load = json!({ "sessionId": first, "cwd": place.path("."), "mcpServers": [] });
    let loaded = editor.ask("load", "session/load", load);
    assert_eq!(loaded["result"], json!({}), "{loaded}");
    assert_eq!(editor.end(), Some(0));
}

#[test]
fn a_stored_session_is_loaded_with_its_history() {
    let place = Place::new();
    let script = json!({ "agents": { "root": [{ "text": "one" }, { "text": "two" }] } });
    let mut editor = Editor::of(&place, script.clone(), &["--store", "s"]);
    let session = editor.session(&place);
    editor.prompt(1, &session, "First.");
    editor.answer(1);
    assert_eq!(editor.end(), Some(0));
    let mut editor = Editor::of(&place, script, &["--store", "s"]);
    editor.session(&place);
    let load = json!({ "sessionId": session, "cwd": place.path("."), "mcpServers": [] });
    let loaded = editor.ask("load", "session/load", load.clone());
    assert_eq!(loaded["result"], json!({}), "{loaded}");
    let shown: Vec<&str> = editor
        .updates()
        .iter()
        .filter_map(|u| u["content"]["text"].as_str())
        .collect();
    assert_eq!(shown, ["First.", "one"]);
    assert_eq!(
        editor.ask("again", "session/load", load)["error"]["code"],
        -32602
    );
    editor.prompt(2, &session, "Second.");
    assert_eq!(editor.answer(2)["result"]["stopReason"], "end_turn");
    assert_eq!(editor.end(), Some(0));
}

#[test]
fn acpx_drives_a_session_and_leaves_no_process() {
    let Some(acpx) = catalog::ACPX.ready() else {
        return;
    };
    let place = Place::new();
    let script = place.script(json!({ "agents": {
        "root": [
            { "calls": [{ "name": "subagent", "args": { "description": "look", "prompt": "Look." } }] },
            { "text": "WAITING", "open": ["go"] },
            { "text": "The end: ${last_notice}" }
        ],
        "look": [{ "await": ["go"], "text": "FOUND" }]
    }}));
    let home = Home::new();
    let agent = format!("{} acp --script {script}", env!("CARGO_BIN_EXE_offshoot"));
    let client = home.command(acpx.program("acpx"));
    let client = client.args(["--agent", &agent, "--cwd"]).arg(home.work());
    let client = client.args([
        "--approve-all",
        "--format",
        "json",
        "--json-strict",
        "exec",
        "Go.",
    ]);
    let wire = client.run(SOON).success();
    let last: Value = serde_json::from_str(wire.lines().last().expect("a line")).expect("JSON");
    assert_eq!(last["result"]["stopReason"], "end_turn", "{wire}");
    assert!(
        wire.contains("The end: ") && wire.contains("FOUND"),
        "{wire}"
    );
    home.assert_no_process_left();
}
