//! The server over HTTP, with a client that is a socket.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use offshoot_peers::{Home, Peer};
use offshoot_tests::program;
use serde_json::{Value, json};

use crate::client::{WHILE, home, modern, texts};

/// A running server on a port of its own.
pub(crate) struct Server {
    pub(crate) home: Home,
    peer: Peer,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start(args: &[&str]) -> Self {
        let (home, script) = home();
        Self::in_home(
            home,
            &[&["--script", script.to_str().expect("a path")], args].concat(),
        )
    }

    pub(crate) fn with_tokens(tokens: &[&str]) -> Self {
        let (home, script) = home();
        let file = home.folder().join("tokens");
        std::fs::write(&file, tokens.join("\n")).expect("a file");
        let (script, file) = (
            script.to_str().expect("a path"),
            file.to_str().expect("a path"),
        );
        let args = ["--script", script, "--http-token-file", file];
        Self::in_home(home, &args)
    }

    fn in_home(home: Home, args: &[&str]) -> Self {
        let command = home
            .command(program())
            .args(["mcp", "--http", "127.0.0.1:0"]);
        let mut peer = command.args(args).spawn();
        let line = peer.error_line(WHILE).expect("a line");
        let address = line
            .split("http://")
            .nth(1)
            .and_then(|rest| rest.split('/').next());
        let address = address.and_then(|address| address.parse().ok());
        let address = address.unwrap_or_else(|| panic!("an address in {line}"));
        Self {
            home,
            peer,
            address,
        }
    }

