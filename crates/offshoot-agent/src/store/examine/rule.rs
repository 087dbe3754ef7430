//! What crates above ask of their own events in a log.

use crate::{AgentId, Extension, Fold};

/// Judges the events of one log in their order: says what is wrong with one that cannot be. Events that
/// nothing depends on are not shown to it.
pub type EventCheck = Box<dyn FnMut(&Extension) -> Result<(), String>>;

/// What a crate above asks of its own events before a session is gone on with: as
/// [`AgentHost::examine`](crate::AgentHost::examine) and [`Agent::resume`](crate::Agent::resume) ask it.
///
/// # Implementing
///
/// A check passes over the types that it does not know. It must take what its own crate writes, also when
/// the process died between any two events of it, and when the log refused any event of it.
pub trait EventRule: Send + Sync + 'static {
    /// A check of the log of `session`, from its beginning. A session that begins with another one's past
    /// has a check for that, and one for what follows.
    fn check(&self, session: &AgentId) -> EventCheck;

    /// What the sessions of the host keep in place of the events: see [`EventFold`](crate::EventFold).
    /// Without it they keep the events, all of them, as long as the session is resident.
    fn fold(&self) -> Option<Fold> {
        None
    }
}
