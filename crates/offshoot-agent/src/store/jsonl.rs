//! Session logs as files: one folder, one file a session, one event a line.
//!
//! The first line is a header with the format's version. A file is locked while it has a writer;
//! the lock ends with the process, however it ends. Each append is one `write`, so that what was
//! accepted survives the death of the process; a line that was cut in the middle is no event.

mod header;
mod log;
mod outline;
mod reader;
mod sync;

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{OpenedSession, SessionLog, SessionStore, StoreError, Visit};
use crate::{AgentId, StoredEvent};
use header::Header;
use log::Leftover;
use reader::{Ignorable, Read, Reader};

pub use sync::SyncPolicy;

/// What follows a session's id in the name of a file with what was cut off its log.
const ASIDE: &str = ".jsonl.cut-";

/// A store in a folder. The folder is made when the first session is.
#[derive(Clone, Debug)]
pub struct JsonlStore {
    folder: PathBuf,
    sync: SyncPolicy,
}

impl JsonlStore {
    /// The store in `folder`, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] when the folder cannot be made or written to.
    pub fn open_folder(folder: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let folder = folder.into();
        make_private(&folder).map_err(|error| match error.kind() {
            // Of a folder that is there nothing is made.
            ErrorKind::AlreadyExists => io(&folder, ErrorKind::NotADirectory.into()),
            _ => io(&folder, error),
        })?;
        // Asked now, so that an unwritable folder is an error at the start and not at the first event.
        let probe = folder.join(format!(".probe-{}", offshoot_core::fresh_id()));
        File::create(&probe)
            .and_then(|mut file| file.write_all(b"\n"))
            .and_then(|()| std::fs::remove_file(&probe))
            .map_err(|error| {
                let _ = std::fs::remove_file(&probe);
                io(&folder, error)
            })?;
        let sync = SyncPolicy::default();
        Ok(Self { folder, sync })
    }

    /// The store in a folder that must be there; nothing is written to it by this call.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] when the folder is not there.
    pub fn existing(folder: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let folder = folder.into();
        std::fs::read_dir(&folder).map_err(|error| io(&folder, error))?;
        let sync = SyncPolicy::default();
        Ok(Self { folder, sync })
    }

    /// When logs are made to survive a loss of power; see [`SyncPolicy`] for the default.
    #[must_use]
    pub fn sync(mut self, policy: SyncPolicy) -> Self {
        self.sync = policy;
        self
    }

    /// The size of a session's log, and how many bytes of it follow its last whole line: what is cut
    /// off when the session is opened.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`], or the medium's.
    pub fn size(&self, id: &AgentId) -> Result<(u64, u64), StoreError> {
        let path = self.path(id);
        expect_file(&path, id)?;
        let sizes =
            std::fs::metadata(&path).and_then(|data| Ok((data.len(), reader::torn_bytes(&path)?)));
        sizes.map_err(|error| missing(&path, id, error))
    }

    /// The files that hold what was cut off a session's log and may have been events, oldest first. Nothing
    /// reads them, and nothing removes them.
    ///
    /// # Errors
    ///
    /// The medium's.
    pub fn kept_aside(&self, id: &AgentId) -> Result<Vec<PathBuf>, StoreError> {
        let entries = std::fs::read_dir(&self.folder).map_err(|error| io(&self.folder, error))?;
        let mut kept = Vec::new();
        for entry in entries {
            let path = entry.map_err(|error| io(&self.folder, error))?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let rest = name.and_then(|name| name.strip_prefix(id.as_str()));
            if rest.is_some_and(|rest| rest.starts_with(ASIDE)) {
                kept.push(path);
            }
        }
        kept.sort();
        Ok(kept)
    }

