//! What the calls of a tool may change.

/// What the calls of a tool may change: a declaration of the tool, for clients that ask their user before
/// some calls or make some again. It promises nothing that a client should be safe by.
///
/// ```
/// use offshoot_agent::Effects;
///
/// assert!(Effects::READS.is_read_only() && !Effects::READS.is_destructive());
/// let unknown = Effects::default();
/// assert!(unknown.is_destructive() && unknown.is_open_world() && !unknown.is_idempotent());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Effects {
    reads: bool,
    destructive: bool,
    idempotent: bool,
    open: bool,
}

impl Effects {
    /// Nothing is known: anything may be changed, anywhere.
    pub const UNKNOWN: Self = Self {
        reads: false,
        destructive: true,
        idempotent: false,
        open: true,
    };

    /// Nothing is changed. What counts as read may be.
    pub const READS: Self = Self {
        reads: true,
        destructive: false,
        idempotent: true,
        open: false,
    };

    /// What the agent itself has started may be stopped, nothing else is changed.
    pub const STOPS_OWN: Self = Self {
        reads: false,
        destructive: true,
        idempotent: false,
        open: false,
    };

    /// The same, and a second call with the same arguments changes nothing more.
    #[must_use]
    pub const fn once(mut self) -> Self {
        self.idempotent = true;
        self
    }

    /// Whether nothing is changed.
    #[must_use]
    pub const fn is_read_only(self) -> bool {
        self.reads
    }

    /// Whether something that is there may be lost.
    #[must_use]
    pub const fn is_destructive(self) -> bool {
        self.destructive
    }

    /// Whether a second call with the same arguments changes nothing more.
    #[must_use]
    pub const fn is_idempotent(self) -> bool {
        self.idempotent
    }

    /// Whether anything beyond the agent's own tasks and subagents may be reached.
    #[must_use]
    pub const fn is_open_world(self) -> bool {
        self.open
    }
}

impl Default for Effects {
    /// [`UNKNOWN`](Self::UNKNOWN).
    fn default() -> Self {
        Self::UNKNOWN
    }
}
