//! Where session logs live.
//!
//! A store keeps one append-only log a session. Appending names the sequence that it expects, so
//! that a second writer loses with a typed conflict instead of mixing its events in.

mod jsonl;
mod memory;

pub use jsonl::JsonlStore;
pub use memory::MemoryStore;

use std::sync::Arc;

use crate::{AgentId, StoredEvent};

/// A store could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No session has this id.
    #[error("no session {0} in the store")]
    NotFound(AgentId),
    /// A session of this id is there already.
    #[error("session {0} exists already")]
    Exists(AgentId),
    /// Another writer has the session open.
    #[error("session {0} is open in another process")]
    Locked(AgentId),
    /// A log holds something that is not an event of this version.
    #[error("{place}: {what}")]
    Corrupt {
        /// File and line.
        place: String,
        /// What was expected, and what is there.
        what: String,
    },
    /// The medium failed.
    #[error("{place}: {error}")]
    Io {
        /// The file or folder.
        place: String,
        /// Why.
        #[source]
        error: std::io::Error,
    },
}

impl StoreError {
    /// A stable name of the kind of error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "SESSION_NOT_FOUND",
            Self::Exists(_) => "SESSION_EXISTS",
            Self::Locked(_) => "SESSION_LOCKED",
            Self::Corrupt { .. } => "SESSION_CORRUPT",
            Self::Io { .. } => "STORE_IO",
        }
    }
}

/// Events could not be appended; none of them was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The log ends somewhere else: another writer was here.
    #[error("the log ends at {found}, not at {expected}: another writer was here")]
    Conflict {
        /// Where the writer thought that the log ends.
        expected: u64,
        /// Where it ends.
        found: u64,
    },
    /// The log could not give an event back as it is: the reason.
    #[error("the event cannot be stored: {0}")]
    Unstorable(&'static str),
    /// The medium failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A session that was opened to go on with it.
pub struct OpenedSession {
    /// The log, to append to.
    pub log: Box<dyn SessionLog>,
    /// Everything that it holds.
    pub events: Vec<Arc<StoredEvent>>,
    /// How many bytes of a torn last line were cut off.
    pub torn_bytes: u64,
}

impl std::fmt::Debug for OpenedSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenedSession")
            .field("events", &self.events.len())
            .field("torn_bytes", &self.torn_bytes)
            .finish_non_exhaustive()
    }
}

/// The one writer of one session. Dropping it lets another one open the session.
///
/// # Implementing
///
/// `append` runs under the agent's lock: it must not block for long, and not call any agent.
pub trait SessionLog: Send {
    /// Appends `events`, whose sequence numbers begin at `expected`, all or none.
    ///
    /// # Errors
    ///
    /// [`AppendError::Conflict`] when the log does not end at `expected`; otherwise the medium's.
    fn append(&mut self, expected: u64, events: &[Arc<StoredEvent>]) -> Result<(), AppendError>;

    /// Makes everything appended survive a loss of power.
    ///
    /// # Errors
    ///
    /// The medium's.
    fn flush(&mut self) -> Result<(), StoreError>;

    /// Takes back a session that this writer created and that nobody came to know: its id is free
    /// again. The default lets go and leaves an empty session.
    fn abandon(self: Box<Self>) {}
}

/// Session logs by id.
///
/// # Implementing
///
/// Operations may block on local media. `create` and `open` refuse a session that has a writer.
pub trait SessionStore: Send + Sync + 'static {
    /// Makes a session with an empty log, whose first `inherited` events will be another session's.
    ///
    /// # Errors
    ///
    /// [`StoreError::Exists`], or the medium's.
    fn create(&self, id: &AgentId, inherited: u64) -> Result<Box<dyn SessionLog>, StoreError>;

    /// Opens a session to go on with it. A torn last line is cut off and reported.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`], [`StoreError::Locked`], [`StoreError::Corrupt`], or the medium's.
    fn open(&self, id: &AgentId) -> Result<OpenedSession, StoreError>;

    /// Reads a session without becoming its writer. A torn last line is left out.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`], [`StoreError::Corrupt`], or the medium's.
    fn read(&self, id: &AgentId) -> Result<Vec<Arc<StoredEvent>>, StoreError>;

    /// The first event of a session's own: enough to know what it is.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    fn first(&self, id: &AgentId) -> Result<Option<Arc<StoredEvent>>, StoreError>;

    /// The ids of all sessions, oldest first.
    ///
    /// # Errors
    ///
    /// The medium's.
    fn sessions(&self) -> Result<Vec<AgentId>, StoreError>;
}
