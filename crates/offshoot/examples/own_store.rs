//! Sessions in a store of the program's own: here a table in memory, as one in a database would be.
//!
//! A store keeps one append-only log a session. An append names where it believes the log to end, so a
//! second writer loses with a typed conflict.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use offshoot::agent::{
    AgentId, AppendError, OpenedSession, SessionLog, SessionStore, StoreError, StoredEvent,
};
use offshoot::{Config, Runtime, model, say};

type Events = Vec<Arc<StoredEvent>>;

#[derive(Clone, Default)]
struct Table(Arc<Mutex<BTreeMap<AgentId, Events>>>);

impl Table {
    fn rows(&self) -> MutexGuard<'_, BTreeMap<AgentId, Events>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Log {
    table: Table,
    id: AgentId,
}

impl SessionLog for Log {
    fn append(&mut self, expected: u64, events: &[Arc<StoredEvent>]) -> Result<(), AppendError> {
        let mut rows = self.table.rows();
        let log = rows.entry(self.id.clone()).or_default();
        let found = log.last().map_or(expected, |last| last.seq + 1);
        if found != expected {
            return Err(AppendError::Conflict { expected, found });
        }
        log.extend(events.iter().cloned());
        Ok(())
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl SessionStore for Table {
    fn create(&self, id: &AgentId, _inherited: u64) -> Result<Box<dyn SessionLog>, StoreError> {
        if self.rows().insert(id.clone(), Vec::new()).is_some() {
            return Err(StoreError::Exists(id.clone()));
        }
        let (table, id) = (self.clone(), id.clone());
        Ok(Box::new(Log { table, id }))
    }

    fn open(&self, id: &AgentId) -> Result<OpenedSession, StoreError> {
        let events = self.read(id)?;
        let (table, id) = (self.clone(), id.clone());
        Ok(OpenedSession {
            log: Box::new(Log { table, id }),
            events,
            torn_bytes: 0,
        })
    }

    fn read(&self, id: &AgentId) -> Result<Events, StoreError> {
        let events = self.rows().get(id).cloned();
        events.ok_or_else(|| StoreError::NotFound(id.clone()))
    }

    fn first(&self, id: &AgentId) -> Result<Option<Arc<StoredEvent>>, StoreError> {
        Ok(self.read(id)?.first().cloned())
    }

    fn sessions(&self) -> Result<Vec<AgentId>, StoreError> {
        Ok(self.rows().keys().cloned().collect())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let table = Table::default();
    let runtime = Runtime::builder(Config::default())
        .store(Arc::new(table.clone()))
        .model(model(async |_| Ok(say("Noted."))));
    let answer = runtime.ask("Remember this.").await?;
    let session = table.sessions()?.remove(0);
    println!("{answer} {} events are kept.", table.read(&session)?.len());
    Ok(())
}
