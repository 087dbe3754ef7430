//! The programs of others as clients: each is installed, run and ended by its test.

use std::path::Path;
use std::time::Duration;

use offshoot_peers::{Command, Home, Outcome, catalog};
use offshoot_tests::program;
use serde_json::{Value, json};

use crate::client::home;
use crate::http::{Server, Session};

/// Long enough for a loaded machine.
const WHILE: Duration = Duration::from_secs(240);

fn here(path: &str) -> String {
    format!("{}/tests/mcp/{path}", env!("CARGO_MANIFEST_DIR"))
}

/// The end of a command line of a client: the server that it starts.
fn server(script: &Path) -> Vec<String> {
    let script = script.to_str().expect("a path").to_owned();
    let program = program().to_str().expect("a path").to_owned();
    vec![program, "mcp".to_owned(), "--script".to_owned(), script]
}

#[track_caller]
fn assert_ok(outcome: Outcome) {
    let said = outcome.success();
    assert_eq!(said.trim_end().lines().last(), Some("OK"), "{said}");
}

#[test]
fn the_python_sdk_of_the_older_generation_works_over_stdio() {
    let Some(sdk) = catalog::MCP_PYTHON_1.ready() else {
        return;
    };
    let (home, script) = home();
    let client = home.command(sdk.program("python"));
    let client = client
        .arg(here("python/generation_2025.py"))
        .args(server(&script));
    assert_ok(client.run(WHILE));
    home.assert_no_process_left();
}

#[test]
fn the_python_sdk_of_the_newer_generation_works_over_stdio() {
    let Some(sdk) = catalog::MCP_PYTHON_2.ready() else {
        return;
    };
    let (home, script) = home();
    let client = home.command(sdk.program("python"));
    let client = client
        .arg(here("python/generation_2026.py"))
        .args(server(&script));
    assert_ok(client.run(WHILE));
    home.assert_no_process_left();
}

#[test]
fn the_python_sdk_of_the_newer_generation_works_over_http() {
    let Some(sdk) = catalog::MCP_PYTHON_2.ready() else {
        return;
    };
    let server = Server::start(&[]);
    let client = server.home.command(sdk.program("python"));
    let client = client.arg(here("python/generation_2026.py"));
    assert_ok(
        client
            .arg(format!("http://{}/mcp", server.address))
            .run(WHILE),
    );
    server.end();
}

/// Of the inspector's command line.
struct Inspector {
    home: Home,
    script: std::path::PathBuf,
}

impl Inspector {
    fn ready() -> Option<Self> {
        let installed = catalog::MCP_INSPECTOR.ready()?;
        let (home, script) = home();
        let home = home.with_programs(installed.programs());
        Some(Self { home, script })
    }

    fn command(&self, name: &str) -> Command {
        self.home
            .command(name)
            // Its daemon, and no keychain of the machine.
            .env(
                "MCP_INSPECTOR_DAEMON_DIR",
                self.home.folder().join("daemon"),
            )
            .env(
                "MCP_INSPECTOR_DAEMON_TOKEN",
                "0123456789abcdef0123456789abcdef",
            )
            .env("MCP_INSPECTOR_SECRET_STORE", "memory")
    }

    fn once(&self, era: &str, args: &[&str]) -> Outcome {
        let usual = ["--cli", "--protocol-era", era, "--format", "json", "-q"];
        let command = self.command("mcp-inspector").args(usual).args(args);
        command.arg("--").args(server(&self.script)).run(WHILE)
    }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn the_inspector_lists_and_calls_in_each_generation() {
    let Some(inspector) = Inspector::ready() else {
        return;
    };
    for era in ["legacy", "auto", "modern"] {
        let listed = inspector.once(era, &["--method", "tools/list"]).success();
        let listed = parsed(&listed);
        assert_eq!(listed["result"]["tools"].as_array().map(Vec::len), Some(8));
        // In the newer generation this is a task: it takes longer than a call may.
        let arguments = r#"{"command": "sleep 1.5; echo waited"}"#;
        let call = [
            "--method",
            "tools/call",
            "--tool-name",
            "bash",
            "--tool-args-json",
            arguments,
        ];
        let called = parsed(&inspector.once(era, &call).success());
        assert_eq!(
            called["result"]["content"][0]["text"],
            "waited\n[status: completed, exit code: 0]"
        );
    }
    let call = ["--method", "tools/call", "--tool-name", "no_such_tool"];
    assert_eq!(inspector.once("legacy", &call).status.code(), Some(5));
    inspector.home.assert_no_process_left();
}

/// Its daemon does one thing at a time for a connection, so that it cannot look at a call that it waits
/// for itself: the task is that of another client, behind the same door.
#[test]
fn the_inspector_looks_at_a_live_task_and_cancels_it() {
    let Some(inspector) = Inspector::ready() else {
        return;
    };
    let server = Server::start(&[]);
    let mut client = Session::without(&server, None);
    let task = |client: &mut Session<'_>, command: &str| {
        let task = client.call("bash", json!({"command": command}));
        assert_eq!(task["resultType"], "task", "{task}");
        task["taskId"].as_str().expect("an id").to_owned()
    };
    let live = task(&mut client, "exec sleep 4321");
    let short = task(&mut client, "sleep 1.5; echo waited");
    let command = |args: &[&str]| inspector.command("mcpdo").args(args).run(WHILE);
    let about = |what: &str, id: &str| {
        let usual = ["--format", "json", "--connection", "c"];
        parsed(&command(&[&usual[..], &[what, id]].concat()).success())["task"].clone()
    };
    let url = format!("http://{}/mcp", server.address);
    let _ = command(&["connect", "--era", "modern", "--connection", "c", &url]).success();
    assert_eq!(about("tasks/get", &live)["status"], "working");
    about("tasks/cancel", &live);
    loop {
        let task = about("tasks/get", &live);
        if task["status"] != "working" {
            assert_eq!(task["status"], "cancelled", "{task}");
            break;
        }
    }
    let left = server.home.processes();
    let left: Vec<_> = left
        .iter()
        .filter(|(_, line)| line.contains("sleep 4321"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    while about("tasks/get", &short)["status"] == "working" {}
    let text = "waited\n[status: completed, exit code: 0]";
    for _ in 0..2 {
        let task = about("tasks/get", &short);
        assert_eq!(task["status"], "completed", "{task}");
        assert_eq!(task["raw"]["result"]["content"][0]["text"], text, "{task}");
        // A task that has ended stays as it is.
        about("tasks/cancel", &short);
    }
    let unknown = command(&["--connection", "c", "tasks/get", "call-9"]);
    assert!(!unknown.status.success());
    let _ = command(&["disconnect", "@c"]).success();
    let _ = command(&["daemon", "stop"]).success();
    inspector.home.assert_no_process_left();
    server.end();
}

#[test]
fn the_conformance_suite_finds_what_is_written_down_and_no_more() {
    let (Some(suite), Some(node)) = (catalog::MCP_CONFORMANCE.ready(), catalog::NODE_22.ready())
    else {
        return;
    };
    let server = Server::start(&[]);
    let home = Home::new().with_programs(node.file("node/bin"));
    let outcome = home
        .command(suite.program("conformance"))
        .args(["server", "--suite", "all", "--url"])
        .arg(format!("http://{}/mcp", server.address))
        .arg("--expected-failures")
        .arg(here("conformance.yml"))
        .arg("-o")
        .arg(home.work().join("results"))
        .run(WHILE);
    let said = outcome.success();
    assert!(said.contains("=== SUMMARY ==="), "{said}");
    home.assert_no_process_left();
    server.end();
}
