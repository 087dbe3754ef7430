//! The seam for what one step of a turn does.
//!
//! The agent owns boundaries (turns, steps, claims, cancellation); a driver does the work between
//! two boundaries and records it. It can be asked again from the log alone.

use std::fmt;
use std::sync::OnceLock;

use futures::future::BoxFuture;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::{
    Agent, AgentId, AssistantMessage, CallId, CallRequest, Event, HistoryItem, SendError,
    ToolResultRecord,
};

/// Names one attempt at one step. Without `attempt` it is the idempotency key of what the step does.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct StepKey {
    /// The session.
    pub session: AgentId,
    /// Which residency of the session, from 1.
    pub activation: u64,
    /// The turn, from 1.
    pub turn: u64,
    /// The step, from 1 in each turn.
    pub step: u64,
    /// The attempt at this step, from 1.
    pub attempt: u64,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// Results are owed to the model: the turn needs another step.
    Continue,
    /// The turn is done.
    Completed,
    /// The turn is done by a tool's result: the model is not asked again, unless something waits for the
    /// next step. To the agent it is the same as [`Completed`](Self::Completed).
    Final,
    /// The reply ran out of tokens.
    MaxTokens,
    /// The model declined.
    Refusal,
}

/// A step failed; the turn ends with this error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DriverError {
    /// What failed.
    pub message: String,
}

impl DriverError {
    /// An error that says `message`.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
        }
    }
}

impl From<SendError> for DriverError {
    fn from(error: SendError) -> Self {
        Self::new(error.to_string())
    }
}

/// Does one step of a turn: asks a model, runs what it calls, records both.
///
/// # Implementing
///
/// - Record the reply before its calls, and a result for each call; what stays unanswered is
///   answered with an error when the step ends.
/// - Return soon after [`StepContext::cancelled`]: the future is dropped at the end of a grace time.
/// - A panic is contained and ends the turn with an error.
pub trait TurnDriver: Send + Sync + 'static {
    /// Does the step that `context` names.
    ///
    /// Dropping the future abandons the step; what it recorded stays.
    fn step<'a>(
        &'a self,
        context: &'a StepContext,
    ) -> BoxFuture<'a, Result<StepOutcome, DriverError>>;
}

/// What a driver sees of the agent during one step, and how it records what it did.
#[derive(Clone)]
pub struct StepContext {
    agent: Agent,
    key: StepKey,
    generation: u64,
    /// Made for the first who asks: a step that does not wait needs none.
    cancel: OnceLock<CancellationToken>,
}

impl fmt::Debug for StepContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepContext")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl StepContext {
    pub(crate) fn new(agent: Agent, key: StepKey, generation: u64) -> Self {
        Self {
            agent,
            key,
            generation,
            cancel: OnceLock::new(),
        }
    }

    /// The agent whose step this is.
    #[must_use]
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Which step this is.
    #[must_use]
    pub fn key(&self) -> &StepKey {
        &self.key
    }

    /// The generation of the turn.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The turn's cancellation. Of a turn that is over and was never asked for it, it is cancelled.
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        if let Some(cancel) = self.cancel.get() {
            return cancel;
        }
        // Taken before the cell is entered: nobody waits for the agent's lock in it.
        let cancel = self.agent.signal(self.key.turn);
        self.cancel.get_or_init(|| cancel)
    }

    /// Waits until the turn is cancelled.
    pub async fn cancelled(&self) {
        self.cancellation().cancelled().await;
    }

    /// What the model is shown of the past.
    #[must_use]
    pub fn history(&self) -> Vec<HistoryItem> {
        self.agent
            .with_projection(|projection| projection.history().to_vec())
    }

    /// Records the model's reply. A step may record several.
    ///
    /// # Errors
    ///
    /// [`SendError::Closed`] when the step is over; otherwise when the log cannot be written.
    pub fn record_reply(&self, message: AssistantMessage) -> Result<(), SendError> {
        let (turn, step) = (self.key.turn, self.key.step);
        self.agent.record_in_step(Event::MessageAssistant {
            turn,
            step,
            message: message.into(),
        })
    }

    /// Records that a call is dispatched. Of two calls of one id the first one that has not begun is meant.
    ///
    /// # Errors
    ///
    /// [`SendError::Unpaired`] when no reply of this step has asked for the call, or it has a result;
    /// [`SendError::Closed`] when the step is over; otherwise when the log cannot be written.
    pub fn record_call(&self, call: &CallRequest) -> Result<(), SendError> {
        self.agent.record_in_step(Event::ToolCall {
            turn: self.key.turn,
            step: self.key.step,
            call_id: call.id.clone(),
            name: call.name.clone(),
            args: call.args.clone().into(),
        })
    }

    /// Says that a call has ended whose result is not recorded yet, since those of calls before it come
    /// first. [`Agent::open_calls`] shows it; nothing is recorded.
    pub fn call_settled(&self, call: &CallId) {
        self.agent.note_settled(self.key.turn, self.key.step, call);
    }

    /// Records how a call ended. Results may come in any order.
    ///
    /// # Errors
    ///
    /// [`SendError::Unpaired`] when the call was not [begun](Self::record_call), or has a result;
    /// [`SendError::Closed`] when the step is over; otherwise when the log cannot be written.
    pub fn record_result(&self, result: ToolResultRecord) -> Result<(), SendError> {
        let (turn, step) = (self.key.turn, self.key.step);
        self.agent.record_in_step(Event::ToolResult {
            turn,
            step,
            result: result.into(),
        })
    }
}
