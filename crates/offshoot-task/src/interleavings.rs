//! The real transitions under a model checker: random schedules of the threads that meet at one task.
//!
//! Every lock of the crate is a point where the schedule may switch (see `sync`). The runtime is
//! replaced by hand: each future is driven by a thread of the model. Timers never fire.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use offshoot_core::Scope;
use shuttle::future::block_on;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::{self, JoinHandle};

use crate::config::TaskConfig;
use crate::context::TaskContext;
use crate::drive::Driver;
use crate::id::TaskId;
use crate::observe::TaskChange::{self, *};
use crate::registry::TaskRegistry;
use crate::shard::Shard;
use crate::slab::Key;
use crate::snapshot::TaskSnapshot;
use crate::spec::TaskSpec;
use crate::status::{StoppedBy, TaskOutcome, TaskStatus};
use crate::sync::{model, point};

mod several;

const SCHEDULES: usize = 1000;
const TEXT: &str = "text";

type Log = Arc<Mutex<Vec<(TaskChange, TaskSnapshot)>>>;

/// One owner with one task, whose driver is not polled yet.
struct World {
    shard: Arc<Shard>,
    registry: TaskRegistry,
    owner: Scope,
    owner_key: Key,
    id: TaskId,
    key: Key,
    driver: JoinHandle<()>,
    log: Log,
    /// Whether somebody has shown the end.
    shown: Arc<Mutex<bool>>,
    /// How often the output was shown.
    read: Arc<Mutex<usize>>,
}

