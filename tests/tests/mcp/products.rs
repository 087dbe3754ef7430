//! Products that are MCP clients, each with its own entry for the server and a scripted model: the model
//! starts a command in the background and reads it.

use std::path::Path;
use std::time::Duration;

use offshoot_model_server::{Call, ModelServer, Rule, Script};
use offshoot_peers::catalog;
use offshoot_tests::program;
use serde_json::{Value, json};

use crate::client::home;

/// Long enough for a loaded machine.
const WHILE: Duration = Duration::from_secs(240);

/// Only what the command prints has it in one piece.
const COMMAND: &str = "printf 'said-%s' by-the-command";
const OUTPUT: &str = "said-by-the-command";

/// A model that calls `bash` and then `task_output`, by the names that the client gives them.
fn model(named: impl Fn(&str) -> Call) -> ModelServer {
    let call = |name: &str, args: Value| {
        vec![Call {
            args: Some(args),
            ..named(name)
        }]
    };
    let bash = json!({"command": COMMAND, "run_in_background": true});
    let output = json!({"task_id": "bash-1", "wait": true});
    ModelServer::start(Script::new([
        Rule {
            calls: call("bash", bash),
            ..Rule::user("run it").results(0)
        },
        Rule {
            calls: call("task_output", output),
            ..Rule::user("run it").results(1)
        },
        Rule::user("run it").text("it was run"),
        Rule::any().text("nothing"),
    ]))
}

/// The entry of a client: the server's command and its arguments.
fn entry(script: &Path) -> (String, [String; 3]) {
    let text = |path: &Path| path.to_str().expect("a path").to_owned();
    let args = ["mcp".to_owned(), "--script".to_owned(), text(script)];
    (text(program()), args)
}

/// What the model was told: that a task was started, and then what it wrote.
#[track_caller]
fn assert_told(server: &ModelServer, stdout: &str) {
    assert!(stdout.contains("it was run"), "{stdout}");
    let asked = server.requests();
    let bodies: Vec<String> = asked
        .iter()
        .map(|request| request.body.to_string())
        .collect();
    let with = |text: &str| bodies.iter().any(|body| body.contains(text));
    assert!(with("started background task bash-1"), "{stdout}");
    assert!(with(OUTPUT), "{stdout}");
}

#[test]
fn codex_runs_a_command_in_the_background_and_reads_it() {
    let Some(codex) = catalog::CODEX.ready() else {
        return;
    };
    let server = model(|name| Call {
        name: name.to_owned(),
        namespace: Some("mcp__offshoot".to_owned()),
        ..Call::default()
    });
    let (home, script) = home();
    let (command, args) = entry(&script);
    let provider = format!(
        r#"model_providers.fake={{name="fake",base_url="{}",wire_api="responses",env_key="FAKE_KEY",request_max_retries=0,stream_max_retries=0}}"#,
        server.url("/v1")
    );
    // Without a terminal nobody approves a call.
    let entry = format!(
        r#"mcp_servers.offshoot={{command={command:?},args={args:?},default_tools_approval_mode="approve"}}"#
    );
    let client = home
        .command(codex.program("codex"))
        .env("FAKE_KEY", "k-123456")
        .args(["exec", "--json", "--skip-git-repo-check", "--ephemeral"])
        .args(["-m", "gpt-6.1-sol", "-c", "model_provider=fake"])
        .args(["-c", &provider, "-c", &entry, "--", "run it"]);
    let said = client.run(WHILE).success();
    assert_told(&server, &said);
    home.assert_no_process_left();
}

#[test]
fn qwen_runs_a_command_in_the_background_and_reads_it() {
    let Some(qwen) = catalog::QWEN.ready() else {
        return;
    };
    let server = model(|name| Call {
        name: format!("mcp__offshoot__{name}"),
        ..Call::default()
    });
    let (home, script) = home();
    let (command, args) = entry(&script);
    let settings =
        json!({"mcpServers": {"offshoot": {"command": command, "args": args, "trust": true}}});
    let folder = home.folder().join(".qwen");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("settings.json"), settings.to_string()).expect("a file");
    let client = home
        .command(qwen.program("qwen"))
        .env("OPENAI_BASE_URL", server.url("/v1"))
        .env("OPENAI_API_KEY", "k-123456")
        .env("OPENAI_MODEL", "fake-model")
        .args(["--auth-type", "openai", "-o", "stream-json", "run it"]);
    let said = client.run(WHILE).success();
    assert_told(&server, &said);
    home.assert_no_process_left();
}
