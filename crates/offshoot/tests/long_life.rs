//! A log of tasks and runs that are all over is far larger than what is still true of it. Alone in its process,
//! whose memory it measures.

#[path = "support/long_life.rs"]
mod support;

use offshoot::subagent::open_runs;
use offshoot::tools::open_tasks;
use support::{lived, peak_kib, runtime};

#[tokio::test]
async fn a_resume_takes_no_memory_for_tasks_and_runs_that_are_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let (id, count) = lived(folder.path(), 24 << 20).await;
    let before = peak_kib();
    let runtime = runtime(folder.path());
    let root = runtime.resume_root(&id).expect("the session");
    let grown = peak_kib() - before;
    assert!(grown < 4 << 10, "{grown} KiB for {count} tasks and runs");
    root.with_projection(|p| {
        assert!(open_tasks(p).is_empty() && open_runs(p).is_empty());
        assert_eq!(p.extensions().count(), 0, "none is kept");
    });
    assert!(
        root.with_projection(|p| p.inbox().is_empty()),
        "nothing is told again"
    );
    assert!(runtime.subagents().list(&root, true).is_empty());
    runtime.close(&root).await;
}
