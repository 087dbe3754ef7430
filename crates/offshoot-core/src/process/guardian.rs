//! A process that outlives this one by a moment, to kill what it leaves behind.

use std::fmt;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::Pid;

use super::label::{LIMIT, Label};
use super::subreaper::{self, Role};
use super::tree::{MARK, host_mark};

// Invariants
// 0. The process is there before the first command: what is not listed yet has the mark,
//    unless only its group is covered.
// 1. A group is listed after its leader was started and before that is reaped: while it is listed its
//    number is given to nobody else.
// 2. Only this process has the other end of the pipe (it is closed on exec): it ends with us, however
//    we end, and not before.
// 3. A guardian that died is replaced at the next line, and told of every live group.

/// `+N:L` lists the group N with its label L (0: none; `-`: nothing but the group), `-N:L` takes it out,
/// `.` is a farewell. At the end of the input it looks for every process that is in a listed group, has a
/// listed label or the mark of the host ($2) in the variable $1, and for all that descend from one: it
/// stops what it finds, so that nothing of it starts more, until it finds nothing new. Then it kills them.
/// $3 is what the system calls the limit that has the label.
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

alone= groups=' ' labels=
for one in $live; do
    case ${one#*:} in
    -) alone="$alone ${one%%:*}"; continue ;;
    0) ;;
    *) labels="$labels|${one#*:}" ;;
    esac
    groups="$groups${one%%:*} "
done

# Which live processes there are, each with its parent; those of the groups are found.
look() {
    all=
    for file in /proc/[0-9]*/stat; do
        stat=
        # A name may have line ends in it.
        { while read -r part; do stat="$stat$part"; done <"$file"; } 2>/dev/null
        pid=${stat%% *} rest=${stat##*) }
        state=${rest%% *} rest=${rest#* }
        parent=${rest%% *} rest=${rest#* }
        case $pid:$state in :* | *:[ZX]) continue ;; esac
        all="$all $pid:$parent"
        case $groups in *" ${rest%% *} "*) found="$found$pid " ;; esac
    done
}

marked() {
    [ -z "$labels" ] ||
        grep -lE "^$3 .*[^0-9](${labels#|})[^0-9]" /proc/[0-9]*/limits 2>/dev/null
    for file in $(grep -lF "$1=" /proc/[0-9]*/environ 2>/dev/null); do
        tr '\0' '\n' <"$file" 2>/dev/null | grep -q "^$1=\(.*,\)\{0,1\}$2\." && echo "$file"
    done
}

stopped=' ' round=0
while [ $round -lt 50 ]; do
    round=$((round + 1))
    found=' '
    for file in $(marked "$@"); do
        file=${file#/proc/}
        found="$found${file%/*} "
    done
    look
    more=1
    while [ $more = 1 ]; do
        more=0
        for one in $all; do
            case $found in *" ${one%:*} "*) continue ;; esac
            case $found in *" ${one#*:} "*) found="$found${one%:*} " more=1 ;; esac
        done
    done
    new=
    for one in $all; do
        one=${one%:*}
        case $stopped in *" $one "*) continue ;; esac
        case $found in *" $one "*) new="$new $one" ;; esac
    done
    [ -n "$new" ] || break
    kill -s STOP $new 2>/dev/null
    stopped="$stopped${new# } "
done
for group in $groups $alone; do kill -s KILL -- "-$group" 2>/dev/null; done
for one in $stopped; do kill -s KILL "$one" 2>/dev/null; done
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
/// It finds all that a stop of the commands would find ([`Reach::Tree`](super::Reach::Tree)), where there
/// is a `/proc`: also a command that was started in the very moment of the death and was not listed yet.
#[derive(Clone, Default)]
pub struct Guardian(Arc<Inner>);

#[derive(Default)]
struct Inner(Mutex<State>);

#[derive(Default)]
struct State {
    process: Option<Child>,
    groups: Vec<Group>,
}

/// A group that is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group {
    id: Pid,
    covers: Covers,
}

/// What is killed with a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Covers {
    /// Nothing else.
    Group,
    /// What has left it, which has this label.
    Tree(Option<Label>),
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
    group: Group,
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
    pub(crate) fn list(&self, id: Pid, covers: Covers) -> Listed {
        let group = Group { id, covers };
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
    fn tell(&mut self, what: char, group: Group) -> io::Result<()> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let process = self.process.as_mut().ok_or_else(gone)?;
        let pipe = process.stdin.as_mut().ok_or_else(gone)?;
        let id = group.id.as_raw_nonzero();
        let label = match group.covers {
            Covers::Group => "-".to_owned(),
            Covers::Tree(label) => label.map_or(0, Label::get).to_string(),
        };
        pipe.write_all(format!("{what}{id}:{label}\n").as_bytes())
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
            .args(["-c", SCRIPT, "offshoot-guardian", MARK, &mark, LIMIT])
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
        let id = |child: &Child| Some(child.id());
        let process = subreaper::spawn(Role::Attendant, || command.spawn(), id)?;
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
