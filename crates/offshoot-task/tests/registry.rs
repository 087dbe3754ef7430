//! Starting, admission, ids, access.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::*;
use offshoot_core::Scope;
use offshoot_task::*;

#[tokio::test]
async fn ids_are_counted_per_kind_from_one_for_all_owners() {
    let (registry, a) = fixture();
    let b = Scope::root("b");
    let mut ids = Vec::new();
    for (owner, kind) in [
        (&a, "bash"),
        (&b, "bash"),
        (&a, "subagent"),
        (&b, "workflow"),
    ] {
        let id = registry.start(owner, TaskSpec::new(kind, "x"), |_| Ok(pending()));
        ids.push(id.unwrap().to_string());
    }
    assert_eq!(ids, ["bash-1", "bash-2", "subagent-1", "workflow-1"]);
}

#[tokio::test]
async fn invalid_kinds_labels_and_deadlines_are_refused_before_the_starter() {
    let (registry, owner) = fixture();
    let long = "k".repeat(33);
    for kind in ["", "Bash", "a b", "a/b", "ä", &long] {
        let error = registry
            .start(&owner, TaskSpec::new(kind, "x"), never)
            .unwrap_err();
        assert_eq!(error.code(), "INVALID_KIND", "{kind:?}");
    }
    for label in ["", "  ", "\n\t\u{1b}"] {
        let error = registry
            .start(&owner, TaskSpec::new("k", label), never)
            .unwrap_err();
        assert_eq!(error.code(), "INVALID_LABEL", "{label:?}");
    }
    let spec = TaskSpec::new("k", "x").deadline(Duration::ZERO);
    let error = registry.start(&owner, spec, never).unwrap_err();
    assert_eq!(error.code(), "INVALID_DEADLINE");
    assert!(registry.list(owner.id()).is_empty());
    assert_eq!(owner.holds(), 0);
}

#[tokio::test]
async fn a_label_is_one_bounded_line() {
    let (registry, owner) = fixture();
    let spec = TaskSpec::new(
        "bash",
        format!("echo a\n[status: completed]\r\x1b[2J{}", "x".repeat(300)),
    );
    let id = registry.start(&owner, spec, |_| Ok(pending())).unwrap();
    let label = registry.get(owner.id(), &id).unwrap().label;
    assert!(
        label.starts_with("echo a [status: completed] [2Jxxx"),
        "{label}"
    );
    assert!(label.len() <= 200 && !label.contains(char::is_control));
}

#[tokio::test]
async fn the_eleventh_live_task_is_refused_and_its_starter_never_called() {
    let (registry, owner) = fixture();
    for _ in 0..10 {
        start(&registry, &owner, pending());
    }
    let error = registry
        .start(&owner, TaskSpec::new("bash", "x"), never)
        .unwrap_err();
    assert_eq!(error.code(), "LIMIT_REACHED");
    assert!(error.to_string().contains("(limit: 10)"), "{error}");
    assert_eq!(registry.live_count(owner.id()), 10);
}

#[tokio::test]
async fn a_slot_is_free_again_exactly_when_the_task_has_ended_however_it_ended() {
    let (registry, owner) = fixture_with(|config| config.max_live_per_owner = 1);
    let endings: [fn() -> TaskOutcome; 3] = [TaskOutcome::completed, TaskOutcome::killed, || {
        TaskOutcome::failed("no")
    }];
    for (n, ending) in endings.into_iter().enumerate() {
        let (end, id) = start_gated(&registry, &owner);
        assert_eq!(id.number(), n as u64 + 1, "a refused start burns no id");
        let kill = registry
            .kill(owner.id(), &id, StoppedBy::Model, None)
            .unwrap();
        assert_eq!(kill, KillOutcome::Requested);
        // Killed and not ended: it still has its place.
        let error = registry
            .start(&owner, TaskSpec::new("bash", "x"), never)
            .unwrap_err();
        assert_eq!(error.code(), "LIMIT_REACHED");
        end.send(ending()).unwrap();
        wait(&registry, &owner, &id).await;
    }
}

