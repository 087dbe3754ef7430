//! The signals that end the program, or a turn.

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
    quit: Signal,
    /// The time on processors that a limit of the system allows is over; it kills soon.
    time_over: Signal,
    /// Absent when whoever started this process wants it to go on without a terminal (`nohup`).
    hang_up: Option<Signal>,
    /// Kept so that a write beyond the size that a limit of the system allows is an error, as on a full
    /// disk, and no death. Ignored it would be for commands, too.
    _file_too_large: Signal,
}

impl Signals {
    pub(crate) fn listen() -> std::io::Result<Self> {
        let hang_up = (!ignores_hang_up()).then(|| signal(SignalKind::hangup()));
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            quit: signal(SignalKind::quit())?,
            time_over: signal(SignalKind::from_raw(rustix::process::Signal::XCPU.as_raw()))?,
            hang_up: hang_up.transpose()?,
            _file_too_large: signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
        })
    }

    /// The next signal. Dropping the future loses none.
    pub(crate) async fn next(&mut self) -> Request {
        let hung_up = async {
            match &mut self.hang_up {
                Some(hang_up) => hang_up.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(()) = self.interrupt.recv() => Request::Interrupt,
            Some(()) = self.terminate.recv() => Request::Terminate,
            Some(()) = self.quit.recv() => Request::Terminate,
            Some(()) = self.time_over.recv() => Request::Terminate,
            Some(()) = hung_up => Request::Terminate,
            else => std::future::pending().await,
        }
    }
}

/// Whether `SIGHUP` was ignored when this process was started. Known only where there is a `/proc`.
fn ignores_hang_up() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores_first(&status))
}

/// Whether the first signal, which is `SIGHUP`, is in the set of those that are ignored.
fn ignores_first(status: &str) -> bool {
    let mut lines = status.lines();
    let ignored = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.is_some_and(|set| u64::from_str_radix(set.trim(), 16).is_ok_and(|set| set & 1 == 1))
}

#[cfg(test)]
mod tests {
    use super::ignores_first;

    #[test]
    fn a_hang_up_is_ignored_when_the_system_says_so() {
        for (status, ignored) in [
            ("Name:\tx\nSigIgn:\t0000000000001001\n", true),
            ("SigIgn:\t0000000000001000\nSigCgt:\t1\n", false),
            ("SigIgn:\tnonsense\n", false),
            ("", false),
        ] {
            assert_eq!(ignores_first(status), ignored, "{status}");
        }
    }
}
