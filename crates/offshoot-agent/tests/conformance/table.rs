//! A small third store: rows of a table, as in a database, with the faults that one could have.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use offshoot_agent::store::conformance::Medium;
use offshoot_agent::{
    AgentId, AppendError, Event, Flushed, OpenedSession, SessionLog, SessionStore, StoreError,
    StoredEvent, Visit,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    LosesTheLastEvent,
    ReadsInReverse,
    MakesWhatIsAskedFor,
    ReplacesSessions,
    IgnoresTheExpectedSequence,
    ConflictsForEver,
    RepeatsOnReopening,
    HasManyWriters,
    KeepsTheLock,
    RacesForTheLock,
    MixesSessions,
    AbandonKeepsTheLock,
    ListsInAnyOrder,
    FirstOfAll,
    KeepsTheUnborn,
    ReadsTheUnborn,
    CutsLargeEvents,
    BreaksLines,
    DropsIgnorable,
    CountsWhatItShows,
    FlushPanics,
    RefusesTornTails,
    PassesOverDamage,
    ReadsAnyVersion,
    TakesUnknownEvents,
    AppendsAPart,
    ShowsInReverse,
    ShowsOnlyTheLast,
    ShowsWhatConflicts,
    ForgetsWhatItTook,
    TakesAnywhere,
    ShowsUnderTheLock,
    ShowsWhatFails,
    TakesAPart,
}

/// The rows of one session: each is an event as JSON. The last one may be torn.
#[derive(Debug, Default)]
struct Session {
    rows: Vec<Vec<u8>>,
    inherited: usize,
    version: u32,
    has_writer: bool,
}

#[derive(Debug, Default)]
struct Rows {
    sessions: BTreeMap<AgentId, Session>,
    failing: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Table {
    rows: Arc<Mutex<Rows>>,
    fault: Option<Fault>,
}

impl Table {
    pub(crate) fn new(fault: Option<Fault>) -> Self {
        let rows = Arc::default();
        Self { rows, fault }
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().expect("it holds in a test")
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// The whole events of a session.
    fn load(&self, id: &AgentId) -> Result<(Vec<StoredEvent>, u64), StoreError> {
        let mut rows = self.rows();
        if self.has(Fault::MakesWhatIsAskedFor) {
            rows.sessions.entry(id.clone()).or_default();
        }
        let session = rows.sessions.get(id);
        let session = session.ok_or_else(|| StoreError::NotFound(id.clone()))?;
        if session.version > 0 && !self.has(Fault::ReadsAnyVersion) {
            return Err(StoreError::Corrupt {
                place: format!("session {id}"),
                what: format!("expected version 0, found {}", session.version),
            });
        }
        let (mut events, mut torn) = (Vec::new(), 0);
        for (row, json) in session.rows.iter().enumerate() {
            let is_last = row + 1 == session.rows.len();
            let place = || format!("session {id}, row {row}");
            match StoredEvent::from_json(json, place) {
                Ok(event) => events.push(event),
                Err(StoreError::UnknownEvent { .. }) if self.has(Fault::TakesUnknownEvents) => {}
                // Only a write that was cut leaves half a row, and only at the end.
                Err(StoreError::Corrupt { .. })
                    if is_last && !json.ends_with(b"}") && !self.has(Fault::RefusesTornTails) =>
                {
                    torn = json.len() as u64;
                }
                Err(StoreError::Corrupt { .. })
                    if is_last && !self.has(Fault::RefusesTornTails) && !is_whole(json) =>
                {
                    torn = json.len() as u64;
                }
                Err(StoreError::Corrupt { .. }) if self.has(Fault::PassesOverDamage) => {}
                Err(error) => return Err(error),
            }
        }
        if self.has(Fault::ReadsInReverse) {
            events.reverse();
        }
        if self.has(Fault::DropsIgnorable) {
            events.retain(|event| !is_ignorable(event));
        }
        Ok((events, torn))
    }
}

/// Whether a row is a whole JSON text, whatever it says.
fn is_whole(json: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(json).is_ok() || json.starts_with(b"damaged")
}

fn is_ignorable(event: &StoredEvent) -> bool {
    matches!(&event.event, Event::Extension(extension) if extension.is_ignorable())
}

struct Writer {
    table: Table,
    id: AgentId,
    next: u64,
}

impl SessionLog for Writer {
    fn append(&mut self, expected: u64, events: &[StoredEvent]) -> Result<(), AppendError> {
        let fault = self.table.fault;
        let mut rows = self.table.rows();
        let found = self.next;
        if expected != found && fault != Some(Fault::IgnoresTheExpectedSequence) {
            if fault == Some(Fault::ConflictsForEver) {
                self.next = u64::MAX;
            }
            return Err(AppendError::Conflict { expected, found });
        }
        let failing = rows.failing;
        let id = match fault {
            Some(Fault::MixesSessions) if self.id.as_str() == "s1" => {
                "s2".parse().expect("it holds in a test")
            }
            _ => self.id.clone(),
        };
        let session = rows.sessions.entry(id).or_default();
        for (n, event) in events.iter().enumerate() {
            if failing {
                if n == 0 && fault == Some(Fault::AppendsAPart) {
                    continue_with(session, event);
                }
                let error = std::io::Error::other("the database is gone");
                let place = "the table".to_owned();
                return Err(StoreError::Io { place, error }.into());
            }
            continue_with(session, event);
            let row = session.rows.last_mut().expect("it holds in a test");
            match fault {
                Some(Fault::CutsLargeEvents) if row.len() > 65_536 => {
                    let event = String::from_utf8(row.clone()).expect("it holds in a test");
                    *row = event
                        .replace("0123456789abcde\\n0123456789abcde\\n", "")
                        .into_bytes();
                }
                Some(Fault::BreaksLines) => {
                    let event = String::from_utf8(row.clone()).expect("it holds in a test");
                    *row = event.replace("\\r\\n", "\\n").into_bytes();
                }
                _ => {}
            }
        }
        if fault == Some(Fault::LosesTheLastEvent) && events.len() > 1 {
            session.rows.pop();
        }
        self.next = expected + events.len() as u64;
        Ok(())
    }

