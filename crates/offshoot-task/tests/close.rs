//! The end of an owner and of the registry.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use common::*;
use offshoot_core::Scope;
use offshoot_task::*;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn closing_stops_the_live_tasks_awaits_them_and_removes_every_record() {
    let (registry, owner) = fixture();
    let log = Log::attach(&registry);
    let done = start(&registry, &owner, async { TaskOutcome::completed() });
    wait(&registry, &owner, &done).await;
    owner.unheld().await;
    log.take();
    let id = registry.start(&owner, TaskSpec::new("bash", "x"), |context| {
        Ok(async move {
            context.cancelled().await;
            assert_eq!(context.stop_request().unwrap().by, StoppedBy::Owner);
            TaskOutcome::killed()
        })
    });
    let id = id.unwrap();
    let other = Scope::root("other");
    let foreign = start(&registry, &other, pending());
    let report = owner.close().await;
    assert!(report.is_clean(), "{report:?}");
    assert!(registry.list(owner.id()).is_empty());
    assert_eq!(
        registry.get(owner.id(), &id).unwrap_err().code(),
        "UNKNOWN_TASK"
    );
    assert_eq!(
        registry.get(other.id(), &foreign).unwrap().status,
        TaskStatus::Running
    );
    let mut lines = log.take();
    // The two removals may come in either order.
    lines[5..].sort();
    assert_eq!(
        lines,
        [
            "bash-2 Started running",
            "bash-3 Started running",
            "bash-2 Stopping stopping reported",
            "bash-2 Settled killed reported",
            "bash-1 Removed completed reported",
            "bash-2 Removed killed reported",
        ]
    );
}

#[tokio::test]
async fn a_waiter_gets_the_end_although_its_owner_is_gone() {
    let (registry, owner) = fixture();
    let id = start_obedient(&registry, &owner);
    let mut waiting = Box::pin(registry.wait(owner.id(), &id, Duration::MAX));
    assert!(futures::poll!(&mut waiting).is_pending());
    owner.close().await;
    assert!(registry.list(owner.id()).is_empty());
    let waited = waiting.await.unwrap();
    assert_eq!(waited.snapshot().status, TaskStatus::Killed);
    waited.commit();
    assert!(format!("{registry:?}").contains("records: 0"));
}

