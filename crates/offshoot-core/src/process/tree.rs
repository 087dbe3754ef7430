//! The processes of one command wherever they went: also those that left its group.
//!
//! A program leaves the group with `setsid`, its ancestry by forking twice, and its environment with
//! `env -i`. It is still found by one of two marks, which children inherit: a variable, and a resource
//! limit ([`Label`]). What is promised, where there is a `/proc` (elsewhere there is only the group):
//!
//! - found: every process that has one of the marks; every process whose line of parents leads to one, or
//!   to the shell of the command while that lives; and those that were found once, until they end;
//! - not found: one that got away without the second mark, before that was there, has cleared its
//!   environment, and whose parents are gone, unless this process is a [`Subreaper`](super::Subreaper); and
//!   one that another user runs.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Pid, Signal};

use super::label::Label;
use super::members;
use super::subreaper;

/// The variable that has the marks of a command, and of those that it was started by, outermost first.
pub(crate) const MARK: &str = "OFFSHOOT_COMMAND";

/// Longest inherited list of marks: programs that nest deeper lose their outermost marks.
const MARKS_LIMIT: usize = 1024;

/// What begins every mark of this process: no other one, now or later, has the same.
pub(crate) fn host_mark() -> &'static str {
    static HOST: OnceLock<String> = OnceLock::new();
    HOST.get_or_init(|| {
        let pid = std::process::id();
        let own = i32::try_from(pid).ok().and_then(members::read);
        format!("{pid}.{}", own.map_or(0, |own| own.started))
    })
}

/// The mark of one command.
#[derive(Clone, Debug)]
pub(crate) struct Mark(String);

impl Mark {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(format!("{}.{n}", host_mark()))
    }

    /// The value of the variable.
    pub(crate) fn value(&self) -> String {
        match Self::outer() {
            Some(outer) => format!("{outer},{}", self.0),
            None => self.0.clone(),
        }
    }

    /// The marks that this process has itself.
    pub(crate) fn outer() -> Option<String> {
        let outer = std::env::var(MARK).ok();
        outer.filter(|outer| outer.len() <= MARKS_LIMIT)
    }

    fn is_in(&self, environ: &[u8]) -> bool {
        let variable = environ.split(|byte| *byte == 0).find_map(|entry| {
            let value = entry.strip_prefix(MARK.as_bytes())?;
            value.strip_prefix(b"=")
        });
        variable.is_some_and(|marks| {
            let mut marks = marks.split(|byte| *byte == b',');
            marks.any(|mark| mark == self.0.as_bytes())
        })
    }
}

/// One process: its number may be given to another one, not with the same start.
pub(crate) type Identity = (i32, u64);

/// Of a child that is not reaped yet.
pub(crate) fn identity(child: Pid) -> Identity {
    let pid = child.as_raw_nonzero().get();
    (pid, members::read(pid).map_or(0, |child| child.started))
}

#[derive(Clone, Debug)]
pub(crate) struct Tree {
    mark: Mark,
    label: Option<Label>,
    leader: Identity,
    /// Those that were found once.
    known: Vec<Identity>,
}

impl Tree {
    /// Of the command that `leader` leads.
    pub(crate) fn new(mark: Mark, leader: Identity) -> Self {
        Self {
            mark,
            label: Label::put_on(leader),
            leader,
            known: Vec::new(),
        }
    }

    /// The second mark, where there is one.
    pub(crate) fn label(&self) -> Option<Label> {
        self.label
    }

