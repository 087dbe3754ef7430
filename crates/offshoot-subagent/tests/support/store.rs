//! A store whose disk is full for some events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use offshoot_agent::{
    AgentId, AppendError, Event, Flushed, MemoryStore, OpenedSession, SessionLog, SessionStore,
    StoreError, StoredEvent, Visit,
};

/// A store whose logs refuse one kind of event while they are told to.
pub struct Refusing {
    pub inner: MemoryStore,
    pub refuse: Arc<AtomicBool>,
    pub kind: &'static str,
}

struct RefusingLog {
    inner: Box<dyn SessionLog>,
    refuse: Arc<AtomicBool>,
    kind: &'static str,
}

impl SessionLog for RefusingLog {
    fn append(&mut self, expected: u64, events: &[Arc<StoredEvent>]) -> Result<(), AppendError> {
        let named = |event: &Event| {
            serde_json::to_value(event).unwrap()["type"].as_str() == Some(self.kind)
        };
        if self.refuse.load(Ordering::SeqCst) && events.iter().any(|e| named(&e.event)) {
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

impl SessionStore for Refusing {
    fn create(&self, id: &AgentId, inherited: u64) -> Result<Box<dyn SessionLog>, StoreError> {
        let inner = self.inner.create(id, inherited)?;
        let refuse = Arc::clone(&self.refuse);
        Ok(Box::new(RefusingLog {
            inner,
            refuse,
            kind: self.kind,
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
