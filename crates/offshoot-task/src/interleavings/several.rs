//! Several tasks of one owner: waits for some of them, and the end of the registry.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use offshoot_core::Scope;
use shuttle::future::block_on;
use shuttle::thread::{self, JoinHandle};

use super::{explore, work};
use crate::config::TaskConfig;
use crate::drive::Driver;
use crate::error::StartError;
use crate::id::TaskId;
use crate::registry::TaskRegistry;
use crate::spec::TaskSpec;
use crate::status::StoppedBy;
use crate::sync::point;
use crate::wait::Need;

/// One owner with tasks that end at once, or when they are told to; nothing is observed.
struct Several {
    registry: TaskRegistry,
    owner: Scope,
    ids: Vec<TaskId>,
    drivers: Vec<JoinHandle<()>>,
}

impl Several {
    fn new(listens: [bool; 2]) -> Self {
        let registry = TaskRegistry::new(TaskConfig {
            kill_grace: None,
            ..TaskConfig::default()
        });
        let owner = Scope::root("owner");
        let mut several = Self {
            registry,
            owner,
            ids: Vec::new(),
            drivers: Vec::new(),
        };
        for listens in listens {
            let polls = if listens { u32::MAX } else { 1 };
            let (id, driver) = start(&several.registry, &several.owner, polls).unwrap();
            several.ids.push(id);
            several.drivers.push(driver);
        }
        several
    }
}

fn start(
    registry: &TaskRegistry,
    owner: &Scope,
    polls: u32,
) -> Result<(TaskId, JoinHandle<()>), StartError> {
    let spec = TaskSpec::new("model", "a task").check(1024).unwrap();
    let runtime = tokio::runtime::Handle::current();
    let shard = registry.shard(owner.id());
    let prepared = shard.prepare(Some(owner), spec, &runtime, |context| {
        Ok(work(context, polls, true))
    })?;
    let driver = Driver::new(prepared.work, prepared.job, prepared.aborts);
    Ok((prepared.id, thread::spawn(move || block_on(driver))))
}

#[test]
fn waits_for_any_and_for_all_meet_the_ends() {
    explore(|| {
        let all = Several::new([false, true]);
        let waiting = |need: Need, drops: bool| {
            let (registry, owner) = (all.registry.clone(), all.owner.clone());
            let ids = all.ids.clone();
            thread::spawn(move || {
                let shard = Arc::clone(registry.shard(owner.id()));
                let wait = shard.wait_many(owner.id(), &ids, need, Duration::MAX);
                let mut wait = std::pin::pin!(wait);
                if drops {
                    let mut cx = Context::from_waker(Waker::noop());
                    if wait.as_mut().poll(&mut cx).is_pending() {
                        point();
                        let _ = wait.as_mut().poll(&mut cx);
                    }
                    return;
                }
                let ends = block_on(wait).unwrap();
                let settled = ends.iter().filter(|end| end.settled()).count();
                assert!(settled >= if need == Need::All { 2 } else { 1 });
                for end in ends {
                    assert_eq!(end.settled(), end.snapshot().status.is_terminal());
                    end.commit();
                }
            })
        };
        let threads = [
            waiting(Need::Any, false),
            waiting(Need::All, false),
            waiting(Need::Any, true),
            waiting(Need::All, true),
        ];
        let (registry, owner, last) = (&all.registry, all.owner.id(), &all.ids[1]);
        let _ = registry.kill(owner, last, StoppedBy::Human, None).unwrap();
        for thread in threads.into_iter().chain(all.drivers) {
            thread.join().unwrap();
        }
        // Both were shown by whoever waited for all, and nobody is left counted.
        let tasks = registry.list(owner);
        assert!(tasks.iter().all(|task| task.reported), "{tasks:?}");
        assert_eq!(all.owner.holds(), 0);
    });
}

#[test]
fn a_shutdown_meets_the_closing_of_an_owner_and_late_starts() {
    explore(|| {
        let all = Several::new([true, true]);
        let (owner, registry) = (all.owner.clone(), all.registry.clone());
        let shard = Arc::clone(registry.shard(owner.id()));
        let shut = Arc::clone(&shard);
        let shutdown = thread::spawn(move || block_on(shut.shut_down()));
        let closing = {
            let shard = Arc::clone(&shard);
            let key = shard.table().owner_of(Some(owner.id()));
            thread::spawn(move || {
                if let Some(key) = key {
                    block_on(shard.close_owner(key, StoppedBy::Owner));
                }
            })
        };
        let late = {
            let (registry, owner) = (registry.clone(), owner.clone());
            thread::spawn(move || {
                if let Ok((_, driver)) = start(&registry, &owner, u32::MAX) {
                    driver.join().unwrap();
                }
            })
        };
        for thread in [shutdown, closing, late].into_iter().chain(all.drivers) {
            thread.join().unwrap();
        }
        // Whatever was let in was ended; nothing is left, and nothing is let in any more.
        assert_eq!((owner.holds(), registry.list(owner.id()).len()), (0, 0));
        assert_eq!(shard.table().records.len(), 0);
        let refused = start(&registry, &owner, 1).err();
        assert_eq!(refused.unwrap().code(), "REGISTRY_CLOSING");
    });
}
