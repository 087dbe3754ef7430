//! The writer of one log file.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;

use super::header::Header;
use super::{ASIDE, JsonlStore, SyncPolicy, io, new_file};
use crate::{AgentId, AppendError, Flushed, SessionLog, StoreError, StoredEvent};

/// What is no part of a session, at the end of its file. It stays there while nobody goes on with the
/// session: what only looks, or is refused, changes nothing.
pub(super) struct Leftover {
    pub(super) session: AgentId,
    /// How long the file is with it.
    pub(super) size: u64,
    /// Whether it is another session's past, of one that was never born: nothing of the file is its own.
    pub(super) unborn: bool,
}

/// The file ends with the last whole line, but for a [`Leftover`].
pub(super) struct JsonlLog {
    file: File,
    path: PathBuf,
    length: u64,
    /// How long the file was left: `length`, but for a leftover. Otherwise somebody writes to it who asks
    /// for no lock.
    size: u64,
    next_seq: u64,
    buffer: Vec<u8>,
    broken: bool,
    /// Where the log ended when another writer was found in it.
    lost: Option<u64>,
    policy: SyncPolicy,
    /// How much of the file is known to survive a loss of power; 0 while its name may not.
    synced: u64,
    leftover: Option<Leftover>,
}

impl Drop for JsonlLog {
    fn drop(&mut self) {
        // Closing is not enough: a child that another thread starts has a copy of the file until its exec.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
impl JsonlLog {
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl JsonlStore {
    /// A writer that goes on behind `length` bytes.
    pub(super) fn log(
        &self,
        file: File,
        path: PathBuf,
        length: u64,
        next_seq: u64,
        leftover: Option<Leftover>,
    ) -> JsonlLog {
        JsonlLog {
            file,
            path,
            length,
            size: leftover.as_ref().map_or(length, |leftover| leftover.size),
            next_seq,
            buffer: Vec::new(),
            broken: false,
            lost: None,
            policy: self.sync,
            synced: 0,
            leftover,
        }
    }
}

impl JsonlLog {
    /// Cuts off what is no part of the session, and begins a session that has not begun. What is cut
    /// off and may be an event is kept in a file of its own first.
    fn tidy(&mut self) -> std::io::Result<()> {
        let Some(leftover) = &self.leftover else {
            return Ok(());
        };
        self.file.seek(SeekFrom::Start(self.length))?;
        let mut cut = Vec::new();
        self.file.read_to_end(&mut cut)?;
        if may_be_an_event(&cut) || leftover.unborn && !cut.is_empty() {
            let aside = format!("{}{ASIDE}{}", leftover.session, offshoot_core::fresh_id());
            let aside = self.path.with_file_name(aside);
            let mut file = new_file().open(&aside)?;
            if let Err(error) = file.write_all(&cut).and_then(|()| file.sync_all()) {
                // What was not kept is not cut off.
                let _ = std::fs::remove_file(&aside);
                return Err(error);
            }
            tracing::warn!(
                session = %leftover.session, bytes = cut.len(), kept = %aside.display(),
                "what was cut off a session's log is kept"
            );
        }
        self.file.set_len(self.length)?;
        self.file.seek(SeekFrom::Start(self.length))?;
        if self.length == 0 {
            let line = Header::line(&leftover.session, 0);
            self.file.write_all(&line)?;
            self.length = line.len() as u64;
        }
        self.leftover = None;
        Ok(())
    }

    /// Fails when the file is not as it was left: another writer was here, and goes on.
    fn expect_unchanged(&mut self, expected: u64) -> Result<(), AppendError> {
        if self.lost.is_none() && self.end()? == self.size {
            return Ok(());
        }
        let found = match self.lost {
            Some(found) => found,
            None => {
                let lines = lines(&self.path).map_err(|error| io(&self.path, error))?;
                // The first line is the header.
                *self.lost.insert(lines.saturating_sub(1))
            }
        };
        Err(AppendError::Conflict { expected, found })
    }

    /// Where the file ends, and from here on the next write goes. A third of what its metadata cost.
    fn end(&mut self) -> Result<u64, StoreError> {
        let end = self.file.seek(SeekFrom::End(0));
        end.map_err(|error| io(&self.path, error))
    }

    fn write(&mut self, events: &[StoredEvent]) -> std::io::Result<()> {
        self.file.write_all(&self.buffer)?;
        if !self.policy.is_due(events) {
            return Ok(());
        }
        let synced = self.sync(self.length + self.buffer.len() as u64);
        // After a failed sync the system may have dropped what it could not write.
        self.broken = synced.is_err();
        synced
    }

    /// Makes the file, which has this length, survive a loss of power.
    fn sync(&mut self, length: u64) -> std::io::Result<()> {
        if self.synced == length {
            return Ok(());
        }
        self.file.sync_data()?;
        if let Some(folder) = self.path.parent().filter(|_| self.synced == 0) {
            // A new file is found again when its folder says so.
            File::open(folder)?.sync_all()?;
        }
        self.synced = length;
        Ok(())
    }

    /// How much of the file, and of that how much survives a loss of power.
    #[cfg(test)]
    pub(super) fn lengths(&self) -> (u64, u64) {
        (self.length, self.synced)
    }
}

/// Whether bytes without a line end are more than the beginning of one event: a process that dies in the
/// middle of a write leaves no more than that.
fn may_be_an_event(bytes: &[u8]) -> bool {
    let read = serde_json::from_slice::<IgnoredAny>(bytes);
    !bytes.is_empty() && !read.is_err_and(|error| error.is_eof())
}

/// How many line ends a file has.
fn lines(path: &Path) -> std::io::Result<u64> {
    let mut reader = BufReader::new(File::open(path)?);
    let mut lines = 0;
    while reader.skip_until(b'\n')? > 0 {
        lines += 1;
    }
    Ok(lines)
}

impl SessionLog for JsonlLog {
    fn append(&mut self, expected: u64, events: &[StoredEvent]) -> Result<(), AppendError> {
        let found = self.next_seq;
        if found != expected {
            return Err(AppendError::Conflict { expected, found });
        }
        if self.broken {
            let error = std::io::Error::other("an earlier write failed and could not be undone");
            return Err(io(&self.path, error).into());
        }
        self.expect_unchanged(expected)?;
        self.buffer.clear();
        for event in events {
            event.to_json(&mut self.buffer);
            self.buffer.push(b'\n');
        }
        if let Err(error) = self.tidy() {
            // It may have come half-way; the next append tries again.
            self.size = self.end()?;
            return Err(io(&self.path, error).into());
        }
        if let Err(error) = self.write(events) {
            // All or none: what a full disk took is cut off again.
            let undone = self.file.set_len(self.length).is_ok()
                && self.file.seek(SeekFrom::Start(self.length)).is_ok();
            self.broken |= !undone;
            self.size = self.length;
            return Err(io(&self.path, error).into());
        }
        self.length += self.buffer.len() as u64;
        self.size = self.length;
        self.next_seq += events.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> Result<Flushed, StoreError> {
        let synced = self.sync(self.length);
        synced.map_err(|error| io(&self.path, error))?;
        Ok(Flushed::Durable)
    }

    fn finish(&mut self) -> Result<(), StoreError> {
        match self.policy {
            SyncPolicy::Never => Ok(()),
            _ => self.flush().map(drop),
        }
    }

    fn abandon(self: Box<Self>) {
        // Removed before the lock ends with the file: nobody else can have it open.
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "a session could not be taken back");
        }
    }
}
