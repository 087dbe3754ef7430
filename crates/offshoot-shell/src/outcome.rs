//! How a command ended, and what that means for a task.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use offshoot_task::TaskOutcome;
use rustix::process::Signal;

/// How the shell of a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShellEnd {
    /// It exited with this code.
    Exited(i32),
    /// This signal ended it.
    Signaled(i32),
    /// Somebody else in this process has taken its exit status.
    Unknown,
}

impl From<ExitStatus> for ShellEnd {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exited(code),
            (None, Some(signal)) => Self::Signaled(signal),
            (None, None) => Self::Unknown,
        }
    }
}

const NAMES: &[(Signal, &str)] = &[
    (Signal::HUP, "SIGHUP"),
    (Signal::INT, "SIGINT"),
    (Signal::QUIT, "SIGQUIT"),
    (Signal::ILL, "SIGILL"),
    (Signal::TRAP, "SIGTRAP"),
    (Signal::ABORT, "SIGABRT"),
    (Signal::BUS, "SIGBUS"),
    (Signal::FPE, "SIGFPE"),
    (Signal::KILL, "SIGKILL"),
    (Signal::USR1, "SIGUSR1"),
    (Signal::SEGV, "SIGSEGV"),
    (Signal::USR2, "SIGUSR2"),
    (Signal::PIPE, "SIGPIPE"),
    (Signal::ALARM, "SIGALRM"),
    (Signal::TERM, "SIGTERM"),
    (Signal::XCPU, "SIGXCPU"),
    (Signal::XFSZ, "SIGXFSZ"),
    (Signal::SYS, "SIGSYS"),
];

impl fmt::Display for ShellEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exit code: {code}"),
            Self::Signaled(number) => {
                let named = NAMES.iter().find(|(signal, _)| signal.as_raw() == *number);
                match named {
                    Some((_, name)) => write!(f, "signal: {name}"),
                    None => write!(f, "signal: {number}"),
                }
            }
            Self::Unknown => f.write_str("exit status unknown"),
        }
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShellOutcome {
    /// How its shell ended.
    pub end: ShellEnd,
    /// Whether it was asked to stop before its shell ended.
    pub stopped: bool,
    /// Whether its processes were seen to be gone, as far as its [`Reach`](crate::Reach) goes. False
    /// only for processes that not even `SIGKILL` ends, such as those stuck in the kernel.
    pub group_gone: bool,
}

impl fmt::Display for ShellOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.end.fmt(f)?;
        if !self.group_gone {
            f.write_str("; some of its processes could not be killed")?;
        }
        Ok(())
    }
}

impl From<ShellOutcome> for TaskOutcome {
    /// An exit, of whatever code, is `completed`. A death by a signal is `failed`. Either is `killed`
    /// when the command had been asked to stop.
    fn from(outcome: ShellOutcome) -> Self {
        let detail = outcome.to_string();
        match outcome.end {
            _ if outcome.stopped => Self::killed().with_detail(detail),
            ShellEnd::Exited(_) => Self::completed().with_detail(detail),
            ShellEnd::Signaled(_) | ShellEnd::Unknown => Self::failed(detail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use offshoot_task::TaskStatus::{Completed, Failed, Killed};

    #[test]
    fn the_status_of_a_task_follows_from_the_end_and_from_whether_a_stop_was_requested() {
        let rows = [
            (ShellEnd::Exited(0), false, Completed, "exit code: 0"),
            (ShellEnd::Exited(3), false, Completed, "exit code: 3"),
            (ShellEnd::Exited(0), true, Killed, "exit code: 0"),
            (ShellEnd::Signaled(11), false, Failed, "signal: SIGSEGV"),
            (ShellEnd::Signaled(15), true, Killed, "signal: SIGTERM"),
            (ShellEnd::Signaled(40), false, Failed, "signal: 40"),
            (ShellEnd::Unknown, false, Failed, "exit status unknown"),
        ];
        for (end, stopped, status, detail) in rows {
            let outcome = TaskOutcome::from(ShellOutcome {
                end,
                stopped,
                group_gone: true,
            });
            assert_eq!(outcome.status(), status, "{end:?}");
            assert_eq!(outcome.detail(), Some(detail));
        }
    }
}
