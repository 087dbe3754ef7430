//! What a registry keeps for each owner: counters, the list of its tasks, and what it gave up.

use std::collections::VecDeque;
use std::sync::Arc;

use offshoot_core::{CleanupId, Scope};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::expired::Expired;
use crate::slab::Key;
use crate::status::StoppedBy;

#[derive(Debug, Default)]
pub(crate) struct Owner {
    /// `None` for the owner of the unowned tasks.
    pub(crate) scope: Option<(Scope, CleanupId)>,
    pub(crate) first: Option<Key>,
    pub(crate) last: Option<Key>,
    /// Records in the list.
    pub(crate) records: usize,
    /// Tasks that run or stop.
    pub(crate) live: usize,
    /// Starts that have been admitted and are not registered yet.
    pub(crate) reserved: usize,
    /// The tasks, admitted ones included, whose end was not delivered to the observers yet.
    pub(crate) tickets: usize,
    /// Wakes the closing when one of these numbers falls.
    pub(crate) gate: Arc<Notify>,
    /// Records about which observers are being called now.
    pub(crate) telling: usize,
    /// Finished and reported records, the longest reported first.
    pub(crate) spent: VecDeque<Key>,
    pub(crate) expired: Expired,
    /// Set when closing has reached the registry.
    pub(crate) closing: Option<StoppedBy>,
    /// When that was: the grace of its tasks runs from then on.
    pub(crate) closing_since: Option<Instant>,
    /// Set when closing has ended: not even a late start is let in.
    pub(crate) closed: bool,
}
