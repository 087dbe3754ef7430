//! A store that says how often a log was read, and gives out none as a whole: a log may be far larger than
//! what it comes to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use offshoot_agent::{
    AgentId, OpenedSession, SessionLog, SessionStore, StoreError, StoredEvent, Visit,
};

pub struct Watched {
    inner: Arc<dyn SessionStore>,
    scans: Arc<AtomicUsize>,
}

impl Watched {
    pub fn new(inner: Arc<dyn SessionStore>) -> Self {
        let scans = Arc::default();
        Self { inner, scans }
    }

    /// How many logs were read from their beginnings on.
    pub fn scans(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.scans)
    }
}

impl SessionStore for Watched {
    fn create(&self, id: &AgentId, inherited: u64) -> Result<Box<dyn SessionLog>, StoreError> {
        self.inner.create(id, inherited)
    }

    fn open(&self, id: &AgentId, visit: Visit<'_>) -> Result<OpenedSession, StoreError> {
        self.inner.open(id, visit)
    }

    fn scan(&self, id: &AgentId, visit: Visit<'_>) -> Result<(), StoreError> {
        self.scans.fetch_add(1, Ordering::Relaxed);
        self.inner.scan(id, visit)
    }

    fn read(&self, id: &AgentId) -> Result<Vec<StoredEvent>, StoreError> {
        panic!("the whole log of {id} was read");
    }

    fn first(&self, id: &AgentId) -> Result<Option<StoredEvent>, StoreError> {
        self.inner.first(id)
    }

    fn sessions(&self) -> Result<Vec<AgentId>, StoreError> {
        self.inner.sessions()
    }
}
