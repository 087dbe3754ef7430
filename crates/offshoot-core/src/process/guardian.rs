//! A process that outlives this one by a moment, to kill what it leaves behind.

use std::fmt;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::Pid;

use super::tree::{MARK, host_mark};

// Invariants
// 0. The process is there before the first command: what is not listed yet has the mark.
// 1. A group is listed after its leader was started and before that is reaped: while it is listed its
//    number is given to nobody else.
// 2. Only this process has the other end of the pipe (it is closed on exec): it ends with us, however
//    we end, and not before.
// 3. A guardian that died is replaced at the next line, and told of every live group.

/// `+N` lists the group N, `-N` takes it out, `.` is a farewell. At the end of the input everything
/// listed is killed, and then everything that has the mark of the host.
const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM PIPE
live=' '
while read -r line; do
    case $line in
    +*) live="$live${line#+} " ;;
    -*) live="${live%% ${line#-} *} ${live#* ${line#-} }" ;;
    .) exit 0 ;;
    esac
done
for group in $live; do kill -KILL -- "-$group" 2>/dev/null; done
for process in /proc/[0-9]*; do
    if tr '\0' '\n' <"$process/environ" 2>/dev/null | grep -q "^$1=\(.*,\)\{0,1\}$2\."; then
        kill -KILL "${process#/proc/}" 2>/dev/null
    fi
done
"#;

/// Kills the commands of this process when it is gone, even by `SIGKILL`.
///
/// It is one `/bin/sh` process, started with the first command, which sleeps until this process ends.
/// Clones share it; it ends with the last one. Put a clone into the
/// [`ProgramConfig`](super::ProgramConfig) of everything that runs commands:
///
/// ```
/// use offshoot_core::process::{Guardian, ProgramConfig};
/// let config = ProgramConfig { guardian: Some(Guardian::default()), ..ProgramConfig::default() };
/// ```
///
/// A command that was started in the very moment of the death, and was not listed yet, is found by
/// its mark where there is a `/proc`.
#[derive(Clone, Default)]
pub struct Guardian(Arc<Inner>);

#[derive(Default)]
struct Inner(Mutex<State>);

#[derive(Default)]
struct State {
    process: Option<Child>,
    groups: Vec<Pid>,
}

impl fmt::Debug for Guardian {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.state();
        f.debug_struct("Guardian")
            .field("runs", &state.process.is_some())
            .field("groups", &state.groups.len())
            .finish()
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic half way runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A group is listed, until this is dropped.
pub(crate) struct Listed {
    guardian: Guardian,
    group: Pid,
}

impl Guardian {
    /// Has the process started, before the first command is: one that dies between the two leaves
    /// nothing that nobody looks for.
    pub(crate) fn ready(&self) {
        let mut state = self.0.state();
        if state.process.is_none() {
            state.start_or_warn();
        }
    }

    /// Lists a group. When no guardian can be started the command runs unguarded.
    pub(crate) fn list(&self, group: Pid) -> Listed {
        let mut state = self.0.state();
        state.groups.push(group);
        if state.tell('+', group).is_err() {
            state.start_or_warn();
        }
        Listed {
            guardian: self.clone(),
            group,
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut state = self.guardian.0.state();
        if let Some(at) = state.groups.iter().position(|group| *group == self.group) {
            state.groups.swap_remove(at);
        }
        // One that has died lists nothing.
        let _ = state.tell('-', self.group);
    }
}

impl State {
    /// One short line, which is written whole or not at all.
    fn tell(&mut self, what: char, group: Pid) -> io::Result<()> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let process = self.process.as_mut().ok_or_else(gone)?;
        let pipe = process.stdin.as_mut().ok_or_else(gone)?;
        pipe.write_all(format!("{what}{}\n", group.as_raw_nonzero()).as_bytes())
    }

    fn start_or_warn(&mut self) {
        if let Err(error) = self.start() {
            tracing::warn!(%error, "a command runs without a guardian");
        }
    }

    /// Starts a process in place of the one that was, and tells it of every group.
    fn start(&mut self) -> io::Result<()> {
        if let Some(mut dead) = self.process.take() {
            let _ = dead.kill();
            let _ = dead.wait();
        }
        // A dot of the mark is a dot: as a pattern it would also fit another host's.
        let mark = host_mark().replace('.', r"\.");
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", SCRIPT, "offshoot-guardian", MARK, &mark])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Not the terminal's: what interrupts us must not interrupt it.
            .process_group(0)
            .current_dir("/")
            .env_clear();
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        let process = command.spawn()?;
        if let Some(pipe) = &process.stdin {
            // A guardian that somebody has stopped must not stop us: it is replaced when its pipe is full.
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        self.process = Some(process);
        let groups = self.groups.clone();
        groups.iter().try_for_each(|group| self.tell('+', *group))
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let Some(mut process) = self.process.take() else {
            return;
        };
        if let Some(mut pipe) = process.stdin.take() {
            let _ = pipe.write_all(b".\n");
        }
        // It has nothing left to do but to exit.
        let _ = process.wait();
    }
}