    /// Reads a session without becoming its writer.
    fn each(&self, id: &AgentId, mut visit: impl FnMut(StoredEvent)) -> Result<(), StoreError> {
        let path = self.path(id);
        expect_file(&path, id)?;
        let file = File::open(&path).map_err(|error| missing(&path, id, error))?;
        let mut reader = Reader::new(&path, &file, id)?;
        if reader.is_unborn()? {
            return Ok(());
        }
        while let Some(read) = reader.next(Ignorable::Read)? {
            if let Read::Event(event) = read {
                visit(event);
            }
        }
        Ok(())
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

/// A pipe would be waited for, and a folder or a device is no log.
fn expect_file(path: &Path, id: &AgentId) -> Result<(), StoreError> {
    let found = std::fs::metadata(path).map_err(|error| missing(path, id, error))?;
    if found.is_file() {
        return Ok(());
    }
    let what = match found.is_dir() {
        true => "expected a file, found a folder",
        false => "expected a file, found a pipe, a socket or a device",
    };
    Err(StoreError::Corrupt {
        place: path.display().to_string(),
        what: what.to_owned(),
    })
}

fn corrupt(path: &Path, line: usize, what: impl Into<String>) -> StoreError {
    StoreError::Corrupt {
        place: format!("{}:{line}", path.display()),
        what: what.into(),
    }
}

/// How long a lock is waited for, and how often it is asked for meanwhile. A child has a copy of each file of
/// its parent from its fork to its exec, and with it the lock of a process that was killed between them.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Takes the lock of a log that is there; a writer that lives is waited for in vain.
fn lock_in_time(file: &File, path: &Path, id: &AgentId) -> Result<(), StoreError> {
    let begun = Instant::now();
    loop {
        match lock(file, path, id) {
            Err(StoreError::Locked(_)) if begun.elapsed() < LOCK_PATIENCE => {
                std::thread::sleep(LOCK_PAUSE);
            }
            taken => return taken,
        }
    }
}

/// Takes the writer's lock, which ends with its writer or when the file is closed.
fn lock(file: &File, path: &Path, id: &AgentId) -> Result<(), StoreError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked(id.clone())),
        Err(TryLockError::Error(error)) => Err(io(path, error)),
    }
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
        // Who was faster has it from here on.
        lock(&file, &path, id)?;
        let line = Header::line(id, inherited);
        if let Err(error) = file.write_all(&line) {
            // Nothing was accepted yet: a session that could not be begun leaves no file.
            let _ = std::fs::remove_file(&path);
            return Err(io(&path, error));
        }
        let length = line.len() as u64;
        Ok(Box::new(self.log(file, path, length, 0, None)))
    }

    fn open(&self, id: &AgentId, visit: Visit<'_>) -> Result<OpenedSession, StoreError> {
        let path = self.path(id);
        expect_file(&path, id)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|error| missing(&path, id, error))?;
        lock_in_time(&file, &path, id)?;
        let mut reader = Reader::new(&path, &file, id)?;
        let unborn = reader.is_unborn()?;
        while !unborn && let Some(read) = reader.next(Ignorable::PassOver)? {
            if let Read::Event(event) = read {
                visit(&event);
            }
        }
        let size = file.metadata().map_err(|error| io(&path, error))?.len();
        // What another session's past left of a session that was never born is not its own.
        let length = if unborn { 0 } else { reader.whole };
        let next_seq = reader.next_seq;
        let torn_bytes = size.saturating_sub(length);
        // Also a file without a header: the session begins with the first append.
        let leftover = (torn_bytes > 0 || length == 0).then(|| Leftover {
            session: id.clone(),
            size,
            unborn,
        });
        if torn_bytes > 0 {
            tracing::warn!(session = %id, bytes = torn_bytes, "a torn last line is left out");
        }
        Ok(OpenedSession {
            log: Box::new(self.log(file, path, length, next_seq, leftover)),
            next_seq,
            torn_bytes,
        })
    }

    fn scan(&self, id: &AgentId, visit: Visit<'_>) -> Result<(), StoreError> {
        self.each(id, |event| visit(&event))
    }

    fn read(&self, id: &AgentId) -> Result<Vec<StoredEvent>, StoreError> {
        let mut events = Vec::new();
        self.each(id, |event| events.push(event))?;
        Ok(events)
    }

    fn first(&self, id: &AgentId) -> Result<Option<StoredEvent>, StoreError> {
        let path = self.path(id);
        expect_file(&path, id)?;
        let file = File::open(&path).map_err(|error| missing(&path, id, error))?;
        let mut reader = Reader::new(&path, &file, id)?;
        if reader.is_unborn()? {
            return Ok(None);
        }
        let inherited = reader.header.as_ref().map_or(0, |header| header.inherited);
        if !reader.skip(inherited)? {
            return Ok(None);
        }
        match reader.next(Ignorable::Read)? {
            Some(Read::Event(event)) => Ok(Some(event)),
            _ => Ok(None),
        }
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
    use crate::{AppendError, Event, Flushed};

    fn event(seq: u64) -> StoredEvent {
        let event = Event::TurnStart {
            turn: seq,
            generation: 0,
        };
        StoredEvent {
            seq,
            time: Timestamp::from_millis(seq),
            event,
        }
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
        let mut events = Vec::new();
        let opened = store.open(&id, &mut |event| events.push(event.clone()));
        assert_eq!(opened.expect("the session").next_seq, 2);
        assert_eq!(events, [event(0), event(1)]);
        assert_eq!(store.sessions().expect("ids"), std::slice::from_ref(&id));
        assert_eq!(store.first(&id).expect("first"), Some(event(0)));
    }

    #[test]
    fn a_session_has_one_writer() {
        let (_folder, store) = store();
        let id = AgentId::fresh();
        let log = store.create(&id, 0).expect("a session");
        assert!(matches!(
            store.open(&id, &mut |_| {}),
            Err(StoreError::Locked(_))
        ));
        assert!(matches!(store.create(&id, 0), Err(StoreError::Exists(_))));
        drop(log);
        assert!(store.open(&id, &mut |_| {}).is_ok());
    }

    /// A child between its fork and its exec has a copy of every file of its parent.
    #[test]
    fn a_lock_that_a_dead_process_left_to_a_child_that_begins_is_waited_for() {
        let (_folder, store) = store();
        let id = AgentId::fresh();
        drop(store.create(&id, 0).expect("a session"));
        let left = File::open(store.path(&id)).expect("the log");
        left.try_lock().expect("the lock");
        let mut child = std::process::Command::new("sleep")
            .arg("0.1")
            .stdin(left)
            .spawn()
            .expect("a child");
        let opened = store.open(&id, &mut |_| {});
        assert!(opened.is_ok(), "{:?}", opened.err());
        child.wait().expect("its end");
    }

    #[test]
    fn a_writer_that_ends_leaves_its_lock_to_no_child_that_begins() {
        let (_folder, store) = store();
        let id = AgentId::fresh();
        let log = store.create(&id, 0).expect("a session");
        drop(log);
        let file = File::open(store.path(&id)).expect("the log");
        let log = store.log(file, store.path(&id), 0, 0, None);
        lock(log.file(), &store.path(&id), &id).expect("the lock");
        // What a child has until its exec.
        let _copy = log.file().try_clone().expect("a copy");
        drop(log);
        let probe = File::open(store.path(&id)).expect("the log");
        assert!(probe.try_lock().is_ok());
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
            let mut opened = store.open(&id, &mut |_| {}).expect("a repaired log");
            let kept = whole.saturating_sub(1);
            assert_eq!(opened.next_seq, kept as u64, "at byte {length}");
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
    fn a_log_is_synced_when_its_policy_says_so() {
        use crate::{Message, Target, TurnEndReason};
        let stored = |seq, event| {
            let time = Timestamp::from_millis(seq);
            [StoredEvent { seq, time, event }]
        };
        let message = Event::InboxInserted {
            target: Target::NextTurn,
            wake: true,
            before: None,
            passive: false,
            message: Message::user("a").into(),
        };
        let is_synced = |log: &log::JsonlLog| {
            let (length, synced) = log.lengths();
            length == synced
        };
        let step = Event::StepStart { turn: 1, step: 1 };
        let end = Event::TurnEnd {
            turn: 1,
            reason: TurnEndReason::Completed,
            cause: None,
            error: None,
        };
        // After a message, a step's beginning, a turn's end, and the end of all.
        for (policy, synced) in [
            (SyncPolicy::Never, [false, false, false, false]),
            (SyncPolicy::Close, [false, false, false, true]),
            (SyncPolicy::Turn, [false, false, true, true]),
            (SyncPolicy::Accepted, [true, false, true, true]),
            (SyncPolicy::Append, [true, true, true, true]),
        ] {
            let (_folder, store) = store();
            let id = AgentId::fresh();
            let path = store.path(&id);
            let file = new_file().open(&path).expect("a file");
            let mut log = store.sync(policy).log(file, path, 0, 0, None);
            let mut found = Vec::new();
            for (seq, event) in (0..).zip([&message, &step, &end]) {
                log.append(seq, &stored(seq, event.clone()))
                    .expect("an append");
                found.push(is_synced(&log));
            }
            log.finish().expect("an end");
            found.push(is_synced(&log));
            assert_eq!(found, synced, "{policy:?}");
            assert_eq!(log.flush().expect("a flush"), Flushed::Durable);
            assert!(is_synced(&log), "{policy:?}");
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
        let error = store.open(&id, &mut |_| {});
        let error = error.expect_err("a refusal").to_string();
        assert!(
            error.contains(".jsonl:3: expected an event: a turn/start event: missing field"),
            "{error}"
        );
    }
}
