//! A task that writes at full speed. Alone in its program: it looks at the memory of the process.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "test code")]

use std::time::{Duration, Instant};

use offshoot_core::Scope;
use offshoot_task::*;

/// How long the flood is let run.
const FLOOD: Duration = Duration::from_secs(10);

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test]
async fn b059_a_task_that_writes_at_full_speed_takes_no_more_memory_than_its_window() {
    let (registry, owner) = (TaskRegistry::default(), Scope::root("owner"));
    let line = "all work and no play makes a dull log\n".repeat(100);
    let spec = TaskSpec::new("flood", "at full speed").streaming();
    let work = async move |context: TaskContext| {
        let (output, begun, mut lines) = (context.output().unwrap(), Instant::now(), 0);
        while begun.elapsed() < FLOOD {
            for _ in 0..100 {
                output.write(&line);
                lines += 1;
                context.progress(lines, None, "more");
            }
            tokio::task::yield_now().await;
        }
        TaskOutcome::completed()
    };
    let begun = Instant::now();
    let id = registry.spawn(&owner, spec, work).unwrap();
    let (mut before, mut peak, mut read) = (None, 0, 0);
    while !registry.get(owner.id(), &id).unwrap().status.is_terminal() {
        // A reader that comes now and then: some are shown, some come to nothing, some stay open.
        let open = registry.read(owner.id(), &id).unwrap();
        let beside = registry.read(owner.id(), &id).unwrap();
        read += (open.text().len() + beside.text().len()) as u64 + open.gap() + beside.gap();
        beside.commit();
        open.commit();
        if begun.elapsed() > FLOOD / 10 {
            // The window is full by now.
            let before = before.get_or_insert_with(resident);
            peak = peak.max(resident().saturating_sub(*before));
        }
        tokio::task::yield_now().await;
    }
    let end = registry.get(owner.id(), &id).unwrap();
    assert!(end.output_len > 200 * 1024 * 1024, "{}", end.output_len);
    assert_eq!(
        read + end.unread,
        end.output_len,
        "each byte is counted once"
    );
    assert!(peak < 4 * 1024 * 1024, "grew by {peak} bytes");
}