#[tokio::test]
async fn each_owner_has_its_own_limit() {
    let (registry, a) = fixture_with(|config| config.max_live_per_owner = 1);
    let b = Scope::root("b");
    start(&registry, &a, pending());
    start(&registry, &b, pending());
    assert!(
        registry
            .start(&a, TaskSpec::new("bash", "x"), never)
            .is_err()
    );
}

#[tokio::test]
async fn a_starter_that_starts_a_task_cannot_exceed_the_limit() {
    let (registry, owner) = fixture_with(|config| config.max_live_per_owner = 1);
    let inner = registry.clone();
    let scope = owner.clone();
    let id = registry.start(&owner, TaskSpec::new("bash", "outer"), |_| {
        let error = inner
            .start(&scope, TaskSpec::new("bash", "inner"), never)
            .unwrap_err();
        assert_eq!(error.code(), "LIMIT_REACHED");
        Ok(pending())
    });
    assert_eq!(id.unwrap().to_string(), "bash-1");
}

#[tokio::test]
async fn a_starter_that_fails_or_panics_registers_nothing_and_gives_its_place_back() {
    let (registry, owner) = fixture_with(|config| config.max_live_per_owner = 1);
    let log = Log::attach(&registry);
    let spec = || TaskSpec::new("bash", "x");
    let error = registry.start(&owner, spec(), |_| {
        failing("No such file or directory (os error 2)")
    });
    let error = error.unwrap_err();
    assert_eq!(error.code(), "STARTER_FAILED");
    assert_eq!(error.to_string(), "No such file or directory (os error 2)");
    let error = registry
        .start(&owner, spec(), |_| panicking("boom"))
        .unwrap_err();
    assert_eq!(error.code(), "STARTER_PANICKED");
    assert!(error.to_string().contains("boom"));
    assert!(registry.list(owner.id()).is_empty());
    assert_eq!(owner.holds(), 0);
    assert_eq!(log.take(), [""; 0]);
    assert_eq!(start(&registry, &owner, pending()).to_string(), "bash-1");
}

#[tokio::test]
async fn the_starter_sees_no_id_and_the_work_does() {
    let (registry, owner) = fixture();
    let id = registry.start(&owner, TaskSpec::new("bash", "x"), |context| {
        assert_eq!(context.id(), None);
        assert!(context.output().is_none());
        Ok(async move { TaskOutcome::completed().with_detail(context.id().unwrap().to_string()) })
    });
    let snapshot = wait(&registry, &owner, &id.unwrap()).await;
    assert_eq!(snapshot.detail.as_deref(), Some("bash-1"));
}

#[tokio::test]
async fn unknown_and_foreign_ids_get_the_same_answer_everywhere() {
    let (registry, owner) = fixture();
    let other = Scope::root("other");
    let id = start(&registry, &owner, pending());
    let absent: TaskId = "bash-99".parse().unwrap();
    for (caller, id) in [(other.id(), &id), (owner.id(), &absent)] {
        let expected = AccessError::Unknown { id: id.clone() };
        assert_eq!(expected.to_string(), format!("unknown task {id}"));
        assert_eq!(registry.get(caller, id).unwrap_err(), expected);
        assert_eq!(registry.read(caller, id).unwrap_err(), expected);
        assert_eq!(registry.read_at(caller, id, 0).unwrap_err(), expected);
        let kill = registry.kill(caller, id, StoppedBy::Model, None);
        assert_eq!(kill.unwrap_err(), expected);
        // The id is judged before the timeout is.
        for timeout in [Duration::ZERO, Duration::from_secs(1)] {
            assert_eq!(
                registry.wait(caller, id, timeout).await.unwrap_err(),
                expected
            );
        }
        let ids = [id.clone()];
        let any = registry
            .wait_any(caller, &ids, Duration::from_secs(1))
            .await;
        assert_eq!(any.unwrap_err(), expected);
    }
    assert!(registry.list(other.id()).is_empty());
    assert_eq!(
        registry.get(owner.id(), &id).unwrap().status,
        TaskStatus::Running
    );
}

