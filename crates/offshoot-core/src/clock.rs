//! The time of day. Durations and timeouts never use it: they are on the runtime's clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// A moment of wall time, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The moment `millis` milliseconds after the Unix epoch.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }
}

/// Where wall time comes from. It may step backwards; use it only to show a time.
///
/// # Implementing
///
/// `now` is called from any thread, often, and must not block.
pub trait WallClock: Send + Sync + 'static {
    /// The present moment.
    fn now(&self) -> Timestamp;
}

/// The clock of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl WallClock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        // A clock set before 1970 is shown as 1970.
        Timestamp(since.map_or(0, |d| {
            d.as_secs().saturating_mul(1000) + u64::from(d.subsec_millis())
        }))
    }
}
