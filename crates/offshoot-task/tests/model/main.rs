//! The whole registry against a plain sequential model: random histories through the public API.
//!
//! One thread, virtual time. After every step everything that can be seen is compared.
#![allow(clippy::unwrap_used, reason = "test code")]

mod expected;
mod step;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use expected::{Byte, Expected};
use offshoot_core::Scope;
use offshoot_task::TaskStatus::{Completed, Failed, Killed, Running, Stopping};
use offshoot_task::*;
use proptest::prelude::*;
use step::{Step, step};
use tokio::sync::oneshot;

const LIMIT: usize = 4;
const RETAIN: usize = 2;
pub(crate) const OWNERS: usize = 2;

type Wait = Pin<Box<dyn Future<Output = Result<Waited, AccessError>>>>;

enum Attending {
    Waiting(Wait),
    Found(Box<Waited>),
}

/// A reading that was neither committed nor dropped.
struct Open {
    task: usize,
    number: usize,
    reading: Reading,
    /// It was taken of a finished task.
    claims: bool,
}

/// The byte at an offset of every output.
fn letter(at: usize) -> char {
    char::from(b'a' + (at % 26) as u8)
}

struct World {
    registry: TaskRegistry,
    owners: Vec<(usize, Scope)>,
    tasks: Vec<Expected>,
    ends: HashMap<TaskId, (oneshot::Sender<TaskOutcome>, Option<OutputBuffer>)>,
    waits: Vec<(usize, Attending)>,
    readings: Vec<Open>,
    /// How many readings there were.
    read: usize,
    /// Reported for good, the longest first, by owner.
    spent: HashMap<(usize, usize), Vec<usize>>,
    next: u64,
    due: Arc<Mutex<HashMap<TaskId, bool>>>,
    _observer: ObserverHandle,
}

impl World {
    fn new() -> Self {
        let registry = TaskRegistry::new(TaskConfig {
            max_live_per_owner: LIMIT,
            retain_finished: RETAIN,
            ..TaskConfig::default()
        });
        let due = Arc::<Mutex<HashMap<TaskId, bool>>>::default();
        let told = Arc::clone(&due);
        let observer =
            registry.observe(Arc::new(move |change: TaskChange, task: &TaskSnapshot| {
                let mut told = told.lock().unwrap();
                match change {
                    TaskChange::Settled => drop(told.insert(task.id.clone(), !task.reported)),
                    TaskChange::NoticeDue => {
                        assert_eq!(told.insert(task.id.clone(), true), Some(false))
                    }
                    TaskChange::Collected => {
                        assert_eq!(told.insert(task.id.clone(), false), Some(true))
                    }
                    _ => {}
                }
            }));
        Self {
            registry,
            owners: (0..OWNERS)
                .map(|n| (0, Scope::root(n.to_string())))
                .collect(),
            tasks: Vec::new(),
            ends: HashMap::new(),
            waits: Vec::new(),
            readings: Vec::new(),
            read: 0,
            spent: HashMap::new(),
            next: 1,
            due,
            _observer: observer,
        }
    }

    fn scope(&self, owner: usize) -> &Scope {
        &self.owners[owner].1
    }

    fn live(&self, owner: usize) -> usize {
        let of = |task: &&Expected| task.owner == (owner, self.owners[owner].0);
        self.tasks
            .iter()
            .filter(of)
            .filter(|task| task.is_live())
            .count()
    }

    /// One of all tasks that ever were.
    fn pick(&self, n: usize) -> Option<usize> {
        (!self.tasks.is_empty()).then(|| n % self.tasks.len())
    }