    /// Waits until something has come to be.
    pub(crate) fn until(&self, done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + WHILE;
        while !done(self) {
            assert!(Instant::now() < deadline, "it did not come to be");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends the server, and everything that it started.
    pub(crate) fn end(mut self) {
        self.peer.signal(rustix::process::Signal::TERM);
        assert!(self.peer.ended(WHILE).success(), "{}", self.peer.stderr());
        self.home.assert_no_process_left();
    }

    /// One request over a socket of its own; the answer's status, headers and body.
    pub(crate) fn raw(&self, request: &str) -> (u16, String, String) {
        let mut socket = TcpStream::connect(self.address).expect("a socket");
        socket.set_read_timeout(Some(WHILE)).expect("a timeout");
        socket.write_all(request.as_bytes()).expect("it reads");
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).expect("an answer");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        (status.expect("a status"), head.to_owned(), body.to_owned())
    }

    /// A post of `message` with more header lines.
    pub(crate) fn post(&self, message: &Value, headers: &[(&str, &str)]) -> (u16, String, String) {
        let body = message.to_string();
        let has = |name: &str| {
            headers
                .iter()
                .any(|(one, _)| one.eq_ignore_ascii_case(name))
        };
        let mut request = String::from("POST /mcp HTTP/1.1\r\nConnection: close\r\n");
        let host = self.address.to_string();
        let length = body.len().to_string();
        let usual = [
            ("Host", host.as_str()),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
            ("Content-Length", length.as_str()),
        ];
        let usual = usual.iter().filter(|(name, _)| !has(name));
        for (name, value) in usual.chain(headers) {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        self.raw(&format!("{request}\r\n{body}"))
    }
}

/// A client: of a session, or of the newer generation without one.
pub(crate) struct Session<'a> {
    server: &'a Server,
    token: Option<String>,
    id: Option<String>,
    next: u64,
}

impl<'a> Session<'a> {
    pub(crate) fn begin(server: &'a Server, token: Option<&str>) -> Self {
        let mut session = Self {
            server,
            token: token.map(str::to_owned),
            id: None,
            next: 0,
        };
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "socket", "version": "1"},
        });
        let message = session.message("initialize", params);
        let (status, head, _) = session.post(&message, &[]);
        assert_eq!(status, 200, "{head}");
        let id = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("mcp-session-id")
                .then(|| value.to_owned())
        });
        session.id = Some(id.expect("a session"));
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(session.post(&initialized, &[]).0, 202);
        session
    }

    pub(crate) fn without(server: &'a Server, token: Option<&str>) -> Self {
        Self {
            server,
            token: token.map(str::to_owned),
            id: None,
            next: 0,
        }
    }

    /// The same session, in the hands of somebody else.
    pub(crate) fn as_seen_by(&self, token: &str) -> Self {
        Self {
            server: self.server,
            token: Some(token.to_owned()),
            id: self.id.clone(),
            next: self.next,
        }
    }

    fn message(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params})
    }

    fn post(&self, message: &Value, more: &[(&str, &str)]) -> (u16, String, String) {
        let bearer = self.token.as_ref().map(|token| format!("Bearer {token}"));
        let mut headers = more.to_vec();
        headers.extend(bearer.as_deref().map(|bearer| ("Authorization", bearer)));
        headers.extend(self.id.as_deref().map(|id| ("Mcp-Session-Id", id)));
        self.server.post(message, &headers)
    }

    /// The status alone.
    pub(crate) fn status(&self, method: &str, params: Value) -> u16 {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.post(&message, &[]).0
    }

    /// The messages that answer a request.
    pub(crate) fn request(&mut self, method: &str, mut params: Value) -> Vec<Value> {
        let name = params["name"].as_str().unwrap_or_default().to_owned();
        if self.id.is_none() {
            let capabilities = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
            params["_meta"] = modern(capabilities);
        }
        let message = self.message(method, params);
        let mut headers = vec![("MCP-Protocol-Version", "2025-11-25")];
        if self.id.is_none() {
            headers = vec![
                ("MCP-Protocol-Version", "2026-07-28"),
                ("Mcp-Method", method),
            ];
            if !name.is_empty() {
                headers.push(("Mcp-Name", &name));
            }
        }
        let (_, head, body) = self.post(&message, &headers);
        messages(&head, &body)
    }

    /// The result of a call.
    pub(crate) fn call(&mut self, name: &str, arguments: Value) -> Value {
        let params = json!({"name": name, "arguments": arguments});
        let messages = self.request("tools/call", params);
        let last = messages.last().expect("an answer");
        assert!(last["result"].is_object(), "{last}");
        last["result"].clone()
    }

    /// The texts of a call's result.
    pub(crate) fn tool(&mut self, name: &str, arguments: Value) -> Vec<String> {
        texts(&self.call(name, arguments))
    }

    /// Ends the session.
    pub(crate) fn end(self) {
        assert_eq!(self.delete(), 200);
    }

    /// The status of the answer to a request to end the session.
    fn delete(&self) -> u16 {
        let host = self.server.address;
        let id = self.id.as_ref().expect("a session");
        let token = self.token.as_ref();
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
        let token = token.unwrap_or_default();
        let (status, ..) = self.server.raw(&format!(
            "DELETE /mcp HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{token}Mcp-Session-Id: {id}\r\n\r\n"
        ));
        status
    }

    /// Sends a call and does not wait for its answer.
    fn call_and_go(&self, command: &str) -> TcpStream {
        let message = json!({"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": {
            "name": "bash", "arguments": {"command": command},
        }});
        let (host, body) = (self.server.address, message.to_string());
        let (id, length) = (self.id.as_ref().expect("a session"), body.len());
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: {host}\r\nMcp-Session-Id: {id}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        let mut socket = TcpStream::connect(host).expect("a socket");
        socket.write_all(request.as_bytes()).expect("it reads");
        socket
    }
}

/// The messages of an answer: one as JSON, or a stream of events in chunks.
fn messages(head: &str, body: &str) -> Vec<Value> {
    let lines = match head.to_ascii_lowercase().contains("text/event-stream") {
        false => {
            return vec![serde_json::from_str(body).unwrap_or_else(|_| panic!("{head}\n{body}"))];
        }
        true => body.lines(),
    };
    let data = lines.filter_map(|line| line.strip_prefix("data:"));
    let data = data.map(str::trim).filter(|data| !data.is_empty());
    data.map(|data| serde_json::from_str(data).unwrap_or_else(|_| panic!("{data}")))
        .collect()
}

