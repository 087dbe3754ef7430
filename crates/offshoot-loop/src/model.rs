//! The seam for models.

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use offshoot_agent::{Agent, CallRequest, EventRule, Finish, HistoryItem, StepKey, ToolSet, Usage};

/// The text of a reply while it arrives. What is in it when a request is cancelled is kept in the
/// history, marked as interrupted.
#[derive(Clone, Debug, Default)]
pub struct PartialText(Arc<Mutex<String>>);

impl PartialText {
    /// Adds what arrived.
    pub fn push(&self, text: &str) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_str(text);
    }

    /// Takes what arrived so far.
    #[must_use]
    pub fn take(&self) -> String {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a model is asked.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// The agent that asks.
    pub agent: Agent,
    /// The step that the request belongs to.
    pub key: StepKey,
    /// The system prompt; may be empty.
    pub system: String,
    /// The past, oldest first.
    pub history: Vec<HistoryItem>,
    /// The tools that the model may call.
    pub tools: ToolSet,
    /// Where a model that streams puts its text as it arrives.
    pub partial: PartialText,
}

/// What a model answers.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelReply {
    /// What it says.
    pub text: String,
    /// What it calls.
    pub calls: Vec<CallRequest>,
    /// Why it ended.
    pub finish: Finish,
    /// What it cost.
    pub usage: Usage,
}

/// A request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// Why.
    pub message: String,
    /// What it cost all the same.
    pub usage: Usage,
}

impl ModelError {
    /// A failure that says `message`.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            usage: Usage::default(),
        }
    }
}

/// A model.
///
/// # Implementing
///
/// - The future is dropped when the turn is cancelled: dropping it ends the request.
/// - Concurrent requests of different agents are independent.
/// - A panic is contained and ends the turn with an error.
pub trait Model: Send + Sync + 'static {
    /// Answers one request.
    fn request(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelReply, ModelError>>;

    /// What it keeps of the events of the sessions that it answers, for the
    /// [host](offshoot_agent::AgentHost::event_rules) of its agents. Who wraps a model hands on its rules.
    fn event_rules(&self) -> Vec<Arc<dyn EventRule>> {
        Vec::new()
    }
}
