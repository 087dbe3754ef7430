//! Session logs that live as long as the process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{AppendError, OpenedSession, SessionLog, SessionStore, StoreError};
use crate::{AgentId, StoredEvent};

#[derive(Debug, Default)]
struct Session {
    events: Vec<Arc<StoredEvent>>,
    inherited: usize,
    open: bool,
}

type Sessions = Arc<Mutex<BTreeMap<AgentId, Session>>>;

fn lock(sessions: &Sessions) -> MutexGuard<'_, BTreeMap<AgentId, Session>> {
    sessions.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A store in memory. Cloning gives another handle to the same store.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    sessions: Sessions,
}

struct MemoryLog {
    sessions: Sessions,
    id: AgentId,
}

impl SessionLog for MemoryLog {
    fn append(&mut self, expected: u64, events: &[Arc<StoredEvent>]) -> Result<(), AppendError> {
        let mut sessions = lock(&self.sessions);
        let Some(session) = sessions.get_mut(&self.id) else {
            return Err(StoreError::NotFound(self.id.clone()).into());
        };
        let found = session.events.last().map_or(expected, |last| last.seq + 1);
        if found != expected {
            return Err(AppendError::Conflict { expected, found });
        }
        session.events.extend(events.iter().cloned());
        Ok(())
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn abandon(self: Box<Self>) {
        lock(&self.sessions).remove(&self.id);
    }
}

impl Drop for MemoryLog {
    fn drop(&mut self) {
        if let Some(session) = lock(&self.sessions).get_mut(&self.id) {
            session.open = false;
        }
    }
}

impl SessionStore for MemoryStore {
    fn create(&self, id: &AgentId, inherited: u64) -> Result<Box<dyn SessionLog>, StoreError> {
        let mut sessions = lock(&self.sessions);
        if sessions.contains_key(id) {
            return Err(StoreError::Exists(id.clone()));
        }
        let inherited = usize::try_from(inherited).unwrap_or(usize::MAX);
        sessions.insert(
            id.clone(),
            Session {
                events: Vec::new(),
                inherited,
                open: true,
            },
        );
        Ok(Box::new(MemoryLog {
            sessions: Arc::clone(&self.sessions),
            id: id.clone(),
        }))
    }

    fn open(&self, id: &AgentId) -> Result<OpenedSession, StoreError> {
        let mut sessions = lock(&self.sessions);
        let session = sessions
            .get_mut(id)
            .ok_or_else(|| StoreError::NotFound(id.clone()))?;
        if std::mem::replace(&mut session.open, true) {
            return Err(StoreError::Locked(id.clone()));
        }
        let log = MemoryLog {
            sessions: Arc::clone(&self.sessions),
            id: id.clone(),
        };
        Ok(OpenedSession {
            log: Box::new(log),
            events: session.events.clone(),
            torn_bytes: 0,
        })
    }

    fn read(&self, id: &AgentId) -> Result<Vec<Arc<StoredEvent>>, StoreError> {
        let sessions = lock(&self.sessions);
        let session = sessions
            .get(id)
            .ok_or_else(|| StoreError::NotFound(id.clone()))?;
        Ok(session.events.clone())
    }

    fn first(&self, id: &AgentId) -> Result<Option<Arc<StoredEvent>>, StoreError> {
        let sessions = lock(&self.sessions);
        let session = sessions
            .get(id)
            .ok_or_else(|| StoreError::NotFound(id.clone()))?;
        Ok(session.events.get(session.inherited).cloned())
    }

    fn sessions(&self) -> Result<Vec<AgentId>, StoreError> {
        Ok(lock(&self.sessions).keys().cloned().collect())
    }
}
