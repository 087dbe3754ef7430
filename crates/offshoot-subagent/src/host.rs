//! The seam under continuable children: where they live.

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use offshoot_agent::{
    Agent, AgentId, AgentKit, AgentSpec, Delivered, Message, OpenError, Pending, RunId, SendError,
};
use serde_json::{Map, Value};

use crate::{ChildStatus, Interrupter, Outcome, TreeUsage, Verb};

/// One residency of a child: its address, and which of its residencies is meant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Residency {
    /// The child.
    pub child: AgentId,
    /// The run.
    pub run: RunId,
}

/// A child that is to become resident.
#[derive(Clone, Debug)]
pub struct OpenChild {
    /// Which residency this is.
    pub residency: Residency,
    /// The parent. A host in its process puts the child's scope into its; one elsewhere has its id.
    pub parent: Agent,
    /// The session that the child goes on with.
    pub session: Session,
}

/// The session of a child that becomes resident.
#[derive(Clone, Debug)]
pub enum Session {
    /// A new one.
    New(AgentSpec),
    /// The one that the child has.
    Stored {
        /// What its new beginning says of the child.
        extra: Map<String, Value>,
        /// What the child works with. A host elsewhere makes it from `extra`.
        kit: AgentKit,
    },
}

/// A child became resident.
#[must_use = "a residency whose reports nobody reads is never settled"]
pub struct Opened {
    /// What its host says of it. Ends after the settlement.
    pub reports: BoxStream<'static, Report>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened").finish_non_exhaustive()
    }
}

/// What a host says of a residency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The child is quiet, and waits for what it started.
    Waiting(Waiting),
    /// The residency is over, and everything that the child started in it.
    Settled(Settlement),
}

/// A child that is quiet and waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its last turn.
    pub turn: u64,
    /// Its last words.
    pub text: String,
    /// What it waits for, each as one line.
    pub works: Vec<String>,
    /// How many messages it reads with the next one that wakes it.
    pub parked: usize,
    /// The generation of the notice.
    pub generation: u64,
}

/// How a residency ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// How.
    pub outcome: Outcome,
    /// The child's last message.
    pub text: String,
    /// Whether the token limit cut `text` off.
    pub cut: bool,
    /// What went wrong.
    pub error: Option<String>,
    /// What it cost.
    pub usage: TreeUsage,
    /// What had to be stopped with it, each as one line.
    pub stopped: Vec<String>,
    /// The generation of the notice.
    pub generation: u64,
}

/// An interrupt of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Which of this residency: from 1. One that is not greater than the last is a duplicate.
    pub number: u64,
    /// Who asks.
    pub by: Interrupter,
}

/// What a host knows of a child now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// What it does.
    pub status: ChildStatus,
    /// What its residency cost so far.
    pub usage: TreeUsage,
    /// What it started and is alive, each as one line.
    pub works: Vec<String>,
}

/// A host could not do something; it has done nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// This very residency was opened before.
    #[error("the run {0} was begun before")]
    Duplicate(RunId),
    /// No such residency is here: it never was, or it is over.
    #[error("the run {0} is not resident")]
    NotResident(RunId),
    /// The session could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The child did not accept the message.
    #[error(transparent)]
    Send(#[from] SendError),
    /// Something of the host's own.
    #[error("{0}")]
    Failed(String),
}

impl HostError {
    /// Whether the residency is ending, or over: what comes now is for the next one.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(
            self,
            Self::NotResident(_) | Self::Send(SendError::Closing | SendError::Closed)
        )
    }

    /// A stable name of the kind of error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Duplicate(_) => "DUPLICATE_RUN",
            Self::NotResident(_) => "NOT_RESIDENT",
            Self::Open(_) => "SESSION_FAILED",
            Self::Send(error) => error.code(),
            Self::Failed(_) => "HOST_FAILED",
        }
    }
}

/// Where continuable children live: in this process ([`LocalHost`](crate::LocalHost)), or on another
/// machine. Who may have a child, what it is told, and what its parent is told is decided above.
///
/// # Implementing
///
/// - Everything has a key, so that a host may retry, and what comes twice has no second effect: a
///   residency its run, a message its id, an interrupt its number. Reports may come twice, too, and in
///   any order before the settlement is accepted.
/// - A child that was opened does nothing before its first message was delivered.
/// - A residency ends by itself when its child is idle and nothing that it started is alive, and when it
///   is closed. Its settlement is reported after everything below the child has ended.
/// - `open` and `deliver` may be dropped only by the end of the runtime. A panic is contained: of `open`
///   and `deliver` it is an error, of the reports it is the loss of the child.
/// - `interrupt` and `close` ask and return at once; one that cannot be carried out is dropped.
pub trait ChildHost: Send + Sync + 'static {
    /// Makes a child resident.
    ///
    /// # Errors
    ///
    /// [`HostError`]; nothing of the residency is left then.
    fn open(&self, child: OpenChild) -> BoxFuture<'_, Result<Opened, HostError>>;

    /// Puts a message into a resident child's inbox. Resolves when it is accepted.
    ///
    /// # Errors
    ///
    /// [`HostError`]; the message was then not accepted, but when it is a duplicate.
    fn deliver<'a>(
        &'a self,
        to: &'a Residency,
        message: Message,
        verb: Verb,
    ) -> BoxFuture<'a, Result<Delivered, HostError>>;

    /// Stops what a child does now.
    fn interrupt(&self, child: &Residency, interrupt: Interrupt);

    /// Ends a residency.
    fn close(&self, child: &Residency, pending: Pending);

    /// Ends a residency that nobody was told of, without a message: a session that began with it is
    /// removed, and one that was there before is as it was. By default it is only ended.
    fn retract(&self, child: &Residency) {
        self.close(child, Pending::Keep);
    }

    /// What is known of a child without asking it; `None` when it is not resident here.
    fn look(&self, child: &AgentId) -> Option<Look>;
}
