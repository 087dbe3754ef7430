//! Sessions in a store of the program's own: here a table in memory, as one in a database would be.
//!
//! A store keeps one append-only log a session. An append names where it believes the log to end, so a
//! second writer loses with a typed conflict.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use offshoot::agent::{
    AgentId, AppendError, Flushed, OpenedSession, SessionLog, SessionStore, StoreError,
    StoredEvent, Visit,
};
use offshoot::{Config, Runtime, model, say};

#[derive(Clone, Default)]
struct Row {
    events: Vec<StoredEvent>,
    /// How many of them are another session's past.
    inherited: usize,
    has_writer: bool,
}

#[derive(Clone, Default)]
struct Table(Arc<Mutex<BTreeMap<AgentId, Row>>>);

impl Table {
    fn rows(&self) -> MutexGuard<'_, BTreeMap<AgentId, Row>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn row(&self, id: &AgentId) -> Result<Row, StoreError> {
        let row = self.rows().get(id).cloned();
        row.ok_or_else(|| StoreError::NotFound(id.clone()))
    }

    fn writer(&self, id: &AgentId) -> Box<dyn SessionLog> {
        let (table, id) = (self.clone(), id.clone());
        Box::new(Log { table, id })
    }
}

struct Log {
    table: Table,
    id: AgentId,
}

impl SessionLog for Log {
    fn append(&mut self, expected: u64, events: &[StoredEvent]) -> Result<(), AppendError> {
        let mut rows = self.table.rows();
        let log = &mut rows.entry(self.id.clone()).or_default().events;
        let found = log.len() as u64;
        if found != expected {
            return Err(AppendError::Conflict { expected, found });
        }
        log.extend(events.iter().cloned());
        Ok(())
    }

    fn flush(&mut self) -> Result<Flushed, StoreError> {
        Ok(Flushed::Volatile)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if let Some(row) = self.table.rows().get_mut(&self.id) {
            row.has_writer = false;
        }
    }
}

impl SessionStore for Table {
    fn create(&self, id: &AgentId, inherited: u64) -> Result<Box<dyn SessionLog>, StoreError> {
        let row = Row {
            inherited: usize::try_from(inherited).unwrap_or(usize::MAX),
            has_writer: true,
            ..Row::default()
        };
        match self.rows().entry(id.clone()) {
            Entry::Occupied(_) => return Err(StoreError::Exists(id.clone())),
            Entry::Vacant(vacant) => {
                vacant.insert(row);
            }
        }
        Ok(self.writer(id))
    }

    fn open(&self, id: &AgentId, visit: Visit<'_>) -> Result<OpenedSession, StoreError> {
        let row = match self.rows().get_mut(id) {
            None => return Err(StoreError::NotFound(id.clone())),
            Some(row) if row.has_writer => return Err(StoreError::Locked(id.clone())),
            Some(row) => {
                row.has_writer = true;
                row.clone()
            }
        };
        row.events.iter().for_each(visit);
        Ok(OpenedSession {
            log: self.writer(id),
            next_seq: row.events.len() as u64,
            torn_bytes: 0,
        })
    }

    fn scan(&self, id: &AgentId, visit: Visit<'_>) -> Result<(), StoreError> {
        self.row(id)?.events.iter().for_each(visit);
        Ok(())
    }

    fn first(&self, id: &AgentId) -> Result<Option<StoredEvent>, StoreError> {
        let row = self.row(id)?;
        Ok(row.events.get(row.inherited).cloned())
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