fn ping() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "socket", "version": "1"},
    }})
}

#[test]
fn a_page_in_a_browser_does_not_get_in() {
    let server = Server::start(&[]);
    for (name, value) in [
        ("Host", "evil.example"),
        ("Host", "evil.example:80"),
        ("Origin", "http://evil.example"),
        ("Origin", "http://127.0.0.1.evil.example"),
        ("Origin", "null"),
    ] {
        let (status, head, body) = server.post(&ping(), &[(name, value)]);
        assert_eq!(status, 403, "{name}: {value}: {head}");
        assert!(body.contains("names of this server"), "{body}");
    }
    // Of two names one could be checked and the other one meant.
    let own = server.address.to_string();
    for hosts in [[own.as_str(), "evil.example"], [&own, &own]] {
        let headers = hosts.map(|host| ("Host", host));
        let (status, head, _) = server.post(&ping(), &headers);
        assert_eq!(status, 400, "{hosts:?}: {head}");
    }
    let origin = format!("http://{}", server.address);
    assert_eq!(server.post(&ping(), &[("Origin", &origin)]).0, 200);
    let host = format!("localhost:{}", server.address.port());
    assert_eq!(server.post(&ping(), &[("Host", &host)]).0, 200);
    let simple = [("Content-Type", "text/plain")];
    assert_eq!(server.post(&ping(), &simple).0, 415);
    server.end();
}

#[test]
fn a_request_that_says_it_is_too_large_is_not_waited_for() {
    let server = Server::start(&[]);
    let host = server.address;
    // Nothing of the body ever comes.
    let began = Instant::now();
    let (status, ..) = server.raw(&format!(
        "POST /mcp HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: 99999999999\r\n\r\n"
    ));
    assert_eq!(status, 413);
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "it was waited for"
    );
    server.end();
}

#[test]
fn without_a_token_that_is_known_nobody_gets_in() {
    let token = "a-token-0123456789";
    let server = Server::with_tokens(&[token]);
    let (status, head, body) = server.post(&ping(), &[]);
    assert_eq!(status, 401);
    assert!(
        head.to_ascii_lowercase()
            .contains("www-authenticate: bearer"),
        "{head}"
    );
    assert!(!body.contains(token));
    for wrong in [
        "Bearer a-token-012345678",
        "Bearer",
        "Basic a-token-0123456789",
    ] {
        assert_eq!(
            server.post(&ping(), &[("Authorization", wrong)]).0,
            401,
            "{wrong}"
        );
    }
    let right = format!("Bearer {token}");
    assert_eq!(server.post(&ping(), &[("Authorization", &right)]).0, 200);
    server.end();
}

