//! Reading output: what the owner has not read yet, in two phases, and at any offset, consuming nothing.

use std::fmt;
use std::mem;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use offshoot_core::ScopeId;
use offshoot_core::text::tail;

use crate::error::AccessError;
use crate::id::TaskId;
use crate::lifecycle::Arrival;
use crate::output::{OutputBuffer, OutputSlice, slice_of};
use crate::record::{FinalOutput, Output};
use crate::shard::Shard;
use crate::slab::Key;
use crate::snapshot::TaskSnapshot;
use crate::table::After;
use crate::unread::Taken;
use crate::wait::Claim;

/// Output that was looked at and not read yet.
///
/// [`commit`](Self::commit) it once the text was really delivered: it then counts as read, and the
/// end of a finished task as reported. Dropped without, nothing was consumed: the next reading has
/// the same text again.
///
/// While it is open nobody else gets its text: another reading has what this one has not, and says
/// how much is [elsewhere](Self::elsewhere). So of two readers of one task each byte has one. A final
/// output is no stream, and whoever asks for it has it: all of its open readings do, unless one of them
/// is [alone](crate::TaskRegistry::read_alone).
#[must_use = "dropping it consumes nothing: the output counts as unread"]
pub struct Reading {
    text: String,
    gap: u64,
    elsewhere: u64,
    frame: Option<Arc<FinalOutput>>,
    snapshot: TaskSnapshot,
    // In this order: whoever is told that the end was not shown finds the output unread.
    held: Held,
    claim: Option<Claim>,
}

/// Output that is being read. Dropped uncommitted, it is unread again.
struct Held {
    shard: Arc<Shard>,
    key: Key,
    part: Part,
}

enum Part {
    /// Of a stream; empty once it was given back.
    Ranges(Vec<Range<u64>>),
    /// A final output.
    Final,
}

impl Held {
    fn commit(mut self) -> Receipt {
        let part = mem::replace(&mut self.part, Part::Ranges(Vec::new()));
        let mut table = self.shard.table();
        let record = table.records.get_mut(self.key);
        match (record.map(|record| &mut record.output), &part) {
            (Some(Output::Stream(stream)), Part::Ranges(ranges)) => stream.unread.commit(ranges),
            (Some(Output::Final { read, open, .. }), Part::Final) => {
                *read = true;
                open.leave();
            }
            _ => {}
        }
        drop(table);
        let (shard, key) = (Arc::clone(&self.shard), self.key);
        Receipt { shard, key, part }
    }
}

/// Says what was read by a [reading](Reading) that was committed, in case that it did not arrive.
pub struct Receipt {
    shard: Arc<Shard>,
    key: Key,
    part: Part,
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").finish_non_exhaustive()
    }
}

impl Receipt {
    /// The text did not arrive where it was delivered to: the next reading has it again, as far as it
    /// is still kept. The end of a finished task stays reported. Without effect when the task is gone.
    pub fn revoke(self) {
        let mut after = After::default();
        {
            let mut table = self.shard.table();
            let record = table.records.get_mut(self.key);
            match (record.map(|record| &mut record.output), &self.part) {
                (Some(Output::Stream(stream)), Part::Ranges(ranges)) => {
                    stream.unread.revoke(ranges);
                }
                (Some(Output::Final { read, .. }), Part::Final) => *read = false,
                _ => {}
            }
            table.note_change(self.key, &mut after);
        }
        self.shard.perform(after);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if matches!(&self.part, Part::Ranges(ranges) if ranges.is_empty()) {
            return;
        }
        let mut table = self.shard.table();
        let record = table.records.get_mut(self.key);
        match (record.map(|record| &mut record.output), &self.part) {
            (Some(Output::Stream(stream)), Part::Ranges(ranges)) => stream.unread.release(ranges),
            (Some(Output::Final { open, .. }), Part::Final) => open.leave(),
            _ => {}
        }
    }
}

/// Where a text is copied from, outside the table's lock.
enum Copied {
    Nowhere,
    Final(Arc<FinalOutput>),
    Stream(OutputBuffer),
}

impl Copied {
    fn of(output: &Output) -> Self {
        match output {
            Output::None => Self::Nowhere,
            Output::Final { output, .. } => Self::Final(Arc::clone(output)),
            Output::Stream(stream) => Self::Stream(stream.buffer.clone()),
        }
    }
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading")
            .field("text", &self.text)
            .field("gap", &self.gap)
            .field("elsewhere", &self.elsewhere)
            .field("snapshot", &self.snapshot)
            .finish_non_exhaustive()
    }
}

impl Reading {
    /// The output. Of a task that streams: what was written, was in no committed reading, is in no
    /// other open one, and is still kept. Else the final output, the same at each reading, and empty while the task is live.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// How many bytes just before `text` are missing, exactly.
    #[must_use]
    pub fn gap(&self) -> u64 {
        self.gap
    }

