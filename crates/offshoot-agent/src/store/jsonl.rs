//! Session logs as files: one folder, one file a session, one event a line.
//!
//! The first line is a header with the format's version. A file is locked while it has a writer;
//! the lock ends with the process, however it ends. Each append is one `write`, so that what was
//! accepted survives the death of the process; a line that was cut in the middle is no event.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{AppendError, OpenedSession, SessionLog, SessionStore, StoreError};
use crate::event::OWN_TYPES;
use crate::{AgentId, Event, StoredEvent};

const FORMAT: &str = "offshoot-session";
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    version: u32,
    session: AgentId,
    /// How many events at the beginning are another session's.
    #[serde(default)]
    inherited: u64,
}

/// A store in a folder. The folder is made when the first session is.
#[derive(Clone, Debug)]
pub struct JsonlStore {
    folder: PathBuf,
}

impl JsonlStore {
    /// The store in `folder`, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] when the folder cannot be made or written to.
    pub fn open_folder(folder: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let folder = folder.into();
        make_private(&folder).map_err(|error| io(&folder, error))?;
        // Asked now, so that an unwritable folder is an error at the start and not at the first event.
        let probe = folder.join(format!(".probe-{}", offshoot_core::fresh_id()));
        File::create(&probe)
            .and_then(|mut file| file.write_all(b"\n"))
            .and_then(|()| std::fs::remove_file(&probe))
            .map_err(|error| {
                let _ = std::fs::remove_file(&probe);
                io(&folder, error)
            })?;
        Ok(Self { folder })
    }

    /// The store in a folder that must be there; nothing is written to it by this call.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] when the folder is not there.
    pub fn existing(folder: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let folder = folder.into();
        std::fs::read_dir(&folder).map_err(|error| io(&folder, error))?;
        Ok(Self { folder })
    }

    fn path(&self, id: &AgentId) -> PathBuf {
        self.folder.join(format!("{id}.jsonl"))
    }
}

/// Makes a folder, and what is above it, for this user alone: sessions hold whatever agents read.
fn make_private(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// How a new session's file is opened: it must not be there, and is for this user alone.
fn new_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn io(place: &Path, error: std::io::Error) -> StoreError {
    StoreError::Io {
        place: place.display().to_string(),
        error,
    }
}

fn missing(path: &Path, id: &AgentId, error: std::io::Error) -> StoreError {
    if error.kind() == ErrorKind::NotFound {
        StoreError::NotFound(id.clone())
    } else {
        io(path, error)
    }
}

fn corrupt(path: &Path, line: usize, what: impl Into<String>) -> StoreError {
    StoreError::Corrupt {
        place: format!("{}:{line}", path.display()),
        what: what.into(),
    }
}

/// Takes the writer's lock, which ends when the file is closed.
fn lock(file: &File, path: &Path, id: &AgentId) -> Result<(), StoreError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked(id.clone())),
        Err(TryLockError::Error(error)) => Err(io(path, error)),
    }
}

struct JsonlLog {
    file: File,
    path: PathBuf,
    length: u64,
    next_seq: Option<u64>,
    buffer: Vec<u8>,
    broken: bool,
}

impl SessionLog for JsonlLog {
    fn append(&mut self, expected: u64, events: &[Arc<StoredEvent>]) -> Result<(), AppendError> {
        let found = self.next_seq.unwrap_or(expected);
        if found != expected {
            return Err(AppendError::Conflict { expected, found });
        }
        if self.broken {
            let error = std::io::Error::other("an earlier write failed and could not be undone");
            return Err(io(&self.path, error).into());
        }
        self.buffer.clear();
        for event in events {
            serde_json::to_writer(&mut self.buffer, &**event)
                .map_err(|error| io(&self.path, error.into()))?;
            self.buffer.push(b'\n');
        }
        if let Err(error) = self.file.write_all(&self.buffer) {
            // All or none: what a full disk took is cut off again.
            let undone = self.file.set_len(self.length).is_ok()
                && self.file.seek(SeekFrom::Start(self.length)).is_ok();
            self.broken = !undone;
            return Err(io(&self.path, error).into());
        }
        self.length += self.buffer.len() as u64;
        self.next_seq = Some(expected + events.len() as u64);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        self.file.sync_data().map_err(|error| io(&self.path, error))
    }

    fn abandon(self: Box<Self>) {
        // Removed before the lock ends with the file: nobody else can have it open.
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "a session could not be taken back");
        }
    }
}

/// What a file holds, up to its last whole line.
struct Loaded {
    events: Vec<Arc<StoredEvent>>,
    /// Bytes up to the end of the last whole line.
    whole: u64,
    torn: u64,
    header: Option<Header>,
}

fn parse_header(path: &Path, line: &[u8]) -> Result<Header, StoreError> {
    let header: Header = serde_json::from_slice(line)
        .map_err(|error| corrupt(path, 1, format!("expected a session header: {error}")))?;
    if header.format != FORMAT || header.version != VERSION {
        let what = format!(
            "expected format {FORMAT} version {VERSION}, found {} version {}",
            header.format, header.version
        );
        return Err(corrupt(path, 1, what));
    }
    Ok(header)
}

