//! Session logs that live as long as the process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{AppendError, Flushed, OpenedSession, SessionLog, SessionStore, StoreError, Visit};
use crate::{AgentId, StoredEvent};

#[derive(Debug, Default)]
struct Session {
    events: Vec<StoredEvent>,
    inherited: usize,
    open: bool,
}

impl Session {
    /// What it holds: nothing while it has no event of its own, but another session's past.
    fn own(&self) -> &[StoredEvent] {
        match self.events.len() <= self.inherited {
            true => &[],
            false => &self.events,
        }
    }
}

/// Each session has a lock of its own: writers of different sessions do not meet.
type Cell = Arc<Mutex<Session>>;
type Sessions = Arc<Mutex<BTreeMap<AgentId, Cell>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A store in memory. Cloning gives another handle to the same store.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    sessions: Sessions,
}

impl MemoryStore {
    fn session(&self, id: &AgentId) -> Result<Cell, StoreError> {
        let session = lock(&self.sessions).get(id).cloned();
        session.ok_or_else(|| StoreError::NotFound(id.clone()))
    }
}

struct MemoryLog {
    sessions: Sessions,
    session: Cell,
    id: AgentId,
}

impl MemoryLog {
    /// The session, if it ends there, with room for more.
    fn session_at(
        &self,
        expected: u64,
        more: usize,
    ) -> Result<MutexGuard<'_, Session>, AppendError> {
        let mut session = lock(&self.session);
        let found = session.events.len() as u64;
        if found != expected {
            return Err(AppendError::Conflict { expected, found });
        }
        if session.events.is_empty() {
            // Most sessions are short.
            session.events.reserve_exact(more);
        }
        Ok(session)
    }
}

impl SessionLog for MemoryLog {
    fn append(&mut self, expected: u64, events: &[StoredEvent]) -> Result<(), AppendError> {
        let mut session = self.session_at(expected, events.len())?;
        session.events.extend_from_slice(events);
        Ok(())
    }

    fn take(
        &mut self,
        expected: u64,
        events: Vec<StoredEvent>,
        appended: Visit<'_>,
    ) -> Result<(), AppendError> {
        let reserved = self.session_at(expected, events.len())?;
        // Somebody else's code runs without the lock. Nothing can fail after it, and nobody else writes:
        // a session has one log.
        drop(reserved);
        events.iter().for_each(appended);
        lock(&self.session).events.extend(events);
        Ok(())
    }

    fn flush(&mut self) -> Result<Flushed, StoreError> {
        Ok(Flushed::Volatile)
    }

    fn abandon(self: Box<Self>) {
        lock(&self.sessions).remove(&self.id);
    }
}

impl Drop for MemoryLog {
    fn drop(&mut self) {
        lock(&self.session).open = false;
    }
}

impl SessionStore for MemoryStore {
    fn create(&self, id: &AgentId, inherited: u64) -> Result<Box<dyn SessionLog>, StoreError> {
        let mut sessions = lock(&self.sessions);
        if sessions.contains_key(id) {
            return Err(StoreError::Exists(id.clone()));
        }
        let inherited = usize::try_from(inherited).unwrap_or(usize::MAX);
        let session = Arc::new(Mutex::new(Session {
            events: Vec::new(),
            inherited,
            open: true,
        }));
        sessions.insert(id.clone(), Arc::clone(&session));
        Ok(Box::new(MemoryLog {
            sessions: Arc::clone(&self.sessions),
            session,
            id: id.clone(),
        }))
    }

    fn open(&self, id: &AgentId, visit: Visit<'_>) -> Result<OpenedSession, StoreError> {
        let cell = self.session(id)?;
        let events = {
            let mut session = lock(&cell);
            if std::mem::replace(&mut session.open, true) {
                return Err(StoreError::Locked(id.clone()));
            }
            if session.events.len() <= session.inherited {
                // What another session's past left of a session that was never born is not its own.
                session.events.clear();
                session.inherited = 0;
            }
            session.events.clone()
        };
        let log = MemoryLog {
            sessions: Arc::clone(&self.sessions),
            session: cell,
            id: id.clone(),
        };
        events.iter().for_each(visit);
        Ok(OpenedSession {
            log: Box::new(log),
            next_seq: events.len() as u64,
            torn_bytes: 0,
        })
    }

    fn scan(&self, id: &AgentId, visit: Visit<'_>) -> Result<(), StoreError> {
        // A copy: the lock is not held while somebody else's code runs.
        self.read(id)?.iter().for_each(visit);
        Ok(())
    }

    fn read(&self, id: &AgentId) -> Result<Vec<StoredEvent>, StoreError> {
        let cell = self.session(id)?;
        let session = lock(&cell);
        Ok(session.own().to_vec())
    }

    fn first(&self, id: &AgentId) -> Result<Option<StoredEvent>, StoreError> {
        let cell = self.session(id)?;
        let session = lock(&cell);
        Ok(session.events.get(session.inherited).cloned())
    }

    fn sessions(&self) -> Result<Vec<AgentId>, StoreError> {
        Ok(lock(&self.sessions).keys().cloned().collect())
    }
}