    fn take(
        &mut self,
        expected: u64,
        mut events: Vec<StoredEvent>,
        appended: Visit<'_>,
    ) -> Result<(), AppendError> {
        let failing = self.table.rows().failing;
        let conflicts = expected != self.next;
        match self.table.fault {
            Some(Fault::ShowsWhatConflicts) if conflicts => events.iter().for_each(&mut *appended),
            Some(Fault::ShowsWhatFails) if failing => events.iter().for_each(&mut *appended),
            Some(Fault::TakesAPart) if failing => {
                let mut rows = self.table.rows();
                let session = rows.sessions.get_mut(&self.id);
                continue_with(session.expect("it was made"), &events[0]);
            }
            Some(Fault::TakesAnywhere) => self.next = expected,
            Some(Fault::ForgetsWhatItTook) if !conflicts && !failing => {
                self.next += events.len() as u64;
                events.iter().for_each(appended);
                return Ok(());
            }
            _ => {}
        }
        self.append(expected, &events)?;
        match self.table.fault {
            Some(Fault::ShowsInReverse) => events.reverse(),
            Some(Fault::ShowsOnlyTheLast) => drop(events.drain(..events.len().saturating_sub(1))),
            _ => {}
        }
        let held = self.table.has(Fault::ShowsUnderTheLock);
        let _held = held.then(|| self.table.rows());
        events.iter().for_each(appended);
        Ok(())
    }

    fn flush(&mut self) -> Result<Flushed, StoreError> {
        assert!(!self.table.has(Fault::FlushPanics), "not built yet");
        Ok(Flushed::Volatile)
    }

    fn abandon(self: Box<Self>) {
        if self.table.has(Fault::AbandonKeepsTheLock) {
            std::mem::forget(self);
        } else {
            self.table.rows().sessions.remove(&self.id);
        }
    }
}

fn continue_with(session: &mut Session, event: &StoredEvent) {
    let mut json = Vec::new();
    event.to_json(&mut json);
    session.rows.push(json);
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.table.has(Fault::KeepsTheLock)
            && let Some(session) = self.table.rows().sessions.get_mut(&self.id)
        {
            session.has_writer = false;
        }
    }
}

impl SessionStore for Table {
    fn create(&self, id: &AgentId, inherited: u64) -> Result<Box<dyn SessionLog>, StoreError> {
        let mut rows = self.rows();
        if rows.sessions.contains_key(id) && !self.has(Fault::ReplacesSessions) {
            return Err(StoreError::Exists(id.clone()));
        }
        let session = Session {
            inherited: usize::try_from(inherited).expect("it holds in a test"),
            has_writer: true,
            ..Session::default()
        };
        rows.sessions.insert(id.clone(), session);
        Ok(Box::new(Writer {
            table: self.clone(),
            id: id.clone(),
            next: 0,
        }))
    }