fn parse_event(path: &Path, number: usize, line: &[u8]) -> Result<StoredEvent, StoreError> {
    let event: StoredEvent = serde_json::from_slice(line)
        .map_err(|error| corrupt(path, number, format!("expected an event: {error}")))?;
    match &event.event {
        Event::Extension(extension) if OWN_TYPES.contains(&extension.kind.as_str()) => {
            let what = format!("a {} event without its fields", extension.kind);
            Err(corrupt(path, number, what))
        }
        _ => Ok(event),
    }
}

/// Whether to read on: all of a log, or only up to the first event of the session's own.
enum Extent {
    Whole,
    ToFirst,
}

impl Loaded {
    fn has_first(&self) -> bool {
        self.header
            .as_ref()
            .is_some_and(|header| self.events.len() as u64 > header.inherited)
    }
}

fn load(path: &Path, file: &mut File, extent: &Extent) -> Result<Loaded, StoreError> {
    let mut reader = BufReader::new(file);
    let mut loaded = Loaded {
        events: Vec::new(),
        whole: 0,
        torn: 0,
        header: None,
    };
    let mut line = Vec::new();
    for number in 1.. {
        if matches!(extent, Extent::ToFirst) && loaded.has_first() {
            break;
        }
        line.clear();
        let read = reader
            .read_until(b'\n', &mut line)
            .map_err(|error| io(path, error))?;
        if read == 0 {
            break;
        }
        if line.last() != Some(&b'\n') {
            loaded.torn = read as u64;
            break;
        }
        if number == 1 {
            loaded.header = Some(parse_header(path, &line)?);
        } else {
            let event = parse_event(path, number, &line)?;
            let last: Option<&Arc<StoredEvent>> = loaded.events.last();
            let expected = last.map_or(0, |last| last.seq + 1);
            if expected != event.seq {
                let what = format!("expected seq {expected}, found {}", event.seq);
                return Err(corrupt(path, number, what));
            }
            loaded.events.push(Arc::new(event));
        }
        loaded.whole += read as u64;
    }
    Ok(loaded)
}

fn header_line(id: &AgentId, inherited: u64) -> Vec<u8> {
    let header = Header {
        format: FORMAT.to_owned(),
        version: VERSION,
        session: id.clone(),
        inherited,
    };
    let mut line = serde_json::to_vec(&header).unwrap_or_default();
    line.push(b'\n');
    line
}

impl SessionStore for JsonlStore {
    fn create(&self, id: &AgentId, inherited: u64) -> Result<Box<dyn SessionLog>, StoreError> {
        let path = self.path(id);
        let mut file = new_file().open(&path).map_err(|error| {
            if error.kind() == ErrorKind::AlreadyExists {
                StoreError::Exists(id.clone())
            } else {
                io(&path, error)
            }
        })?;
        let line = header_line(id, inherited);
        if let Err(error) = lock(&file, &path, id)
            .and_then(|()| file.write_all(&line).map_err(|error| io(&path, error)))
        {
            // Nothing was accepted yet: a session that could not be begun leaves no file.
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        let length = line.len() as u64;
        let log = JsonlLog {
            file,
            path,
            length,
            next_seq: None,
            buffer: Vec::new(),
            broken: false,
        };
        Ok(Box::new(log))
    }

    fn open(&self, id: &AgentId) -> Result<OpenedSession, StoreError> {
        let path = self.path(id);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|error| missing(&path, id, error))?;
        lock(&file, &path, id)?;
        let mut loaded = load(&path, &mut file, &Extent::Whole)?;
        if !loaded.has_first() {
            // What another session's past left of a session that was never born is not its own.
            loaded.torn += loaded.whole;
            loaded.whole = 0;
            loaded.events.clear();
            loaded.header = None;
        }
        let mut length = loaded.whole;
        file.set_len(length)
            .and_then(|()| file.seek(SeekFrom::Start(length)))
            .map_err(|error| io(&path, error))?;
        if loaded.header.is_none() {
            let line = header_line(id, 0);
            file.write_all(&line).map_err(|error| io(&path, error))?;
            length = line.len() as u64;
        }
        if loaded.torn > 0 {
            tracing::warn!(session = %id, bytes = loaded.torn, "cut off a torn last line");
        }
        let next_seq = loaded.events.last().map(|last| last.seq + 1);
        let log = JsonlLog {
            file,
            path,
            length,
            next_seq,
            buffer: Vec::new(),
            broken: false,
        };
        Ok(OpenedSession {
            log: Box::new(log),
            events: loaded.events,
            torn_bytes: loaded.torn,
        })
    }

    fn read(&self, id: &AgentId) -> Result<Vec<Arc<StoredEvent>>, StoreError> {
        let path = self.path(id);
        let mut file = File::open(&path).map_err(|error| missing(&path, id, error))?;
        Ok(load(&path, &mut file, &Extent::Whole)?.events)
    }

