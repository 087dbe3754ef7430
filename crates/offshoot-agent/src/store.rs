//! Where session logs live.
//!
//! A store keeps one append-only log a session. Appending names the sequence that it expects, so
//! that a second writer loses with a typed conflict instead of mixing its events in.

#[cfg(feature = "conformance")]
pub mod conformance;
pub(crate) mod examine;
mod jsonl;
mod memory;

pub use jsonl::{JsonlStore, SyncPolicy};
pub use memory::MemoryStore;

use crate::{AgentId, Projection, StoredEvent};

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
    /// A log holds an event that only a newer version understands, and that is not marked as one
    /// that may be passed over.
    #[error("{place}: an event of the unknown type {kind}: a newer version wrote this session")]
    UnknownEvent {
        /// File and line, or session and number.
        place: String,
        /// Its type.
        kind: String,
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
            Self::UnknownEvent { .. } => "UNKNOWN_EVENT",
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

impl AppendError {
    /// A stable name of the kind of error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unstorable(_) => "UNSTORABLE",
            Self::Conflict { .. } | Self::Store(_) => "LOG_FAILED",
        }
    }
}

/// What is called with each event of a log, in order. It keeps what it needs: a log is read as a
/// stream, and may be far larger than what it comes to.
pub type Visit<'a> = &'a mut dyn FnMut(&StoredEvent);

/// A session that was opened to go on with it.
pub struct OpenedSession {
    /// The log, to append to.
    pub log: Box<dyn SessionLog>,
    /// The `seq` of the next event: how many the log holds.
    pub next_seq: u64,
    /// How many bytes of a torn last line are cut off by the first append.
    pub torn_bytes: u64,
}

impl std::fmt::Debug for OpenedSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenedSession")
            .field("next_seq", &self.next_seq)
            .field("torn_bytes", &self.torn_bytes)
            .finish_non_exhaustive()
    }
}

/// What a flush came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// Everything that was appended survives a loss of power.
    Durable,
    /// The log lives in memory: it ends with the process.
    Volatile,
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
    fn append(&mut self, expected: u64, events: &[StoredEvent]) -> Result<(), AppendError>;

    /// As [`append`](Self::append), of events that their writer does not need any more; once nothing can
    /// fail any more it shows them to `appended`, in order, and to nobody when they were not appended. By
    /// default it appends them and then shows them; a log that keeps them in memory need not copy them.
    ///
    /// No lock of the store is held meanwhile: `appended` may read the store. Whether it finds these
    /// events there is not said; when `take` has returned, everybody does.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    fn take(
        &mut self,
        expected: u64,
        events: Vec<StoredEvent>,
        appended: Visit<'_>,
    ) -> Result<(), AppendError> {
        self.append(expected, &events)?;
        events.iter().for_each(appended);
        Ok(())
    }

    /// Makes everything appended survive a loss of power, and returns when it does. Says whether it
    /// does: a log in memory cannot.
    ///
    /// # Errors
    ///
    /// The medium's. Nothing is known then of what was appended since the last flush that succeeded.
    fn flush(&mut self) -> Result<Flushed, StoreError>;

    /// The root agent of a tree, which wrote this log, has ended in order: a store that promises to
    /// keep what was written up to here through a loss of power does so now. By default nothing.
    ///
    /// # Errors
    ///
    /// The medium's.
    fn finish(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Takes back a session that this writer created and that nobody came to know: its id is free
    /// again. The default lets go and leaves an empty session.
    fn abandon(self: Box<Self>) {}
}

/// Session logs by id.
///
/// # Implementing
///
/// Operations may block on local media. `create` and `open` refuse a session that has a writer. The
/// feature `conformance` has a kit that a store is tested with.
pub trait SessionStore: Send + Sync + 'static {
    /// Makes a session with an empty log, whose first `inherited` events will be another session's.
    ///
    /// # Errors
    ///
    /// [`StoreError::Exists`], or the medium's.
    fn create(&self, id: &AgentId, inherited: u64) -> Result<Box<dyn SessionLog>, StoreError>;

    /// Opens a session to go on with it, and shows `visit` what it holds. A torn last line is left out
    /// and reported; the first append cuts it off. [Ignorable](crate::Extension::is_ignorable) events need not be shown: nothing
    /// depends on them.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`], [`StoreError::Locked`], [`StoreError::Corrupt`],
    /// [`StoreError::UnknownEvent`], or the medium's. `visit` may have seen a part of the log then;
    /// the log is as it was. So it is when nothing is appended.
    fn open(&self, id: &AgentId, visit: Visit<'_>) -> Result<OpenedSession, StoreError>;

    /// Shows `visit` every event of a session, without becoming its writer. A torn last line is left
    /// out. A session without an event of its own behind those that it inherits was never born, and
    /// holds nothing.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), but for [`StoreError::Locked`].
    fn scan(&self, id: &AgentId, visit: Visit<'_>) -> Result<(), StoreError>;

    /// All events of a session, at once: as large as its log.
    ///
    /// # Errors
    ///
    /// As [`scan`](Self::scan).
    fn read(&self, id: &AgentId) -> Result<Vec<StoredEvent>, StoreError> {
        let mut events = Vec::new();
        self.scan(id, &mut |event| events.push(event.clone()))?;
        Ok(events)
    }

    /// The state that a session's log describes.
    ///
    /// # Errors
    ///
    /// As [`scan`](Self::scan).
    fn project(&self, id: &AgentId) -> Result<Projection, StoreError> {
        let mut projection = Projection::default();
        self.scan(id, &mut |event| projection.apply(event))?;
        Ok(projection)
    }

    /// The first event of a session's own: enough to know what it is.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    fn first(&self, id: &AgentId) -> Result<Option<StoredEvent>, StoreError>;

    /// The ids of all sessions, oldest first.
    ///
    /// # Errors
    ///
    /// The medium's.
    fn sessions(&self) -> Result<Vec<AgentId>, StoreError>;
}
