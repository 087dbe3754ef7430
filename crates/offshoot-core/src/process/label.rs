//! A mark on the processes of one command that they cannot lose: neither by clearing their environment
//! nor by losing their parents.
//!
//! It is the value of a resource limit. Children inherit limits, programs keep them, and a limit that was
//! lowered cannot be raised again. The limit is the one on the time that a process with a real-time
//! schedule may take without a break; the value is some 100 000 years, which limits nobody.
//!
//! What this does not do: it is put on a program the moment after its start. A process that the program
//! has started by then has none, and is found by its parents or its environment. Who can let the program
//! wait for that moment, as a shell can, leaves no such gap.

use std::num::NonZeroU64;

use super::tree::Identity;

/// The mark of the command that a process leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(NonZeroU64);

/// Bits of the number of a process.
const PID_BITS: u32 = 22;
/// Bits of the time of its start: twenty years, in ticks of a hundredth of a second.
const START_BITS: u32 = 36;

impl Label {
    /// What is younger has a smaller one: a command that a command of ours starts, with a library of
    /// ours, can then have its own, below that of the outer one.
    fn of((pid, started): Identity) -> Option<Self> {
        let pid = u64::try_from(pid).ok().filter(|pid| *pid < 1 << PID_BITS)?;
        let started = Some(started).filter(|ticks| *ticks < 1 << START_BITS)?;
        NonZeroU64::new((1 << 62) - ((started << PID_BITS) | pid)).map(Self)
    }

    /// The number that the system shows.
    pub(crate) fn get(self) -> u64 {
        self.0.get()
    }

    /// Puts it on a process that leads a command. `None` where the system has no such limit, or this
    /// process has a lower one.
    #[cfg(target_os = "linux")]
    pub(crate) fn put_on(leader: Identity) -> Option<Self> {
        use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
        let label = Self::of(leader)?;
        let own = label.get();
        // That of an outer command stays: it is the upper bound, and ours the one in effect.
        let outer = getrlimit(Resource::Rttime).maximum;
        let limit = Rlimit {
            current: Some(own),
            maximum: Some(outer.unwrap_or(own)),
        };
        let put = prlimit(Some(Pid::from_raw(leader.0)?), Resource::Rttime, limit);
        put.is_ok().then_some(label)
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn put_on(_: Identity) -> Option<Self> {
        None
    }

    /// Whether a process has it, by what the system says of its limits.
    pub(crate) fn is_in(self, limits: &str) -> bool {
        let line = limits.lines().find_map(|line| line.strip_prefix(LIMIT));
        let own = self.get();
        let values = line.unwrap_or_default().split_whitespace();
        values
            .filter_map(|value| value.parse().ok())
            .any(|value: u64| value == own)
    }
}

/// How the system calls the limit.
pub(crate) const LIMIT: &str = "Max realtime timeout";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_younger_command_has_a_smaller_label_and_no_two_have_the_same() {
        let label = |pid, started| Label::of((pid, started)).unwrap();
        let (old, young) = (label(4_000_000, 100), label(7, 101));
        assert!(young.get() < old.get());
        assert_ne!(label(7, 100), label(8, 100));
        let last = label((1 << PID_BITS) - 1, (1 << START_BITS) - 1);
        assert!(last.get() > 1 << 60, "it limits nothing");
        assert_eq!(Label::of((1 << PID_BITS, 1)), None);
        assert_eq!(Label::of((-1, 1)), None);
    }

    #[test]
    fn a_label_is_one_whole_number_of_its_line() {
        let label = Label::of((7, 9)).unwrap();
        let n = label.get();
        for (limits, found) in [
            (
                format!("Max cpu time  1 1 s\n{LIMIT}   {n}   {n}   us\n"),
                true,
            ),
            (format!("{LIMIT}  {n}  unlimited us"), true),
            (format!("{LIMIT}  5  {n}  us"), true),
            (format!("{LIMIT}  {n}1  {n}2  us"), false),
            (
                format!("Max cpu time  {n} {n} s\n{LIMIT} unlimited unlimited us"),
                false,
            ),
            (String::new(), false),
        ] {
            assert_eq!(label.is_in(&limits), found, "{limits}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_label_is_inherited_and_stays() {
        let mut cat = std::process::Command::new("/bin/sh");
        // It begins when it is told to.
        cat.args(["-c", "read go; exec env -i /bin/cat /proc/self/limits"]);
        cat.stdin(std::process::Stdio::piped());
        cat.stdout(std::process::Stdio::piped());
        let mut cat = cat.spawn().unwrap();
        let pid = i32::try_from(cat.id()).unwrap();
        let started = super::super::members::read(pid).unwrap().started;
        let label = Label::put_on((pid, started)).unwrap();
        std::io::Write::write_all(&mut cat.stdin.take().unwrap(), b"go\n").unwrap();
        let said = cat.wait_with_output().unwrap().stdout;
        assert!(label.is_in(&String::from_utf8(said).unwrap()));
    }
}
