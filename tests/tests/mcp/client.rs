//! A client that writes plain lines, and sees everything that comes back.

use std::path::PathBuf;
use std::time::Duration;

use offshoot_peers::{Home, Peer};
use offshoot_tests::program;
use serde_json::{Value, json};

/// Long enough for a loaded machine.
pub(crate) const WHILE: Duration = Duration::from_secs(60);

/// Children of the tests answer at once, but for one that never does.
const SCRIPT: &str = r#"{"agents": {
    "*": [{"text": "CHILD ANSWER", "repeat": "forever"}],
    "stuck": [{"hang": true}]
}}"#;

/// A home with a script for subagents in it.
pub(crate) fn home() -> (Home, PathBuf) {
    let home = Home::new();
    let script = home.folder().join("script.json");
    std::fs::write(&script, SCRIPT).expect("a script");
    (home, script)
}

/// The program as a server on stdio, and a client of it.
pub(crate) struct Client {
    pub(crate) home: Home,
    pub(crate) peer: Peer,
    next: u64,
    /// What came and was not asked for yet.
    seen: Vec<Value>,
}

impl Client {
    /// A server that has said nothing yet.
    pub(crate) fn silent(args: &[&str]) -> Self {
        let (home, script) = home();
        let peer = home
            .command(program())
            .arg("mcp")
            .arg("--script")
            .arg(script);
        let peer = peer.args(args).spawn();
        Self {
            home,
            peer,
            next: 0,
            seen: Vec::new(),
        }
    }

    /// After the handshake of the older generation.
    pub(crate) fn new(args: &[&str]) -> Self {
        let mut client = Self::silent(args);
        client.initialize();
        client
    }

    pub(crate) fn initialize(&mut self) -> Value {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "lines", "version": "1"},
        });
        let answer = self.request("initialize", params);
        self.notify("notifications/initialized", json!({}));
        answer["result"].clone()
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.peer.send(&message.to_string());
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Sends a request and returns its id.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let id = self.next;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// The first message that is like this, kept back or new.
    pub(crate) fn wait_for(&mut self, is: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.seen.iter().position(&is) {
            return self.seen.remove(at);
        }
        loop {
            let message = self.message();
            if is(&message) {
                return message;
            }
            self.seen.push(message);
        }
    }

    /// The next message, whatever it is.
    pub(crate) fn message(&mut self) -> Value {
        let line = self.peer.line(WHILE).expect("a message, not the end");
        let message: Value = serde_json::from_str(&line).expect("only JSON on stdout");
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        message
    }

    pub(crate) fn answer(&mut self, id: u64) -> Value {
        self.wait_for(|message| message["id"] == id)
    }

    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        self.answer(id)
    }

    /// Sends a call of a tool and returns its id.
    pub(crate) fn ask_tool(&mut self, name: &str, arguments: Value) -> u64 {
        self.ask("tools/call", json!({"name": name, "arguments": arguments}))
    }

    /// The texts of a call's result, each block one.
    pub(crate) fn tool(&mut self, name: &str, arguments: Value) -> Vec<String> {
        let id = self.ask_tool(name, arguments);
        texts(&self.answer(id)["result"])
    }

    /// Closes the input and waits for the end, of the program and of everything that it started.
    pub(crate) fn end(mut self) {
        self.peer.close_input();
        let status = self.peer.ended(WHILE);
        let stderr = self.peer.stderr();
        assert!(status.success(), "{status}: {stderr}");
        self.home.assert_no_process_left();
    }
}

/// The texts of a result, each block one.
pub(crate) fn texts(result: &Value) -> Vec<String> {
    let blocks = result["content"].as_array();
    let blocks = blocks.unwrap_or_else(|| panic!("content in {result}"));
    let texts = blocks.iter().map(|block| block["text"].as_str());
    texts.map(|text| text.expect("a text").to_owned()).collect()
}

/// What the newer generation has in each request.
pub(crate) fn modern(capabilities: Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "lines", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}
