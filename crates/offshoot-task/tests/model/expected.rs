//! What a task should look like.

use offshoot_task::{TaskId, TaskStatus};

/// What became of one byte of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Byte {
    Unread,
    /// In the open reading of this number.
    Held(usize),
    Read,
}

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
    /// What became of each byte that was written.
    pub(crate) bytes: Vec<Byte>,
    pub(crate) present: bool,
    pub(crate) expired: bool,
    /// Whether observers believe that a notice is due; `None` before the end.
    pub(crate) due: Option<bool>,
}

impl Expected {
    pub(crate) fn is_live(&self) -> bool {
        self.present && !self.status.is_terminal()
    }

    pub(crate) fn count(&self, wanted: impl Fn(Byte) -> bool) -> u64 {
        self.bytes.iter().filter(|byte| wanted(**byte)).count() as u64
    }

    /// What became of the bytes of a reading.
    pub(crate) fn turn(&mut self, reading: usize, into: Byte) {
        for byte in &mut self.bytes {
            if *byte == Byte::Held(reading) {
                *byte = into;
            }
        }
    }

    pub(crate) fn is_reported(&self) -> bool {
        self.reported || (self.status.is_terminal() && self.attending > 0)
    }
}
