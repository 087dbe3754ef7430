//! Ends, waits, kills, reports: who is told what, and how often.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::time::Duration;

use common::*;
use offshoot_core::{Scope, Timestamp, WallClock};
use offshoot_task::*;
use tokio::sync::oneshot;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_due_notice_is_withdrawn_before_a_record_that_is_not_retained_goes() {
    let (registry, owner) = fixture_with(|config| config.retain_finished = 0);
    let log = Log::attach(&registry);
    let (end, id) = start_gated(&registry, &owner);
    end.send(TaskOutcome::completed()).unwrap();
    owner.unheld().await;
    log.take();
    registry.read(owner.id(), &id).unwrap().commit();
    assert_eq!(
        log.take(),
        [
            "bash-1 Collected completed reported",
            "bash-1 Removed completed reported"
        ]
    );
}

#[tokio::test]
async fn a_settlement_is_announced_once_unreported_and_then_collected() {
    let (registry, owner) = fixture();
    let log = Log::attach(&registry);
    let (end, id) = start_gated(&registry, &owner);
    end.send(TaskOutcome::completed().with_detail("exit code: 0"))
        .unwrap();
    owner.unheld().await;
    assert_eq!(
        log.take(),
        ["bash-1 Started running", "bash-1 Settled completed"]
    );
    let snapshot = wait(&registry, &owner, &id).await;
    assert_eq!(snapshot.detail.as_deref(), Some("exit code: 0"));
    assert!(snapshot.reported && snapshot.finished_at >= Some(snapshot.started_at));
    assert_eq!(log.take(), ["bash-1 Collected completed reported"]);
}

#[tokio::test]
async fn an_owner_that_waits_until_nothing_holds_it_has_had_the_notice() {
    let (registry, owner) = fixture();
    let log = Log::attach(&registry);
    let id = start(&registry, &owner, async { TaskOutcome::completed() });
    assert_eq!(owner.holds(), 1);
    owner.unheld().await;
    assert_eq!(log.notices(&id), 1);
}

#[tokio::test]
async fn b007_every_kind_of_end_gives_one_terminal_status_and_one_notice() {
    let (registry, owner) = fixture_with(|config| config.max_live_per_owner = 1);
    let log = Log::attach(&registry);
    let (end, lost) = start_gated(&registry, &owner);
    drop(end);
    owner.unheld().await;
    let rows: Vec<(TaskId, TaskStatus, &str)> = vec![
        (lost, TaskStatus::Failed, "the producer was lost"),
        (
            start_and_rest(&registry, &owner, async { TaskOutcome::completed() }).await,
            TaskStatus::Completed,
            "",
        ),
        (
            start_and_rest(&registry, &owner, async { TaskOutcome::killed() }).await,
            TaskStatus::Killed,
            "",
        ),
        (
            start_and_rest(&registry, &owner, async { TaskOutcome::failed("refusal") }).await,
            TaskStatus::Failed,
            "refusal",
        ),
        (
            start_and_rest(&registry, &owner, async { panic!("boom") }).await,
            TaskStatus::Failed,
            "panicked: boom",
        ),
        (
            start_and_rest(&registry, &owner, DropPanics).await,
            TaskStatus::Completed,
            "",
        ),
    ];
    for (id, status, detail) in rows {
        assert_eq!(log.notices(&id), 1, "{id}");
        let task = registry.get(owner.id(), &id).unwrap();
        assert_eq!(
            (task.status, task.detail.as_deref().unwrap_or("")),
            (status, detail)
        );
    }
}

async fn start_and_rest(
    registry: &TaskRegistry,
    owner: &Scope,
    work: impl Future<Output = TaskOutcome> + Send + 'static,
) -> TaskId {
    let id = start(registry, owner, work);
    owner.unheld().await;
    id
}

/// Ends well, and panics when it is dropped.
struct DropPanics;

impl Future for DropPanics {
    type Output = TaskOutcome;

    fn poll(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<TaskOutcome> {
        std::task::Poll::Ready(TaskOutcome::completed())
    }
}

impl Drop for DropPanics {
    fn drop(&mut self) {
        panic!("in the drop");
    }
}

async fn six_notices_for_six_tasks() {
    let (registry, owner) = fixture();
    let log = Log::attach(&registry);
    let (open, _) = tokio::sync::broadcast::channel::<()>(1);
    let ids: Vec<_> = (0..6)
        .map(|n| {
            let mut opened = open.subscribe();
            start(&registry, &owner, async move {
                let _ = opened.recv().await;
                TaskOutcome::completed().with_output(format!("r{n}"))
            })
        })
        .collect();
    open.send(()).unwrap();
    owner.unheld().await;
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(log.notices(id), 1);
        assert_eq!(
            registry.read(owner.id(), id).unwrap().text(),
            format!("r{n}")
        );
    }
}

