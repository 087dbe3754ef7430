//! The contract of a tool, and the set of tools that an agent may use.

mod effects;

use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use offshoot_core::text;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{Agent, CallId, StepKey};
pub use effects::Effects;

/// One call of a tool.
#[derive(Clone, Debug)]
pub struct ToolCall {
    /// Who calls.
    pub agent: Agent,
    /// The call's id.
    pub call_id: CallId,
    /// The arguments as the model gave them.
    pub args: Value,
    /// The step that the call belongs to: with `call_id`, an idempotency key.
    pub key: StepKey,
    /// The generation of the turn that the call belongs to.
    pub generation: u64,
    /// Cancelled with the turn, and at the deadline of the call.
    pub cancel: CancellationToken,
}

type Commit = Box<dyn FnOnce() + Send>;

/// What a tool answers.
///
/// ```
/// use offshoot_agent::ToolOutput;
/// assert!(ToolOutput::error("NOT_FOUND", "no such file").is_error);
/// ```
#[must_use = "a tool's answer goes to the model"]
pub struct ToolOutput {
    /// What the model reads.
    pub text: String,
    /// The same for a program.
    pub value: Option<Value>,
    /// Whether the call failed.
    pub is_error: bool,
    /// A stable code of the failure.
    pub code: Option<String>,
    ends_turn: bool,
    on_commit: Option<Commit>,
}

impl fmt::Debug for ToolOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolOutput")
            .field("text", &self.text)
            .field("is_error", &self.is_error)
            .field("code", &self.code)
            .finish_non_exhaustive()
    }
}

impl ToolOutput {
    /// A success that says `text`.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            value: None,
            is_error: false,
            code: None,
            ends_turn: false,
            on_commit: None,
        }
    }

    /// A failure: the model reads `Error: ` and the message.
    pub fn error(code: impl Into<String>, message: impl fmt::Display) -> Self {
        let mut output = Self::text(format!("Error: {message}"));
        output.is_error = true;
        output.code = Some(code.into());
        output
    }

    /// Marks the output as a failure with `code`, keeping its text.
    pub fn into_error(mut self, code: impl Into<String>) -> Self {
        self.is_error = true;
        self.code = Some(code.into());
        self
    }

    /// Adds the value for programs.
    pub fn with_value(mut self, value: Value) -> Self {
        self.value = Some(value);
        self
    }

    /// Runs `commit` once the result is in the log; a panic in it is contained and logged. When the result is not committed, `commit` is
    /// dropped unrun, so that what it captured can give back what it had claimed.
    pub fn on_commit(mut self, commit: impl FnOnce() + Send + 'static) -> Self {
        self.on_commit = Some(Box::new(|| {
            // The result is in the log: whoever runs this goes on with its siblings.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(commit)) {
                let message = text::panic_message(&*panic);
                tracing::error!(
                    panic = message,
                    "what a tool does after its result panicked"
                );
            }
        }));
        self
    }

    /// Ends the turn with this result: of the same reply no later call runs, and the model is not
    /// asked again, unless a message for the next step has arrived. For a call that runs alone; see [`Tool::is_parallel_safe`].
    pub fn ending_turn(mut self) -> Self {
        self.ends_turn = true;
        self
    }

    /// Whether the turn ends with this result.
    #[must_use]
    pub fn ends_turn(&self) -> bool {
        self.ends_turn
    }

    /// Takes the commit hook out.
    pub fn take_commit(&mut self) -> Option<Box<dyn FnOnce() + Send>> {
        self.on_commit.take()
    }
}

/// How long a call may take before it is told to stop, and soon after dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deadline {
    /// As long as the driver's setting says.
    #[default]
    Setting,
    /// This long.
    After(Duration),
    /// As long as it takes: the tool bounds its calls itself.
    Never,
}