    /// Looks for the live processes of the command that are not in its group.
    pub(crate) fn find(&mut self) -> Vec<Identity> {
        let own = std::process::id();
        // What is older than the command is none of its processes: most are, and are not looked into.
        let all: Vec<_> = members::all()
            .filter(|process| process.started >= self.leader.1)
            .filter(|process| process.pid.unsigned_abs() != own)
            .collect();
        let marked = |pid| {
            members::environ(pid).is_some_and(|environ| self.mark.is_in(&environ))
                || (self.label.zip(members::limits(pid)))
                    .is_some_and(|(label, limits)| label.is_in(&limits))
        };
        let orphans = subreaper::orphans(self.leader, &all);
        let (mut found, mut others) = (Vec::new(), Vec::new());
        for process in &all {
            let identity = (process.pid, process.started);
            // The leader may be gone, and its number somebody else's.
            let known = identity == self.leader
                || self.known.contains(&identity)
                || orphans.contains(&identity);
            if known || marked(process.pid) {
                found.push(identity);
            } else {
                others.push((identity, process.parent));
            }
        }
        // The children of what was found, and theirs.
        loop {
            let is_child =
                |&(_, parent): &(Identity, i32)| found.iter().any(|(pid, _)| *pid == parent);
            let (children, rest): (Vec<_>, Vec<_>) = others.into_iter().partition(is_child);
            if children.is_empty() {
                break;
            }
            found.extend(children.into_iter().map(|(identity, _)| identity));
            others = rest;
        }
        // What is in the group gets what the group gets, and no second signal.
        let beyond = |identity: &Identity| {
            let process = all.iter().find(|process| process.pid == identity.0);
            process.is_some_and(|process| process.group != self.leader.0 && !process.is_dead())
        };
        found.retain(beyond);
        self.known.clone_from(&found);
        found
    }
}

/// Signals exactly this process, and not one that was given its number.
#[cfg(target_os = "linux")]
pub(crate) fn send((pid, started): Identity, signal: Signal) {
    use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
    let Some(process) = Pid::from_raw(pid) else {
        return;
    };
    // Looked at after the descriptor was opened: from then on it can only be this process.
    let opened = pidfd_open(process, PidfdFlags::empty());
    if members::read(pid).is_none_or(|process| process.started != started) {
        return;
    }
    // The errors left: it has just ended, or may not be signalled and is found again.
    let _ = match opened {
        Ok(descriptor) => pidfd_send_signal(&descriptor, signal),
        // A kernel before 5.3.
        Err(rustix::io::Errno::NOSYS) => rustix::process::kill_process(process, signal),
        Err(error) => Err(error),
    };
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn send((pid, started): Identity, signal: Signal) {
    let same = members::read(pid).is_some_and(|process| process.started == started);
    if let Some(process) = Pid::from_raw(pid).filter(|_| same) {
        let _ = rustix::process::kill_process(process, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_whole_in_its_variable_only() {
        let mark = Mark("7.1.2".into());
        for (environ, found) in [
            (&b"A=1\0OFFSHOOT_COMMAND=7.1.2\0B=2"[..], true),
            (b"OFFSHOOT_COMMAND=3.3.3,7.1.2", true),
            (b"OFFSHOOT_COMMAND=7.1.2,9.9.9\0", true),
            (b"OFFSHOOT_COMMAND=7.1.23", false),
            (b"OFFSHOOT_COMMAND=", false),
            (b"X=OFFSHOOT_COMMAND=7.1.2", false),
            (b"OFFSHOOT_COMMANDS=7.1.2", false),
            (b"", false),
        ] {
            assert_eq!(mark.is_in(environ), found, "{environ:?}");
        }
        assert_ne!(Mark::new().0, Mark::new().0);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn children_of_a_stranger_with_the_number_of_the_leader_are_not_found() {
        use std::os::unix::process::CommandExt;
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", "sleep 600 & echo begun; wait"]);
        shell.stdout(std::process::Stdio::piped()).process_group(0);
        let mut shell = shell.spawn().unwrap();
        let mut begun = [0; 6];
        std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut begun).unwrap();
        let pid = i32::try_from(shell.id()).unwrap();
        let tree = |group, started| Tree {
            mark: Mark::new(),
            label: None,
            leader: (group, started),
            known: vec![(pid, started)],
        };
        let started = members::read(pid).unwrap().started;
        // As if another group's: its processes are known by number and start, or not at all.
        assert_eq!(tree(1, started).find().len(), 2, "the shell and its child");
        let mut stranger = tree(1, started);
        stranger.known = vec![(pid, started - 1)];
        assert_eq!(stranger.find(), []);
        let mut stranger = tree(pid, started - 1);
        stranger.known.clear();
        assert_eq!(stranger.find(), []);
        let group = Pid::from_raw(pid).unwrap();
        rustix::process::kill_process_group(group, Signal::KILL).unwrap();
        shell.wait().unwrap();
    }
}