    /// How many unread bytes are not in this reading because they are in others that are still
    /// open. When those come to nothing, the next reading has them.
    #[must_use]
    pub fn elsewhere(&self) -> u64 {
        self.elsewhere
    }

    /// What the producer says before a [final output](crate::TaskOutcome::with_heading): one line.
    #[must_use]
    pub fn heading(&self) -> Option<&str> {
        let frame = self.frame.as_ref()?.frame.as_ref()?;
        frame.heading.as_deref()
    }

    /// What the producer says after a [final output](crate::TaskOutcome::with_note): one line.
    #[must_use]
    pub fn note(&self) -> Option<&str> {
        let frame = self.frame.as_ref()?.frame.as_ref()?;
        frame.note.as_deref()
    }

    /// What the task looked like just before the text was taken.
    #[must_use]
    pub fn snapshot(&self) -> &TaskSnapshot {
        &self.snapshot
    }

    /// The file that has the whole output from its first byte on (as far as the producer's limit
    /// goes), when there is one: what the [gap](Self::gap) says is missing can be found there.
    #[must_use]
    pub fn overflow(&self) -> Option<&Path> {
        self.snapshot.overflow.as_deref()
    }

    /// Cuts the text to its last `max` bytes, on a character boundary; what is cut off joins the gap.
    pub fn keep_tail(&mut self, max: usize) {
        let cut = self.text.len() - tail(&self.text, max).len();
        self.text.drain(..cut);
        self.gap += cut as u64;
    }

    /// The text was delivered: it counts as read, and the end of a finished task as reported.
    ///
    /// The task may be gone by now; that is no error.
    pub fn commit(self) {
        self.commit_with_receipt();
    }

    /// As [`commit`](Self::commit), for a text that is on a way on which it can get lost: in a message
    /// that may be discarded unread. Then the [receipt](Receipt::revoke) makes it unread again.
    pub fn commit_with_receipt(self) -> Receipt {
        let receipt = self.held.commit();
        if let Some(claim) = self.claim {
            claim.commit();
        }
        receipt
    }
}

impl Shard {
    pub(crate) fn read(
        self: &Arc<Self>,
        caller: ScopeId,
        id: &TaskId,
        alone: bool,
    ) -> Result<Reading, AccessError> {
        let (key, snapshot, output, taken, claimed) = {
            let mut table = self.table();
            let key = table.find(caller, id)?;
            let unknown = || AccessError::Unknown { id: id.clone() };
            let record = table.records.get_mut(key).ok_or_else(unknown)?;
            let claimed = !record.life.is_live() && record.life.arrive() == Arrival::Claimed;
            let mut copied = Copied::of(&record.output);
            let taken = match &mut record.output {
                Output::Stream(stream) => stream.unread.take(stream.buffer.written()),
                Output::Final { output, open, .. } => {
                    let mut taken = Taken::default();
                    if !open.enter(alone) {
                        copied = Copied::Nowhere;
                        taken.elsewhere = output.end();
                    }
                    taken
                }
                Output::None => Taken::default(),
            };
            let snapshot = table.snapshot(key).ok_or_else(unknown)?;
            (key, snapshot, copied, taken, claimed)
        };
        let claim = claimed.then(|| Claim::new(Arc::clone(self), key));
        let mut held = Held {
            shard: Arc::clone(self),
            key,
            part: Part::Ranges(taken.ranges),
        };
        let (text, gap, frame) = match (output, &held.part) {
            (Copied::Stream(buffer), Part::Ranges(ranges)) => {
                let (text, gap) = buffer.read_ranges(ranges);
                (text, gap, None)
            }
            (Copied::Final(output), _) => {
                held.part = Part::Final;
                (output.text.to_string(), output.dropped, Some(output))
            }
            _ => Default::default(),
        };
        Ok(Reading {
            text,
            gap,
            elsewhere: taken.elsewhere,
            frame,
            snapshot,
            held,
            claim,
        })
    }

    pub(crate) fn read_at(
        &self,
        caller: ScopeId,
        id: &TaskId,
        offset: u64,
    ) -> Result<OutputSlice, AccessError> {
        let output = {
            let table = self.table();
            let key = table.find(caller, id)?;
            table
                .records
                .get(key)
                .map(|record| Copied::of(&record.output))
        };
        match output {
            Some(Copied::Stream(buffer)) => Ok(buffer.read_at(offset)),
            Some(Copied::Final(output)) => Ok(slice_of(&output.text, output.end(), offset)),
            Some(Copied::Nowhere) => Ok(OutputSlice::default()),
            None => Err(AccessError::Unknown { id: id.clone() }),
        }
    }
}
