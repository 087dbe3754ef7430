//! A producer at full speed. Alone in its program: it looks at the memory of the process.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "test code")]

use std::time::{Duration, Instant};

use offshoot_core::Scope;
use offshoot_shell::{ShellCommand, ShellConfig, ShellTask, SpillConfig, start_shell};
use offshoot_task::{TaskConfig, TaskRegistry, TaskStatus};

/// How long the flood is let run.
const FLOOD: Duration = Duration::from_secs(10);

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test]
async fn b059_a_flood_at_full_speed_takes_no_more_memory_than_its_window() {
    let temp = tempfile::tempdir().unwrap();
    let registry = TaskRegistry::new(TaskConfig::default());
    let owner = Scope::root("owner");
    let spill = SpillConfig::new(temp.path().join("spill")).limit(1024 * 1024);
    let config = ShellConfig {
        spill: Some(spill),
        ..ShellConfig::default()
    };
    let command = ShellCommand::new("yes 'bad input!'");
    let task = ShellTask {
        deadline: Some(FLOOD),
        ..ShellTask::default()
    };
    let id = start_shell(&registry, &owner, &command, &task, &config).unwrap();
    let (begun, mut peak, mut before) = (Instant::now(), 0, None);
    loop {
        let waited = registry
            .wait(owner.id(), &id, Duration::from_millis(100))
            .await
            .unwrap();
        if waited.settled() {
            break;
        }
        if begun.elapsed() > FLOOD / 10 {
            // The window is full by now.
            let before = before.get_or_insert_with(resident);
            peak = peak.max(resident().saturating_sub(*before));
        }
        assert!(begun.elapsed() < 6 * FLOOD);
    }
    let end = registry.get(owner.id(), &id).unwrap();
    assert_eq!(end.status, TaskStatus::Failed);
    assert!(end.output_len > 50 * 1024 * 1024, "{}", end.output_len);
    assert!(peak < 4 * 1024 * 1024, "grew by {peak} bytes");
    let file = std::fs::metadata(end.overflow.unwrap()).unwrap();
    assert_eq!(file.len(), 1024 * 1024, "the file has its limit");
    assert_eq!(end.overflow_missing, end.output_len - file.len());
}
