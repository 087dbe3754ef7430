//! When what was appended is made to survive a loss of power.

use serde::{Deserialize, Serialize};

use crate::{Event, StoredEvent};

/// When a log is made to survive a loss of power. The death of the process needs none of it: an append
/// is a write to the system, which keeps it.
///
/// Each sync takes as long as the disk does, often milliseconds, and the agent waits for it. An append
/// whose sync fails is refused as a whole, and the log takes no further ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SyncPolicy {
    /// Never by itself; [`Agent::flush`](crate::Agent::flush) still does.
    Never,
    /// When the root agent of a tree ends in order: its own log.
    #[default]
    Close,
    /// Also at the end of each turn, of every session.
    Turn,
    /// Also with each accepted or discarded message and each event of a crate above, such as the
    /// start and the end of a task: before the sender is told that it was accepted.
    Accepted,
    /// With every append.
    Append,
}

impl SyncPolicy {
    /// Whether these events are synced with their append.
    pub(super) fn is_due(self, events: &[StoredEvent]) -> bool {
        let any = |due: fn(&Event) -> bool| events.iter().any(|stored| due(&stored.event));
        match self {
            Self::Never | Self::Close => false,
            Self::Turn => any(|event| matches!(event, Event::TurnEnd { .. })),
            Self::Accepted => any(|event| match event {
                Event::TurnEnd { .. }
                | Event::InboxInserted { .. }
                | Event::InboxDiscarded { .. } => true,
                Event::Extension(extension) => !extension.is_ignorable(),
                _ => false,
            }),
            Self::Append => !events.is_empty(),
        }
    }
}
