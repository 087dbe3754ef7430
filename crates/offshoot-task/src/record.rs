//! The record of one task: its state machine and its data.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use offshoot_core::{Hold, ScopeId, Timestamp};
use tokio::time::Instant;

use crate::id::TaskId;
use crate::kind::TaskKind;
use crate::kinds::KindKey;
use crate::lifecycle::Lifecycle;
use crate::output::OutputBuffer;
use crate::progress::Report;
use crate::slab::Key;
use crate::snapshot::TaskSnapshot;
use crate::status::{Frame, StopRequest};
use crate::unread::Unread;
use crate::waker_set::WakerSet;

// A million of these may be alive: what only a live task needs and what only a finished one needs
// share their place.

/// The output of a task, and what its owner has read of it.
#[derive(Debug)]
pub(crate) enum Output {
    /// There is none, so far.
    None,
    /// Given by the outcome.
    Final {
        output: Arc<FinalOutput>,
        read: bool,
        open: OpenReadings,
    },
    Stream(Box<Stream>),
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) buffer: OutputBuffer,
    pub(crate) unread: Unread,
}

/// Who reads a final output just now: nobody, so many, or one who wants nobody beside it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpenReadings(u16);

impl OpenReadings {
    const ALONE: u16 = u16::MAX;

    /// False when somebody else has it. Each reading that has it must [leave](Self::leave).
    pub(crate) fn enter(&mut self, alone: bool) -> bool {
        let free = match alone {
            true => self.0 == 0,
            false => self.0 < Self::ALONE - 1,
        };
        if free {
            self.0 = if alone { Self::ALONE } else { self.0 + 1 };
        }
        free
    }

    pub(crate) fn leave(&mut self) {
        self.0 = match self.0 {
            Self::ALONE => 0,
            shared => shared.saturating_sub(1),
        };
    }
}

/// The tail of an outcome's output; `dropped` bytes before it did not fit.
#[derive(Debug)]
pub(crate) struct FinalOutput {
    pub(crate) text: Box<str>,
    pub(crate) dropped: u64,
    /// One line each.
    pub(crate) frame: Option<Box<Frame>>,
}

impl FinalOutput {
    /// The end of `full` that fits into `limit` bytes.
    pub(crate) fn bounded(full: &str, limit: usize, frame: Option<Box<Frame>>) -> Self {
        let text = offshoot_core::text::tail(full, limit);
        let dropped = (full.len() - text.len()) as u64;
        Self {
            text: text.into(),
            dropped,
            frame: frame.map(|frame| Box::new(frame.bounded())),
        }
    }

    /// Bytes of the whole output.
    pub(crate) fn end(&self) -> u64 {
        self.text.len() as u64 + self.dropped
    }
}

impl Output {
    pub(crate) fn stream(buffer: OutputBuffer) -> Self {
        Self::Stream(Box::new(Stream {
            buffer,
            unread: Unread::default(),
        }))
    }

    fn written(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::Final { output, .. } => output.end(),
            Self::Stream(stream) => stream.buffer.written(),
        }
    }

    /// How many of the `written` bytes were not read.
    fn unread(&self, written: u64) -> u64 {
        match self {
            Self::None | Self::Final { read: true, .. } => 0,
            Self::Final { .. } => written,
            Self::Stream(stream) => stream.unread.bytes(written),
        }
    }
}

/// Neighbours in the list of an owner's tasks, in the order of registration.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Links {
    pub(crate) previous: Option<Key>,
    pub(crate) next: Option<Key>,
}

/// What a task needs while it is live (or a reservation).
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) started: Instant,
    pub(crate) waiters: WakerSet,
    pub(crate) cancels: WakerSet,
    /// Wakes the driver, once it has waited for something.
    pub(crate) driver: Option<Waker>,
    /// The driver must give the work up when it is polled next.
    pub(crate) aborting: bool,
}

impl Live {
    pub(crate) fn new(started: Instant) -> Self {
        Self {
            started,
            waiters: WakerSet::default(),
            cancels: WakerSet::default(),
            driver: None,
            aborting: false,
        }
    }
}

/// What is known of a task once it has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// How long it ran, in nanoseconds: enough for 584 years.
    pub(crate) ran: u64,
    pub(crate) detail: Option<Arc<str>>,
}

/// Agrees with `Lifecycle::is_live`.
#[derive(Debug)]
pub(crate) enum Stage {
    Live(Live),
    Ended(Ended),
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
    pub(crate) stage: Stage,
    pub(crate) output: Output,
    pub(crate) stop: Option<Arc<StopRequest>>,
    pub(crate) report: Option<Box<Report>>,
    /// Kept until its end was delivered.
    pub(crate) hold: Option<Hold>,
    /// Whether it counts as one of the owner's tickets: until its end was delivered.
    pub(crate) ticket: bool,
    /// Whether it is in its owner's list of spent records.
    pub(crate) retired: bool,
}

impl Record {
    pub(crate) fn is_registered(&self) -> bool {
        self.n > 0
    }

    pub(crate) fn live(&self) -> Option<&Live> {
        match &self.stage {
            Stage::Live(live) => Some(live),
            Stage::Ended(_) => None,
        }
    }

    pub(crate) fn live_mut(&mut self) -> Option<&mut Live> {
        match &mut self.stage {
            Stage::Live(live) => Some(live),
            Stage::Ended(_) => None,
        }
    }

    pub(crate) fn snapshot(&self, kind: TaskKind, key: Key) -> TaskSnapshot {
        let output_len = self.output.written();
        let buffer = match &self.output {
            Output::None | Output::Final { .. } => None,
            Output::Stream(stream) => Some(&stream.buffer),
        };
        let (detail, finished_at, elapsed, stalled) = match &self.stage {
            Stage::Live(live) => {
                let now = Instant::now();
                let stalled = (self.report.as_ref()).is_some_and(|report| report.is_stalled(now));
                let elapsed = now.saturating_duration_since(live.started);
                (None, None, elapsed, stalled)
            }
            Stage::Ended(ended) => {
                // Counted from the start by the monotonic clock: wall time may step backwards.
                let finished = self.started_at.as_millis() + ended.ran / 1_000_000;
                let finished = Some(Timestamp::from_millis(finished));
                let elapsed = Duration::from_nanos(ended.ran);
                (ended.detail.clone(), finished, elapsed, false)
            }
        };
        TaskSnapshot {
            id: TaskId::from_parts(kind, self.n, key),
            kind,
            label: Arc::clone(&self.label),
            status: self.life.status(),
            detail,
            started_at: self.started_at,
            finished_at,
            elapsed,
            reported: self.life.is_reported(),
            owner: self.owner_id,
            generation: self.generation,
            stop: self.stop.clone(),
            streams: buffer.is_some(),
            unread: self.output.unread(output_len),
            output_len,
            replaced: buffer.map_or(0, OutputBuffer::replaced),
            overflow: buffer.and_then(OutputBuffer::overflow),
            overflow_missing: buffer.map_or(0, OutputBuffer::overflow_missing),
            progress: self.report.as_ref().and_then(|report| report.shown()),
            stalled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_stays_small() {
        assert!(size_of::<Record>() <= 232, "{}", size_of::<Record>());
    }
}