/// Ends after a few polls, or when it is told to, if it listens.
async fn work(context: TaskContext, polls: u32, listens: bool) -> TaskOutcome {
    let mut cancelled = std::pin::pin!(context.cancelled());
    let mut left = polls;
    std::future::poll_fn(|cx| {
        if listens && cancelled.as_mut().poll(cx).is_ready() {
            return Poll::Ready(TaskOutcome::killed());
        }
        if left == 0 {
            return Poll::Ready(TaskOutcome::completed());
        }
        left -= 1;
        if left < 10 {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await
}

impl World {
    fn new(polls: u32, listens: bool) -> Self {
        let registry = TaskRegistry::new(TaskConfig {
            kill_grace: None,
            ..TaskConfig::default()
        });
        let (owner, log) = (Scope::root("owner"), Log::default());
        let shard = Arc::clone(registry.shard(owner.id()));
        let told = Arc::clone(&log);
        let observer = move |change, task: &TaskSnapshot| {
            told.lock().unwrap().push((change, task.clone()));
            // An observer takes its time.
            point();
        };
        registry.observe(Arc::new(observer)).forget();
        let spec = TaskSpec::new("model", "a task").streaming();
        let spec = spec.check(1024).unwrap();
        let runtime = tokio::runtime::Handle::current();
        let prepared = shard.prepare(Some(&owner), spec, &runtime, |context| {
            context.output().unwrap().write(TEXT);
            Ok(work(context, polls, listens))
        });
        let prepared = prepared.unwrap();
        let id = prepared.id;
        let key = id.hint().unwrap();
        let owner_key = shard.table().owner_of(Some(owner.id())).unwrap();
        let driver = Driver::new(prepared.work, prepared.job, prepared.aborts);
        let driver = thread::spawn(move || block_on(driver));
        Self {
            shard,
            registry,
            owner,
            owner_key,
            id,
            key,
            driver,
            log,
            shown: Arc::default(),
            read: Arc::default(),
        }
    }

    fn thread(&self, act: impl FnOnce(Actor) + Send + 'static) -> JoinHandle<()> {
        let actor = Actor {
            registry: self.registry.clone(),
            owner: self.owner.clone(),
            id: self.id.clone(),
            shown: Arc::clone(&self.shown),
            read: Arc::clone(&self.read),
        };
        thread::spawn(move || act(actor))
    }

    fn kill(&self, by: StoppedBy) -> JoinHandle<()> {
        self.thread(move |me| {
            // The task may be gone; a kill is never an error otherwise.
            let _ = me.registry.kill(me.owner.id(), &me.id, by, None);
        })
    }

    fn abort(&self) -> JoinHandle<()> {
        let (shard, key) = (Arc::clone(&self.shard), self.key);
        thread::spawn(move || shard.abort(key))
    }

    fn close(&self) -> JoinHandle<()> {
        let (shard, key, owner) = (Arc::clone(&self.shard), self.owner_key, self.owner.clone());
        thread::spawn(move || {
            block_on(shard.close_owner(key, StoppedBy::Owner));
            assert_eq!(owner.holds(), 0, "closing has waited for every hold");
        })
    }

    fn join(self, threads: Vec<JoinHandle<()>>) -> End {
        for thread in threads {
            thread.join().unwrap();
        }
        self.driver.join().unwrap();
        assert_eq!(self.owner.holds(), 0);
        let log = self.log.lock().unwrap().clone();
        let shown = *self.shown.lock().unwrap();
        let closed = self.shard.table().owners.get(self.owner_key).is_none();
        let left = self.registry.list(self.owner.id());
        assert_eq!(left.len(), usize::from(!closed));
        let read = *self.read.lock().unwrap();
        assert!(read <= 1, "the output was shown {read} times");
        for task in &left {
            let unread = TEXT.len() * (1 - read);
            assert_eq!(task.unread, unread as u64, "shown {read} times");
        }
        let records = self.shard.table().records.len();
        assert_eq!(records, left.len(), "no place is lost");
        End { log, shown, closed }
    }
}

/// One thread that does something with the task.
struct Actor {
    registry: TaskRegistry,
    owner: Scope,
    id: TaskId,
    shown: Arc<Mutex<bool>>,
    read: Arc<Mutex<usize>>,
}

impl Actor {
    /// Waits for the end and shows it, or goes away with it.
    fn wait(self) {
        let end = block_on(self.registry.wait(self.owner.id(), &self.id, Duration::MAX));
        let Ok(waited) = end else {
            return;
        };
        assert!(waited.settled() && waited.snapshot().status.is_terminal());
        if thread_rng().r#gen() {
            waited.commit();
            *self.shown.lock().unwrap() = true;
        }
    }

    /// Waits a little, and goes away, possibly after it was woken.
    fn give_up(self) {
        let wait = self.registry.wait(self.owner.id(), &self.id, Duration::MAX);
        let mut wait = std::pin::pin!(wait);
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..2 {
            if wait.as_mut().poll(&mut cx).is_ready() {
                return;
            }
            point();
        }
    }

    /// Reads, and shows it or goes away with it.
    fn read(self) {
        let Ok(reading) = self.registry.read(self.owner.id(), &self.id) else {
            return;
        };
        // All of it, or nothing: somebody has shown it or is about to.
        let got = reading.text() == TEXT;
        assert!(got || reading.text().is_empty());
        assert!(!got || reading.elsewhere() == 0);
        let whole = u64::from(!got) * TEXT.len() as u64;
        assert!(reading.elsewhere() == whole || !got && reading.snapshot().unread == 0);
        point();
        let (ended, commits) = (
            reading.snapshot().status.is_terminal(),
            thread_rng().r#gen(),
        );
        if commits {
            reading.commit();
            *self.shown.lock().unwrap() |= ended;
            *self.read.lock().unwrap() += usize::from(got);
        }
    }
}

struct End {
    log: Vec<(TaskChange, TaskSnapshot)>,
    shown: bool,
    closed: bool,
}

impl End {
    /// What observers were told makes sense. Returns whether they were left with a notice due.
    fn check(&self) -> bool {
        let changes: Vec<_> = self.log.iter().map(|(change, _)| *change).collect();
        let count = |wanted| changes.iter().filter(|change| **change == wanted).count();
        assert_eq!((count(Started), count(Settled)), (1, 1), "{changes:?}");
        assert_eq!(count(Removed), usize::from(self.closed), "{changes:?}");
        assert!(count(Stopping) <= 1, "{changes:?}");
        let mut due = None;
        for (change, task) in &self.log {
            due = match (change, due) {
                (Settled, None) => Some(!task.reported),
                (NoticeDue, Some(false)) => Some(true),
                (Collected, Some(true)) => Some(false),
                (Started | Stopping, None) | (Removed, Some(_)) => due,
                _ => panic!("{change:?} out of order in {changes:?}"),
            };
        }
        let due = due.unwrap();
        // What is shown after the record has gone is no business of the observers any more.
        assert!(
            self.closed || !(self.shown && due),
            "shown, and a notice due: {changes:?}"
        );
        due
    }

    fn status(&self) -> TaskStatus {
        let settled = self.log.iter().find(|(change, _)| *change == Settled);
        settled.unwrap().1.status
    }
}

fn explore(scenario: impl Fn() + Send + Sync + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _inside = runtime.enter();
    let _running = model::Running::new();
    shuttle::check_random(scenario, SCHEDULES);
}

#[test]
fn a_settlement_meets_a_kill_waits_and_reads() {
    explore(|| {
        let world = World::new(2, true);
        let threads = vec![
            world.kill(StoppedBy::Human),
            world.thread(Actor::wait),
            world.thread(Actor::give_up),
            world.thread(Actor::read),
            world.thread(Actor::read),
        ];
        let end = world.join(threads);
        assert_eq!(
            end.check(),
            !end.shown,
            "told by a notice exactly when not shown"
        );
    });
}

#[test]
fn a_model_that_kills_needs_no_notice_whoever_waits() {
    explore(|| {
        let world = World::new(u32::MAX, true);
        let threads = vec![
            world.kill(StoppedBy::Model),
            world.kill(StoppedBy::Model),
            world.thread(Actor::wait),
            world.thread(Actor::give_up),
        ];
        let end = world.join(threads);
        assert_eq!(end.status(), TaskStatus::Killed);
        assert!(!end.check());
    });
}

#[test]
fn the_closing_of_the_owner_meets_everything() {
    explore(|| {
        let world = World::new(2, true);
        let threads = vec![
            world.close(),
            world.kill(StoppedBy::Human),
            world.thread(Actor::wait),
            world.thread(Actor::give_up),
            world.thread(Actor::read),
            world.thread(Actor::read),
        ];
        world.join(threads).check();
    });
}

#[test]
fn two_closings_of_one_owner_end_together() {
    explore(|| {
        let world = World::new(1, true);
        let threads = vec![world.close(), world.close(), world.thread(Actor::wait)];
        world.join(threads).check();
    });
}

#[test]
fn an_abort_reaches_work_that_does_not_listen() {
    explore(|| {
        let world = World::new(u32::MAX, false);
        let threads = vec![
            world.kill(StoppedBy::Human),
            world.abort(),
            world.thread(Actor::wait),
            world.thread(Actor::read),
        ];
        let end = world.join(threads);
        assert_eq!(end.status(), TaskStatus::Killed);
        end.check();
    });
}

#[test]
fn a_task_that_is_given_up_ends_once_and_its_work_is_let_go() {
    explore(|| {
        let world = World::new(u32::MAX, false);
        let (shard, key) = (Arc::clone(&world.shard), world.key);
        let give_up = thread::spawn(move || {
            shard.abort(key);
            shard.give_up(key);
        });
        let threads = vec![
            give_up,
            world.close(),
            world.thread(Actor::wait),
            world.thread(Actor::give_up),
        ];
        // It joins the driver: that ends although the work would wait for ever.
        world.join(threads).check();
    });
}

#[test]
fn a_hold_that_is_on_its_way_does_not_strand_a_closing() {
    explore(|| {
        // Nobody observes: the settlement itself gives the hold back, outside the lock.
        let registry = TaskRegistry::new(TaskConfig {
            kill_grace: None,
            ..TaskConfig::default()
        });
        let owner = Scope::root("owner");
        let shard = Arc::clone(registry.shard(owner.id()));
        let runtime = tokio::runtime::Handle::current();
        let drivers: Vec<_> = (0..2)
            .map(|_| {
                let spec = TaskSpec::new("model", "a task").check(1024).unwrap();
                let prepared = shard.prepare(Some(&owner), spec, &runtime, |context| {
                    Ok(work(context, 0, true))
                });
                let prepared = prepared.unwrap();
                let driver = Driver::new(prepared.work, prepared.job, prepared.aborts);
                thread::spawn(move || block_on(driver))
            })
            .collect();
        let key = shard.table().owner_of(Some(owner.id())).unwrap();
        block_on(shard.close_owner(key, StoppedBy::Owner));
        assert_eq!(owner.holds(), 0);
        for driver in drivers {
            driver.join().unwrap();
        }
    });
}