#[test]
fn bad_requests_are_answered_and_the_server_goes_on() {
    let server = Server::start(&[]);
    let host = server.address;
    let get = format!("GET /elsewhere HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    assert_eq!(server.raw(&get).0, 404);
    let (status, ..) = server.raw("nonsense\r\n\r\n");
    assert_eq!(status, 400);
    for (body, code) in [
        ("nonsense", -32700),
        ("{\"secret\": \"hunter2\"", -32700),
        ("", -32700),
        ("\"text\"", -32600),
        ("[]", -32600),
        ("{\"jsonrpc\": \"2.0\", \"id\": 7}", -32600),
        ("{\"id\": 1, \"method\": \"ping\"}", -32600),
    ] {
        let head = "Content-Type: application/json; charset=utf-8\r\nAccept: application/json, text/event-stream";
        let length = body.len();
        let (status, head, said) = server.raw(&format!(
            "POST /mcp HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        assert_eq!(status, 400, "{body}: {head}");
        assert!(
            head.to_ascii_lowercase()
                .contains("content-type: application/json"),
            "{head}"
        );
        let error: Value = serde_json::from_str(&said).expect("JSON");
        assert_eq!(error["jsonrpc"], "2.0");
        assert_eq!(error["error"]["code"], code, "{body}: {said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
    let large = json!({"jsonrpc": "2.0", "id": 1, "method": "x".repeat(5 * 1024 * 1024)});
    let length = [("Content-Length", "5000000")];
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{}: {}\r\n\r\n",
        length[0].0, length[0].1
    );
    // The whole of it is refused by its length; a server that waited for it would read on.
    let (status, ..) = server.raw(&format!("{head}{}", &large.to_string()[..5_000_000]));
    assert_eq!(status, 413);
    let unknown = Session {
        id: Some("00000000-0000-0000-0000-000000000000".to_owned()),
        ..Session::without(&server, None)
    };
    assert_eq!(unknown.status("ping", json!({})), 404);
    let mut session = Session::begin(&server, None);
    let said = session.tool("bash", json!({"command": "echo here"}));
    assert_eq!(said, ["here\n[status: completed, exit code: 0]"]);
    server.end();
}

#[test]
fn sessions_are_bounded_and_one_that_ends_makes_room() {
    let server = Server::start(&[]);
    let mut sessions: Vec<_> = (0..64).map(|_| Session::begin(&server, None)).collect();
    let (status, _, body) = server.post(&ping(), &[]);
    assert_eq!(status, 503);
    assert!(body.contains("64 sessions"), "{body}");
    sessions.pop().expect("a session").end();
    server.until(|server| server.post(&ping(), &[]).0 == 200);
    server.end();
}

#[test]
fn a_client_that_hangs_up_ends_its_call_but_not_its_session() {
    let server = Server::start(&[]);
    let mut client = Session::without(&server, None);
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {
            "name": "bash",
            "arguments": {"command": "echo > up; exec sleep 4321"},
            "_meta": modern(json!({})),
        },
    });
    let body = body.to_string();
    let host = server.address;
    let length = body.len();
    let mut socket = TcpStream::connect(server.address).expect("a socket");
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
         Mcp-Method: tools/call\r\nMcp-Name: bash\r\nContent-Length: {length}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).expect("it reads");
    socket.write_all(body.as_bytes()).expect("it reads");
    let sleeps = |server: &Server| {
        let all = server.home.processes();
        all.into_iter()
            .filter(|(_, line)| line.contains("sleep 4321"))
            .count()
    };
    server.until(|server| sleeps(server) == 1);
    drop(socket);
    server.until(|server| sleeps(server) == 0);
    let said = client.tool("bash", json!({"command": "echo here"}));
    assert_eq!(said, ["here\n[status: completed, exit code: 0]"]);
    server.end();
}

#[test]
fn a_session_that_is_deleted_takes_its_unanswered_call_along() {
    let server = Server::start(&[]);
    let mut session = Session::begin(&server, None);
    let _socket = session.call_and_go("echo > up; exec sleep 4321");
    let waits = json!({"command": "while [ ! -e up ]; do sleep 0.05; done"});
    session.tool("bash", waits);
    assert_eq!(session.delete(), 200);
    let left = server.home.processes();
    let left: Vec<_> = left
        .iter()
        .filter(|(_, line)| line.contains("sleep 4321"))
        .collect();
    assert!(
        left.is_empty(),
        "gone before the end was answered: {left:?}"
    );
    assert_eq!(session.status("ping", json!({})), 404);
    assert_eq!(session.delete(), 404, "a second time");
    server.end();
}

#[test]
fn only_a_session_of_ones_own_can_be_deleted() {
    let (one, two) = ("one-token-0123456789", "two-token-0123456789");
    let server = Server::with_tokens(&[one, two]);
    let mut session = Session::begin(&server, Some(one));
    assert_eq!(session.as_seen_by(two).delete(), 404);
    let said = session.tool("bash", json!({"command": "echo here"}));
    assert_eq!(said, ["here\n[status: completed, exit code: 0]"]);
    session.end();
    server.end();
}
