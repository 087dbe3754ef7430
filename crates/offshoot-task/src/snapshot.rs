//! What a task looked like at one moment.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use offshoot_core::{ScopeId, Timestamp};

use crate::id::TaskId;
use crate::kind::TaskKind;
use crate::progress::TaskProgress;
use crate::status::{StopRequest, TaskStatus};

/// What a task looked like at one moment. Cheap to clone; never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskSnapshot {
    /// Its name.
    pub id: TaskId,
    /// Its kind, the first part of the id.
    pub kind: TaskKind,
    /// What it does: one line of 1 to 200 bytes.
    pub label: Arc<str>,
    /// Where it is in its life.
    pub status: TaskStatus,
    /// How it ended: one line of at most 500 bytes.
    pub detail: Option<Arc<str>>,
    /// When it started.
    pub started_at: Timestamp,
    /// When it ended; present exactly when the status is terminal, and never before `started_at`.
    pub finished_at: Option<Timestamp>,
    /// How long it has run, or ran, by the runtime's monotonic clock.
    pub elapsed: Duration,
    /// Whether its end was shown to the owner, is being shown (a [`Waited`](crate::Waited) or a
    /// [`Reading`](crate::Reading) is not dropped yet), or needs no notice.
    pub reported: bool,
    /// Who owns it; `None` when it was started without an owner.
    pub owner: Option<ScopeId>,
    /// The generation of the turn that started it.
    pub generation: u64,
    /// Who asked it to stop, and why.
    pub stop: Option<Arc<StopRequest>>,
    /// Whether its output can be read while it runs.
    pub streams: bool,
    /// Bytes of output written since the last committed read (including those no longer kept).
    pub unread: u64,
    /// Bytes of output written in all.
    pub output_len: u64,
    /// Bytes of input that were not text and were replaced in the output.
    pub replaced: u64,
    /// The file that has the output which is no longer kept, when the producer has named one. It goes
    /// with the record.
    pub overflow: Option<Arc<Path>>,
    /// How many bytes at the end of the output that file does not have: it is full.
    pub overflow_missing: u64,
    /// How far it is, by its own account; `None` before it has said so.
    pub progress: Option<Arc<TaskProgress>>,
    /// Whether it has promised progress and is silent for longer than that. Never true of a task
    /// that has ended.
    pub stalled: bool,
}
