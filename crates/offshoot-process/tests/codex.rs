//! A real coding agent as a program: `codex exec --json`, asked over a scripted model server.
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::time::Duration;

use offshoot_core::process::EnvPolicy;
use offshoot_model_server::{ModelServer, Rule, Script};
use offshoot_peers::{Home, catalog};
use offshoot_process::ProcessSettings;
use offshoot_subagent::Outcome;
use support::World;
use tokio_util::sync::CancellationToken;

/// Codex in a home of its own, with its model at the server. `None` when it cannot be had.
fn codex(home: &Home, server: &ModelServer) -> Option<ProcessSettings> {
    let codex = catalog::CODEX.ready()?;
    let provider = format!(
        r#"model_providers.fake={{name="fake",base_url="{}",wire_api="responses",env_key="FAKE_KEY",request_max_retries=0,stream_max_retries=0}}"#,
        server.url("/v1")
    );
    let mut settings = ProcessSettings::new("program", codex.program("codex"));
    settings.args = [
        "exec",
        "--json",
        "--skip-git-repo-check",
        "--ephemeral",
        "-m",
        "gpt-6.1-sol",
        "-c",
        "model_provider=fake",
        "-c",
        &provider,
        "--",
        "{prompt}",
    ]
    .map(str::to_owned)
    .to_vec();
    settings.answer = "item.text".parse().ok();
    settings.input_tokens = "usage.input_tokens".parse().ok();
    settings.output_tokens = "usage.output_tokens".parse().ok();
    settings.cwd = Some(home.work());
    settings.run.env = EnvPolicy::nothing();
    let text = |text: std::ffi::OsString| text.into_string().unwrap();
    settings.env = home
        .environment()
        .into_iter()
        .map(|(n, v)| (text(n), text(v)))
        .collect();
    settings.env.push(("FAKE_KEY".into(), "k-123456".into()));
    settings.deadline = Some(Duration::from_secs(120));
    Some(settings)
}

#[tokio::test]
async fn codex_answers_with_its_last_message_and_its_tokens() {
    let server = ModelServer::start(Script::new([
        Rule::user("--look around").results(0).call(
            "exec_command",
            serde_json::json!({ "cmd": "echo seen-by-codex" }),
        ),
        Rule::user("--look around").text("codex found ${result|seen|codex}"),
    ]));
    let home = Home::new();
    let Some(settings) = codex(&home, &server) else {
        return;
    };
    let result = World::of(settings).run("--look around").await;
    assert_eq!(result.outcome, Outcome::Completed, "{result:?}");
    assert_eq!(result.text, "codex found -by-");
    assert!(
        result.usage.input > 0 && result.usage.output > 0,
        "{:?}",
        result.usage
    );
    home.assert_no_process_left();
}

#[tokio::test]
async fn codex_without_its_model_is_a_failure_that_says_why() {
    let server = ModelServer::start(Script::new([]));
    let home = Home::new();
    let Some(settings) = codex(&home, &server) else {
        return;
    };
    let result = World::of(settings).run("hello").await;
    assert_eq!(result.outcome, Outcome::Error, "{result:?}");
    assert!(result.diagnostic.unwrap().contains("exit code: 1"));
    home.assert_no_process_left();
}

#[tokio::test]
async fn codex_that_waits_for_its_model_is_stopped_with_all_that_it_started() {
    let server = ModelServer::start(Script::new([Rule::user("wait")
        .wait_for("never")
        .text("x")]));
    let home = Home::new();
    let Some(settings) = codex(&home, &server) else {
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
    assert_eq!(result.unwrap().outcome, Outcome::Aborted);
    home.assert_no_process_left();
}
