//! Real agents, over a scripted model server where they have a model.
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::time::Duration;

use offshoot_acp::{AcpSettings, Files, Permission};
use offshoot_core::process::EnvPolicy;
use offshoot_model_server::{ModelServer, Rule, Script};
use offshoot_peers::{Home, catalog};
use offshoot_subagent::Outcome;
use serde_json::json;
use support::World;
use tokio_util::sync::CancellationToken;

/// An agent in a home of its own, and in no other environment.
fn agent(home: &Home, command: impl Into<std::path::PathBuf>, args: &[&str]) -> AcpSettings {
    let mut settings = AcpSettings::new("agent", command);
    settings.args = args.iter().map(|arg| (*arg).to_owned()).collect();
    settings.cwd = Some(home.work().canonicalize().unwrap());
    settings.run.env = EnvPolicy::nothing();
    let text = |text: std::ffi::OsString| text.into_string().unwrap();
    let variables = home.environment().into_iter();
    settings.env = variables
        .map(|(name, value)| (text(name), text(value)))
        .collect();
    settings.deadline = Some(Duration::from_secs(100));
    settings
}

fn set(settings: &mut AcpSettings, name: &str, value: &str) {
    settings.env.push((name.to_owned(), value.to_owned()));
}

fn qwen(home: &Home, server: &ModelServer) -> Option<AcpSettings> {
    let qwen = catalog::QWEN.ready()?;
    let args = [
        "--acp",
        "--bare",
        "--approval-mode",
        "default",
        "--auth-type",
        "openai",
    ];
    let mut settings = agent(home, qwen.program("qwen"), &args);
    set(&mut settings, "OPENAI_BASE_URL", &server.url("/v1"));
    set(&mut settings, "OPENAI_API_KEY", "k-123456");
    set(&mut settings, "OPENAI_MODEL", "fake-model");
    Some(settings)
}

fn codex(home: &Home, server: &ModelServer) -> Option<AcpSettings> {
    let codex = catalog::CODEX_ACP.ready()?;
    let mut settings = agent(home, codex.program("codex-acp"), &[]);
    let config = json!({
        "model": "gpt-6.1-sol", "model_provider": "fake",
        "model_providers": { "fake": {
            "name": "fake", "base_url": server.url("/v1"), "wire_api": "responses",
            "env_key": "FAKE_KEY", "request_max_retries": 0, "stream_max_retries": 0,
        }},
    });
    set(&mut settings, "CODEX_CONFIG", &config.to_string());
    set(&mut settings, "FAKE_KEY", "k-123456");
    set(&mut settings, "MODEL_PROVIDER", "fake");
    set(&mut settings, "NO_BROWSER", "1");
    set(&mut settings, "INITIAL_AGENT_MODE", "workspace-write");
    Some(settings)
}

#[tokio::test]
async fn the_example_agent_is_allowed_or_denied_its_change() {
    let Some(sdk) = catalog::ACP_SDK.ready() else {
        return;
    };
    let script = sdk.file("@agentclientprotocol/sdk/dist/examples/agent.js");
    for (permission, said) in [
        (Permission::Allow, "successfully updated"),
        (Permission::Reject, "skip"),
    ] {
        let home = Home::new();
        let mut settings = agent(&home, "node", &[script.to_str().unwrap()]);
        settings.permission = permission;
        let result = World::of(settings).run("Do something.").await;
        assert_eq!(result.outcome, Outcome::Completed, "{result:?}");
        assert!(
            result.text.contains(said),
            "{permission:?}: {}",
            result.text
        );
        home.assert_no_process_left();
    }
}

#[tokio::test]
async fn qwen_writes_a_file_through_us_when_it_may() {
    let home = Home::new();
    let path = home.work().canonicalize().unwrap().join("made.txt");
    let server = ModelServer::start(Script::new([
        Rule::user("make it").results(0).call(
            "edit",
            json!({ "file_path": path, "old_string": "", "new_string": "made by qwen" }),
        ),
        Rule::user("make it").text("the file is there"),
        Rule::any().text("nothing"),
    ]));
    let Some(mut settings) = qwen(&home, &server) else {
        return;
    };
    settings.permission = Permission::Allow;
    settings.files = Files::ReadWrite;
    let result = World::of(settings).run("make it").await;
    assert_eq!(result.outcome, Outcome::Completed, "{result:?}");
    assert!(result.text.contains("the file is there"), "{}", result.text);
    assert_eq!(std::fs::read_to_string(path).unwrap(), "made by qwen");
    home.assert_no_process_left();
}

#[tokio::test]
async fn qwen_is_denied_a_command_and_says_so() {
    let home = Home::new();
    let server = ModelServer::start(Script::new([
        Rule::user("run it").results(0).call(
            "run_shell_command",
            json!({ "command": "touch ran", "is_background": false, "description": "run" }),
        ),
        Rule::any().text("it was not run"),
    ]));
    let Some(settings) = qwen(&home, &server) else {
        return;
    };
    let result = World::of(settings).run("run it").await;
    assert!(!home.work().join("ran").exists());
    // It ends its turn without a word; that it was denied is said all the same.
    assert_eq!(result.outcome, Outcome::Completed, "{result:?}");
    assert!(
        result.text.contains("a permission, which was denied"),
        "{result:?}"
    );
    home.assert_no_process_left();
}

#[tokio::test]
async fn codex_runs_a_command_in_its_sandbox_and_answers() {
    let home = Home::new();
    let server = ModelServer::start(Script::new([
        Rule::user("look")
            .results(0)
            .call("exec_command", json!({ "cmd": "echo seen-by-codex" })),
        Rule::user("look").text("codex found ${result|seen|codex}"),
    ]));
    let Some(settings) = codex(&home, &server) else {
        return;
    };
    let result = World::of(settings).run("look").await;
    assert_eq!(result.outcome, Outcome::Completed, "{result:?}");
    assert!(result.text.contains("codex found -by-"), "{}", result.text);
    assert!(result.usage.input > 0, "{:?}", result.usage);
    home.assert_no_process_left();
}

#[tokio::test]
async fn agents_that_wait_for_their_model_are_cancelled_and_gone() {
    for which in [qwen, codex] {
        let home = Home::new();
        let server = ModelServer::start(Script::new([Rule::any().wait_for("never").text("late")]));
        let Some(settings) = which(&home, &server) else {
            return;
        };
        let world = World::of(settings);
        let cancel = CancellationToken::new();
        let (result, ()) = tokio::join!(world.start("wait", &cancel), async {
            server
                .until(|requests| (!requests.is_empty()).then_some(()))
                .await;
            cancel.cancel();
        });
        let result = result.unwrap();
        assert_eq!(
            (result.outcome, result.dispose_error),
            (Outcome::Aborted, None)
        );
        home.assert_no_process_left();
    }
}
