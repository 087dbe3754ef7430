//! `offshoot mcp` and `offshoot acp` alike: how they end.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Place, send};

/// A server with a client that talks to it.
struct Client {
    server: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Client {
    fn of(place: &Place, args: &[&str]) -> Self {
        Self::started(place.offshoot(args))
    }

    fn started(mut command: Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut server = command.spawn().expect("the program");
        Self {
            input: server.stdin.take().expect("a pipe"),
            output: BufReader::new(server.stdout.take().expect("a pipe")),
            server,
        }
    }

    fn tell(&mut self, message: Value) {
        writeln!(self.input, "{message}").expect("a reader");
    }

    /// Reads on to the answer of this id.
    fn answer(&mut self, id: u64) -> Value {
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).expect("a line");
            assert_ne!(read, 0, "it ended");
            let message: Value = serde_json::from_str(&line).expect("JSON");
            if message["id"] == id && message.get("method").is_none() {
                return message["result"].clone();
            }
        }
    }

    fn ask(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.tell(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        self.answer(id)
    }

    /// Has it run a command, in its way.
    fn runs(place: &Place, kind: &str, command: &str) -> Self {
        let call = json!({"name": "bash", "args": {"command": command}});
        let script = json!({"agents": {"root": [{"calls": [call]}]}});
        let script = place.script(script);
        match kind {
            "mcp" => {
                let mut client = Self::of(place, &["mcp"]);
                client.ask(1, "initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}));
                client.tell(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
                let call = json!({"name": "bash", "arguments": {"command": command}});
                client.tell(
                    json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}),
                );
                client
            }
            _ => {
                let mut client = Self::of(place, &["acp", "--script", &script]);
                client.ask(1, "initialize", json!({"protocolVersion": 1}));
                let folder = json!({"cwd": place.path("."), "mcpServers": []});
                let session = client.ask(2, "session/new", folder);
                let prompt = json!({"sessionId": session["sessionId"], "prompt": [{"type": "text", "text": "go"}]});
                client.tell(
                    json!({"jsonrpc": "2.0", "id": 3, "method": "session/prompt", "params": prompt}),
                );
                client
            }
        }
    }

    /// The exit code and stderr.
    fn ended(mut self) -> (Option<i32>, String) {
        let mut stderr = String::new();
        let mut pipe = self.server.stderr.take().expect("a pipe");
        pipe.read_to_string(&mut stderr).expect("text");
        (self.server.wait().expect("an end").code(), stderr)
    }
}

/// Waits for a file.
fn appears(place: &Place, name: &str) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !place.path(name).exists() {
        assert!(Instant::now() < deadline, "{name} is not there");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A command that says when it runs and when it was asked to stop.
const ORDERLY: &str = "trap 'touch asked; exit' TERM; touch begun; while :; do sleep 0.02; done";

#[test]
fn each_signal_that_ends_a_server_ends_what_it_runs_in_order() {
    for kind in ["mcp", "acp"] {
        for signal in ["INT", "TERM", "HUP", "QUIT"] {
            let place = Place::new();
            let client = Client::runs(&place, kind, ORDERLY);
            appears(&place, "begun");
            send(&client.server, signal);
            assert_eq!(client.ended(), (Some(0), String::new()), "{kind} {signal}");
            assert!(place.path("asked").exists(), "{kind} {signal}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_that_was_started_with_nohup_goes_on_without_its_terminal() {
    let place = Place::new();
    let server = place.offshoot(&["acp", "--script", &place.script(json!({"agents": {}}))]);
    let mut under = Command::new("nohup");
    under.arg(server.get_program()).args(server.get_args());
    under.current_dir(place.path("."));
    let mut client = Client::started(under);
    let hello = json!({"protocolVersion": 1});
    client.ask(1, "initialize", hello.clone());
    send(&client.server, "HUP");
    client.ask(2, "initialize", hello);
    send(&client.server, "TERM");
    assert_eq!(client.ended().0, Some(0));
}
