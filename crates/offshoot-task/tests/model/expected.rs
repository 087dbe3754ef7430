//! What a task should look like.

use offshoot_task::{TaskId, TaskStatus};

/// One task of the model.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) id: TaskId,
    /// Which scope of which owner: a closed owner is followed by another one.
    pub(crate) owner: (usize, usize),
    pub(crate) status: TaskStatus,
    pub(crate) streams: bool,
    pub(crate) obeys: bool,
    pub(crate) reported: bool,
    /// Waits that were polled and not dropped, and what they found.
    pub(crate) attending: usize,
    pub(crate) written: u64,
    pub(crate) read: u64,
    pub(crate) present: bool,
    pub(crate) expired: bool,
    /// Whether observers believe that a notice is due; `None` before the end.
    pub(crate) due: Option<bool>,
}

impl Expected {
    pub(crate) fn is_live(&self) -> bool {
        self.present && !self.status.is_terminal()
    }

    pub(crate) fn is_reported(&self) -> bool {
        self.reported || (self.status.is_terminal() && self.attending > 0)
    }
}
