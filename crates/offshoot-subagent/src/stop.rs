//! How a child is asked to stop, and what comes of it.

use std::sync::{Arc, OnceLock};

use offshoot_core::text;
use tokio_util::sync::CancellationToken;

/// Longest reason, in bytes.
const REASON_LIMIT: usize = 500;

/// A cancellation that can say why. Clones are handles to the same one.
#[derive(Clone, Debug, Default)]
pub struct StopSignal {
    token: CancellationToken,
    reason: Arc<OnceLock<Box<str>>>,
}

impl From<CancellationToken> for StopSignal {
    fn from(token: CancellationToken) -> Self {
        let reason = Arc::default();
        Self { token, reason }
    }
}

impl StopSignal {
    /// Asks to stop. The first reason is kept, as one line of at most 500 bytes.
    pub fn stop(&self, reason: Option<&str>) {
        let reason = reason.map(|reason| text::one_line(reason, REASON_LIMIT));
        if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
            let _ = self.reason.set(reason.into());
        }
        self.token.cancel();
    }

    /// Why a stop was asked for, when that was said.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.reason.get().map(AsRef::as_ref)
    }

    /// Completes when a stop is asked for. Dropping it has no effect.
    pub async fn stopped(&self) {
        self.token.cancelled().await;
    }

    pub(crate) fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// One that is stopped with this one, with its reason, and can also be stopped alone.
    pub(crate) fn child(&self) -> Self {
        Self {
            token: self.token.child_token(),
            reason: Arc::clone(&self.reason),
        }
    }
}

/// What became of the stop of a child. Only the first one changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a stop of a child that has settled does nothing"]
pub enum StopReply {
    /// It stops, now or as soon as it is resident.
    Requested,
    /// It was ending already.
    Ending,
    /// It had settled already.
    Settled,
    /// It is a one-shot run, or was one: whoever waits for it, or the task that carries it, stops it.
    OneShot,
}

impl StopReply {
    /// The name in values.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Ending => "ending",
            Self::Settled => "settled",
            Self::OneShot => "one_shot",
        }
    }
}