#[tokio::test]
async fn list_gives_the_callers_own_tasks_in_the_order_of_registration() {
    let (registry, owner) = fixture();
    let other = Scope::root("other");
    let done = start(&registry, &owner, async { TaskOutcome::completed() });
    let foreign = start(&registry, &other, pending());
    let live = start(&registry, &owner, pending());
    wait(&registry, &owner, &done).await;
    let ids = |scope: &Scope| -> Vec<_> {
        registry
            .list(scope.id())
            .into_iter()
            .map(|task| task.id)
            .collect()
    };
    assert_eq!(ids(&owner), [done, live]);
    assert_eq!(ids(&other), [foreign]);
}

#[tokio::test]
async fn b079_a_task_without_an_owner_is_refused_by_default() {
    let (registry, _owner) = fixture();
    let error = registry
        .start_unowned(TaskSpec::new("bash", "x"), never)
        .unwrap_err();
    assert_eq!(error.code(), "UNOWNED_NOT_ALLOWED");
    let gone = Scope::root("gone");
    gone.close().await;
    let error = registry
        .start(&gone, TaskSpec::new("bash", "x"), never)
        .unwrap_err();
    assert_eq!(error.code(), "OWNER_CLOSING");
}

#[tokio::test]
async fn unowned_tasks_where_allowed_are_everybodys_and_share_one_limit() {
    let (registry, owner) = fixture_with(|config| {
        config.allow_unowned = true;
        config.max_live_per_owner = 1;
    });
    let own = start(&registry, &owner, pending());
    let shared = registry
        .start_unowned(TaskSpec::new("bash", "x"), |_| Ok(pending()))
        .unwrap();
    let error = registry
        .start_unowned(TaskSpec::new("bash", "x"), never)
        .unwrap_err();
    assert_eq!(error.code(), "LIMIT_REACHED");
    let listed: Vec<_> = registry
        .list(owner.id())
        .into_iter()
        .map(|task| task.id)
        .collect();
    assert_eq!(listed, [own, shared.clone()]);
    let stranger = Scope::root("stranger");
    assert_eq!(registry.get(stranger.id(), &shared).unwrap().owner, None);
    assert_eq!(registry.list(stranger.id()).len(), 1);
}

#[tokio::test]
async fn b077_b103_work_that_is_ready_at_once_is_announced_settled_and_waitable() {
    let (registry, owner) = fixture();
    let log = Log::attach(&registry);
    let id = start(
        &registry,
        &owner,
        std::future::ready(TaskOutcome::completed().with_output("instant")),
    );
    assert_eq!(log.take(), ["bash-1 Started running"]);
    let waited = registry.wait(owner.id(), &id, Duration::MAX).await.unwrap();
    assert!(waited.settled());
    waited.commit();
    assert_eq!(registry.read(owner.id(), &id).unwrap().text(), "instant");
    assert_eq!(log.take(), ["bash-1 Settled completed reported"]);
}

#[tokio::test]
async fn b106_many_starts_in_one_turn_all_return_and_settle() {
    let (registry, owner) = fixture_with(|config| config.max_live_per_owner = 64);
    let ids: Vec<_> = (0..32)
        .map(|_| {
            start(&registry, &owner, async {
                tokio::task::yield_now().await;
                TaskOutcome::completed()
            })
        })
        .collect();
    let ends = registry
        .wait_all(owner.id(), &ids, Duration::MAX)
        .await
        .unwrap();
    assert!(ends.iter().all(Waited::settled));
}

#[tokio::test]
async fn a_task_without_a_runtime_is_refused() {
    let outside = std::thread::spawn(|| {
        let (registry, owner) = fixture();
        registry
            .start(&owner, TaskSpec::new("bash", "x"), never)
            .unwrap_err()
            .code()
    });
    assert_eq!(outside.join().unwrap(), "NO_RUNTIME");
}

