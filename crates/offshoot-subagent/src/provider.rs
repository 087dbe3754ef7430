//! The seam for kinds of children.

use std::fmt;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use futures::future::BoxFuture;
use offshoot_agent::{Agent, AgentId, RunId, StoredEvent};
use offshoot_core::text;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::stop::StopSignal;
use crate::{ChildRequest, Outcome, TreeUsage};

/// What a provider can do. What is asked and not declared is refused before any work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Children that can be sent messages after they settled.
    pub continuable: bool,
    /// A persona of the child's own.
    pub persona: bool,
    /// A filter on the child's tools.
    pub tool_filter: bool,
    /// An answer that fits a schema, of one-shot runs.
    pub structured_output: bool,
    /// Whether a child begins with its parent's past; only told, never checked.
    pub inherits_context: bool,
}

impl Capabilities {
    /// Everything that an in-process child can do.
    #[must_use]
    pub fn in_process(inherits_context: bool) -> Self {
        Self {
            continuable: true,
            persona: true,
            tool_filter: true,
            structured_output: true,
            inherits_context,
        }
    }
}

/// A provider could not do something. The message is for the model and the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ProviderError {
    /// What went wrong.
    pub message: String,
    undone: bool,
}

impl ProviderError {
    /// An error that says `message`.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            undone: true,
        }
    }

    /// An error of a start that could not be undone: something of it may be left. It is told even of
    /// a start that had been asked to stop, which otherwise has just not happened.
    #[must_use]
    pub fn not_undone(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            undone: false,
        }
    }

    /// Whether nothing is left of what failed.
    #[must_use]
    pub fn is_undone(&self) -> bool {
        self.undone
    }
}

/// Calls a provider; its panic becomes an error, whether it comes with the call or in its future.
pub(crate) async fn contain<T, F>(what: &str, call: impl FnOnce() -> F) -> Result<T, ProviderError>
where
    F: Future<Output = Result<T, ProviderError>>,
{
    AssertUnwindSafe(async { call().await })
        .catch_unwind()
        .await
        .unwrap_or_else(|panic| {
            let message = text::panic_message(&*panic);
            // How far it came, nobody knows.
            Err(ProviderError::not_undone(format!(
                "the provider panicked in {what}: {message}"
            )))
        })
}

type Publish = Box<dyn FnOnce(&AgentId) -> Result<(), ProviderError> + Send>;

/// The variable by which a program that is a subagent learns how deep it is: a number, counted through
/// all programs of the chain. One that runs subagents itself takes it off its own limit.
pub const DEPTH_VARIABLE: &str = "OFFSHOOT_DEPTH";

/// What a provider is asked to run.
pub struct RunRequest {
    /// The delegation.
    pub child: ChildRequest,
    /// The run's id.
    pub run_id: RunId,
    /// The one cancellation, before and after the run is published.
    pub cancel: CancellationToken,
    stop: StopSignal,
    publish: Option<Publish>,
}

impl fmt::Debug for RunRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunRequest")
            .field("run_id", &self.run_id)
            .finish_non_exhaustive()
    }
}

impl RunRequest {
    pub(crate) fn new(
        child: ChildRequest,
        run_id: RunId,
        stop: StopSignal,
        publish: Publish,
    ) -> Self {
        Self {
            child,
            run_id,
            cancel: stop.token().clone(),
            stop,
            publish: Some(publish),
        }
    }

    /// The cancellation with its reason: for a run that wants to say why it was stopped.
    #[must_use]
    pub fn stop_signal(&self) -> StopSignal {
        self.stop.clone()
    }

    /// Tells the parent's session that the child exists: called once, after the child has an id and
    /// before it is given its prompt.
    ///
    /// # Errors
    ///
    /// When the parent's session cannot take it; the child must then be disposed.
    pub fn publish(&mut self, child: &AgentId) -> Result<(), ProviderError> {
        match self.publish.take() {
            Some(publish) => publish(child),
            None => Ok(()),
        }
    }
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunResult {
    /// How it ended.
    pub outcome: Outcome,
    /// The child's last message; may be empty. Of a run that did not complete: what there is of it.
    pub text: String,
    /// The answer, when one was asked for that fits a schema, and the run completed.
    pub structured: Option<Value>,
    /// Why it did not complete, for the model: one bounded line, without secrets. Never a part of
    /// `text`.
    pub diagnostic: Option<String>,
    /// What it cost.
    pub usage: TreeUsage,
}

impl RunResult {
    /// The most bytes of a run's text that are kept: its end.
    pub const MAX_TEXT_BYTES: usize = 4 * 1024 * 1024;
    /// The most bytes of a diagnostic.
    pub const MAX_DIAGNOSTIC_BYTES: usize = 4096;

