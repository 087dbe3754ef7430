//! The built program with real models, on a scripted server.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use offshoot_model_server::{Fault, ModelServer, Rule, Script};
use offshoot_tests::{Scripted, program, scenario};
use serde_json::json;

const KEY: &str = "sk-secret-0123456789";

/// A provider, its variable, and the path of its base URL.
const PROVIDERS: [(&str, Option<&str>, &str); 6] = [
    ("openai", Some("OPENAI_API_KEY"), "/v1"),
    ("openai-responses", Some("OPENAI_API_KEY"), "/v1"),
    ("anthropic", Some("ANTHROPIC_API_KEY"), "/v1"),
    ("gemini", Some("GEMINI_API_KEY"), "/v1beta"),
    ("deepseek", Some("DEEPSEEK_API_KEY"), "/v1"),
    ("ollama", None, ""),
];

fn offshoot(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command
        .args(args)
        .current_dir(folder)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::null());
    command
}

fn run(folder: &Path, provider: &str, url: &str, more: &[&str]) -> Output {
    let model = format!("{provider}/test-model");
    let mut args = vec![
        "run",
        "--json",
        "--timeout",
        "120",
        "--model",
        &model,
        "--base-url",
        url,
    ];
    args.extend(more);
    let mut command = offshoot(folder, &args);
    let known = PROVIDERS.iter().find(|(name, ..)| *name == provider);
    if let Some((_, Some(variable), _)) = known {
        command.env(variable, KEY);
    }
    command.output().expect("the program")
}

/// A root that delegates, starts a background command and steers its child, and answers when it was told
/// of both ends.
fn story() -> Script {
    Script::new([
        Rule::user("Find out").results(0).call(
            "subagent",
            json!({"description": "sizes", "prompt": "Measure it."}),
        ),
        Rule::user("Find out")
            .results(1)
            .call(
                "send_message",
                json!({"agent_id": "${result|started subagent |}", "message": "Hurry up."}),
            )
            .call(
                "bash",
                json!({"command": "echo TASK-$((20 + 22))", "run_in_background": true}),
            ),
        Rule::user("Find out")
            .results(3)
            .text("STARTED")
            .open("steered"),
        // It may have ended before the third request.
        Rule::user("TASK-42")
            .text("The task is done.")
            .open("steered")
            .open("noted"),
        Rule::user("Measure it.")
            .results(0)
            .call("bash", json!({"command": "echo CHILD-$((1 + 1))"}))
            .wait_for("steered"),
        Rule::user("Hurry up.")
            .text("FOUND ${result}")
            .wait_for("noted"),
        Rule::user("FOUND").text("ANSWER: the child is done."),
    ])
}

fn fields(run: &Scripted, kind: &str) -> Vec<String> {
    let line = run
        .of_type(kind)
        .next()
        .unwrap_or_else(|| panic!("no {kind}"));
    let event = line["event"].as_object().expect("an event");
    event.keys().cloned().collect()
}

#[test]
fn a_session_with_a_subagent_a_task_and_a_steer() {
    for (provider, _, path) in PROVIDERS {
        let server = ModelServer::start(story());
        let folder = tempfile::tempdir().expect("a folder");
        let store = folder.path().join("store");
        let store = store.to_str().expect("a path");
        let url = server.url(path);
        let output = run(
            folder.path(),
            provider,
            &url,
            &["--store", store, "Find out how large it is."],
        );
        let run = Scripted::of(&output);
        let asked = || {
            let requests = server.requests().into_iter();
            requests
                .map(|r| format!("{:?} {:?}", r.rule, r.conversation))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            run.exit,
            Some(0),
            "{provider}: {}\n{:#?}",
            run.stderr,
            asked()
        );
        assert_eq!(run.outcome(), "completed", "{provider}");
        assert_eq!(
            run.text(),
            "ANSWER: the child is done.",
            "{provider}: {:#?}",
            asked()
        );
        let notice = run
            .entered("root", "settled")
            .next()
            .expect("a settlement notice");
        assert!(notice.to_string().contains("FOUND"), "{provider}: {notice}");
        assert_eq!(run.entered("root", "task").count(), 1, "{provider}");
        let steer = run.entered("sizes", "agent").next().expect("the steer");
        assert_eq!(steer["turn"], 1, "{provider}");
        assert!(steer["step"].as_u64() > Some(1), "{provider}: {steer}");
        let usage = &run.result.as_ref().expect("a result")["usage"];
        let requests = server.requests().len() as u64;
        assert_eq!(usage["total_output"], json!(5 * requests), "{provider}");
        // The events are those of the scripted model.
        let scripted = Scripted::run(&scenario("settlement"), folder.path(), &[]);
        for kind in [
            "message/assistant",
            "message/user",
            "tool/call",
            "tool/result",
            "turn/end",
            "subagent/settled",
        ] {
            assert_eq!(
                fields(&run, kind),
                fields(&scripted, kind),
                "{provider}: {kind}"
            );
        }
        let everything = format!("{}{}", String::from_utf8_lossy(&output.stdout), run.stderr);
        assert!(!everything.contains(KEY), "{provider}");
        let kept = std::fs::read_dir(folder.path().join("store")).expect("the store");
        for file in kept.flatten() {
            let text = std::fs::read(file.path()).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&text).contains(KEY), "{provider}");
        }
    }
}