#[tokio::test(start_paused = true)]
async fn deaf_tasks_are_aborted_after_one_grace_for_all() {
    let (registry, owner) = fixture();
    let log = Log::attach(&registry);
    for _ in 0..3 {
        start(&registry, &owner, pending());
    }
    let begun = Instant::now();
    assert!(owner.close().await.is_clean());
    assert_eq!(begun.elapsed().as_secs(), 5);
    let settled = log.take();
    let killed = settled
        .iter()
        .filter(|line| line.ends_with("Settled killed reported"));
    assert_eq!(killed.count(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_work_of_a_task_that_was_given_up_is_dropped_when_it_lets_go_of_its_thread() {
    // The blocked poll is the first one, or a later one.
    for polls_before in [0, 1] {
        let (registry, owner) =
            fixture_with(|config| config.teardown_grace = Duration::from_millis(1));
        let (release, blocked) = std::sync::mpsc::channel::<()>();
        let (at_work, begun) = tokio::sync::oneshot::channel();
        let (held, dropped) = tokio::sync::oneshot::channel::<()>();
        start(&registry, &owner, async move {
            let _held = held;
            for _ in 0..polls_before {
                tokio::task::yield_now().await;
            }
            at_work.send(()).unwrap();
            let _ = blocked.recv();
            std::future::pending().await
        });
        begun.await.unwrap();
        assert!(owner.close().await.is_clean());
        drop(release);
        // Completes when the other end is dropped.
        assert!(dropped.await.is_err());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_blocks_its_thread_cannot_hold_up_the_closing() {
    let (registry, owner) = fixture_with(|config| config.teardown_grace = Duration::from_millis(1));
    let details = Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = Arc::clone(&details);
    let handle = registry.observe(Arc::new(move |change: TaskChange, task: &TaskSnapshot| {
        if change == TaskChange::Settled {
            kept.lock()
                .unwrap()
                .push((task.status, task.detail.clone().unwrap()));
        }
    }));
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let (at_work, begun) = tokio::sync::oneshot::channel();
    start(&registry, &owner, async move {
        at_work.send(()).unwrap();
        let _ = blocked.recv();
        TaskOutcome::completed()
    });
    begun.await.unwrap();
    assert!(owner.close().await.is_clean());
    drop(release);
    let details = details.lock().unwrap();
    assert_eq!(details.len(), 1);
    assert_eq!(details[0].0, TaskStatus::Failed);
    assert_eq!(
        &*details[0].1,
        "did not stop and could not be aborted; its work may go on"
    );
    drop(handle);
}

#[tokio::test]
async fn b028_a_start_after_closing_began_is_refused_before_the_starter() {
    let (registry, owner) = fixture();
    let closing = owner.close();
    let error = registry
        .start(&owner, TaskSpec::new("bash", "x"), never)
        .unwrap_err();
    assert_eq!(error.code(), "OWNER_CLOSING");
    closing.await;
    let other = Scope::root("other");
    assert_eq!(start(&registry, &other, pending()).to_string(), "bash-1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_under_way_when_closing_begins_is_stopped_and_awaited() {
    let (registry, owner) = fixture();
    // The owner needs an entry for its closing to wait for.
    start_obedient(&registry, &owner);
    let (scope, inner) = (owner.clone(), registry.clone());
    let (closing_tx, closing) = std::sync::mpsc::channel();
    let (entered_tx, entered) = tokio::sync::oneshot::channel();
    let starting = tokio::task::spawn_blocking(move || {
        inner.start(&scope, TaskSpec::new("bash", "late"), |context| {
            entered_tx.send(()).unwrap();
            closing.recv().unwrap();
            Ok(async move {
                context.cancelled().await;
                TaskOutcome::killed()
            })
        })
    });
    entered.await.unwrap();
    let first: TaskId = "bash-1".parse().unwrap();
    let closed = tokio::spawn(owner.close());
    // The obedient one ends only when closing has reached the registry.
    if let Ok(waited) = registry.wait(owner.id(), &first, Duration::MAX).await {
        waited.commit();
    }
    assert!(!closed.is_finished(), "it waits for the start");
    closing_tx.send(()).unwrap();
    assert_eq!(starting.await.unwrap().unwrap().to_string(), "bash-2");
    assert!(closed.await.unwrap().is_clean());
    assert!(registry.list(owner.id()).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_outlasts_the_closing_registers_nothing() {
    let (registry, owner) = fixture_with(|config| config.teardown_grace = Duration::from_millis(1));
    let (scope, inner) = (owner.clone(), registry.clone());
    let (closed_tx, closed) = std::sync::mpsc::channel();
    let (entered_tx, entered) = tokio::sync::oneshot::channel();
    let starting = tokio::task::spawn_blocking(move || {
        inner.start(&scope, TaskSpec::new("bash", "late"), |_| {
            entered_tx.send(()).unwrap();
            closed.recv().unwrap();
            Ok(pending())
        })
    });
    entered.await.unwrap();
    owner.close().await;
    closed_tx.send(()).unwrap();
    assert_eq!(starting.await.unwrap().unwrap_err().code(), "OWNER_CLOSING");
    assert_eq!(owner.holds(), 0);
    assert!(format!("{registry:?}").contains("records: 0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b029_starts_that_race_with_closing_leave_no_survivor() {
    for _ in 0..300 {
        let (registry, owner) = fixture_with(|config| config.max_live_per_owner = usize::MAX);
        let (live, admitted) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let stop = Arc::new(AtomicBool::new(false));
        let starter = {
            let (registry, owner) = (registry.clone(), owner.clone());
            let (live, admitted, stop) =
                (Arc::clone(&live), Arc::clone(&admitted), Arc::clone(&stop));
            tokio::task::spawn_blocking(move || {
                while !stop.load(Ordering::Relaxed) {
                    let live = Arc::clone(&live);
                    let started = registry.start(&owner, TaskSpec::new("bash", "x"), |context| {
                        live.fetch_add(1, Ordering::SeqCst);
                        Ok(async move {
                            context.cancelled().await;
                            live.fetch_sub(1, Ordering::SeqCst);
                            TaskOutcome::killed()
                        })
                    });
                    match started {
                        Ok(_) => admitted.fetch_add(1, Ordering::Relaxed),
                        Err(error) => {
                            assert_eq!(error.code(), "OWNER_CLOSING");
                            return;
                        }
                    };
                }
            })
        };
        while admitted.load(Ordering::Relaxed) < 3 {
            tokio::task::yield_now().await;
        }
        let report = owner.close().await;
        assert_eq!(live.load(Ordering::SeqCst), 0);
        assert!(report.is_clean(), "{report:?}");
        assert!(registry.list(owner.id()).is_empty());
        stop.store(true, Ordering::Relaxed);
        starter.await.unwrap();
        assert!(
            format!("{registry:?}").contains("records: 0"),
            "{registry:?}"
        );
    }
}

#[tokio::test]
async fn a_failed_start_on_a_closed_owner_does_not_disturb_its_successor() {
    let (registry, owner) = fixture_with(|config| config.max_live_per_owner = 1);
    let id = start_obedient(&registry, &owner);
    owner.close().await;
    let successor = Scope::root("owner");
    let next = start_obedient(&registry, &successor);
    assert_eq!((id.number(), next.number()), (1, 2));
    assert_eq!(registry.list(owner.id()).len(), 0);
    assert_eq!(registry.list(successor.id()).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_every_task_of_every_owner_in_one_grace_and_leaves_the_owners_open() {
    let (registry, a) = fixture_with(|config| config.allow_unowned = true);
    let b = Scope::root("b");
    let log = Log::attach(&registry);
    start_obedient(&registry, &a);
    start(&registry, &b, pending());
    registry
        .start_unowned(TaskSpec::new("bash", "x"), |_| Ok(pending()))
        .unwrap();
    let begun = Instant::now();
    let first = registry.shutdown();
    let error = registry
        .start(&a, TaskSpec::new("bash", "x"), never)
        .unwrap_err();
    assert_eq!(error.code(), "REGISTRY_CLOSING");
    tokio::join!(first, registry.shutdown());
    assert_eq!(begun.elapsed().as_secs(), 5);
    let lines = log.take();
    for part in ["Settled killed reported", "Removed killed reported"] {
        assert_eq!(
            lines.iter().filter(|line| line.contains(part)).count(),
            3,
            "{lines:?}"
        );
    }
    assert!(!a.is_closing() && a.holds() == 0 && b.holds() == 0);
    // Nothing of the registry is left in the owners.
    assert!(a.close().await.is_clean());
    assert!(format!("{registry:?}").contains("records: 0"));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_and_a_closing_at_the_same_time_both_end() {
    let (registry, owner) = fixture();
    start(&registry, &owner, pending());
    let (report, ()) = tokio::join!(owner.close(), registry.shutdown());
    assert!(report.is_clean());
}

#[tokio::test(start_paused = true)]
async fn the_closing_waits_for_observers_that_are_still_running() {
    let (registry, owner) = fixture();
    let done = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&done);
    let handle = registry.observe(Arc::new(move |change: TaskChange, _: &TaskSnapshot| {
        if change == TaskChange::Removed {
            set.store(true, Ordering::SeqCst);
        }
    }));
    start_obedient(&registry, &owner);
    owner.close().await;
    assert!(done.load(Ordering::SeqCst));
    drop(handle);
}

#[tokio::test]
async fn a_killed_task_that_is_then_torn_down_is_silent() {
    let (registry, owner) = fixture_with(|config| config.teardown_grace = SECOND);
    let log = Log::attach(&registry);
    let (end, id) = start_gated(&registry, &owner);
    let _ = registry
        .kill(owner.id(), &id, StoppedBy::Human, None)
        .unwrap();
    let closed = owner.close();
    let closed = tokio::spawn(closed);
    while !registry.get(owner.id(), &id).unwrap().reported {
        tokio::task::yield_now().await;
    }
    end.send(TaskOutcome::killed()).unwrap();
    assert!(closed.await.unwrap().is_clean());
    assert_eq!(log.notices(&id), 0);
}

#[tokio::test]
async fn two_tasks_of_one_owner_have_one_cleanup() {
    let (registry, owner) = fixture();
    let mark = || owner.on_close("a mark", async || Ok(())).unwrap();
    // Cleanups are numbered in the order of their registration.
    let number = |id| {
        let shown = format!("{id:?}");
        let digits = shown.trim_matches(|c: char| !c.is_ascii_digit());
        digits.parse::<u64>().unwrap()
    };
    let before = number(mark());
    assert_eq!(number(mark()), before + 1, "two marks are neighbours");
    for _ in 0..2 {
        let spec = TaskSpec::new("idle", "one of two");
        let work = async |context: TaskContext| {
            context.cancelled().await;
            TaskOutcome::killed()
        };
        registry.spawn(&owner, spec, work).unwrap();
    }
    assert_eq!(number(mark()), before + 3, "one cleanup for both");
    owner.close().await;
    assert_eq!((owner.holds(), registry.list(owner.id())), (0, vec![]));
}

#[tokio::test(start_paused = true)]
async fn the_tasks_of_a_whole_tree_of_owners_have_one_grace() {
    let (registry, root) = fixture_with(|config| config.teardown_grace = Duration::from_secs(5));
    let mut owners = vec![root.clone()];
    for _ in 0..4 {
        owners.push(owners[owners.len() - 1].child("inside").unwrap());
    }
    let mut stopped = Vec::new();
    for owner in &owners {
        start(&registry, owner, pending());
        let (told, heard) = tokio::sync::oneshot::channel();
        registry
            .spawn(owner, TaskSpec::new("bash", "x"), async |context| {
                context.cancelled().await;
                let _ = told.send(tokio::time::Instant::now());
                tokio::time::sleep(Duration::from_secs(3)).await;
                TaskOutcome::killed()
            })
            .unwrap();
        stopped.push(heard);
    }
    tokio::task::yield_now().await;
    let begun = tokio::time::Instant::now();
    root.close().await;
    let took = begun.elapsed();
    // Each owner has one that does not listen: it is aborted after the grace.
    assert!(
        took >= Duration::from_secs(5) && took < Duration::from_secs(6),
        "{took:?}"
    );
    for heard in stopped {
        assert_eq!(heard.await.unwrap(), begun, "all were told at once");
    }
}
