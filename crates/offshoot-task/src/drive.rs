//! The future that the runtime polls: the work, its deadline, and the promise that it settles.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
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

/// The duty to settle one task.
pub(crate) struct Job {
    shared: Arc<Shared>,
    key: Key,
    settled: bool,
}

impl Job {
    pub(crate) fn new(shared: Arc<Shared>, key: Key) -> Self {
        Self {
            shared,
            key,
            settled: false,
        }
    }

    fn settle(&mut self, outcome: TaskOutcome) {
        self.settled = true;
        self.shared.settle(self.key, outcome);
    }

    /// The deadline passed. False when the task needs no grace: it was stopped before.
    fn overdue(&self) {
        self.shared.stop(self.key, StoppedBy::Deadline, None);
    }
}

fn aborted() -> TaskOutcome {
    TaskOutcome::killed().with_detail("did not stop in time and was aborted")
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        let aborting = {
            let table = self.shared.table();
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

enum Timer {
    Deadline(Pin<Box<Sleep>>),
    Grace(Pin<Box<Sleep>>),
    None,
}

pin_project! {
    pub(crate) struct Driver<F> {
        #[pin]
        work: Option<F>,
        timer: Timer,
        job: Job,
    }
}

impl<F> Driver<F> {
    pub(crate) fn new(work: F, deadline: Option<Duration>, job: Job) -> Self {
        Self {
            work: Some(work),
            timer: deadline.map_or(Timer::None, |deadline| {
                Timer::Deadline(Box::pin(sleep(deadline)))
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
            Ok(Poll::Pending) => match this.timer.poll(cx, this.job) {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => return Poll::Pending,
            },
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
    fn poll(&mut self, cx: &mut Context<'_>, job: &Job) -> Poll<TaskOutcome> {
        loop {
            match self {
                Self::None => return Poll::Pending,
                Self::Deadline(sleep) => {
                    std::task::ready!(sleep.as_mut().poll(cx));
                    job.overdue();
                    *self = match job.shared.config.kill_grace {
                        Some(grace) => Self::Grace(Box::pin(tokio::time::sleep(grace))),
                        None => Self::None,
                    };
                    // The stop has woken the work; it is polled next.
                }
                Self::Grace(sleep) => {
                    std::task::ready!(sleep.as_mut().poll(cx));
                    return Poll::Ready(aborted());
                }
            }
        }
    }
}