#[test]
fn children_ask_the_model_of_their_tool_and_so_do_theirs() {
    let rules = [
        Rule::user("go")
            .results(0)
            .call("helper", json!({"description": "one", "prompt": "first"})),
        Rule::user("first").results(0).call(
            "subagent",
            json!({"description": "two", "prompt": "second"}),
        ),
        Rule::user("second").text("DEEP"),
        Rule::user("DEEP").text("LESS"),
        Rule::user("LESS").text("DONE"),
        Rule::any().text("I wait."),
    ];
    let server = ModelServer::start(Script::new(rules));
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!(
        "[model]\nname = \"openai/big\"\nbase_url = \"{0}\"\n\
         [[subagent]]\n\
         [[subagent]]\ntool_name = \"helper\"\nmodel = \"anthropic/small\"\nbase_url = \"{0}\"\n",
        server.url("/v1")
    );
    std::fs::write(folder.path().join("c.toml"), config).expect("a file");
    let output = offshoot(
        folder.path(),
        &[
            "run",
            "--json",
            "--config",
            "c.toml",
            "--timeout",
            "60",
            "go",
        ],
    )
    .env("OPENAI_API_KEY", KEY)
    .env("ANTHROPIC_API_KEY", "other")
    .output()
    .expect("the program");
    let run = Scripted::of(&output);
    assert_eq!(run.text(), "DONE", "{}", run.stderr);
    for request in server.requests() {
        let user = request.conversation.expect("a conversation").last_user;
        let is_root = user.contains("go") && !user.contains("one") || user.contains("LESS");
        let (model, path) = if is_root {
            ("big", "/v1/chat/completions")
        } else {
            ("small", "/v1/messages")
        };
        assert_eq!(
            (request.body["model"].as_str(), request.path.as_str()),
            (Some(model), path),
            "{user}"
        );
    }
}