    fn open(&self, id: &AgentId, visit: Visit<'_>) -> Result<OpenedSession, StoreError> {
        let (mut events, torn_bytes) = self.load(id)?;
        if self.has(Fault::RacesForTheLock) {
            // Looked, and taken later: in between there is somebody else.
            if self.rows().sessions[id].has_writer {
                return Err(StoreError::Locked(id.clone()));
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        {
            let mut rows = self.rows();
            let session = rows.sessions.get_mut(id).expect("it was loaded");
            let may = self.has(Fault::HasManyWriters) || self.has(Fault::RacesForTheLock);
            if std::mem::replace(&mut session.has_writer, true) && !may {
                return Err(StoreError::Locked(id.clone()));
            }
        }
        // What was read before the lock was there may be old.
        if !self.has(Fault::RacesForTheLock) {
            events = self.load(id)?.0;
        }
        let mut rows = self.rows();
        let session = rows.sessions.get_mut(id).expect("it was loaded");
        if torn_bytes > 0 {
            session.rows.pop();
        }
        if events.len() <= session.inherited && !self.has(Fault::KeepsTheUnborn) {
            events.clear();
            session.rows.clear();
            session.inherited = 0;
        }
        drop(rows);
        let mut next = events.last().map_or(0, |last| last.seq + 1);
        if self.has(Fault::CountsWhatItShows) {
            events.retain(|event| !is_ignorable(event));
            next = events.len() as u64;
        }
        events.iter().for_each(&mut *visit);
        if self.has(Fault::RepeatsOnReopening) {
            events.iter().for_each(visit);
        }
        let writer = Writer {
            table: self.clone(),
            id: id.clone(),
            next,
        };
        Ok(OpenedSession {
            log: Box::new(writer),
            next_seq: next,
            torn_bytes,
        })
    }

    fn scan(&self, id: &AgentId, visit: Visit<'_>) -> Result<(), StoreError> {
        let events = self.load(id)?.0;
        let inherited = self.rows().sessions[id].inherited;
        if events.len() > inherited || self.has(Fault::ReadsTheUnborn) {
            events.iter().for_each(visit);
        }
        Ok(())
    }

    fn first(&self, id: &AgentId) -> Result<Option<StoredEvent>, StoreError> {
        let events = self.load(id)?.0;
        let inherited = match self.has(Fault::FirstOfAll) {
            true => 0,
            false => self.rows().sessions[id].inherited,
        };
        Ok(events.get(inherited).cloned())
    }

    fn sessions(&self) -> Result<Vec<AgentId>, StoreError> {
        let mut ids: Vec<_> = self.rows().sessions.keys().cloned().collect();
        if self.has(Fault::ListsInAnyOrder) {
            ids.reverse();
        }
        Ok(ids)
    }
}

impl Medium for Table {
    fn store(&self) -> Arc<dyn SessionStore> {
        Arc::new(self.clone())
    }

    fn size(&self, id: &AgentId) -> Option<usize> {
        Some(self.rows().sessions[id].rows.iter().map(Vec::len).sum())
    }

    fn tear(&self, id: &AgentId, size: usize) -> bool {
        let mut rows = self.rows();
        let rows = &mut rows.sessions.get_mut(id).expect("it holds in a test").rows;
        let mut left = size;
        for row in rows.iter_mut() {
            row.truncate(left);
            left -= row.len();
        }
        rows.retain(|row| !row.is_empty());
        true
    }

    fn damage(&self, id: &AgentId, seq: u64) -> bool {
        let mut rows = self.rows();
        let row = &mut rows.sessions.get_mut(id).expect("it holds in a test").rows
            [usize::try_from(seq).expect("it holds in a test")];
        *row = b"damaged".to_vec();
        true
    }

    fn make_newer(&self, id: &AgentId) -> bool {
        self.rows()
            .sessions
            .get_mut(id)
            .expect("it holds in a test")
            .version = 1;
        true
    }

    fn plant(&self, id: &AgentId, event: &str) -> bool {
        let mut rows = self.rows();
        let rows = &mut rows.sessions.get_mut(id).expect("it holds in a test").rows;
        rows.push(event.as_bytes().to_vec());
        true
    }

    fn fail(&self, failing: bool) -> bool {
        self.rows().failing = failing;
        true
    }
}