/// Something that a model may call.
///
/// # Implementing
///
/// - `call` answers with an error output rather than panicking; a panic is contained.
/// - Return soon after `call.cancel` is cancelled: with the turn, or at the call's deadline. What has
///   not returned at the end of a grace time is dropped.
/// - `call` must not block its thread.
/// - The schema is an object schema without references.
pub trait Tool: Send + Sync + 'static {
    /// The name that the model calls.
    fn name(&self) -> &str;

    /// What the model is told about it.
    fn description(&self) -> &str;

    /// The JSON schema of the arguments.
    fn input_schema(&self) -> &Value;

    /// Whether a call with these arguments may run beside its siblings.
    fn is_parallel_safe(&self, _args: &Value) -> bool {
        false
    }

    /// What its calls may change.
    fn effects(&self) -> Effects {
        Effects::UNKNOWN
    }

    /// Whether the children of an agent that has the tool get it, too.
    fn is_inherited(&self) -> bool {
        true
    }

    /// How long a call may take.
    fn deadline(&self) -> Deadline {
        Deadline::Setting
    }

    /// Runs one call.
    fn call(&self, call: ToolCall) -> BoxFuture<'_, ToolOutput>;
}

/// Which tools a child may use: first `allow` (absent: all; empty: none), then `deny`. It is about
/// what the child inherits: a tool that the child gets of its own is added afterwards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolFilter {
    /// Only these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// Not these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deny: Option<Vec<String>>,
}

/// A filter that cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// It names a tool that is not there.
    #[error("the tool filter names an unknown tool: {0}")]
    UnknownTool(String),
    /// It says nothing.
    #[error("the tool filter is empty: expected `allow`, `deny` or both")]
    Empty,
}

/// The tools that an agent sees, in the order in which a model is shown them. What is not in the
/// set is neither shown nor run.
#[derive(Clone, Default)]
pub struct ToolSet(Arc<Vec<Arc<dyn Tool>>>);

impl fmt::Debug for ToolSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|tool| tool.name()))
            .finish()
    }
}

impl ToolSet {
    /// The set of these tools. Of two with one name the later one wins.
    #[must_use]
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        let mut set: Vec<Arc<dyn Tool>> = Vec::new();
        for tool in tools {
            match set.iter_mut().find(|old| old.name() == tool.name()) {
                Some(old) => *old = tool,
                None => set.push(tool),
            }
        }
        Self(Arc::new(set))
    }

    /// The set with one more tool, which shadows one of its name.
    #[must_use]
    pub fn with(&self, tool: Arc<dyn Tool>) -> Self {
        Self::new(self.0.iter().cloned().chain([tool]))
    }

    /// The tools that a child gets.
    #[must_use]
    pub fn inherited(&self) -> Self {
        if self.0.iter().all(|tool| tool.is_inherited()) {
            return self.clone();
        }
        let kept = self.0.iter().filter(|tool| tool.is_inherited());
        Self(Arc::new(kept.cloned().collect()))
    }

    /// The tools in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.0.iter()
    }

    /// The tool of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.0.iter().find(|tool| tool.name() == name)
    }

    /// The set without what `filter` hides.
    ///
    /// # Errors
    ///
    /// [`FilterError`] when the filter is empty or names a tool that is not in the set.
    pub fn restrict(&self, filter: &ToolFilter) -> Result<Self, FilterError> {
        let denies_none = filter.deny.as_ref().is_none_or(Vec::is_empty);
        if filter.allow.is_none() && denies_none {
            return Err(FilterError::Empty);
        }
        let named = filter.allow.iter().chain(&filter.deny).flatten();
        for name in named {
            if self.get(name).is_none() {
                return Err(FilterError::UnknownTool(name.clone()));
            }
        }
        let names = |list: &Option<Vec<String>>| -> Option<HashSet<String>> {
            list.as_ref().map(|names| names.iter().cloned().collect())
        };
        let (allow, deny) = (names(&filter.allow), names(&filter.deny));
        let kept = self.0.iter().filter(|tool| {
            let name = tool.name();
            allow.as_ref().is_none_or(|allow| allow.contains(name))
                && !deny.as_ref().is_some_and(|deny| deny.contains(name))
        });
        Ok(Self(Arc::new(kept.cloned().collect())))
    }
}