    fn first(&self, id: &AgentId) -> Result<Option<Arc<StoredEvent>>, StoreError> {
        let path = self.path(id);
        let mut file = File::open(&path).map_err(|error| missing(&path, id, error))?;
        let mut loaded = load(&path, &mut file, &Extent::ToFirst)?;
        Ok(if loaded.has_first() {
            loaded.events.pop()
        } else {
            None
        })
    }

    fn sessions(&self) -> Result<Vec<AgentId>, StoreError> {
        let entries = std::fs::read_dir(&self.folder).map_err(|error| io(&self.folder, error))?;
        let mut ids = Vec::new();
        for entry in entries {
            let name = entry.map_err(|error| io(&self.folder, error))?.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(".jsonl"));
            // Ids sort by their time of creation.
            ids.extend(id.and_then(|id| id.parse::<AgentId>().ok()));
        }
        ids.sort();
        Ok(ids)
    }
}

#[cfg(test)]
mod tests {
    use offshoot_core::Timestamp;

    use super::*;

    fn event(seq: u64) -> Arc<StoredEvent> {
        let event = Event::TurnStart {
            turn: seq,
            generation: 0,
        };
        Arc::new(StoredEvent {
            seq,
            time: Timestamp::from_millis(seq),
            event,
        })
    }

    fn store() -> (tempfile::TempDir, JsonlStore) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = JsonlStore::open_folder(folder.path()).expect("a store");
        (folder, store)
    }

    #[test]
    fn what_was_appended_is_read_back() {
        let (_folder, store) = store();
        let id = AgentId::fresh();
        let mut log = store.create(&id, 0).expect("a session");
        log.append(0, &[event(0), event(1)]).expect("an append");
        drop(log);
        let opened = store.open(&id).expect("the session");
        assert_eq!(opened.events, [event(0), event(1)]);
        assert_eq!(store.sessions().expect("ids"), std::slice::from_ref(&id));
        assert_eq!(store.first(&id).expect("first"), Some(event(0)));
    }

    #[test]
    fn a_session_has_one_writer() {
        let (_folder, store) = store();
        let id = AgentId::fresh();
        let log = store.create(&id, 0).expect("a session");
        assert!(matches!(store.open(&id), Err(StoreError::Locked(_))));
        assert!(matches!(store.create(&id, 0), Err(StoreError::Exists(_))));
        drop(log);
        assert!(store.open(&id).is_ok());
    }

    #[test]
    fn an_append_at_another_place_is_a_conflict() {
        let (_folder, store) = store();
        let id = AgentId::fresh();
        let mut log = store.create(&id, 0).expect("a session");
        log.append(0, &[event(0)]).expect("an append");
        let error = log.append(0, &[event(0)]).expect_err("a conflict");
        assert!(matches!(
            error,
            AppendError::Conflict {
                expected: 0,
                found: 1
            }
        ));
    }

    #[test]
    fn a_torn_last_line_is_cut_off_at_every_byte_and_nothing_else_is_lost() {
        let (folder, store) = store();
        let id = AgentId::fresh();
        let mut log = store.create(&id, 0).expect("a session");
        log.append(0, &[event(0), event(1), event(2)])
            .expect("an append");
        drop(log);
        let path = folder.path().join(format!("{id}.jsonl"));
        let bytes = std::fs::read(&path).expect("the log");
        for length in 0..=bytes.len() {
            std::fs::write(&path, &bytes[..length]).expect("a shorter log");
            let whole = bytes[..length]
                .iter()
                .filter(|byte| **byte == b'\n')
                .count();
            let mut opened = store.open(&id).expect("a repaired log");
            let kept = whole.saturating_sub(1);
            assert_eq!(opened.events.len(), kept, "at byte {length}");
            opened
                .log
                .append(kept as u64, &[event(kept as u64)])
                .expect("an append");
            drop(opened);
            assert_eq!(
                store.read(&id).expect("the log").len(),
                kept + 1,
                "at byte {length}"
            );
        }
    }

    #[test]
    fn a_damaged_line_in_the_middle_is_named() {
        let (folder, store) = store();
        let id = AgentId::fresh();
        let mut log = store.create(&id, 0).expect("a session");
        log.append(0, &[event(0)]).expect("an append");
        drop(log);
        let path = folder.path().join(format!("{id}.jsonl"));
        let mut text = std::fs::read_to_string(&path).expect("the log");
        text.push_str(
            "{\"seq\":1,\"time\":\"2026-01-01T00:00:00Z\",\"event\":{\"type\":\"turn/start\"}}\n",
        );
        std::fs::write(&path, text).expect("a damaged log");
        let error = store.open(&id).expect_err("a refusal").to_string();
        assert!(
            error.ends_with(".jsonl:3: a turn/start event without its fields"),
            "{error}"
        );
    }
}
