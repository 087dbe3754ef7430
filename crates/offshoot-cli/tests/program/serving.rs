//! `offshoot mcp` and `offshoot acp` alike: how they begin on a terminal, and how they end.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
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
        for signal in ["INT", "TERM", "HUP", "QUIT", "XCPU"] {
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

/// The server of this kind, not yet started, and the first request of its client.
fn server(place: &Place, kind: &str) -> (Command, Value) {
    let script = place.script(json!({"agents": {}}));
    let (args, version) = match kind {
        "mcp" => (vec!["mcp"], json!("2025-06-18")),
        _ => (vec!["acp", "--script", &script], json!(1)),
    };
    let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}});
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    (place.offshoot(&args), hello)
}

#[test]
fn a_server_on_a_terminal_says_that_it_waits_for_a_client_and_how_it_is_ended() {
    for (kind, client) in [("mcp", "an MCP client"), ("acp", "an ACP client")] {
        let place = Place::new();
        let (mut command, _) = server(&place, kind);
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        unlockpt(&keys).expect("a terminal");
        let name = ptsname(&keys, Vec::new()).expect("its name");
        let mut terminal = std::fs::File::options();
        let terminal = terminal
            .read(true)
            .write(true)
            .open(name.to_str().expect("text"));
        command.stdin(terminal.expect("the terminal"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("the program");
        let mut keys = std::fs::File::from(keys);
        // Ctrl-D.
        keys.write_all(b"\x04").expect("a key");
        let ended = child.wait_with_output().expect("an end");
        let hint = format!(
            "offshoot: waits on stdin for the messages of {client}, which starts this command itself; Ctrl-C or Ctrl-D ends it\n"
        );
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.code(), &*stderr), (Some(0), &*hint), "{kind}");
        drop(keys);
    }
}

#[test]
fn a_server_whose_answers_cannot_be_written_fails_and_says_why() {
    for kind in ["mcp", "acp"] {
        let place = Place::new();
        let (mut command, hello) = server(&place, kind);
        let full = std::fs::File::options().write(true).open("/dev/full");
        command
            .stdin(Stdio::piped())
            .stdout(full.expect("the device"))
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program");
        let mut input = child.stdin.take().expect("a pipe");
        writeln!(input, "{hello}").expect("a reader");
        // The input stays open: it is not its end that ends the server.
        let ended = child.wait_with_output().expect("an end");
        let stderr = String::from_utf8_lossy(&ended.stderr);
        let expected =
            "offshoot: cannot write to the client: No space left on device (os error 28)\n";
        assert_eq!(
            (ended.status.code(), &*stderr),
            (Some(1), expected),
            "{kind}"
        );
        drop(input);
    }
}

#[test]
fn a_server_whose_messages_cannot_be_read_fails_and_says_why() {
    for kind in ["mcp", "acp"] {
        let place = Place::new();
        let (mut command, _) = server(&place, kind);
        let folder = std::fs::File::open(place.path(".")).expect("a folder");
        let ended = command.stdin(folder).output().expect("the program");
        let stderr = String::from_utf8_lossy(&ended.stderr);
        let expected = "offshoot: cannot read from the client: Is a directory (os error 21)\n";
        assert_eq!(
            (ended.status.code(), &*stderr),
            (Some(1), expected),
            "{kind}"
        );
    }
}

#[test]
fn a_client_that_reads_no_more_has_gone() {
    for kind in ["mcp", "acp"] {
        let place = Place::new();
        let (mut command, hello) = server(&place, kind);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program");
        drop(child.stdout.take());
        let mut input = child.stdin.take().expect("a pipe");
        writeln!(input, "{hello}").expect("a reader");
        let ended = child.wait_with_output().expect("an end");
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.code(), &*stderr), (Some(0), ""), "{kind}");
        drop(input);
    }
}
