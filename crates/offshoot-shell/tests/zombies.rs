//! Alone in its program: it looks at all children of the process.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::time::Duration;

use offshoot_core::Scope;
use offshoot_shell::{ShellCommand, ShellConfig, ShellTask, start_shell};
use offshoot_task::{KillOutcome, StoppedBy, TaskConfig, TaskRegistry};

/// The processes whose parent is this one, with their states.
fn children() -> Vec<(String, String)> {
    let me = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap() {
        let pid = entry.unwrap().file_name().to_string_lossy().into_owned();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let mut fields = stat.rsplit(')').next().unwrap_or("").split_whitespace();
        if let (Some(state), Some(parent)) = (fields.next(), fields.next())
            && parent == me
        {
            found.push((pid, state.to_owned()));
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b055_many_commands_leave_no_process_and_no_zombie() {
    let registry = TaskRegistry::new(TaskConfig {
        max_live_per_owner: 201,
        ..TaskConfig::default()
    });
    let (owner, config) = (Scope::root("owner"), ShellConfig::default());
    let start = |line: &str| {
        let command = ShellCommand::new(line);
        start_shell(&registry, &owner, &command, &ShellTask::default(), &config).unwrap()
    };
    let ids: Vec<_> = (0..200).map(|_| start("true")).collect();
    // What this test looks with does see a child.
    let long = start("exec sleep 600");
    assert!(children().iter().any(|(_, state)| state != "Z"));
    let kill = registry.kill(owner.id(), &long, StoppedBy::Human, None);
    assert_eq!(kill.unwrap(), KillOutcome::Requested);
    assert!(
        registry
            .wait(owner.id(), &long, Duration::from_secs(60))
            .await
            .unwrap()
            .settled()
    );
    let ends = registry
        .wait_all(owner.id(), &ids, Duration::from_secs(60))
        .await;
    for waited in ends.unwrap() {
        assert_eq!(waited.snapshot().detail.as_deref(), Some("exit code: 0"));
        waited.commit();
    }
    assert_eq!(children(), []);
}
