//! Who is left in a process group, where the system can tell.

use rustix::process::Pid;

/// Whether a member of the group still runs. A member that has died and whose parent has not looked
/// yet (an orphan waits for the system's init) still counts for `kill`, and runs no more.
///
/// `None` where there is no `/proc` to ask.
pub(crate) fn any_alive(group: Pid) -> Option<bool> {
    let group = group.as_raw_nonzero().get().to_string();
    let mut asked = false;
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let name = entry.file_name();
        if !name
            .as_encoded_bytes()
            .first()
            .is_some_and(u8::is_ascii_digit)
        {
            continue;
        }
        // Gone while we look, or somebody else's secret: the next one.
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let Some(member) = Member::read(&stat) else {
            continue;
        };
        asked = true;
        if member.group == group && !matches!(member.state, "Z" | "X") {
            return Some(true);
        }
    }
    asked.then_some(false)
}

struct Member<'a> {
    state: &'a str,
    group: &'a str,
}

impl<'a> Member<'a> {
    /// Reads `PID (NAME) STATE PARENT GROUP …`; the name may hold anything.
    fn read(stat: &'a str) -> Option<Self> {
        let (_, after) = stat.rsplit_once(')')?;
        let mut fields = after.split_whitespace();
        let state = fields.next()?;
        Some(Self {
            state,
            group: fields.nth(1)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_mislead() {
        let member = Member::read("17 (a) Z (b)) S 1 42 42 0 -1").expect("a member");
        assert_eq!((member.state, member.group), ("S", "42"));
        assert!(Member::read("17 (cut").is_none());
    }

    #[test]
    fn this_process_is_alive_in_its_group() {
        let own = rustix::process::getpgrp();
        assert_ne!(any_alive(own), Some(false));
    }
}