#[tokio::test]
async fn reserved_numbers_are_never_issued() {
    let (registry, owner) = fixture();
    registry.reserve_through("bash", 7);
    registry.reserve_through("bash", 3);
    assert_eq!(start(&registry, &owner, pending()).to_string(), "bash-8");
    registry.reserve_through("bash", u64::MAX);
    let error = registry
        .start(&owner, TaskSpec::new("bash", "x"), never)
        .unwrap_err();
    assert_eq!(error.code(), "IDS_EXHAUSTED");
}

#[tokio::test]
async fn b157_ids_of_an_earlier_process_are_unknown_or_lost_and_not_somebody_elses() {
    let (registry, owner) = fixture();
    let old: TaskId = "bash-3".parse().unwrap();
    assert_eq!(
        registry.get(owner.id(), &old).unwrap_err().code(),
        "UNKNOWN_TASK"
    );
    let log = Log::attach(&registry);
    let lost = || TaskOutcome::failed("lost in a restart").with_output("half");
    registry
        .restore(&owner, old.clone(), "make", 4, lost())
        .unwrap();
    let again = registry.restore(&owner, old.clone(), "make", 4, lost());
    assert_eq!(again.unwrap_err().code(), "ID_IN_USE");
    let task = registry.get(owner.id(), &old).unwrap();
    assert_eq!(
        (task.status, task.reported, task.generation),
        (TaskStatus::Failed, false, 4)
    );
    assert_eq!(task.detail.as_deref(), Some("lost in a restart"));
    assert_eq!(log.take(), [""; 0]);
    assert_eq!(owner.holds(), 0);
    let reading = registry.read(owner.id(), &old).unwrap();
    assert_eq!(reading.text(), "half");
    reading.commit();
    assert_eq!(log.take(), ["bash-3 Collected failed reported"]);
    assert_eq!(start(&registry, &owner, pending()).to_string(), "bash-4");
}

#[tokio::test]
async fn b058_tasks_of_every_kind_are_killed_in_the_same_way() {
    let (registry, owner) = fixture();
    for kind in ["bash", "subagent", "render"] {
        let id = registry.start(&owner, TaskSpec::new(kind, "x"), |context| {
            Ok(async move {
                context.cancelled().await;
                TaskOutcome::killed()
            })
        });
        let id = id.unwrap();
        let kill = registry
            .kill(owner.id(), &id, StoppedBy::Model, None)
            .unwrap();
        assert_eq!(kill, KillOutcome::Requested);
        assert_eq!(
            wait(&registry, &owner, &id).await.status,
            TaskStatus::Killed
        );
    }
}

#[tokio::test]
async fn b155_ended_tasks_leave_no_state_behind() {
    let (registry, owner) = fixture_with(|config| config.retain_finished = 0);
    let drops = Arc::new(AtomicUsize::new(0));
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    for n in 0..2000 {
        let counted = Counted(Arc::clone(&drops));
        let id = registry.start(&owner, TaskSpec::new("bash", "x"), |context| {
            Ok(async move {
                let _counted = counted;
                if n % 2 == 0 {
                    context.cancelled().await;
                }
                TaskOutcome::completed()
            })
        });
        let id = id.unwrap();
        if n % 2 == 0 {
            let _ = registry
                .kill(owner.id(), &id, StoppedBy::Model, None)
                .unwrap();
        }
        let waited = registry.wait(owner.id(), &id, Duration::MAX).await;
        // A killed task is reported already: it may have expired before the wait began.
        if let Ok(waited) = waited {
            waited.commit();
        }
    }
    assert_eq!(drops.load(Ordering::Relaxed), 2000);
    assert!(registry.list(owner.id()).is_empty());
    assert!(
        format!("{registry:?}").contains("records: 0"),
        "{registry:?}"
    );
    assert_eq!(owner.holds(), 0);
}