#[test]
fn subagents_of_an_mcp_client_ask_the_model() {
    use std::io::{BufRead as _, BufReader, Write as _};

    let server = ModelServer::start(Script::new([Rule::user("Measure it.").text("FOUND 42")]));
    let folder = tempfile::tempdir().expect("a folder");
    let url = server.url("/v1");
    let args = ["mcp", "--model", "anthropic/test-model", "--base-url", &url];
    let mut child = offshoot(folder.path(), &args)
        .env("ANTHROPIC_API_KEY", KEY)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program");
    let mut input = child.stdin.take().expect("its stdin");
    let client = json!({"name": "test", "version": "1"});
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
    let delegation =
        json!({"description": "sizes", "prompt": "Measure it.", "run_in_background": false});
    let lines = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "subagent", "arguments": delegation}}),
    ];
    for line in lines {
        writeln!(input, "{line}").expect("sent");
    }
    let answers = BufReader::new(child.stdout.take().expect("its stdout")).lines();
    let answer = answers
        .map_while(Result::ok)
        .find(|line| line.contains("\"id\":2"))
        .expect("an answer");
    assert!(answer.contains("FOUND 42"), "{answer}");
    drop(input);
    assert!(child.wait().expect("its end").success());
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn what_fails_is_told_with_its_exit_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = Fault::Status {
        code: 401,
        retry_after: None,
        body: Some(format!(r#"{{"error":{{"message":"no such key {KEY}"}}}}"#)),
    };
    let server = ModelServer::start(Script::new([Rule::any().fault(refused)]));
    let output = run(folder.path(), "openai", &server.url("/v1"), &["go"]);
    let run = Scripted::of(&output);
    assert_eq!(run.exit, Some(1));
    assert_eq!(run.outcome(), "error");
    let end = run.of_type("turn/end").next().expect("an end");
    assert_eq!(
        end["event"]["error"],
        "openai/test-model: the key was refused (401): no such key [key]"
    );
    assert!(!String::from_utf8_lossy(&output.stdout).contains(KEY));
    assert!(!run.stderr.contains(KEY), "{}", run.stderr);
}

#[test]
fn a_log_of_everything_has_no_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let echo = Fault::Status {
        code: 400,
        retry_after: None,
        body: Some(KEY.to_owned()),
    };
    let server = ModelServer::start(Script::new([Rule::any().fault(echo)]));
    let url = server.url("/v1");
    for (provider, variable) in [("openai", "OPENAI_API_KEY"), ("gemini", "GEMINI_API_KEY")] {
        let model = format!("{provider}/m");
        let output = offshoot(
            folder.path(),
            &["run", "--model", &model, "--base-url", &url, "go"],
        )
        .env(variable, KEY)
        .env("OFFSHOOT_LOG", "trace")
        .output()
        .expect("the program");
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(log.contains("a model request failed"), "{log}");
        assert!(!log.contains(KEY), "{log}");
    }
}

#[test]
fn a_model_that_cannot_be_asked_is_bad_usage() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = "[model]\nname = \"opnai/x\"\n[[subagent]]\n";
    std::fs::write(folder.path().join("bad.toml"), config).expect("a file");
    let twice = "[[subagent]]\nmodel = \"ollama/x\"\n\
                 [[subagent]]\ntool_name = \"b\"\nmodel = \"ollama/x\"\nbase_url = \"http://x\"\n";
    std::fs::write(folder.path().join("twice.toml"), twice).expect("a file");
    let cases: [(&[&str], &[&str]); 10] = [
        (
            &["run", "--model", "openai/gpt-5", "go"],
            &["--model: ", "OPENAI_API_KEY"],
        ),
        (
            &["run", "--model", "anthropic/x", "go"],
            &["ANTHROPIC_API_KEY"],
        ),
        (&["run", "--model", "gemini/x", "go"], &["GEMINI_API_KEY"]),
        (
            &["run", "--model", "deepseek/x", "go"],
            &["DEEPSEEK_API_KEY"],
        ),
        (
            &["run", "--model", "gpt-5", "go"],
            &["--model: ", "PROVIDER/MODEL"],
        ),
        (
            &["run", "--model", "opnai/x", "go"],
            &["--model: unknown provider `opnai`", "openai, "],
        ),
        (
            &["run", "--model", "openai-compatible/x", "go"],
            &["base URL"],
        ),
        (
            &["run", "--model", "ollama/x", "--base-url", "nowhere", "go"],
            &["--base-url: ", "http"],
        ),
        (
            &["run", "--config", "bad.toml", "go"],
            &["bad.toml: model.name: unknown provider"],
        ),
        (
            &["run", "--config", "twice.toml", "--model", "ollama/y", "go"],
            &["twice.toml: subagent[1].base_url", "in two places"],
        ),
    ];
    for (args, parts) in cases {
        let output = offshoot(folder.path(), args).output().expect("the program");
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {line}");
        assert_eq!(line.trim_end().lines().count(), 1, "{line}");
        assert_eq!(output.stdout, b"");
        for part in parts {
            assert!(line.contains(part), "{args:?}: expected {part:?} in {line}");
        }
    }
    let output = offshoot(folder.path(), &["run", "--base-url", "http://x", "go"]).output();
    let output = output.expect("the program");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--model PROVIDER/MODEL too"));
}
