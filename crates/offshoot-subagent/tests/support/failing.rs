//! A store whose logs refuse a whole session when they are told to.

use std::sync::{Arc, Mutex};

use offshoot_agent::{
    AgentId, AppendError, Flushed, MemoryStore, OpenedSession, SessionLog, SessionStore,
    StoreError, StoredEvent, Visit,
};

#[derive(Clone, Debug, Default)]
enum What {
    #[default]
    Nothing,
    Session(AgentId),
}

/// What is refused.
#[derive(Clone, Debug, Default)]
pub struct Refuse(Arc<Mutex<What>>);

impl Refuse {
    pub fn everything_of(&self, session: &AgentId) {
        *self.0.lock().unwrap() = What::Session(session.clone());
    }

    fn covers(&self, session: &AgentId) -> bool {
        matches!(&*self.0.lock().unwrap(), What::Session(refused) if refused == session)
    }
}

#[derive(Default)]
pub struct Failing {
    inner: MemoryStore,
    refuse: Refuse,
}

impl Failing {
    pub fn refuse(&self) -> Refuse {
        self.refuse.clone()
    }
}

struct FailingLog {
    inner: Box<dyn SessionLog>,
    refuse: Refuse,
    session: AgentId,
}

impl SessionLog for FailingLog {
    fn append(&mut self, expected: u64, events: &[Arc<StoredEvent>]) -> Result<(), AppendError> {
        if self.refuse.covers(&self.session) {
            let error = std::io::Error::other("the disk is full");
            return Err(StoreError::Io {
                place: "a log".to_owned(),
                error,
            }
            .into());
        }
        self.inner.append(expected, events)
    }

    fn flush(&mut self) -> Result<Flushed, StoreError> {
        self.inner.flush()
    }

    fn abandon(self: Box<Self>) {
        self.inner.abandon();
    }
}

impl SessionStore for Failing {
    fn create(&self, id: &AgentId, inherited: u64) -> Result<Box<dyn SessionLog>, StoreError> {
        Ok(Box::new(FailingLog {
            inner: self.inner.create(id, inherited)?,
            refuse: self.refuse.clone(),
            session: id.clone(),
        }))
    }

    fn open(&self, id: &AgentId, visit: Visit<'_>) -> Result<OpenedSession, StoreError> {
        self.inner.open(id, visit)
    }

    fn scan(&self, id: &AgentId, visit: Visit<'_>) -> Result<(), StoreError> {
        self.inner.scan(id, visit)
    }

    fn first(&self, id: &AgentId) -> Result<Option<Arc<StoredEvent>>, StoreError> {
        self.inner.first(id)
    }

    fn sessions(&self) -> Result<Vec<AgentId>, StoreError> {
        self.inner.sessions()
    }
}
