//! Which processes there are, where the system can tell: there is a `/proc`.

use rustix::process::Pid;

/// Whether a member of the group still runs. A member that has died and whose parent has not looked
/// yet (an orphan waits for the system's init) still counts for `kill`, and runs no more.
///
/// `None` where there is no `/proc` to ask.
pub(crate) fn any_alive(group: Pid) -> Option<bool> {
    let group = group.as_raw_nonzero().get();
    let mut asked = false;
    for process in all() {
        asked = true;
        if process.group == group && !process.is_dead() {
            return Some(true);
        }
    }
    asked.then_some(false)
}

/// One process at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) state: char,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    /// When it started, in ticks since the system did.
    pub(crate) started: u64,
}

impl Process {
    /// Whether it runs no more, though its parent has not looked yet.
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Reads `PID (NAME) STATE PARENT GROUP …`; the name may hold anything.
    fn parse(stat: &str) -> Option<Self> {
        let (head, after) = stat.rsplit_once(')')?;
        let (pid, _) = head.split_once(' ')?;
        let mut fields = after.split_whitespace();
        Some(Self {
            pid: pid.parse().ok()?,
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
            // The 22nd field of all; the third one was the first of these.
            started: fields.nth(16)?.parse().ok()?,
        })
    }
}

/// The process with this number, if there is one.
pub(crate) fn read(pid: i32) -> Option<Process> {
    Process::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The environment that a process was started with, when we may see it.
pub(crate) fn environ(pid: i32) -> Option<Vec<u8>> {
    std::fs::read(format!("/proc/{pid}/environ")).ok()
}

/// The resource limits of a process, as the system shows them.
pub(crate) fn limits(pid: i32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()
}

/// Every process that can be seen.
pub(crate) fn all() -> impl Iterator<Item = Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    // One that is gone while we look is skipped.
    entries.filter_map(|entry| read(entry.file_name().to_str()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_mislead() {
        let stat = "17 (a) Z (b)) S 1 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 9000 123";
        let process = Process::parse(stat).expect("a process");
        let expected = Process {
            pid: 17,
            state: 'S',
            parent: 1,
            group: 42,
            started: 9000,
        };
        assert_eq!(process, expected);
        assert!(Process::parse("17 (cut").is_none());
    }

    #[test]
    fn this_process_is_alive_in_its_group() {
        let own = rustix::process::getpgrp();
        assert_ne!(any_alive(own), Some(false));
    }
}