    /// A run that ended like this and said `text`, whose end is kept when it is too long.
    #[must_use]
    pub fn new(outcome: Outcome, text: impl Into<String>) -> Self {
        let result = Self {
            outcome,
            text: text.into(),
            structured: None,
            diagnostic: None,
            usage: TreeUsage::default(),
        };
        result.bounded()
    }

    /// Adds why it did not complete, made one line of at most
    /// [`MAX_DIAGNOSTIC_BYTES`](Self::MAX_DIAGNOSTIC_BYTES).
    ///
    /// ```
    /// use offshoot_subagent::{Outcome, RunResult};
    /// let result = RunResult::new(Outcome::Error, "").with_diagnostic("first\nsecond");
    /// assert_eq!(result.diagnostic.as_deref(), Some("first second"));
    /// ```
    #[must_use]
    pub fn with_diagnostic(mut self, diagnostic: impl fmt::Display) -> Self {
        let line = text::one_line(&diagnostic.to_string(), Self::MAX_DIAGNOSTIC_BYTES);
        self.diagnostic = (!line.is_empty()).then_some(line);
        self
    }

    /// Adds the answer that was asked for.
    #[must_use]
    pub fn with_structured(mut self, answer: Value) -> Self {
        self.structured = Some(answer);
        self
    }

    /// Adds what it cost.
    #[must_use]
    pub fn with_usage(mut self, usage: TreeUsage) -> Self {
        self.usage = usage;
        self
    }

    /// The same within the bounds, whoever made it: a diagnostic only of what did not complete, an
    /// answer only of what did.
    pub(crate) fn bounded(mut self) -> Self {
        if self.text.len() > Self::MAX_TEXT_BYTES {
            self.text = text::marked_tail(&self.text, Self::MAX_TEXT_BYTES);
        }
        if self.outcome == Outcome::Completed {
            self.diagnostic = None;
        } else {
            self.structured = None;
        }
        match self.diagnostic.take() {
            Some(diagnostic) => self.with_diagnostic(diagnostic),
            None => self,
        }
    }
}

/// A one-shot run that a provider has published.
///
/// # Implementing
///
/// - `result` resolves for every way in which the child can end, also after a cancel, and is awaited
///   once. An `Err` is a fault of the provider, not of the child: a child that died is an outcome.
/// - After a cancel `result` resolves within [`SubagentSettings::stop_grace`]; else it is dropped, the
///   run counts as aborted, and `dispose` is called.
/// - `dispose` stops what is left and waits until it has stopped. After
///   [`SubagentSettings::dispose_grace`] its future is dropped, which must kill what is left.
/// - Dropping a run without disposing it must not leave anything running for ever.
///
/// [`SubagentSettings::stop_grace`]: crate::SubagentSettings::stop_grace
/// [`SubagentSettings::dispose_grace`]: crate::SubagentSettings::dispose_grace
pub trait Run: Send {
    /// The child's id.
    fn child(&self) -> &AgentId;

    /// The child, when it is an agent of this process.
    fn local_agent(&self) -> Option<&Agent> {
        None
    }

    /// Waits for the end of the child's turn.
    fn result(&mut self) -> BoxFuture<'_, Result<RunResult, ProviderError>>;

    /// Ends the child and everything that it started.
    fn dispose(self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>>;
}

/// A kind of children.
///
/// # Implementing
///
/// - Until `start` returns a run, everything that it made is its own to clean up. What it could not
///   clean up it says with [`ProviderError::not_undone`].
/// - Concurrent starts share nothing that one of them can cancel or settle.
/// - A panic is contained and counts as a failed start that was not undone; so does a start that does
///   not end within the grace after a stop.
pub trait Provider: Send + Sync + 'static {
    /// The name that configuration uses.
    fn name(&self) -> &str;

    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Starts a one-shot run. Dropping the future must leave nothing running.
    fn start(&self, request: RunRequest) -> BoxFuture<'_, Result<Box<dyn Run>, ProviderError>>;

    /// The past that a continuable child of `parent` begins with: a log up to the end of a turn, or
    /// nothing. Asked only when [`Capabilities::continuable`] is declared.
    fn seed<'a>(
        &'a self,
        _parent: &'a Agent,
    ) -> BoxFuture<'a, Result<Option<Vec<StoredEvent>>, ProviderError>> {
        Box::pin(async { Ok(None) })
    }
}
