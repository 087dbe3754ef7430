//! Many tasks. Alone in its program: it looks at the memory of the process.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "test code")]

use std::time::Duration;

use offshoot_core::Scope;
use offshoot_task::*;

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test]
async fn a_million_live_tasks_fit_in_one_process_and_end() {
    const N: usize = 1_000_000;
    let registry = TaskRegistry::new(TaskConfig {
        max_live_per_owner: N,
        ..TaskConfig::default()
    });
    let owner = Scope::root("owner");
    let before = resident();
    let mut last = None;
    for _ in 0..N {
        let spec = TaskSpec::new("idle", "one of many");
        let id = registry.start(&owner, spec, |_| Ok(std::future::pending()));
        last = Some(id.unwrap());
    }
    let each = (resident() - before) / N;
    assert!(each <= 700, "{each} bytes a task");
    assert_eq!(registry.live_count(owner.id()), N);
    let last = last.unwrap();
    assert_eq!(last.number(), N as u64);
    let kill = registry.kill(owner.id(), &last, StoppedBy::Human, None);
    assert_eq!(kill.unwrap(), KillOutcome::Requested);
    tokio::time::pause();
    // Nobody listens: the closing aborts them all, after one grace.
    let closed = tokio::time::timeout(Duration::from_secs(60), owner.close());
    assert!(closed.await.unwrap().is_clean());
    assert_eq!(registry.list(owner.id()), []);
}
