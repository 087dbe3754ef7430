//! Reading output: what the owner has not read yet, in two phases, and at any offset, consuming nothing.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use offshoot_core::ScopeId;
use offshoot_core::text::tail;

use crate::error::AccessError;
use crate::id::TaskId;
use crate::lifecycle::Arrival;
use crate::output::{OutputSlice, slice_of};
use crate::record::Output;
use crate::shared::Shared;
use crate::slab::Key;
use crate::snapshot::TaskSnapshot;
use crate::wait::Claim;

/// Output that was looked at and not read yet.
///
/// [`commit`](Self::commit) it once the text was really delivered: it then counts as read, and the
/// end of a finished task as reported. Dropped without, nothing was consumed: the next reading begins
/// at the same place.
#[must_use = "dropping it consumes nothing: the output counts as unread"]
pub struct Reading {
    shared: Arc<Shared>,
    key: Key,
    text: String,
    gap: u64,
    through: u64,
    snapshot: TaskSnapshot,
    claim: Option<Claim>,
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading")
            .field("text", &self.text)
            .field("gap", &self.gap)
            .field("snapshot", &self.snapshot)
            .finish_non_exhaustive()
    }
}

impl Reading {
    /// The output. Of a task that streams: what was written since the last committed reading and is
    /// still kept. Else the final output, the same at each reading, and empty while the task is live.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// How many bytes just before `text` are missing, exactly.
    #[must_use]
    pub fn gap(&self) -> u64 {
        self.gap
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
        {
            let mut table = self.shared.table();
            if let Some(record) = table.records.get_mut(self.key) {
                // A reading that was taken later may have been committed before.
                record.read = record.read.max(self.through);
            }
        }
        if let Some(claim) = self.claim {
            claim.commit();
        }
    }
}

impl Shared {
    pub(crate) fn read(
        self: &Arc<Self>,
        caller: ScopeId,
        id: &TaskId,
    ) -> Result<Reading, AccessError> {
        let (key, snapshot, output, from, claimed) = {
            let mut table = self.table();
            let key = table.find(caller, id)?;
            let Some(record) = table.records.get_mut(key) else {
                return Err(AccessError::Unknown { id: id.clone() });
            };
            let claimed = !record.life.is_live() && record.life.arrive() == Arrival::Claimed;
            let (output, from) = (record.output.clone(), record.read);
            let Some(snapshot) = table.snapshot(key) else {
                return Err(AccessError::Unknown { id: id.clone() });
            };
            (key, snapshot, output, from, claimed)
        };
        let claim = claimed.then(|| Claim::new(Arc::clone(self), key));
        // Copied outside the table's lock.
        let (text, gap, through) = match output {
            Output::Stream(buffer) => {
                let slice = buffer.read_at(from);
                (slice.text, slice.gap, slice.next)
            }
            Output::Final(output) => (output.text.to_string(), output.dropped, output.end()),
            Output::None => (String::new(), 0, 0),
        };
        Ok(Reading {
            shared: Arc::clone(self),
            key,
            text,
            gap,
            through,
            snapshot,
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
            table.records.get(key).map(|record| record.output.clone())
        };
        match output {
            Some(Output::Stream(buffer)) => Ok(buffer.read_at(offset)),
            Some(Output::Final(output)) => Ok(slice_of(&output.text, output.end(), offset)),
            Some(Output::None) => Ok(OutputSlice::default()),
            None => Err(AccessError::Unknown { id: id.clone() }),
        }
    }
}
