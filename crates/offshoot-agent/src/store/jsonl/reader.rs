//! A log file as a stream of events: one line at a time is in memory, whatever the file's size.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use memchr::memmem;

use super::header::{self, Header};
use super::outline::Outline;
use super::{corrupt, io};
use crate::{AgentId, Event, StoreError, StoredEvent};

const BUFFER: usize = 64 * 1024;

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
    pub(super) fn new(path: &'a Path, file: &'a File, id: &AgentId) -> Result<Self, StoreError> {
        let mut reader = Self {
            path,
            file: BufReader::with_capacity(BUFFER, file),
            header: None,
            line: Vec::new(),
            number: 0,
            next_seq: 0,
            whole: 0,
        };
        if reader.first_line()? {
            reader.header = Some(Header::parse(path, &reader.line, id)?);
        } else if !Header::is_beginning(&reader.line, id) {
            let what = format!(
                "expected a session header, found {} bytes without a line end",
                reader.line.len()
            );
            return Err(corrupt(path, 1, what));
        }
        Ok(reader)
    }

    /// As [`next_line`](Self::next_line), of a line that is known to be short.
    fn first_line(&mut self) -> Result<bool, StoreError> {
        let mut first = self.file.by_ref().take(header::MOST_BYTES);
        let read = first.read_until(b'\n', &mut self.line);
        read.map_err(|error| io(self.path, error))?;
        Ok(self.took_line())
    }

    /// Whether a session was never born: its file has the past that it was to begin with, or a part of
    /// it, and nothing of its own.
    ///
    /// A header that says so wrongly would make nothing of a session. One without a check is not
    /// believed when there are events.
    pub(super) fn is_unborn(&mut self) -> Result<bool, StoreError> {
        let Some(header) = self.header.as_ref().filter(|header| header.inherited > 0) else {
            return Ok(false);
        };
        let (inherited, is_checked) = (header.inherited, header.is_checked());
        let Some(events) = self.events_up_to(inherited)? else {
            return Ok(false);
        };
        if events == 0 || is_checked {
            return Ok(true);
        }
        let what = format!(
            "expected the session's own beginning after {inherited} inherited events, found {events} events: \
             the header is damaged, or the session was never begun"
        );
        Err(corrupt(self.path, 1, what))
    }

    /// How many whole lines follow the header; `None` when there are more than `most`. The reader stands
    /// behind the header then, as before.
    fn events_up_to(&mut self, most: u64) -> Result<Option<u64>, StoreError> {
        let mut count = || -> std::io::Result<u64> {
            let mut found = 0;
            loop {
                let chunk = self.file.fill_buf()?;
                if chunk.is_empty() || found > most {
                    break;
                }
                found += chunk.iter().filter(|byte| **byte == b'\n').count() as u64;
                let length = chunk.len();
                self.file.consume(length);
            }
            self.file.seek(SeekFrom::Start(self.whole))?;
            Ok(found)
        };
        let found = count().map_err(|error| io(self.path, error))?;
        Ok((found <= most).then_some(found))
    }

    /// Reads one whole line; false at the end of them.
    fn next_line(&mut self) -> Result<bool, StoreError> {
        self.line.clear();
        let read = self.file.read_until(b'\n', &mut self.line);
        read.map_err(|error| io(self.path, error))?;
        Ok(self.took_line())
    }

    fn took_line(&mut self) -> bool {
        let is_whole = self.line.last() == Some(&b'\n');
        if is_whole {
            self.number += 1;
            self.whole += self.line.len() as u64;
        }
        is_whole
    }

    /// The next event; `None` after the last whole one.
    pub(super) fn next(&mut self, ignorable: Ignorable) -> Result<Option<Read>, StoreError> {
        if self.header.is_none() || !self.next_line()? {
            return Ok(None);
        }
        // Where the session's own events begin there is its beginning.
        let inherited = self.header.as_ref().map_or(0, |header| header.inherited);
        let is_birth = inherited > 0 && self.next_seq == inherited;
        let passed = match ignorable {
            Ignorable::PassOver if !is_birth => seq_of_ignorable(&self.line),
            _ => None,
        };
        let (seq, read) = match passed {
            Some(seq) => (seq, Read::PassedOver),
            None => {
                let place = || format!("{}:{}", self.path.display(), self.number);
                let event = StoredEvent::from_json(&self.line, place)?;
                (event.seq, Read::Event(event))
            }
        };
        // Asked first, since it is asked of every line: who passes over some finds no other fault.
        if seq != self.next_seq {
            let what = format!("expected seq {}, found {seq}", self.next_seq);
            return Err(corrupt(self.path, self.number, what));
        }
        if let Read::Event(event) = &read {
            self.check_beginning(event)?;
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
}

/// How far into a line its type is looked for: what stands before it is short.
const PREFIX: usize = 128;

/// The `seq` of an event that nothing depends on; `None` for another one, and for what is not sure.
///
/// Most lines are told by their type alone, or by what they do not have. The others are read without keeping anything of them, as
/// strictly as when everything is kept: what only looks at a log and who goes on with it agree.
fn seq_of_ignorable(line: &[u8]) -> Option<u64> {
    const BEFORE: &[u8] = b"\"event\":{\"type\":\"";
    let head = &line[..line.len().min(PREFIX)];
    let at = memmem::find(head, BEFORE)?;
    let kind = &head[at + BEFORE.len()..];
    if crate::event::is_of_this_crate(kind) || memmem::find(line, b"\"ignorable\"").is_none() {
        return None;
    }
    let outline: Outline = serde_json::from_str(std::str::from_utf8(line).ok()?).ok()?;
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
