//! How an agent ends: one shared, bounded transaction.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use offshoot_core::CloseReport;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::Agent;
use crate::machine::{CloseIfSettled, Closed, Settle};
use crate::sync;

/// How long after an agent began to close its step is waited for, which the cancel grace should have
/// ended long before: less than a scope waits for a cleanup, so that the session is let go in any case.
const STEP_LIMIT: Duration = Duration::from_secs(50);

/// What becomes of messages that wait when a turn is cancelled or an agent ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// They stay in the session: parked, and read when it goes on.
    Keep,
    /// They are discarded, on the record.
    Discard,
}

impl Agent {
    /// Begins to end the agent: no turn starts any more, the one that runs is cancelled, and only
    /// notices of the runtime are accepted. False when it was ending already.
    pub fn begin_close(&self, pending: Pending) -> bool {
        self.commit(|state, inner| state.begin_closing(inner, pending))
    }

    /// Begins to end the agent if it has nothing left to do: it is idle, nothing holds its scope and
    /// no message that may wake is parked behind an interrupt. What waits stays in the session.
    ///
    /// The question and the answer are one critical section, so that a message is either accepted
    /// before (and the agent stays) or refused after.
    #[must_use = "whether the agent is now closing"]
    pub fn close_if_settled(&self) -> bool {
        self.commit(|state, inner| {
            state.follow_scope(inner);
            let held = inner.scope.holds() > 0;
            let before = state.machine.closing();
            let (closes, _) = state.run(inner, CloseIfSettled { held });
            if !closes && state.machine.closing() == before {
                // Nothing changed: who asks at every change must not find one in the asking.
                state.epoch -= 1;
            }
            closes
        })
    }

    /// Ends the agent: it and all that is inside its scope are closing when this returns, and their turns
    /// are told to stop; then children and tasks end, then its turn, then its log. Every caller awaits
    /// the same end; what does not end in time is dropped and reported.
    ///
    /// The first caller's `pending` decides. Dropping the returned future does not stop the closing, which
    /// runs on the runtime that the agent was made in. When that is gone it runs on the caller's; without
    /// one the session is let go at once, and what had cleanups of its own is reported.
    pub fn close(
        &self,
        pending: Pending,
    ) -> impl Future<Output = Arc<CloseReport>> + Send + 'static + use<> {
        self.begin_close(pending);
        // Closing runs as a task; the caller may be on a thread of its own.
        let runtime = self.live_runtime();
        let _inside = runtime.enter();
        self.scope().close()
    }

    /// The runtime that the agent was made in; when that is gone, the caller's, if it is in one.
    fn live_runtime(&self) -> Handle {
        let own = &self.0.runtime;
        match Handle::try_current() {
            Ok(current) if current.id() != own.id() && sync::is_gone(own) => current,
            _ => own.clone(),
        }
    }

    /// Waits until the agent begins to close. Dropping the future has no effect.
    pub async fn closing(&self) {
        self.until(|state| state.machine.closing().map(drop)).await;
    }

    /// Waits until the agent has closed. Dropping the future has no effect.
    pub async fn closed(&self) {
        self.until(|state| state.machine.is_closed().then_some(()))
            .await;
    }

    /// The last cleanup of the agent's scope: waits for the drive, then lets the session go.
    pub(crate) async fn let_go(&self) -> Result<(), String> {
        self.begin_close(Pending::Keep);
        let began = self.lock().ending().since;
        let until = began.map(|began| began + STEP_LIMIT);
        let left = until.map_or(STEP_LIMIT, |until| {
            // Another runtime's clock may have begun elsewhere.
            until
                .saturating_duration_since(Instant::now())
                .min(STEP_LIMIT)
        });
        let ended = tokio::time::timeout(left, self.idle()).await;
        if ended.is_err() {
            tracing::error!(agent = %self.id(), "a step did not end: its session is let go");
        }
        self.end()?;
        ended.map(drop).map_err(|_| "a step did not end".to_owned())
    }

    /// Ends the agent as it is, once.
    fn end(&self) -> Result<(), String> {
        let (log, dropped) = self.commit(|state, inner| {
            if state.machine.is_closed() {
                return (None, None);
            }
            // An agent that is not born has nothing to tell; its maker finds it closed.
            if state.born {
                let _ = state.run(inner, Settle);
            }
            let _ = state.run(inner, Closed);
            state.ending().ended = Some(Instant::now());
            let log = state.log.take().filter(|_| state.born);
            let dropped = state.ending().dropped.take();
            if state.fresh && state.retracted {
                // Only the store is asked; it is free again before the agent is not listed any more.
                if let Some(log) = log {
                    log.abandon();
                }
                return (None, dropped);
            }
            (log, dropped)
        });
        if let Some(dropped) = dropped {
            self.scope().report_dropped(dropped);
        }
        self.host().agents.leave(self);
        // What was accepted survives the process without this. A root's log is made to survive a loss
        // of power too; a disk takes milliseconds for it, and children come in thousands.
        if let Some(mut log) = log.filter(|_| self.depth() == 0) {
            log.finish().map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// Lets an agent's session go when its scope closes. So does the drop of it, when nothing runs any more
/// that could wait for the agent's turn.
pub(super) struct LastCleanup(pub(super) Agent);

impl LastCleanup {
    pub(super) async fn run(self) -> Result<(), String> {
        self.0.let_go().await
    }
}

impl Drop for LastCleanup {
    fn drop(&mut self) {
        // Without effect when it was let go.
        if let Err(error) = self.0.end() {
            tracing::error!(agent = %self.0.id(), %error, "a session could not be let go");
        }
    }
}
