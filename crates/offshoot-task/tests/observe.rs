//! Observers that come and go, and what is announced of whom.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use offshoot_core::Scope;
use offshoot_task::*;

async fn run_one(registry: &TaskRegistry, owner: &Scope) {
    let id = start(registry, owner, async { TaskOutcome::completed() });
    wait(registry, owner, &id).await;
}

#[tokio::test]
async fn t56_t57_t106_an_observer_whose_handle_is_gone_is_not_called_and_the_others_are() {
    let (registry, owner) = fixture();
    let calls = || Arc::new(AtomicUsize::new(0));
    let (gone, stays) = (calls(), calls());
    let observe = |count: &Arc<AtomicUsize>| {
        let count = Arc::clone(count);
        registry.observe(Arc::new(move |_: TaskChange, _: &TaskSnapshot| {
            count.fetch_add(1, Ordering::Relaxed);
        }))
    };
    let (first, second) = (observe(&gone), observe(&stays));
    run_one(&registry, &owner).await;
    let before = gone.load(Ordering::Relaxed);
    assert_eq!((before, stays.load(Ordering::Relaxed)), (2, 2));
    drop(first);
    run_one(&registry, &owner).await;
    let after = (gone.load(Ordering::Relaxed), stays.load(Ordering::Relaxed));
    assert_eq!(after, (2, 4));
    // One whose handle was forgotten stays, whatever becomes of the others.
    observe(&gone).forget();
    drop(second);
    run_one(&registry, &owner).await;
    assert_eq!(gone.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn an_observer_that_removes_itself_in_a_call_is_not_called_again() {
    let (registry, owner) = fixture();
    let handle = Arc::new(Mutex::new(None::<ObserverHandle>));
    let calls = Arc::new(AtomicUsize::new(0));
    let (own, count) = (Arc::clone(&handle), Arc::clone(&calls));
    *handle.lock().unwrap() = Some(registry.observe(Arc::new(
        move |_: TaskChange, _: &TaskSnapshot| {
            count.fetch_add(1, Ordering::Relaxed);
            let own = own.lock().unwrap().take();
            drop(own);
        },
    )));
    run_one(&registry, &owner).await;
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn t102_t170_the_changes_of_a_task_without_an_owner_name_none() {
    let (registry, _) = fixture_with(|config| config.allow_unowned = true);
    let owners = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&owners);
    let _handle = registry.observe(Arc::new(move |change: TaskChange, task: &TaskSnapshot| {
        seen.lock().unwrap().push((change, task.owner));
    }));
    let spec = TaskSpec::new("bash", "unowned");
    let work = async { TaskOutcome::completed() };
    registry.start_unowned(spec, |_| Ok(work)).unwrap();
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    let expected = [(TaskChange::Started, None), (TaskChange::Settled, None)];
    assert_eq!(*owners.lock().unwrap(), expected);
}

#[tokio::test]
async fn t104_the_end_of_an_owner_without_tasks_announces_nothing() {
    let (registry, owner) = fixture();
    let log = Log::attach(&registry);
    let refused = registry.start(&owner, TaskSpec::new("bash", "no"), |_| failing("no"));
    assert!(refused.is_err());
    owner.close().await;
    Scope::root("never used").close().await;
    assert_eq!(log.take(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn t65_waits_that_timed_out_leave_no_waiter_behind() {
    let (registry, owner) = fixture();
    let log = Log::attach(&registry);
    let (end, id) = start_gated(&registry, &owner);
    for _ in 0..3 {
        let waited = registry.wait(owner.id(), &id, Duration::from_secs(1)).await;
        assert!(!waited.unwrap().settled());
    }
    log.take();
    end.send(TaskOutcome::completed()).unwrap();
    owner.unheld().await;
    // A waiter that was still counted would have made it reported.
    assert_eq!(log.take(), ["bash-1 Settled completed"]);
}

#[tokio::test]
async fn t34_t109_a_refusal_names_the_limit_of_the_settings_and_what_to_do() {
    let (registry, owner) = fixture_with(|config| config.max_live_per_owner = 2);
    for _ in 0..2 {
        start(&registry, &owner, pending());
    }
    let error = registry.start(&owner, TaskSpec::new("bash", "a label"), never);
    let text = error.unwrap_err().to_string();
    for part in ["(limit: 2)", "stop a task", "wait for one", "retry"] {
        assert!(text.contains(part), "{text}");
    }
}
