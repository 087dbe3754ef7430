//! Many owners at once: they share the ids, the observers and the end of the registry, and no lock.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use common::*;
use offshoot_core::Scope;
use offshoot_task::*;

/// More than there are shards.
const OWNERS: usize = 40;

fn owners() -> Vec<Scope> {
    (0..OWNERS).map(|_| Scope::root("owner")).collect()
}

fn lost() -> TaskOutcome {
    TaskOutcome::failed("lost in a restart")
}

#[tokio::test]
async fn ids_of_owners_that_start_at_the_same_time_are_all_different_and_none_is_left_out() {
    const EACH: usize = 200;
    let (registry, _) = fixture_with(|config| config.max_live_per_owner = EACH);
    let (owners, runtime) = (owners(), tokio::runtime::Handle::current());
    let begin = Barrier::new(4);
    let ids = thread::scope(|threads| {
        let (registry, runtime, begin) = (&registry, &runtime, &begin);
        let some = owners.chunks(OWNERS / 4).map(|owners| {
            threads.spawn(move || {
                let _guard = runtime.enter();
                begin.wait();
                let rounds = (0..EACH).flat_map(|_| owners);
                let ids = rounds.map(|owner| start(registry, owner, pending()).number());
                ids.collect::<Vec<_>>()
            })
        });
        let some: Vec<_> = some.collect();
        let some = some.into_iter().flat_map(|thread| thread.join().unwrap());
        some.collect::<BTreeSet<_>>()
    });
    let all = (OWNERS * EACH) as u64;
    assert!(ids.into_iter().eq(1..=all));
    // The name alone finds the record, for its owner and nobody else.
    for n in 1..=all {
        let id: TaskId = format!("bash-{n}").parse().unwrap();
        let found = owners
            .iter()
            .filter(|owner| registry.get(owner.id(), &id).is_ok());
        assert_eq!(found.count(), 1, "{id}");
    }
}

#[tokio::test]
async fn an_id_that_is_in_use_is_restored_for_no_other_owner() {
    let (registry, owner) = fixture();
    let id = start(&registry, &owner, pending());
    let far: TaskId = "bash-18446744073709551615".parse().unwrap();
    registry
        .restore(&owner, far.clone(), "make", 0, lost())
        .unwrap();
    for other in owners() {
        for id in [&id, &far] {
            let again = registry.restore(&other, id.clone(), "make", 0, lost());
            assert_eq!(again.unwrap_err().code(), "ID_IN_USE");
            let unknown = registry.get(other.id(), id).unwrap_err();
            assert_eq!(unknown.code(), "UNKNOWN_TASK");
        }
        assert!(registry.list(other.id()).is_empty());
    }
}

#[tokio::test]
async fn of_owners_that_restore_one_id_at_the_same_time_one_has_it_and_it_is_not_issued() {
    for round in 0..100 {
        let (registry, starter) = fixture();
        if round % 2 == 0 {
            // Nobody is the first to raise the counter: all must look.
            registry.reserve_through("bash", 8);
        }
        let (owners, runtime) = (owners(), tokio::runtime::Handle::current());
        let id: TaskId = format!("bash-{}", 1 + round % 4).parse().unwrap();
        let (begin, restored) = (Barrier::new(4), AtomicUsize::new(0));
        thread::scope(|threads| {
            let (registry, id, begin, restored) = (&registry, &id, &begin, &restored);
            for owners in owners[..12].chunks(4) {
                threads.spawn(move || {
                    begin.wait();
                    for owner in owners {
                        let done = registry.restore(owner, id.clone(), "make", 0, lost());
                        restored.fetch_add(usize::from(done.is_ok()), Ordering::Relaxed);
                    }
                });
            }
            threads.spawn(move || {
                let _guard = runtime.enter();
                begin.wait();
                for _ in 0..4 {
                    let issued = start(registry, &starter, pending());
                    // When it was issued first, nobody can restore it.
                    restored.fetch_add(usize::from(issued == *id), Ordering::Relaxed);
                }
            });
        });
        assert_eq!(restored.into_inner(), 1, "{id}");
    }
}

