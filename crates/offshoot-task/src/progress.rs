//! What a producer says of how far it is, and whether it has kept its promise to say something.

use std::sync::Arc;
use std::time::Duration;

use offshoot_core::text::one_line;
use tokio::time::Instant;

/// Longest line of progress, in bytes.
const LINE_LIMIT: usize = 200;

/// How far a task is, by its own account.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskProgress {
    /// How much is done, in whatever the producer counts.
    pub done: u64,
    /// How much there is to do, when that is known.
    pub total: Option<u64>,
    /// What it is at: one line of at most 200 bytes, possibly empty.
    pub line: Arc<str>,
}

impl TaskProgress {
    pub(crate) fn new(done: u64, total: Option<u64>, line: &str) -> Self {
        Self {
            done,
            total,
            line: one_line(line, LINE_LIMIT).into(),
        }
    }
}

/// The last progress of a task, and what was promised.
#[derive(Debug)]
pub(crate) struct Report {
    last: Option<Arc<TaskProgress>>,
    at: Instant,
    /// How often the producer has promised to report.
    promised: Option<Duration>,
}

impl Report {
    /// Of a task that starts.
    pub(crate) fn new(promised: Option<Duration>, at: Instant) -> Self {
        let last = None;
        Self { last, at, promised }
    }

    pub(crate) fn note(&mut self, progress: TaskProgress, at: Instant) {
        self.last = Some(Arc::new(progress));
        self.at = at;
    }

    pub(crate) fn shown(&self) -> Option<Arc<TaskProgress>> {
        self.last.clone()
    }

    pub(crate) fn is_stalled(&self, now: Instant) -> bool {
        let silent = now.saturating_duration_since(self.at);
        self.promised.is_some_and(|promised| silent >= promised)
    }
}