    /// The error that an access must give, if any.
    fn refused(&self, caller: usize, at: usize) -> Option<&'static str> {
        let task = &self.tasks[at];
        if task.owner != (caller, self.owners[caller].0) {
            Some("UNKNOWN_TASK")
        } else if task.expired {
            Some("EXPIRED_TASK")
        } else {
            (!task.present).then_some("UNKNOWN_TASK")
        }
    }

    /// What follows when the end of a task was shown, or stopped to be.
    fn follow(&mut self, at: usize) {
        let task = &mut self.tasks[at];
        if !task.present || !task.status.is_terminal() {
            return;
        }
        task.due = Some(match task.due {
            // A claim withdraws nothing that is due: only what was really shown does.
            Some(true) => !task.reported,
            _ => !task.is_reported(),
        });
        let spent = self.spent.entry(task.owner).or_default();
        if task.reported && !spent.contains(&at) {
            spent.push(at);
            if spent.len() > RETAIN {
                let oldest = &mut self.tasks[spent.remove(0)];
                oldest.present = false;
                oldest.expired = true;
            }
        }
    }

    fn settle(&mut self, at: usize, status: TaskStatus) {
        self.tasks[at].status = status;
        self.ends.remove(&self.tasks[at].id);
        self.follow(at);
    }

    async fn apply(&mut self, step: Step) {
        match step {
            Step::Start {
                owner,
                streams,
                obeys,
            } => self.start(owner, streams, obeys),
            Step::Refuse { owner } => {
                let spec = TaskSpec::new("model", "refused");
                let error = self.registry.start(self.scope(owner), spec, |_| {
                    Err::<std::future::Pending<_>, _>("no".into())
                });
                let full = self.live(owner) == LIMIT;
                let code = if full {
                    "LIMIT_REACHED"
                } else {
                    "STARTER_FAILED"
                };
                assert_eq!(error.unwrap_err().code(), code);
            }
            Step::End { task, how } => {
                let Some(at) = self.pick(task) else { return };
                let Some((end, _)) = self.ends.remove(&self.tasks[at].id) else {
                    return;
                };
                let (outcome, status) = match how {
                    0 => (TaskOutcome::completed(), Completed),
                    1 => (TaskOutcome::killed(), Killed),
                    _ => (TaskOutcome::failed("no"), Failed),
                };
                end.send(outcome).unwrap();
                self.run().await;
                self.settle(at, status);
            }
            Step::Kill { by, caller, task } => self.kill(by, caller, task).await,
            Step::Write { task, bytes } => {
                let Some(at) = self.pick(task) else { return };
                if let Some((_, Some(buffer))) = self.ends.get(&self.tasks[at].id) {
                    let written = &mut self.tasks[at].bytes;
                    let text: String = (written.len()..).take(bytes).map(letter).collect();
                    buffer.writer().write(&text);
                    written.resize(written.len() + bytes, Byte::Unread);
                }
            }
            Step::Wait { caller, task } => self.wait(caller, task),
            Step::Poll { wait } => self.poll(wait),
            Step::Drop { wait } => {
                if self.waits.is_empty() {
                    return;
                }
                let (at, attending) = self.waits.swap_remove(wait % self.waits.len());
                drop(attending);
                self.tasks[at].attending -= 1;
                self.follow(at);
            }
            Step::Commit { wait } => {
                if self.waits.is_empty() {
                    return;
                }
                let n = wait % self.waits.len();
                if let (_, Attending::Waiting(_)) = self.waits[n] {
                    return;
                }
                let (at, Attending::Found(waited)) = self.waits.swap_remove(n) else {
                    return;
                };
                waited.commit();
                self.tasks[at].attending -= 1;
                self.tasks[at].reported = true;
                self.follow(at);
            }
            Step::Read { caller, task } => self.read(caller, task),
            Step::EndReading { reading, commit } => self.end_reading(reading, commit),
            Step::Close { owner } => self.close(owner).await,
        }
    }

    /// Lets the tasks run until they wait.
    async fn run(&self) {
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
    }

    fn start(&mut self, owner: usize, streams: bool, obeys: bool) {
        let (end, ended) = oneshot::channel::<TaskOutcome>();
        let mut spec = TaskSpec::new("model", "a task");
        if streams {
            spec = spec.streaming();
        }
        let mut buffer = None;
        let started = self.registry.start(self.scope(owner), spec, |context| {
            buffer = context.output().map(|writer| writer.buffer().clone());
            Ok(async move {
                tokio::select! {
                    biased;
                    outcome = ended => outcome.unwrap(),
                    () = context.cancelled(), if obeys => TaskOutcome::killed(),
                }
            })
        });
        if self.live(owner) == LIMIT {
            assert_eq!(started.unwrap_err().code(), "LIMIT_REACHED");
            return;
        }
        let id = started.unwrap();
        assert_eq!(id.to_string(), format!("model-{}", self.next));
        self.next += 1;
        self.ends.insert(id.clone(), (end, buffer));
        self.tasks.push(Expected {
            id,
            owner: (owner, self.owners[owner].0),
            status: Running,
            streams,
            obeys,
            reported: false,
            attending: 0,
            bytes: Vec::new(),
            present: true,
            expired: false,
            due: None,
        });
    }

    async fn kill(&mut self, by: usize, caller: usize, task: usize) {
        let Some(at) = self.pick(task) else { return };
        let by = [StoppedBy::Model, StoppedBy::Human][by];
        let done = self
            .registry
            .kill(self.scope(caller).id(), &self.tasks[at].id, by, None);
        if let Some(code) = self.refused(caller, at) {
            assert_eq!(done.unwrap_err().code(), code);
            return;
        }
        let expected = match self.tasks[at].status {
            Running => KillOutcome::Requested,
            Stopping => KillOutcome::AlreadyStopping,
            Completed | Killed | Failed => KillOutcome::AlreadyFinished,
        };
        assert_eq!(done.unwrap(), expected);
        if expected != KillOutcome::AlreadyStopping {
            self.tasks[at].reported |= by == StoppedBy::Model;
        }
        self.follow(at);
        if expected == KillOutcome::Requested {
            self.tasks[at].status = Stopping;
            self.run().await;
            if self.tasks[at].obeys {
                self.settle(at, Killed);
            }
        }
    }

    fn wait(&mut self, caller: usize, task: usize) {
        let Some(at) = self.pick(task) else { return };
        let (registry, id) = (self.registry.clone(), self.tasks[at].id.clone());
        let caller_id = self.scope(caller).id();
        let mut wait: Wait =
            Box::pin(async move { registry.wait(caller_id, &id, Duration::MAX).await });
        let attending = match wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => Attending::Waiting(wait),
            Poll::Ready(Ok(waited)) => Attending::Found(Box::new(waited)),
            Poll::Ready(Err(error)) => {
                assert_eq!(Some(error.code()), self.refused(caller, at));
                return;
            }
        };
        assert_eq!(self.refused(caller, at), None);
        let live = self.tasks[at].is_live();
        assert_eq!(matches!(attending, Attending::Waiting(_)), live);
        self.tasks[at].attending += 1;
        self.waits.push((at, attending));
    }

    fn poll(&mut self, wait: usize) {
        if self.waits.is_empty() {
            return;
        }
        let n = wait % self.waits.len();
        let (at, attending) = &mut self.waits[n];
        let Attending::Waiting(wait) = attending else {
            return;
        };
        let task = &self.tasks[*at];
        match wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => assert!(!task.status.is_terminal()),
            Poll::Ready(waited) => {
                let waited = waited.unwrap();
                assert_eq!(waited.snapshot().status, task.status);
                *attending = Attending::Found(Box::new(waited));
            }
        }
    }

    fn read(&mut self, caller: usize, task: usize) {
        let Some(at) = self.pick(task) else { return };
        let reading = self
            .registry
            .read(self.scope(caller).id(), &self.tasks[at].id);
        let reading = match (reading, self.refused(caller, at)) {
            (Ok(reading), None) => reading,
            (Err(error), Some(code)) => return assert_eq!(error.code(), code),
            (reading, refused) => panic!("{reading:?}, {refused:?}"),
        };
        let (task, number) = (&mut self.tasks[at], self.read);
        self.read += 1;
        assert_eq!(
            reading.elsewhere(),
            task.count(|byte| matches!(byte, Byte::Held(_)))
        );
        let mut expected = String::new();
        for (at, byte) in task.bytes.iter_mut().enumerate() {
            if *byte == Byte::Unread {
                *byte = Byte::Held(number);
                expected.push(letter(at));
            }
        }
        assert_eq!((reading.text(), reading.gap()), (expected.as_str(), 0));
        let claims = task.status.is_terminal();
        task.attending += usize::from(claims);
        self.readings.push(Open {
            task: at,
            number,
            reading,
            claims,
        });
    }

    fn end_reading(&mut self, reading: usize, commit: bool) {
        if self.readings.is_empty() {
            return;
        }
        let open = self.readings.swap_remove(reading % self.readings.len());
        let task = &mut self.tasks[open.task];
        task.attending -= usize::from(open.claims);
        if commit {
            open.reading.commit();
            task.turn(open.number, Byte::Read);
            task.reported |= open.claims;
        } else {
            drop(open.reading);
            task.turn(open.number, Byte::Unread);
        }
        self.follow(open.task);
    }

    async fn close(&mut self, owner: usize) {
        let (generation, scope) = self.owners[owner].clone();
        assert!(scope.close().await.is_clean());
        for at in 0..self.tasks.len() {
            if self.tasks[at].owner != (owner, generation) || !self.tasks[at].present {
                continue;
            }
            if self.tasks[at].is_live() {
                self.tasks[at].reported = true;
                self.tasks[at].due = Some(false);
            }
            let task = &mut self.tasks[at];
            if !task.status.is_terminal() {
                task.status = Killed;
            }
            self.ends.remove(&task.id);
            task.present = false;
            task.expired = false;
        }
        for task in &mut self.tasks {
            // With the owner what is remembered of its ids goes too.
            task.expired &= task.owner != (owner, generation);
        }
        let next = (generation + 1, Scope::root(format!("{owner}'")));
        self.owners[owner] = next;
    }

    fn check(&self) {
        for (owner, (generation, scope)) in self.owners.iter().enumerate() {
            let of = |task: &&Expected| task.present && task.owner == (owner, *generation);
            let expected: Vec<_> = self.tasks.iter().filter(of).collect();
            let found = self.registry.list(scope.id());
            let ids = |tasks: &[TaskSnapshot]| {
                tasks.iter().map(|task| task.id.clone()).collect::<Vec<_>>()
            };
            let expected_ids: Vec<_> = expected.iter().map(|task| task.id.clone()).collect();
            assert_eq!(ids(&found), expected_ids);
            for (found, task) in found.iter().zip(expected) {
                assert_eq!(
                    (
                        found.status,
                        found.reported,
                        found.streams,
                        found.unread,
                        found.output_len
                    ),
                    (
                        task.status,
                        task.is_reported(),
                        task.streams,
                        task.count(|byte| byte != Byte::Read),
                        task.bytes.len() as u64
                    ),
                    "{task:?}"
                );
                let due = self.due.lock().unwrap().get(&task.id).copied();
                assert_eq!(due, task.due, "{task:?}");
            }
            let live = self.live(owner);
            assert_eq!(
                (self.registry.live_count(scope.id()), scope.holds()),
                (live, live)
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// 10 000 steps and more.
    #[test]
    fn every_history_agrees_with_the_sequential_model(
        steps in proptest::collection::vec(step(), 100..160),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut world = World::new();
            for step in steps {
                world.apply(step).await;
                world.check();
            }
        });
    }
}
