//! How a scope closes: told at once with all that is inside it, then cleaned up in order.

// Invariants
// 1. A scope is told before those inside it, and all of them before any listener is called: who hears of
//    the closing finds nothing open below.
// 2. Whoever takes a scope from Told to Closing has the one `Closing` of it; its drop closes the scope.
//    So a task that a runtime drops, or never takes, ends closing too.
// 3. A child scope that closes has no limit of its own: each of its cleanups has one.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::cleanups::{Cleanup, Next};
use super::{CLOSING, CleanupFailure, Phase, Scope};

/// How long closing waits for one cleanup before it gives it up and goes on.
const CLEANUP_LIMIT: Duration = Duration::from_secs(60);

const SHUT_DOWN: &str = "the runtime shut down";

impl Scope {
    /// Tells this scope and all inside it that they close, those that know it excepted.
    pub(super) fn begin_closing(&self) {
        let (mut untold, mut listeners) = (vec![self.clone()], Vec::new());
        while let Some(scope) = untold.pop() {
            {
                let mut state = scope.0.state();
                if !matches!(state.phase, Phase::Open) {
                    continue;
                }
                state.phase = Phase::Told;
                scope.0.word.fetch_or(CLOSING, Ordering::AcqRel);
                listeners.extend(state.listener.take());
                untold.extend(state.cleanups.children().cloned());
            }
            scope.0.changed.notify_waiters();
        }
        for listener in listeners {
            contained("a listener to a closing", listener);
        }
    }
}

/// Calls what is not this crate's; its panic is its own.
pub(super) fn contained(what: &str, call: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
        let error = crate::text::panic_message(&*panic);
        tracing::error!(%error, "{what} panicked");
    }
}

/// The one closing of a scope. Dropping it ends the closing, whatever is left to do.
pub(super) struct Closing {
    scope: Scope,
    /// The cleanup that runs.
    running: Option<Cow<'static, str>>,
}

impl Closing {
    /// `None` when the scope closes already, or is open.
    pub(super) fn of(scope: &Scope) -> Option<Self> {
        let mut state = scope.0.state();
        if !matches!(state.phase, Phase::Told) {
            return None;
        }
        state.phase = Phase::Closing(Box::default());
        drop(state);
        Some(Self {
            scope: scope.clone(),
            running: None,
        })
    }

    pub(super) async fn run(mut self) {
        while let Some(next) = self.next() {
            match next {
                Next::Run(name, cleanup) => {
                    self.running = Some(name);
                    let ended = contain(cleanup).await;
                    let name = self.running.take();
                    if let (Some(name), Err(error)) = (name, ended) {
                        self.failed(name, error);
                    }
                }
                Next::Close(children) => {
                    children.iter().for_each(Scope::close_detached);
                    for child in children {
                        let name = child.name().to_owned();
                        let report = child.ended().await;
                        let dropped = report.dropped.iter();
                        for what in dropped {
                            self.scope.report_dropped(format!("{name}: {what}"));
                        }
                    }
                }
            }
        }
    }

    fn next(&self) -> Option<Next> {
        self.scope.0.state().cleanups.pop()
    }

    fn failed(&self, name: Cow<'static, str>, error: String) {
        tracing::warn!(scope = %self.scope.name(), cleanup = %name, %error, "cleanup failed");
        if let Phase::Closing(report) = &mut self.scope.0.state().phase {
            let name = name.into_owned();
            report.failures.push(CleanupFailure { name, error });
        }
    }

    /// Gives up what is left when nothing runs it any more.
    fn give_up(&mut self) {
        if let Some(name) = self.running.take() {
            self.failed(name, SHUT_DOWN.to_owned());
        }
        while let Some(next) = self.next() {
            match next {
                Next::Run(name, cleanup) => {
                    // Not under the lock: what it holds may use the scope.
                    contained("a cleanup that was dropped", || drop(cleanup));
                    self.failed(name, SHUT_DOWN.to_owned());
                }
                // One that closes already ends by itself.
                Next::Close(children) => children.iter().for_each(|child| drop(Closing::of(child))),
            }
        }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.give_up();
        let scope = &self.scope.0;
        let holds_left = self.scope.holds();
        {
            let mut state = scope.state();
            if let Phase::Closing(report) = &mut state.phase {
                let mut report = std::mem::take(&mut **report);
                report.holds_left = holds_left;
                state.phase = Phase::Closed(Arc::new(report));
            }
        }
        if let Some((parent, cleanup)) = &scope.parent {
            parent.forget_cleanup(*cleanup);
        }
        scope.changed.notify_waiters();
    }
}

/// Runs one cleanup as a task, so that its panic and its hang stay its own.
async fn contain(cleanup: Cleanup) -> Result<(), String> {
    let mut task = tokio::spawn(async move { cleanup().await });
    match tokio::time::timeout(CLEANUP_LIMIT, &mut task).await {
        Ok(Ok(result)) => result,
        Ok(Err(join)) if join.is_panic() => Err(format!(
            "panicked: {}",
            crate::text::panic_message(&*join.into_panic())
        )),
        Ok(Err(_)) => Err(SHUT_DOWN.to_owned()),
        Err(_) => {
            task.abort();
            Err(format!("took longer than {} s", CLEANUP_LIMIT.as_secs()))
        }
    }
}
