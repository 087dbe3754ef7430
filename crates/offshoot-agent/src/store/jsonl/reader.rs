//! A log file as a stream of events: one line at a time is in memory, whatever the file's size.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{corrupt, io};
use crate::{AgentId, Event, StoreError, StoredEvent};

const FORMAT: &str = "offshoot-session";
const VERSION: u32 = 1;
const BUFFER: usize = 64 * 1024;

/// The first line.
#[derive(Serialize, Deserialize)]
pub(super) struct Header {
    format: String,
    version: u32,
    session: AgentId,
    /// How many events at the beginning are another session's.
    #[serde(default)]
    pub(super) inherited: u64,
}

impl Header {
    pub(super) fn line(id: &AgentId, inherited: u64) -> Vec<u8> {
        let header = Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            session: id.clone(),
            inherited,
        };
        let mut line = serde_json::to_vec(&header).unwrap_or_default();
        line.push(b'\n');
        line
    }

    fn parse(path: &Path, line: &[u8]) -> Result<Self, StoreError> {
        // The version first: another one may have other fields.
        #[derive(Deserialize)]
        struct Version {
            format: String,
            version: u32,
        }
        let malformed = |error| corrupt(path, 1, format!("expected a session header: {error}"));
        let Version { format, version } = serde_json::from_slice(line).map_err(malformed)?;
        if format != FORMAT || version != VERSION {
            let what = format!(
                "expected format {FORMAT} version {VERSION}, found {format} version {version}"
            );
            return Err(corrupt(path, 1, what));
        }
        serde_json::from_slice(line).map_err(malformed)
    }
}

/// Reads the events of a file, in order, up to its last whole line.
pub(super) struct Reader<'a> {
    path: &'a Path,
    file: BufReader<&'a File>,
    /// Absent in a file without one whole line.
    pub(super) header: Option<Header>,
    line: Vec<u8>,
    number: usize,
    pub(super) next_seq: u64,
    /// Bytes up to the end of the last whole line that was read.
    pub(super) whole: u64,
    /// Bytes after the last line end.
    pub(super) torn: u64,
}

/// One event of a file.
pub(super) enum Read {
    Event(StoredEvent),
    /// One that nothing depends on, and that was not made.
    PassedOver,
}

/// What to do with events that nothing depends on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ignorable {
    Read,
    PassOver,
}

impl<'a> Reader<'a> {
    /// Reads the header of a file that stands at its beginning.
    ///
    /// A header that names another session is refused: the file was copied or renamed, and its session
    /// is perhaps there twice.
    pub(super) fn new(path: &'a Path, file: &'a File, id: &AgentId) -> Result<Self, StoreError> {
        let mut reader = Self {
            path,
            file: BufReader::with_capacity(BUFFER, file),
            header: None,
            line: Vec::new(),
            number: 0,
            next_seq: 0,
            whole: 0,
            torn: 0,
        };
        if reader.next_line()? {
            let header = Header::parse(path, &reader.line)?;
            if header.session != *id {
                let what = format!("expected the session {id}, found {}", header.session);
                return Err(corrupt(path, 1, what));
            }
            reader.header = Some(header);
        }
        Ok(reader)
    }

    /// Reads one whole line; false at the end of them.
    fn next_line(&mut self) -> Result<bool, StoreError> {
        self.line.clear();
        let read = self.file.read_until(b'\n', &mut self.line);
        let read = read.map_err(|error| io(self.path, error))?;
        if self.line.last() != Some(&b'\n') {
            self.torn = read as u64;
            return Ok(false);
        }
        self.number += 1;
        self.whole += read as u64;
        Ok(true)
    }

