//! The record of one task: its state machine and its data.

use std::sync::Arc;
use std::time::Duration;

use offshoot_core::{ScopeId, Timestamp};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::id::TaskId;
use crate::kinds::KindKey;
use crate::lifecycle::Lifecycle;
use crate::output::OutputBuffer;
use crate::owner::Ticket;
use crate::slab::Key;
use crate::snapshot::TaskSnapshot;
use crate::status::StopRequest;
use crate::waker_set::WakerSet;

/// The output of a task.
#[derive(Clone, Debug)]
pub(crate) enum Output {
    /// Given by the outcome; `dropped` bytes before `text` did not fit.
    Final {
        text: Option<Arc<str>>,
        dropped: u64,
    },
    Stream(OutputBuffer),
}

impl Output {
    pub(crate) const NONE: Self = Self::Final {
        text: None,
        dropped: 0,
    };

    fn written(&self) -> u64 {
        match self {
            Self::Final { text, dropped } => {
                text.as_ref().map_or(0, |text| text.len() as u64) + dropped
            }
            Self::Stream(buffer) => buffer.written(),
        }
    }
}

/// Neighbours in the list of an owner's tasks, in the order of registration.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Links {
    pub(crate) previous: Option<Key>,
    pub(crate) next: Option<Key>,
}

#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) life: Lifecycle,
    pub(crate) kind: KindKey,
    /// 0 while it is only a reservation.
    pub(crate) n: u64,
    pub(crate) owner: Key,
    pub(crate) owner_id: Option<ScopeId>,
    pub(crate) sequence: u64,
    pub(crate) links: Links,
    pub(crate) label: Arc<str>,
    pub(crate) generation: u64,
    pub(crate) started_at: Timestamp,
    pub(crate) started: Instant,
    pub(crate) finished_at: Timestamp,
    /// How long it ran, in nanoseconds: enough for 584 years.
    pub(crate) ran: u64,
    pub(crate) detail: Option<Arc<str>>,
    pub(crate) output: Output,
    /// The offset up to which the owner has read.
    pub(crate) read: u64,
    pub(crate) stop: Option<Arc<StopRequest>>,
    pub(crate) waiters: WakerSet,
    pub(crate) cancels: WakerSet,
    pub(crate) abort: Option<AbortHandle>,
    pub(crate) aborting: bool,
    /// Whether it is in its owner's list of spent records.
    pub(crate) retired: bool,
    pub(crate) ticket: Option<Ticket>,
}

impl Record {
    pub(crate) fn is_registered(&self) -> bool {
        self.n > 0
    }

    pub(crate) fn snapshot(&self, kind: &Arc<str>) -> TaskSnapshot {
        let live = self.life.is_live();
        let output_len = self.output.written();
        let (streams, replaced) = match &self.output {
            Output::Final { .. } => (false, 0),
            Output::Stream(buffer) => (true, buffer.replaced()),
        };
        TaskSnapshot {
            id: TaskId::from_parts(Arc::clone(kind), self.n),
            kind: Arc::clone(kind),
            label: Arc::clone(&self.label),
            status: self.life.status(),
            detail: self.detail.clone(),
            started_at: self.started_at,
            finished_at: (!live).then_some(self.finished_at),
            elapsed: if live {
                self.started.elapsed()
            } else {
                Duration::from_nanos(self.ran)
            },
            reported: self.life.is_reported(),
            owner: self.owner_id,
            generation: self.generation,
            stop: self.stop.clone(),
            streams,
            unread: output_len.saturating_sub(self.read),
            output_len,
            replaced,
        }
    }
}
