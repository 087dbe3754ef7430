//! The signals that a run answers to.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Ctrl-C.
    Interrupt,
    /// The end, now.
    Terminate,
}

/// Signals, from the moment of [`listen`](Self::listen) on; they do not end the process by themselves
/// any more.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    pub(crate) fn listen() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// The next signal. Dropping the future loses none.
    pub(crate) async fn next(&mut self) -> Request {
        tokio::select! {
            Some(()) = self.interrupt.recv() => Request::Interrupt,
            Some(()) = self.terminate.recv() => Request::Terminate,
            Some(()) = self.hang_up.recv() => Request::Terminate,
            else => std::future::pending().await,
        }
    }
}
