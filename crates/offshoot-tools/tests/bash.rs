//! `bash` over real processes: real time, and short waits.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::path::Path;
use std::time::Duration;

use offshoot_agent::Agent;
use offshoot_tools::BashSettings;
use serde_json::{Value, json};
use support::{Setup, World, soon};
use tokio_util::sync::CancellationToken;

fn with(bash: BashSettings) -> Setup {
    let mut setup = Setup::default();
    setup.tools.bash = Some(bash);
    setup
}

async fn bash(world: &World, root: &Agent, args: Value) -> offshoot_agent::ToolOutput {
    soon("the command", world.call(root, "bash", args)).await
}

/// A command that writes its process id to a file and stays.
fn stays(file: &Path) -> String {
    format!("echo $$ > {}; echo begun; sleep 600", file.display())
}

async fn pid(file: &Path) -> u32 {
    soon("a process id", async {
        loop {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            if let Ok(pid) = text.trim().parse() {
                return pid;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

async fn is_gone(pid: u32) {
    soon("the end of a process", async {
        while Path::new(&format!("/proc/{pid}")).exists() {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            if stat
                .rsplit(')')
                .next()
                .is_some_and(|rest| rest.trim_start().starts_with('Z'))
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn t27_how_a_command_ended_is_on_the_last_line() {
    let world = World::new();
    let root = world.root();
    let rows = [
        ("echo hello", "hello\n[status: completed, exit code: 0]"),
        ("exit 3", "(no output)\n[status: completed, exit code: 3]"),
        (
            "kill -9 $$",
            "(no output)\n[status: failed, signal: SIGKILL]",
        ),
    ];
    for (command, text) in rows {
        let output = bash(&world, &root, json!({"command": command})).await;
        assert_eq!(output.text, text);
        assert!(!output.is_error, "{command}");
        assert_eq!(output.value.unwrap()["kind"], "foreground");
    }
    // Two pipes have no order between them.
    let output = bash(&world, &root, json!({"command": "echo out; echo err >&2"})).await;
    let mut lines: Vec<_> = output.text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[status: completed, exit code: 0]", "err", "out"]);
    let output = bash(&world, &root, json!({"command": "a\0b"})).await;
    assert!(
        output.is_error && output.text.contains("NUL"),
        "{}",
        output.text
    );
    assert!(
        world.extensions("task/started").is_empty(),
        "a foreground call is no task"
    );
    world.close(&root).await;
}

#[tokio::test]
async fn t27_a_command_that_takes_longer_goes_on_as_a_task_with_all_its_output() {
    let world = World::new();
    let root = world.root();
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let command = format!(
        "echo begun; until [ -e {} ]; do sleep 0.02; done; echo ended",
        go.display()
    );
    let output = bash(
        &world,
        &root,
        json!({"command": command, "description": "wait\nfor it", "timeout_ms": 300}),
    )
    .await;
    assert_eq!(
        output.text,
        "the command is still running after 300 ms; it goes on as background task bash-1"
    );
    assert!(!output.is_error);
    assert_eq!(
        output.value.unwrap(),
        json!({"kind": "promoted", "task_id": "bash-1"})
    );
    let started = world.extensions("task/started");
    assert_eq!(started[0].field("label"), Some("wait for it"));
    std::fs::write(&go, "").unwrap();
    world.settled(&root, &"bash-1".parse().unwrap()).await;
    soon("rest", root.rest()).await;
    let notice = world.accepted(&root, "task")[0].to_text();
    assert!(
        notice.ends_with("finished [status: completed, exit code: 0]\nOutput:\n> begun\n> ended\n"),
        "{notice}"
    );
    world.close(&root).await;
}

#[tokio::test]
async fn t27_a_promotion_that_is_refused_leaves_no_process_and_keeps_the_output() {
    let mut setup = Setup::default();
    setup.tasks.max_live_per_owner = 1;
    let world = World::with(setup);
    let root = world.root();
    let (_, _end) = world.task(&root, "the only place");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let output = bash(
        &world,
        &root,
        json!({"command": stays(&file), "timeout_ms": 300}),
    )
    .await;
    assert!(output.is_error);
    assert_eq!(
        output.code.as_deref(),
        Some("LIMIT_REACHED"),
        "{}",
        output.text
    );
    assert!(
        output.text.contains("begun") && output.text.contains("limit: 1"),
        "{}",
        output.text
    );
    is_gone(pid(&file).await).await;
    world.close(&root).await;
}

#[tokio::test]
async fn t181_with_background_disabled_a_command_is_stopped_at_its_limit() {
    let world = World::with(with(BashSettings {
        background: false,
        ..BashSettings::default()
    }));
    let root = world.root();
    let tool = root.kit().tools.get("bash").unwrap();
    assert!(
        tool.input_schema()["properties"]
            .get("run_in_background")
            .is_none()
    );
    let forced = json!({"command": "true", "run_in_background": true});
    let output = bash(&world, &root, forced).await;
    assert_eq!(output.code.as_deref(), Some("BACKGROUND_DISABLED"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let output = bash(
        &world,
        &root,
        json!({"command": stays(&file), "timeout_ms": 300}),
    )
    .await;
    assert_eq!(output.code.as_deref(), Some("TIMEOUT"));
    assert!(
        output.text.starts_with(
            "Error: the command was stopped: it took longer than 300 ms\nbegun\n[status: killed"
        ),
        "{}",
        output.text
    );
    is_gone(pid(&file).await).await;
    world.close(&root).await;
}

#[tokio::test]
async fn t27_the_timeout_of_a_background_command_is_its_deadline() {
    let world = World::new();
    let root = world.root();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let args = json!({"command": stays(&file), "run_in_background": true, "timeout_ms": 300});
    let output = bash(&world, &root, args).await;
    assert_eq!(output.text, "started background task bash-1", "t174");
    world.settled(&root, &"bash-1".parse().unwrap()).await;
    let settled = world.extensions("task/settled");
    assert_eq!(settled[0].field("status"), Some("failed"));
    let detail = settled[0].field("detail").unwrap();
    assert!(detail.starts_with("deadline exceeded"), "{detail}");
    assert_eq!(
        world.extensions("task/stopping")[0].field("by"),
        Some("deadline")
    );
    soon("rest", root.rest()).await;
    assert_eq!(world.accepted(&root, "task").len(), 1);
    is_gone(pid(&file).await).await;
    world.close(&root).await;
}

#[tokio::test]
async fn a_cancel_of_a_foreground_command_ends_its_whole_group() {
    let world = World::new();
    let root = world.root();
    let folder = tempfile::tempdir().unwrap();
    let (file, child) = (folder.path().join("pid"), folder.path().join("child"));
    let command = format!(
        "sleep 600 & echo $! > {}; {}",
        child.display(),
        stays(&file)
    );
    let cancel = CancellationToken::new();
    let call = world.answer_until(&root, "bash", json!({"command": command}), cancel.clone());
    let stop = async {
        let pids = (pid(&file).await, pid(&child).await);
        cancel.cancel();
        pids
    };
    let (output, pids) = soon("the end", async { tokio::join!(call, stop) }).await;
    assert_eq!(output.code.as_deref(), Some("ABORTED"));
    assert!(
        output.is_error && output.text.contains("begun"),
        "{}",
        output.text
    );
    is_gone(pids.0).await;
    is_gone(pids.1).await;
    let late = world
        .answer_until(&root, "bash", json!({"command": "echo x"}), cancel)
        .await;
    assert_eq!(
        late.code.as_deref(),
        Some("ABORTED_BEFORE_DISPATCH"),
        "t179"
    );
    world.close(&root).await;
}

#[tokio::test]
async fn b049_b050_a_killed_command_is_killed_however_it_exits() {
    let world = World::new();
    let root = world.root();
    let folder = tempfile::tempdir().unwrap();
    for (n, trap) in ["true", "trap 'exit 0' TERM"].into_iter().enumerate() {
        let file = folder.path().join(n.to_string());
        let command = format!(
            "{trap}; echo $$ > {}; while :; do sleep 0.02; done",
            file.display()
        );
        let id = format!("bash-{}", n + 1);
        let args = json!({"command": command, "run_in_background": true});
        assert!(!bash(&world, &root, args).await.is_error);
        let pid = pid(&file).await;
        bash_kill(&world, &root, &id).await;
        world.settled(&root, &id.parse().unwrap()).await;
        let read = world
            .call(&root, "task_output", json!({"task_id": id}))
            .await;
        assert!(read.text.contains("[status: killed"), "{}", read.text);
        is_gone(pid).await;
    }
    soon("rest", root.rest()).await;
    assert!(world.accepted(&root, "task").is_empty());
    world.close(&root).await;
}

async fn bash_kill(world: &World, root: &Agent, id: &str) {
    let output = world.call(root, "task_kill", json!({"task_id": id})).await;
    assert!(!output.is_error, "{}", output.text);
}

#[tokio::test]
async fn a_command_that_cannot_start_is_failed() {
    let cwd = Some("/nowhere/at/all".into());
    let world = World::with(with(BashSettings {
        cwd,
        ..BashSettings::default()
    }));
    let root = world.root();
    let output = bash(&world, &root, json!({"command": "true"})).await;
    assert_eq!(
        output.code.as_deref(),
        Some("DIRECTORY_NOT_USABLE"),
        "{}",
        output.text
    );
    let args = json!({"command": "true", "run_in_background": true});
    assert!(!bash(&world, &root, args).await.is_error);
    world.settled(&root, &"bash-1".parse().unwrap()).await;
    assert_eq!(
        world.extensions("task/settled")[0].field("status"),
        Some("failed"),
        "b076"
    );
    soon("rest", root.rest()).await;
    assert_eq!(world.accepted(&root, "task").len(), 1);
    world.close(&root).await;
}

#[tokio::test]
async fn b062_a_long_output_keeps_its_end() {
    let mut setup = Setup::default();
    setup.tools.task_output.max_bytes = 2048;
    let world = World::with(setup);
    let root = world.root();
    let command = "i=0; while [ $i -lt 400 ]; do echo pppppppppp; i=$((i+1)); done; echo FATAL: linker failed";
    let output = bash(&world, &root, json!({"command": command})).await;
    assert!(output.text.len() <= 2048);
    assert!(
        output
            .text
            .ends_with("FATAL: linker failed\n[status: completed, exit code: 0]")
    );
    assert!(output.text.starts_with('[') && output.text.contains(" bytes omitted]\n"));
    world.close(&root).await;
}

/// The file that a result names, without what it says.
fn named(text: &str) -> Option<std::path::PathBuf> {
    let (_, rest) = text.split_once("; the output from its beginning is in ")?;
    let (path, _) = rest.split_once("]\n")?;
    Some(path.into())
}

#[tokio::test]
async fn b062_what_a_result_leaves_out_is_in_a_file_that_it_names() {
    let temp = tempfile::tempdir().unwrap();
    let mut setup = with(BashSettings {
        spill: Some(temp.path().join("spill")),
        ..BashSettings::default()
    });
    setup.tools.task_output.max_bytes = 4096;
    let world = World::with(setup);
    let root = world.root();
    // More than a result shows, and less than the window.
    let command = "i=0; while [ $i -lt 1000 ]; do echo line $i; i=$((i+1)); done";
    let whole: String = (0..1000).map(|i| format!("line {i}\n")).collect();
    let check = |text: &str| {
        assert!(
            text.len() <= 4096 && text.ends_with("line 999\n[status: completed, exit code: 0]")
        );
        let path = named(text).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
        path
    };
    let foreground = bash(&world, &root, json!({"command": command})).await;
    let first = check(&foreground.text);

    let args = json!({"command": command, "run_in_background": true});
    assert!(!bash(&world, &root, args).await.is_error);
    let args = json!({"task_id": "bash-1", "wait": true});
    let background = soon("the end", world.call(&root, "task_output", args)).await;
    let second = check(&background.text);

    // What is whole has none.
    let small = bash(&world, &root, json!({"command": "echo small"})).await;
    assert_eq!(small.text, "small\n[status: completed, exit code: 0]");
    world.close(&root).await;
    assert!(!first.exists() && !second.exists());
}

#[tokio::test]
async fn a_command_that_cannot_be_one_is_refused_with_its_own_code() {
    let world = World::with(with(BashSettings::default()));
    let root = world.root();
    let output = bash(&world, &root, json!({"command": "echo \0"})).await;
    assert_eq!(output.code.as_deref(), Some("NUL_IN_COMMAND"));
    let long = "x".repeat(8 * 1024 * 1024);
    let output = bash(&world, &root, json!({"command": long})).await;
    assert_eq!(output.code.as_deref(), Some("COMMAND_TOO_LONG"));
    assert!(
        output.text.contains("8388608 bytes") && output.text.contains("write it to a file"),
        "{}",
        output.text
    );
    world.close(&root).await;
}