#[tokio::test]
async fn b001_b020_tasks_that_end_together_give_one_notice_each_on_one_thread() {
    six_notices_for_six_tasks().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b001_tasks_that_end_together_give_one_notice_each_on_four_threads() {
    for _ in 0..100 {
        six_notices_for_six_tasks().await;
    }
}

#[tokio::test]
async fn b010_a_task_killed_before_its_first_poll_is_killed_with_one_notice() {
    let (registry, owner) = fixture();
    let log = Log::attach(&registry);
    let id = start_obedient(&registry, &owner);
    let reason = Some("changed\nmy mind".to_owned());
    let kill = registry
        .kill(owner.id(), &id, StoppedBy::Human, reason)
        .unwrap();
    assert_eq!(kill, KillOutcome::Requested);
    owner.unheld().await;
    let task = registry.get(owner.id(), &id).unwrap();
    let stop = task.stop.as_deref().unwrap();
    assert_eq!(
        (task.status, stop.by),
        (TaskStatus::Killed, StoppedBy::Human)
    );
    assert_eq!(stop.reason.as_deref(), Some("changed my mind"));
    assert_eq!(
        log.take(),
        [
            "bash-1 Started running",
            "bash-1 Stopping stopping",
            "bash-1 Settled killed"
        ]
    );
}

#[tokio::test]
async fn a_kill_by_the_model_silences_the_notice_and_one_by_a_person_does_not() {
    let (registry, owner) = fixture();
    for (by, notices) in [(StoppedBy::Model, 0), (StoppedBy::Human, 1)] {
        let log = Log::attach(&registry);
        let id = start_obedient(&registry, &owner);
        let _ = registry.kill(owner.id(), &id, by, None).unwrap();
        owner.unheld().await;
        assert_eq!(log.notices(&id), notices);
    }
}

#[tokio::test]
async fn a_repeated_kill_changes_nothing() {
    let (registry, owner) = fixture();
    let log = Log::attach(&registry);
    let (end, id) = start_gated(&registry, &owner);
    let kill = |by, reason: &str| {
        registry
            .kill(owner.id(), &id, by, Some(reason.to_owned()))
            .unwrap()
    };
    assert_eq!(kill(StoppedBy::Human, "first"), KillOutcome::Requested);
    let before = registry.get(owner.id(), &id).unwrap();
    log.take();
    assert_eq!(
        kill(StoppedBy::Model, "second"),
        KillOutcome::AlreadyStopping
    );
    let after = registry.get(owner.id(), &id).unwrap();
    assert_eq!(
        (after.stop, after.status, after.reported),
        (before.stop, before.status, before.reported)
    );
    assert_eq!(log.take(), [""; 0]);
    end.send(TaskOutcome::completed()).unwrap();
    owner.unheld().await;
    assert_eq!(log.notices(&id), 1);
    assert_eq!(
        kill(StoppedBy::Human, "third"),
        KillOutcome::AlreadyFinished
    );
    assert!(!registry.get(owner.id(), &id).unwrap().reported);
    assert_eq!(
        kill(StoppedBy::Model, "fourth"),
        KillOutcome::AlreadyFinished
    );
    assert!(registry.get(owner.id(), &id).unwrap().reported);
    assert_eq!(log.notices(&id), 0, "the notice is withdrawn");
}

#[tokio::test]
async fn the_outcome_of_the_work_decides_the_status_of_a_killed_task() {
    let (registry, owner) = fixture();
    let (end, id) = start_gated(&registry, &owner);
    let _ = registry
        .kill(owner.id(), &id, StoppedBy::Model, None)
        .unwrap();
    assert_eq!(
        registry.get(owner.id(), &id).unwrap().status,
        TaskStatus::Stopping
    );
    end.send(TaskOutcome::completed()).unwrap();
    assert_eq!(
        wait(&registry, &owner, &id).await.status,
        TaskStatus::Completed
    );
}

#[tokio::test(start_paused = true)]
async fn a_deaf_task_is_aborted_after_the_kill_grace_and_frees_its_place() {
    let (registry, owner) = fixture_with(|config| {
        config.max_live_per_owner = 2;
        config.kill_grace = Some(7 * SECOND);
    });
    let (first, second) = (
        start(&registry, &owner, pending()),
        start(&registry, &owner, pending()),
    );
    let _ = registry
        .kill(owner.id(), &first, StoppedBy::Human, None)
        .unwrap();
    tokio::time::advance(3 * SECOND).await;
    let _ = registry
        .kill(owner.id(), &second, StoppedBy::Model, None)
        .unwrap();
    for (id, after) in [(first, 7), (second, 10)] {
        let task = wait(&registry, &owner, &id).await;
        assert_eq!(task.status, TaskStatus::Killed);
        assert_eq!(
            task.detail.as_deref(),
            Some("did not stop in time and was aborted")
        );
        assert_eq!(task.elapsed.as_secs(), after);
    }
    assert_eq!((registry.live_count(owner.id()), owner.holds()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn without_a_kill_grace_a_deaf_task_is_left_alone() {
    let (registry, owner) = fixture_with(|config| config.kill_grace = None);
    let id = start(&registry, &owner, pending());
    let _ = registry
        .kill(owner.id(), &id, StoppedBy::Human, None)
        .unwrap();
    let waited = registry
        .wait(owner.id(), &id, 100_000 * SECOND)
        .await
        .unwrap();
    assert!(!waited.settled());
}

#[tokio::test(start_paused = true)]
async fn a_task_past_its_deadline_failed_and_is_not_silenced() {
    let (registry, owner) = fixture();
    let log = Log::attach(&registry);
    let obedient = registry.start(
        &owner,
        TaskSpec::new("bash", "x").deadline(SECOND),
        |context| {
            Ok(async move {
                context.cancelled().await;
                assert_eq!(context.stop_request().unwrap().by, StoppedBy::Deadline);
                TaskOutcome::killed().with_detail("signal: SIGTERM")
            })
        },
    );
    let deaf = registry.start(&owner, TaskSpec::new("bash", "x").deadline(SECOND), |_| {
        Ok(pending())
    });
    let in_time = registry.start(&owner, TaskSpec::new("bash", "x").deadline(SECOND), |_| {
        Ok(async { TaskOutcome::completed() })
    });
    owner.unheld().await;
    for (id, status, detail, secs) in [
        (
            obedient,
            TaskStatus::Failed,
            "deadline exceeded (signal: SIGTERM)",
            1,
        ),
        (
            deaf,
            TaskStatus::Failed,
            "deadline exceeded (did not stop in time and was aborted)",
            31,
        ),
        (in_time, TaskStatus::Completed, "", 0),
    ] {
        let id = id.unwrap();
        let task = registry.get(owner.id(), &id).unwrap();
        assert_eq!(
            (task.status, task.detail.as_deref().unwrap_or("")),
            (status, detail)
        );
        assert_eq!((task.elapsed.as_secs(), log.notices(&id)), (secs, 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b047_the_first_end_wins() {
    // The work is given up while it blocks its thread, and ends otherwise afterwards.
    let (registry, owner) = fixture_with(|config| {
        config.kill_grace = Some(Duration::from_millis(1));
    });
    let log = Log::attach(&registry);
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let (at_work, begun) = oneshot::channel();
    let (held, let_go) = oneshot::channel::<()>();
    let id = start(&registry, &owner, async move {
        let _held = held;
        at_work.send(()).unwrap();
        let _ = blocked.recv();
        TaskOutcome::completed().with_output("too late")
    });
    begun.await.unwrap();
    let kill = registry.kill(owner.id(), &id, StoppedBy::Human, None);
    assert_eq!(kill.unwrap(), KillOutcome::Requested);
    let before = wait(&registry, &owner, &id).await;
    let given_up = "did not stop and could not be aborted; its work may go on";
    assert_eq!(before.detail.as_deref(), Some(given_up));
    drop(release);
    // It has ended when what it held is dropped.
    assert!(let_go.await.is_err());
    owner.unheld().await;
    assert_eq!(wait(&registry, &owner, &id).await, before);
    assert_eq!(registry.read(owner.id(), &id).unwrap().text(), "");
    let log = log.take();
    let settled = log.iter().filter(|line| line.contains("Settled"));
    assert_eq!(settled.count(), 1, "{log:?}");
}

#[tokio::test]
async fn b046_the_end_is_published_after_the_future_is_gone() {
    let (registry, owner) = fixture();
    let alive = std::sync::Arc::new(());
    let kept = std::sync::Arc::clone(&alive);
    let id = start(&registry, &owner, async move {
        let _kept = kept;
        tokio::task::yield_now().await;
        TaskOutcome::completed()
    });
    let seen = std::sync::Arc::downgrade(&alive);
    drop(alive);
    let handle = registry.observe(std::sync::Arc::new(
        move |change: TaskChange, _: &TaskSnapshot| {
            if change == TaskChange::Settled {
                assert_eq!(seen.strong_count(), 0);
            }
        },
    ));
    wait(&registry, &owner, &id).await;
    drop(handle);
}

#[tokio::test]
async fn b043_all_waiters_get_the_same_end() {
    let (registry, owner) = fixture();
    let log = Log::attach(&registry);
    let (end, id) = start_gated(&registry, &owner);
    let waits: Vec<_> = (0..5)
        .map(|_| {
            let (registry, owner, id) = (registry.clone(), owner.clone(), id.clone());
            tokio::spawn(async move { wait(&registry, &owner, &id).await })
        })
        .collect();
    tokio::task::yield_now().await;
    end.send(TaskOutcome::completed().with_detail("done"))
        .unwrap();
    for one in waits {
        assert_eq!(one.await.unwrap().detail.as_deref(), Some("done"));
    }
    assert_eq!(log.notices(&id), 0);
}

#[tokio::test(start_paused = true)]
async fn b044_a_wait_that_timed_out_leaves_the_task_as_it_was() {
    let (registry, owner) = fixture();
    let log = Log::attach(&registry);
    let (end, id) = start_gated(&registry, &owner);
    for _ in 0..3 {
        let waited = registry
            .wait(owner.id(), &id, Duration::from_millis(1))
            .await
            .unwrap();
        assert!(!waited.settled());
        assert_eq!(waited.snapshot().status, TaskStatus::Running);
        assert!(!waited.snapshot().reported);
        // Without effect on a live task.
        waited.commit();
    }
    assert_eq!(registry.list(owner.id()).len(), 1);
    let _ = registry
        .kill(owner.id(), &id, StoppedBy::Human, None)
        .unwrap();
    end.send(TaskOutcome::killed()).unwrap();
    owner.unheld().await;
    assert_eq!(log.notices(&id), 1);
}

#[tokio::test]
async fn a_wait_for_no_time_is_an_error_even_over_a_finished_task() {
    let (registry, owner) = fixture();
    let id = start_and_rest(&registry, &owner, async { TaskOutcome::completed() }).await;
    let error = registry
        .wait(owner.id(), &id, Duration::ZERO)
        .await
        .unwrap_err();
    assert_eq!(error.code(), "INVALID_TIMEOUT");
    assert!(!registry.get(owner.id(), &id).unwrap().reported);
}

#[tokio::test]
async fn a_wait_dropped_before_the_end_suppresses_nothing() {
    let (registry, owner) = fixture();
    let log = Log::attach(&registry);
    let (end, id) = start_gated(&registry, &owner);
    {
        let mut waiting = Box::pin(registry.wait(owner.id(), &id, Duration::MAX));
        assert!(futures::poll!(&mut waiting).is_pending());
        assert!(!registry.get(owner.id(), &id).unwrap().reported);
    }
    end.send(TaskOutcome::completed()).unwrap();
    owner.unheld().await;
    assert_eq!(
        log.take(),
        ["bash-1 Started running", "bash-1 Settled completed"]
    );
}

#[tokio::test]
async fn a_wait_dropped_after_it_was_woken_gives_the_notice_back() {
    let (registry, owner) = fixture();
    let log = Log::attach(&registry);
    let (end, id) = start_gated(&registry, &owner);
    let mut first = Box::pin(registry.wait(owner.id(), &id, Duration::MAX));
    let mut second = Box::pin(registry.wait(owner.id(), &id, Duration::MAX));
    assert!(futures::poll!(&mut first).is_pending());
    assert!(futures::poll!(&mut second).is_pending());
    end.send(TaskOutcome::completed()).unwrap();
    owner.unheld().await;
    assert_eq!(
        log.take(),
        [
            "bash-1 Started running",
            "bash-1 Settled completed reported"
        ]
    );
    drop(first);
    assert_eq!(log.take(), [""; 0], "the other one may still show it");
    let waited = second.await.unwrap();
    assert!(waited.settled());
    drop(waited);
    assert_eq!(log.take(), ["bash-1 NoticeDue completed"]);
    wait(&registry, &owner, &id).await;
    assert_eq!(log.take(), ["bash-1 Collected completed reported"]);
}

#[tokio::test]
async fn waits_for_any_and_for_all_report_exactly_what_was_committed() {
    let (registry, owner) = fixture();
    let log = Log::attach(&registry);
    let (end_a, a) = start_gated(&registry, &owner);
    let (end_b, b) = start_gated(&registry, &owner);
    let ids = [a.clone(), b.clone()];
    end_b.send(TaskOutcome::completed()).unwrap();
    let mut ends = registry
        .wait_any(owner.id(), &ids, Duration::MAX)
        .await
        .unwrap();
    assert_eq!(
        ends.iter().map(Waited::settled).collect::<Vec<_>>(),
        [false, true]
    );
    ends.pop().unwrap().commit();
    drop(ends);
    end_a.send(TaskOutcome::failed("x")).unwrap();
    let ends = registry
        .wait_all(owner.id(), &ids, Duration::MAX)
        .await
        .unwrap();
    assert!(ends.iter().all(Waited::settled));
    drop(ends);
    assert_eq!((log.notices(&a), log.notices(&b)), (1, 0));
    assert_eq!(
        registry
            .wait_all(owner.id(), &[], SECOND)
            .await
            .unwrap()
            .len(),
        0
    );
    let none = registry.wait_any(owner.id(), &[], SECOND).await;
    assert_eq!(none.unwrap_err().code(), "NOTHING_TO_WAIT_FOR");
}

#[tokio::test]
async fn an_observer_that_panics_or_calls_back_disturbs_nobody() {
    let (registry, owner) = fixture();
    let bad = registry.observe(std::sync::Arc::new(|_: TaskChange, _: &TaskSnapshot| {
        panic!("bad")
    }));
    let (inner, scope) = (registry.clone(), owner.clone());
    let back = registry.observe(std::sync::Arc::new(
        move |change: TaskChange, task: &TaskSnapshot| {
            let listed = inner.get(scope.id(), &task.id).unwrap();
            match change {
                TaskChange::Started => {
                    assert_eq!(listed.status, TaskStatus::Running);
                    // Its own change is delivered after this call.
                    let _ = inner
                        .kill(scope.id(), &task.id, StoppedBy::Human, None)
                        .unwrap();
                }
                TaskChange::Settled => {
                    assert!(listed.status.is_terminal());
                    inner.read(scope.id(), &task.id).unwrap().commit();
                }
                _ => {}
            }
        },
    ));
    let log = Log::attach(&registry);
    start_obedient(&registry, &owner);
    owner.unheld().await;
    assert_eq!(
        log.take(),
        [
            "bash-1 Started running",
            "bash-1 Stopping stopping",
            "bash-1 Settled killed",
            "bash-1 Collected killed reported",
        ]
    );
    drop((bad, back));
    drop(log);
    start(&registry, &owner, async { TaskOutcome::completed() });
    owner.unheld().await;
}

struct Backwards(std::sync::atomic::AtomicU64);

impl WallClock for Backwards {
    fn now(&self) -> Timestamp {
        let millis = self.0.fetch_sub(1000, std::sync::atomic::Ordering::Relaxed);
        Timestamp::from_millis(millis)
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_steps_back_gives_no_end_before_its_start() {
    let (registry, owner) = fixture_with(|config| {
        config.clock = std::sync::Arc::new(Backwards(1_000_000.into()));
    });
    let id = start(&registry, &owner, async {
        tokio::time::sleep(SECOND).await;
        TaskOutcome::completed()
    });
    let task = wait(&registry, &owner, &id).await;
    let finished = task.started_at.as_millis() + 1000;
    assert_eq!(task.finished_at.map(Timestamp::as_millis), Some(finished));
    assert_eq!(task.elapsed, SECOND);
}

#[test]
fn a_task_whose_runtime_goes_away_is_settled() {
    let (registry, owner) = fixture();
    let log = Log::attach(&registry);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let id = runtime.block_on(async { start(&registry, &owner, pending()) });
    drop(runtime);
    let task = registry.get(owner.id(), &id).unwrap();
    assert_eq!(
        task.detail.as_deref(),
        Some("the runtime shut down before the task ended")
    );
    assert_eq!(
        (task.status, log.notices(&id), owner.holds()),
        (TaskStatus::Failed, 1, 0)
    );
}

#[tokio::test]
async fn helpers_that_the_work_left_behind_end_with_the_task() {
    let (registry, owner) = fixture();
    let (told, helper) = tokio::sync::oneshot::channel();
    let id = registry.start(&owner, TaskSpec::new("bash", "x"), |context| {
        tokio::spawn(async move {
            context.cancelled().await;
            told.send(()).unwrap();
        });
        Ok(async {
            tokio::task::yield_now().await;
            TaskOutcome::completed()
        })
    });
    wait(&registry, &owner, &id.unwrap()).await;
    helper.await.unwrap();
}
