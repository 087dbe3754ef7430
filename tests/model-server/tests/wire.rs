//! The server as a client sees it, by plain sockets.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use offshoot_model_server::{Ending, Fault, ModelServer, Rule, Script};
use serde_json::{Value, json};

/// Sends a request and reads until the connection ends.
fn post(server: &ModelServer, path: &str, body: &Value) -> String {
    let mut stream = connect(server, path, body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn connect(server: &ModelServer, path: &str, body: &Value) -> TcpStream {
    let url = server.url("");
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).expect("a connection");
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("sent");
    stream.write_all(body.as_bytes()).expect("sent");
    stream
}

fn asks(text: &str, stream: bool) -> Value {
    json!({"model": "m", "stream": stream, "messages": [{"role": "user", "content": text}]})
}

#[test]
fn every_format_is_answered_streamed_and_whole() {
    let server = ModelServer::start(Script::new([Rule::user("hi")
        .text("hello ${user}")
        .call("f", json!({"a": 1}))]));
    let messages = |stream| asks("hi there", stream);
    let responses = |stream| json!({"model": "m", "stream": stream, "input": "hi there"});
    let gemini = json!({"contents": [{"role": "user", "parts": [{"text": "hi there"}]}]});
    let cases = [
        ("/v1/chat/completions", messages(true), "data: [DONE]"),
        (
            "/v1/chat/completions",
            messages(false),
            "\"chat.completion\"",
        ),
        (
            "/v1/responses",
            responses(true),
            "event: response.completed",
        ),
        ("/v1/responses", responses(false), "\"object\":\"response\""),
        (
            "/v1/messages?beta=true",
            messages(true),
            "event: message_stop",
        ),
        (
            "/v1/messages",
            messages(false),
            "\"stop_reason\":\"tool_use\"",
        ),
        (
            "/v1beta/models/m:streamGenerateContent?alt=sse",
            gemini.clone(),
            "\"finishReason\":\"STOP\"",
        ),
        (
            "/v1beta/models/m:generateContent",
            gemini,
            "\"finishReason\":\"STOP\"",
        ),
        ("/api/chat", messages(true), "\"done\":true"),
        ("/api/chat", messages(false), "\"done\":true"),
    ];
    for (path, body, end) in cases {
        let answer = post(&server, path, &body);
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{path}: {answer}");
        assert!(answer.contains(end), "{path}: {answer}");
        assert!(answer.contains("hello hi there"), "{path}: {answer}");
    }
}

#[test]
fn rules_are_chosen_by_text_results_and_use() {
    let server = ModelServer::start(Script::new([
        Rule::user("go").results(1).text("after"),
        Rule::user("go").times(1).text("first"),
        Rule::user("go").text("again"),
    ]));
    let path = "/v1/chat/completions";
    assert!(post(&server, path, &asks("go", false)).contains("first"));
    assert!(post(&server, path, &asks("go", false)).contains("again"));
    let body =
        json!({"messages": [{"role": "user", "content": "go"}, {"role": "tool", "content": "r"}]});
    assert!(post(&server, path, &body).contains("after"));
    assert!(post(&server, path, &asks("stop", false)).starts_with("HTTP/1.1 400"));
    assert!(post(&server, "/nowhere", &json!({})).starts_with("HTTP/1.1 404"));
    let rules: Vec<_> = server
        .requests()
        .iter()
        .map(|request| request.rule)
        .collect();
    assert_eq!(rules, [Some(1), Some(2), Some(0), None, None]);
}

#[test]
fn what_a_result_says_can_be_used() {
    let server = ModelServer::start(Script::new([
        Rule::user("go").call("send", json!({"to": "${result|agent_id: |\n}"}))
    ]));
    let body = json!({"messages": [
        {"role": "user", "content": "go"},
        {"role": "tool", "content": "started\nagent_id: A7\nmore"},
    ]});
    let answer = post(&server, "/v1/chat/completions", &body);
    assert!(answer.contains(r#"{\"to\":\"A7\"}"#), "{answer}");
}

#[tokio::test]
async fn a_client_that_leaves_is_seen_and_a_gate_holds_an_answer_back() {
    let server = ModelServer::start(Script::new([
        Rule::user("wait").text("late").wait_for("go"),
        Rule::user("hang").fault(Fault::HangHeaders),
    ]));
    let path = "/v1/chat/completions";
    drop(connect(&server, path, &asks("hang", true)));
    let ending = |requests: &[offshoot_model_server::Request]| {
        let ending = requests.first()?.ending;
        (ending != Ending::UnderWay).then_some(ending)
    };
    assert_eq!(server.until(ending).await, Ending::ClientLeft);
    let mut held = connect(&server, path, &asks("wait", true));
    server.until(|requests| requests.get(1).map(drop)).await;
    assert_eq!(server.requests()[1].ending, Ending::UnderWay);
    server.open("go");
    let mut answer = Vec::new();
    let _ = held.read_to_end(&mut answer);
    assert!(String::from_utf8_lossy(&answer).contains("late"));
}

#[test]
fn a_cut_answer_has_no_end() {
    for (fault, whole) in [(Fault::Cut { frames: 2 }, false), (Fault::NoEnd, true)] {
        let server = ModelServer::start(Script::new([Rule::any().text("abc").fault(fault)]));
        let answer = post(&server, "/v1/chat/completions", &asks("x", true));
        assert!(answer.contains("abc"), "{answer}");
        assert!(!answer.contains("[DONE]"), "{answer}");
        assert_eq!(answer.ends_with("0\r\n\r\n"), whole, "{answer}");
    }
}
