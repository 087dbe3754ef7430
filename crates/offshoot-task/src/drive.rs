//! The future that the runtime polls: the work, its deadline, and the promise that it settles.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use offshoot_core::text::panic_message;
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};

use crate::shared::Shared;
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
    shared: Option<Arc<Shared>>,
    key: Key,
}

impl Job {
    pub(crate) fn new(shared: Arc<Shared>, key: Key) -> Self {
        Self {
            shared: Some(shared),
            key,
        }
    }

    fn settle(&mut self, outcome: TaskOutcome) {
        if let Some(shared) = self.shared.take() {
            shared.settle(self.key, outcome);
        }
    }
}

fn aborted() -> TaskOutcome {
    TaskOutcome::killed().with_detail("did not stop in time and was aborted")
}

impl Drop for Job {
    fn drop(&mut self) {
        let Some(shared) = &self.shared else {
            return;
        };
        let aborting = {
            let table = shared.table();
            table
                .records
                .get(self.key)
                .is_some_and(|record| record.aborting)
        };
        self.settle(if aborting {
            aborted()
        } else {
            TaskOutcome::failed("the runtime shut down before the task ended")
        });
    }
}

/// The deadline of a task, and after it the grace. Few tasks have one, so it is boxed.
struct Timer {
    sleep: Pin<Box<Sleep>>,
    overdue: bool,
}

pin_project! {
    pub(crate) struct Driver<F> {
        #[pin]
        work: Option<F>,
        timer: Option<Box<Timer>>,
        job: Job,
    }
}

impl<F> Driver<F> {
    pub(crate) fn new(work: F, deadline: Option<Duration>, job: Job) -> Self {
        Self {
            work: Some(work),
            timer: deadline.map(|deadline| {
                Box::new(Timer {
                    sleep: Box::pin(sleep(deadline)),
                    overdue: false,
                })
            }),
            job,
        }
    }
}

impl<F: Future<Output = TaskOutcome>> Future for Driver<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let Some(work) = this.work.as_mut().as_pin_mut() else {
            return Poll::Ready(());
        };
        let outcome = match catch_unwind(AssertUnwindSafe(|| work.poll(cx))) {
            Ok(Poll::Ready(outcome)) => outcome,
            Ok(Poll::Pending) => {
                let Some(timer) = this.timer else {
                    return Poll::Pending;
                };
                ready!(timer.poll(cx, this.job));
                aborted()
            }
            Err(panic) => TaskOutcome::failed(format!("panicked: {}", panic_message(&*panic))),
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

impl Timer {
    /// Stops the task at its deadline; ready when the grace after that has passed too.
    fn poll(&mut self, cx: &mut Context<'_>, job: &Job) -> Poll<()> {
        let Some(shared) = &job.shared else {
            return Poll::Pending;
        };
        ready!(self.sleep.as_mut().poll(cx));
        if !self.overdue {
            self.overdue = true;
            // It wakes the work, which is polled next.
            shared.stop(job.key, StoppedBy::Deadline, None);
            let grace = shared.config.kill_grace.unwrap_or(Duration::MAX);
            self.sleep = Box::pin(sleep(grace));
            ready!(self.sleep.as_mut().poll(cx));
        }
        Poll::Ready(())
    }
}
