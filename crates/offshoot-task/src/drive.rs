//! The future that the runtime polls: the work, its deadline, and the promise that it settles.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use offshoot_core::text::panic_message;
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};

use crate::shard::Shard;
use crate::slab::Key;
use crate::status::{StoppedBy, TaskOutcome};

// Invariants
// 1. A task is settled only after its future was dropped: who sees the end sees the resources
//    released. (Giving up a future that cannot be dropped is the one exception.)
// 2. However the driver ends, by the work, a panic, an abort or the end of the runtime, the drop of
//    its `Job` settles. Fields are dropped in order: the work before the job.

/// Drops a value of the producer, whose drop may panic.
pub(crate) fn drop_contained<T>(value: T) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        let panic = panic_message(&*panic);
        tracing::error!(panic, "the drop of a task's future panicked");
    }
}

/// The duty to settle one task. It is part of every live task: keep it small.
pub(crate) struct Job {
    /// `None` once settled.
    shard: Option<Arc<Shard>>,
    key: Key,
}

impl Job {
    pub(crate) fn new(shard: Arc<Shard>, key: Key) -> Self {
        Self {
            shard: Some(shard),
            key,
        }
    }

    fn settle(&mut self, outcome: TaskOutcome) {
        if let Some(shard) = self.shard.take() {
            shard.settle(self.key, outcome);
        }
    }
}

fn aborted() -> TaskOutcome {
    TaskOutcome::killed().with_detail("did not stop in time and was aborted")
}

impl Drop for Job {
    fn drop(&mut self) {
        let Some(shard) = &self.shard else {
            return;
        };
        let aborting = shard.is_aborting(self.key);
        self.settle(if aborting {
            aborted()
        } else {
            TaskOutcome::failed("the runtime shut down before the task ended")
        });
    }
}

pin_project! {
    /// What the runtime polls.
    pub(crate) struct Driver<F> {
        #[pin]
        work: Option<F>,
        job: Job,
        // The aborts of the registry when this one was known not to be meant.
        aborts: u32,
        // Whether the registry has the waker. One does: a task of the runtime keeps its waker.
        attached: bool,
    }
}

impl<F> Driver<F> {
    /// `aborts` is the number of aborts before the task was registered.
    pub(crate) fn new(work: F, job: Job, aborts: u32) -> Self {
        Self {
            work: Some(work),
            job,
            aborts,
            attached: false,
        }
    }
}

impl<F: Future<Output = TaskOutcome>> Future for Driver<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let (Some(work), Some(shard)) = (this.work.as_mut().as_pin_mut(), &this.job.shard) else {
            return Poll::Ready(());
        };
        let aborts = shard.aborts();
        let called = std::mem::replace(this.aborts, aborts) != aborts;
        let outcome = if called && shard.is_given_up(this.job.key) {
            aborted()
        } else {
            match catch_unwind(AssertUnwindSafe(|| work.poll(cx))) {
                Ok(Poll::Ready(outcome)) => outcome,
                Ok(Poll::Pending) => {
                    let late = !std::mem::replace(this.attached, true)
                        && shard.attach(this.job.key, cx.waker());
                    if !late {
                        return Poll::Pending;
                    }
                    aborted()
                }
                Err(panic) => TaskOutcome::failed(format!("panicked: {}", panic_message(&*panic))),
            }
        };
        let mut work = this.work;
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work.set(None))) {
            let panic = panic_message(&*panic);
            tracing::error!(panic, "the drop of a task's future panicked");
        }
        this.job.settle(outcome);
        Poll::Ready(())
    }
}

impl Shard {
    /// Whether nobody wants the work of a task any more: it was aborted, or settled without it.
    fn is_given_up(&self, key: Key) -> bool {
        let table = self.table();
        let live = table.records.get(key).and_then(|record| record.live());
        live.is_none_or(|live| live.aborting)
    }

    /// Takes the waker of a task's driver. True when nobody wants the work any more.
    fn attach(&self, key: Key, waker: &Waker) -> bool {
        let mut table = self.table();
        let record = table.records.get_mut(key);
        let Some(live) = record.and_then(|record| record.live_mut()) else {
            return true;
        };
        if !live.aborting {
            live.driver = Some(waker.clone());
        }
        live.aborting
    }
}

pin_project! {
    /// Work with a deadline, and after that the grace. Few tasks have one.
    pub(crate) struct Timed<F> {
        #[pin]
        work: F,
        sleep: Pin<Box<Sleep>>,
        overdue: bool,
        shard: Arc<Shard>,
        key: Key,
    }
}

impl<F> Timed<F> {
    pub(crate) fn new(work: F, deadline: Duration, job: &Job) -> Option<Self> {
        Some(Self {
            work,
            sleep: Box::pin(sleep(deadline)),
            overdue: false,
            shard: job.shard.clone()?,
            key: job.key,
        })
    }
}

impl<F: Future<Output = TaskOutcome>> Future for Timed<F> {
    type Output = TaskOutcome;

    /// Stops the task at its deadline; ready when the grace after that has passed too.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<TaskOutcome> {
        let this = self.project();
        if let Poll::Ready(outcome) = this.work.poll(cx) {
            return Poll::Ready(outcome);
        }
        ready!(this.sleep.as_mut().poll(cx));
        if !*this.overdue {
            *this.overdue = true;
            // It wakes the work, which is polled next.
            this.shard.stop(*this.key, StoppedBy::Deadline, None);
            let grace = this.shard.config.kill_grace.unwrap_or(Duration::MAX);
            *this.sleep = Box::pin(sleep(grace));
            ready!(this.sleep.as_mut().poll(cx));
        }
        Poll::Ready(aborted())
    }
}
