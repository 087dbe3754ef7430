//! One question to one agent.

use offshoot_agent::{Message, OpenError, SendError, TurnEndReason};

use crate::Runtime;

/// A question was not answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The agent could not be made.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It did not accept the question.
    #[error(transparent)]
    Send(#[from] SendError),
    /// Its last turn did not complete.
    #[error("the agent's last turn ended with {reason:?}{}", why(error.as_deref()))]
    Ended {
        /// How.
        reason: TurnEndReason,
        /// Why.
        error: Option<String>,
    },
}

fn why(error: Option<&str>) -> String {
    error.map(|error| format!(": {error}")).unwrap_or_default()
}

impl AskError {
    /// A stable name of the kind of error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Open(_) => "SESSION_FAILED",
            Self::Send(error) => error.code(),
            Self::Ended { .. } => "NOT_COMPLETED",
        }
    }
}

impl Runtime {
    /// Asks a new root agent, waits until it is at rest, which is when nothing that it started is alive
    /// either, and closes it. Returns its last words.
    ///
    /// Dropping the future leaves the agent as it is: it goes on, and nobody closes it.
    ///
    /// # Errors
    ///
    /// [`AskError`]; the agent has closed then.
    pub async fn ask(&self, question: &str) -> Result<String, AskError> {
        let root = self.create_root()?;
        let sent = root.followup(Message::user(question));
        if sent.is_ok() {
            root.rest().await;
        }
        let facts = root.with_projection(|session| session.facts().clone());
        self.close(&root).await;
        sent?;
        match facts.end {
            Some(TurnEndReason::Completed) => Ok(facts.text),
            reason => Err(AskError::Ended {
                reason: reason.unwrap_or(TurnEndReason::Aborted),
                error: facts.error.or(root.failure()),
            }),
        }
    }
}
