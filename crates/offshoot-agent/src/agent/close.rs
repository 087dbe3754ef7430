//! How an agent ends: one shared, bounded transaction.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use offshoot_core::CloseReport;
use tokio::time::Instant;

use super::Agent;
use crate::machine::{CloseIfSettled, Closed, Settle};

/// How long the end of an agent waits for its step, which the cancel grace should have ended long
/// before: less than a scope waits for a cleanup, so that the session is let go in any case.
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

    /// Ends the agent: children and tasks first, then its turn, then its log. Every caller awaits
    /// the same end; what does not end in time is dropped and reported.
    ///
    /// The first caller's `pending` decides. Dropping the returned future does not stop the closing.
    pub fn close(
        &self,
        pending: Pending,
    ) -> impl Future<Output = Arc<CloseReport>> + Send + 'static + use<> {
        self.begin_close(pending);
        // Closing runs as a task; the caller may be on a thread of its own.
        let _runtime = self.0.runtime.enter();
        let scope = self.scope().clone();
        drop(scope.close());
        async move { scope.close().await }
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
    pub(crate) async fn let_go(self) -> Result<(), String> {
        self.begin_close(Pending::Keep);
        let ended = tokio::time::timeout(STEP_LIMIT, self.idle()).await;
        if ended.is_err() {
            tracing::error!(agent = %self.id(), "a step did not end: its session is let go");
        }
        let log = self.commit(|state, inner| {
            // An agent that is not born has nothing to tell; its maker finds it closed.
            if state.born {
                let _ = state.run(inner, Settle);
            }
            let _ = state.run(inner, Closed);
            state.ended.get_or_insert_with(Instant::now);
            let log = state.log.take().filter(|_| state.born);
            if state.fresh && state.retracted {
                // Only the store is asked; it is free again before the agent is not listed any more.
                if let Some(log) = log {
                    log.abandon();
                }
                return None;
            }
            log
        });
        self.host().agents.leave(&self);
        // What was accepted survives the process without this. A root's log is made to survive a loss
        // of power too; a disk takes milliseconds for it, and children come in thousands.
        if let Some(mut log) = log.filter(|_| self.depth() == 0) {
            log.finish().map_err(|error| error.to_string())?;
        }
        ended.map_err(|_| "a step did not end".to_owned())
    }
}