#[tokio::test]
async fn an_observer_hears_of_every_owner_until_its_handle_is_dropped_also_without_a_registry() {
    let (registry, _) = fixture();
    let (owners, heard) = (owners(), std::sync::Arc::new(AtomicUsize::new(0)));
    let told = heard.clone();
    let handle = registry.observe(std::sync::Arc::new(move |_, _: &TaskSnapshot| {
        told.fetch_add(1, Ordering::Relaxed);
    }));
    let ends: Vec<_> = owners
        .iter()
        .map(|owner| start_gated(&registry, owner).0)
        .collect();
    assert_eq!(heard.swap(0, Ordering::Relaxed), OWNERS, "each start");
    // The tasks go on without the registry's handles, and the observer's handle still counts.
    drop(registry);
    drop(handle);
    for end in ends {
        end.send(TaskOutcome::completed()).unwrap();
    }
    for owner in &owners {
        owner.unheld().await;
    }
    assert_eq!(heard.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn the_shutdown_reaches_every_owner_and_refuses_every_start_from_its_call_on() {
    let (registry, _) = fixture();
    let owners = owners();
    for owner in &owners {
        registry
            .spawn(owner, TaskSpec::new("bash", "x"), async |context| {
                context.cancelled().await;
                TaskOutcome::killed()
            })
            .unwrap();
    }
    let end = registry.shutdown();
    for owner in &owners {
        let late = registry.start(owner, TaskSpec::new("bash", "x"), never);
        assert_eq!(late.unwrap_err().code(), "REGISTRY_CLOSING");
    }
    end.await;
    for owner in &owners {
        assert_eq!((owner.holds(), registry.list(owner.id()).len()), (0, 0));
    }
    assert!(format!("{registry:?}").contains("records: 0"));
}

/// Whoever is woken by a change may restore a task itself: no lock is held while it is woken.
#[tokio::test]
async fn a_waker_may_restore_a_task_while_another_is_restored() {
    struct Restorer(TaskRegistry, Scope, AtomicUsize);
    impl std::task::Wake for Restorer {
        fn wake(self: std::sync::Arc<Self>) {
            if self.2.fetch_add(1, Ordering::Relaxed) == 0 {
                let id = "bash-100".parse().unwrap();
                self.0.restore(&self.1, id, "make", 0, lost()).unwrap();
            }
        }
    }
    let (registry, owner) = fixture();
    let mut changes = registry.changes(owner.id());
    let restorer = Restorer(registry.clone(), owner.clone(), AtomicUsize::new(0));
    let waker = std::sync::Arc::new(restorer).into();
    let mut changed = Box::pin(changes.changed());
    let polled = changed
        .as_mut()
        .poll(&mut std::task::Context::from_waker(&waker));
    assert!(polled.is_pending());
    let restoring = {
        let (registry, owner) = (registry.clone(), owner.clone());
        tokio::task::spawn_blocking(move || {
            let id = "bash-7".parse().unwrap();
            registry.restore(&owner, id, "make", 0, lost()).unwrap();
        })
    };
    let limit = std::time::Duration::from_secs(30);
    tokio::time::timeout(limit, restoring)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(registry.list(owner.id()).len(), 2);
}

#[tokio::test]
async fn ids_that_were_given_up_beside_another_owner_s_are_expired_and_not_unknown() {
    const ROUNDS: u64 = 3000;
    let (registry, a) = fixture();
    let b = Scope::root("b");
    for _ in 0..ROUNDS {
        for owner in [&a, &b] {
            let id = start(&registry, owner, async { TaskOutcome::completed() });
            let limit = std::time::Duration::from_secs(30);
            let waited = registry.wait(owner.id(), &id, limit).await.unwrap();
            waited.commit();
        }
    }
    let mine: TaskId = "bash-1".parse().unwrap();
    let code = |owner: &Scope| registry.get(owner.id(), &mine).unwrap_err().code();
    assert_eq!((code(&a), code(&b)), ("EXPIRED_TASK", "UNKNOWN_TASK"));
}