    /// The next event; `None` after the last whole one.
    pub(super) fn next(&mut self, ignorable: Ignorable) -> Result<Option<Read>, StoreError> {
        if self.header.is_none() || !self.next_line()? {
            return Ok(None);
        }
        let passed = match ignorable {
            Ignorable::Read => None,
            Ignorable::PassOver => seq_of_ignorable(&self.line),
        };
        let (seq, read) = match passed {
            Some(seq) => (seq, Read::PassedOver),
            None => {
                let place = || format!("{}:{}", self.path.display(), self.number);
                let event = StoredEvent::from_json(&self.line, place)?;
                self.check_beginning(&event)?;
                (event.seq, Read::Event(event))
            }
        };
        if seq != self.next_seq {
            let what = format!("expected seq {}, found {seq}", self.next_seq);
            return Err(corrupt(self.path, self.number, what));
        }
        self.next_seq += 1;
        Ok(Some(read))
    }

    /// Where the session's own events begin is said twice: by the header, and by the event there.
    fn check_beginning(&self, stored: &StoredEvent) -> Result<(), StoreError> {
        let header = self.header.as_ref().map_or(0, |header| header.inherited);
        let said = match &stored.event {
            Event::SessionStart(start) => start.inherited.map(|inherited| inherited.events),
            _ => None,
        };
        let expected = (stored.seq == header && header > 0).then_some(header);
        // A past may be that of a session which had one itself.
        if stored.seq < header || said == expected {
            return Ok(());
        }
        let what = format!(
            "expected the beginning of a session that inherited {header} events where its header says, found {}",
            said.unwrap_or(0)
        );
        Err(corrupt(self.path, self.number, what))
    }

    /// Passes over lines without looking at them; false when there are not as many.
    pub(super) fn skip(&mut self, lines: u64) -> Result<bool, StoreError> {
        for _ in 0..lines {
            if !self.next_line()? {
                return Ok(false);
            }
            self.next_seq += 1;
        }
        Ok(true)
    }

    /// Whether a file has more whole lines than `lines`, from where it stands.
    pub(super) fn is_longer_than(file: &File, lines: u64) -> std::io::Result<bool> {
        let mut reader = BufReader::with_capacity(BUFFER, file);
        let mut found = 0;
        loop {
            let chunk = reader.fill_buf()?;
            if chunk.is_empty() || found > lines {
                return Ok(found > lines);
            }
            found += chunk.iter().filter(|byte| **byte == b'\n').count() as u64;
            let length = chunk.len();
            reader.consume(length);
        }
    }
}

/// How far into a line its type is looked for: what stands before it is short.
const PREFIX: usize = 128;

/// The `seq` of an event that nothing depends on; `None` for another one, and for what is not sure.
///
/// Most lines are told by their type alone. The others are read without keeping anything of them.
fn seq_of_ignorable(line: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Outline {
        seq: u64,
        event: Mark,
    }
    #[derive(Deserialize)]
    struct Mark {
        #[serde(default)]
        ignorable: bool,
    }
    const BEFORE: &[u8] = b"\"event\":{\"type\":\"";
    let head = &line[..line.len().min(PREFIX)];
    let at = head
        .windows(BEFORE.len())
        .position(|bytes| bytes == BEFORE)?;
    let kind = &head[at + BEFORE.len()..];
    if crate::event::is_of_this_crate(kind) {
        return None;
    }
    let outline: Outline = serde_json::from_slice(line).ok()?;
    outline.event.ignorable.then_some(outline.seq)
}

/// How much of a file follows its last line end.
pub(super) fn torn_bytes(path: &Path) -> std::io::Result<u64> {
    use std::io::{Seek as _, SeekFrom};
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut chunk = [0; 8 * 1024];
    let mut before = length;
    while before > 0 {
        let size = chunk
            .len()
            .min(usize::try_from(before).unwrap_or(usize::MAX));
        before -= size as u64;
        file.seek(SeekFrom::Start(before))?;
        file.read_exact(&mut chunk[..size])?;
        if let Some(end) = chunk[..size].iter().rposition(|byte| *byte == b'\n') {
            return Ok(length - before - end as u64 - 1);
        }
    }
    Ok(length)
}
