//! A store whose disk is full for what it is told.

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
    Events(&'static str),
}

/// What is refused.
#[derive(Clone, Debug, Default)]
pub struct Refuse(Arc<Mutex<What>>);

impl Refuse {
    fn set(&self, what: What) {
        *self.0.lock().unwrap() = what;
    }

    pub fn everything_of(&self, session: &AgentId) {
        self.set(What::Session(session.clone()));
    }

    /// Events of this type, in whatever session, with what is appended beside them.
    pub fn events(&self, kind: &'static str) {
        self.set(What::Events(kind));
    }

    pub fn nothing(&self) {
        self.set(What::Nothing);
    }

    fn covers(&self, session: &AgentId, events: &[StoredEvent]) -> bool {
        match &*self.0.lock().unwrap() {
            What::Nothing => false,
            What::Session(refused) => refused == session,
            What::Events(kind) => events.iter().any(|stored| {
                let event = serde_json::to_value(&stored.event).unwrap();
                event["type"].as_str() == Some(kind)
            }),
        }
    }
}

#[derive(Default)]
pub struct Refusing {
    inner: MemoryStore,
    refuse: Refuse,
}

impl Refusing {
    pub fn refuse(&self) -> Refuse {
        self.refuse.clone()
    }

    fn refusing(&self, session: &AgentId, inner: Box<dyn SessionLog>) -> Box<dyn SessionLog> {
        Box::new(RefusingLog {
            inner,
            refuse: self.refuse.clone(),
            session: session.clone(),
        })
    }
}

struct RefusingLog {
    inner: Box<dyn SessionLog>,
    refuse: Refuse,
    session: AgentId,
}

impl SessionLog for RefusingLog {
    fn append(&mut self, expected: u64, events: &[StoredEvent]) -> Result<(), AppendError> {
        if self.refuse.covers(&self.session, events) {
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
        Ok(self.refusing(id, inner))
    }

    fn open(&self, id: &AgentId, visit: Visit<'_>) -> Result<OpenedSession, StoreError> {
        let opened = self.inner.open(id, visit)?;
        Ok(OpenedSession {
            log: self.refusing(id, opened.log),
            ..opened
        })
    }

    fn scan(&self, id: &AgentId, visit: Visit<'_>) -> Result<(), StoreError> {
        self.inner.scan(id, visit)
    }

    fn first(&self, id: &AgentId) -> Result<Option<StoredEvent>, StoreError> {
        self.inner.first(id)
    }

    fn sessions(&self) -> Result<Vec<AgentId>, StoreError> {
        self.inner.sessions()
    }
}
