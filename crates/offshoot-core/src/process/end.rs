//! How a program ended.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::Signal;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProgramEnd {
    /// It exited with this code.
    Exited(i32),
    /// This signal ended it.
    Signaled(i32),
    /// Somebody else in this process has taken its exit status.
    Unknown,
}

impl From<ExitStatus> for ProgramEnd {
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

impl fmt::Display for ProgramEnd {
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

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgramOutcome {
    /// How the program itself ended.
    pub end: ProgramEnd,
    /// Whether it was asked to stop before that.
    pub stopped: bool,
    /// Whether its processes were seen to be gone, as far as its [`Reach`](super::Reach) goes. False
    /// only for processes that not even `SIGKILL` ends, such as those stuck in the kernel.
    pub group_gone: bool,
}

impl fmt::Display for ProgramOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.end.fmt(f)?;
        if !self.group_gone {
            f.write_str("; some of its processes could not be killed")?;
        }
        Ok(())
    }
}
