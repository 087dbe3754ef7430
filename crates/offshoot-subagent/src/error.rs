//! What can be refused.

use offshoot_agent::{AgentId, FilterError, OpenError, SendError};

use crate::{HostError, ProviderError};

/// A provider was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// Its name says nothing.
    #[error("a subagent provider has an empty name")]
    NoName,
    /// Another provider has this name.
    #[error("a subagent provider called {0} is registered already")]
    Duplicate(String),
}

impl RegisterError {
    /// A stable name of the kind of error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoName => "INVALID_PROVIDER_NAME",
            Self::Duplicate(_) => "DUPLICATE_PROVIDER",
        }
    }
}

/// A child was not started; nothing of it is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// No provider has this name.
    #[error("no subagent provider is called {0}")]
    NoProvider(String),
    /// The provider cannot do what was asked.
    #[error("the subagent provider {provider} does not support {feature}")]
    Unsupported {
        /// The provider.
        provider: String,
        /// What was asked.
        feature: &'static str,
    },
    /// The child would be too deep.
    #[error(
        "the depth limit is reached (limit: {max_depth}): a subagent here would be at depth {depth}; do the work yourself"
    )]
    TooDeep {
        /// How deep the child would be.
        depth: u32,
        /// The limit.
        max_depth: u32,
    },
    /// Too many children are live.
    #[error(
        "the limit of live subagents is reached (limit: {limit}): wait until one has settled, then try again"
    )]
    TooMany {
        /// The limit, for the whole tree.
        limit: usize,
    },
    /// The prompt says nothing.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// The parent is ending.
    #[error("the agent is closing and cannot delegate any more")]
    ParentClosing,
    /// The filter cannot be applied.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The provider failed.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// The session could not be made.
    #[error("the subagent's session could not be made: {0}")]
    Open(OpenError),
    /// The prompt, or the record of the start, could not be accepted.
    #[error("the subagent could not be started: {0}")]
    Send(#[from] SendError),
    /// Where the child should live failed.
    #[error("the subagent could not be started: {0}")]
    Host(HostError),
    /// The run was cancelled before it began.
    #[error("the delegation was cancelled before it began")]
    Cancelled,
}

impl From<OpenError> for StartError {
    fn from(error: OpenError) -> Self {
        match error {
            // The parent is the owner.
            OpenError::OwnerClosing => Self::ParentClosing,
            error => Self::Open(error),
        }
    }
}

impl StartError {
    /// A stable name of the kind of error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoProvider(_) => "NO_PROVIDER",
            Self::Unsupported { .. } => "UNSUPPORTED_CAPABILITY",
            Self::TooDeep { .. } => "DEPTH_LIMIT",
            Self::TooMany { .. } => "CAPACITY_EXCEEDED",
            Self::EmptyPrompt => "EMPTY_PROMPT",
            Self::ParentClosing => "PARENT_CLOSING",
            Self::Filter(_) => "INVALID_TOOL_FILTER",
            Self::Provider(_) => "PROVIDER_FAILED",
            Self::Open(_) => "SESSION_FAILED",
            Self::Send(error) => error.code(),
            Self::Host(error) => error.code(),
            Self::Cancelled => "CANCELLED",
        }
    }
}

/// A message was not delivered: nothing was appended anywhere.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeliverError {
    /// No agent of this id is a child or the parent of the sender. The same for an id that nobody
    /// has and for one that is somebody else's.
    #[error(
        "unknown agent {0}: only your own subagents and the agent that started you can be reached"
    )]
    Unknown(String),
    /// The child is one that ends with its turn.
    #[error("agent {0} was a one-shot run and cannot be sent a message")]
    OneShot(AgentId),
    /// The sender is a one-shot run, which has no way to its parent but its result.
    #[error("this run reports through its final message; it cannot send messages to its parent")]
    OneShotSender,
    /// The parent is not live.
    #[error("the agent that started you is not there any more")]
    ParentUnavailable,
    /// The child's session could not be opened again.
    #[error("agent {0} could not be resumed: {1}")]
    NotResumable(AgentId, String),
    /// The child could not be made resident.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The receiver refused.
    #[error("agent {0} did not accept the message: {1}")]
    Refused(AgentId, SendError),
    /// The message is too long for another agent's conversation.
    #[error(
        "the message has {bytes} bytes (limit: {limit}): put what is long into a file and say where"
    )]
    TooLong {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        limit: usize,
    },
    /// Where the child lives failed.
    #[error("agent {0} could not be reached: {1}")]
    Host(AgentId, HostError),
}

impl DeliverError {
    /// A stable name of the kind of error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "UNKNOWN_AGENT",
            Self::OneShot(_) | Self::NotResumable(..) => "NOT_RESUMABLE",
            Self::OneShotSender => "UNAUTHORIZED",
            Self::ParentUnavailable => "PARENT_UNAVAILABLE",
            Self::Start(error) => error.code(),
            Self::Refused(_, error) => error.code(),
            Self::TooLong { .. } => "MESSAGE_TOO_LONG",
            Self::Host(_, error) => error.code(),
        }
    }
}
