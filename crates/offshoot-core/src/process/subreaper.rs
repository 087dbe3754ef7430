//! Orphans of commands as children of this process: whose they can be, and who reaps them.
//!
//! A process whose parent ends is given to the next subreaper above it, else to the system's init. As a
//! subreaper this process is the parent of all that its commands have lost: nothing of them can get
//! away from it by clearing its environment and forking twice. What the system does not say is whose an
//! orphan is, so it is decided by elimination: an orphan is older than no command that it can be from.

use std::fmt;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{AbortHandle, spawn_blocking};

use super::members::{self, Process};
use super::tree::{self, Identity};

// Invariants
// 1. `SPAWNING` is held for reading from before a fork until the child is in `STATE`, and for writing by
//    whoever decides what is an orphan. So a child of this process that is not in `STATE` then was
//    adopted, or was started by somebody else in this process.
// 2. An orphan is killed only when the leader of every command that can have begotten it has ended, or is
//    being ended now. A command looks for orphans after its leader was taken out of `commands`: of those
//    that end at the same time the last one to be taken out looks when nobody else can have them.
// 3. Nothing is killed or reaped that is in this process's own group. Nothing is killed when there were
//    children before the claim: orphans could be theirs.

/// How long whoever has started a child is given to reap it before all children are looked at.
const PAUSE: Duration = Duration::from_millis(100);

static SPAWNING: RwLock<()> = RwLock::new(());
static STATE: Mutex<State> = Mutex::new(State {
    claimed: false,
    commands: Vec::new(),
    abandoned: Vec::new(),
    attendants: Vec::new(),
    spared_from: None,
});

#[derive(Debug)]
struct State {
    /// Whether this process adopts orphans now. Nothing is kept otherwise.
    claimed: bool,
    /// The leaders of commands that have not ended.
    commands: Vec<Identity>,
    /// Those that are given up and may not be reaped yet.
    abandoned: Vec<Identity>,
    /// Children of this process that are no commands.
    attendants: Vec<Identity>,
    /// Orphans that are not older than this are let alone: a command that may let processes go has run,
    /// or there were children before the claim.
    spared_from: Option<u64>,
}

impl State {
    /// Whether an orphan can be from one of the commands that have not ended, beside `ending`.
    fn can_be_from_another(&self, orphan: &Process, ending: Option<Identity>) -> bool {
        let others = self.commands.iter().filter(|one| Some(**one) != ending);
        let mut since = others.map(|(_, started)| *started).chain(self.spared_from);
        since.any(|since| since <= orphan.started)
    }

    /// Whether a process is a child of this one that nobody here has started.
    fn is_adopted(&self, process: &Process, own: &Process) -> bool {
        let identity = (process.pid, process.started);
        process.parent == own.pid
            && process.group != own.group
            && !self.commands.contains(&identity)
            && !self.abandoned.contains(&identity)
            && !self.attendants.contains(&identity)
    }
}

fn state() -> MutexGuard<'static, State> {
    // Nothing that can panic half way runs under this lock.
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn spawning() -> RwLockReadGuard<'static, ()> {
    SPAWNING.read().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until every child that was forked by now is known.
fn all_spawned() -> RwLockWriteGuard<'static, ()> {
    SPAWNING.write().unwrap_or_else(PoisonError::into_inner)
}

fn own() -> Option<Process> {
    i32::try_from(std::process::id())
        .ok()
        .and_then(members::read)
}

/// What a child is to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The leader of a command, and whether its end ends what it has lost.
    Command { whole: bool },
    /// It begets nothing that stays.
    Attendant,
}

/// Starts a child, and knows it before anybody can take it for an orphan.
pub(crate) fn spawn<C>(
    role: Role,
    start: impl FnOnce() -> io::Result<C>,
    id: impl FnOnce(&C) -> Option<u32>,
) -> io::Result<C> {
    let _spawning = spawning();
    let child = start()?;
    let mut state = state();
    if !state.claimed {
        return Ok(child);
    }
    let process = id(&child).and_then(|id| i32::try_from(id).ok());
    // It is not reaped yet, so it can be read even when it has ended.
    if let Some(process) = process.and_then(members::read) {
        let identity = (process.pid, process.started);
        match role {
            Role::Attendant => state.attendants.push(identity),
            Role::Command { whole } => {
                state.commands.push(identity);
                if !whole {
                    let since = state.spared_from.unwrap_or(u64::MAX);
                    state.spared_from = Some(since.min(process.started));
                }
            }
        }
    }
    Ok(child)
}

/// The leader of a command was reaped: what it has left is looked for after this.
pub(crate) fn ended(leader: Identity) {
    let mut state = state();
    state.commands.retain(|one| *one != leader);
    state.abandoned.retain(|one| *one != leader);
}

/// A command is given up, and its leader killed: what it has left is looked for after this. Whoever
/// reaps the leader does not say so.
pub(crate) fn abandoned(leader: Identity) {
    let mut state = state();
    if let Some(at) = state.commands.iter().position(|one| *one == leader) {
        state.commands.swap_remove(at);
        state.abandoned.push(leader);
    }
}

/// Whether orphans can come that no command and nothing else of this process has begotten: its children
/// from `before` the claim may have lost them, and the first process of a container gets those of whoever
/// else is in it.
fn others_orphans_come(own: &Process, before: bool) -> bool {
    before || own.pid == 1
}

/// The orphans among `all` that can be from no command but the one that `leader` leads. Those that have
/// ended are reaped: who asks for them by their number finds them gone.
pub(crate) fn orphans(leader: Identity, all: &[Process]) -> Vec<Identity> {
    if !state().claimed {
        return Vec::new();
    }
    let orphans = adopted(all, |state, orphan| {
        orphan.is_dead()
            || orphan.started >= leader.1 && !state.can_be_from_another(orphan, Some(leader))
    });
    let (ended, orphans): (Vec<_>, Vec<_>) = orphans.iter().partition(|one| one.is_dead());
    ended.into_iter().for_each(reap);
    orphans
        .into_iter()
        .map(|one| (one.pid, one.started))
        .collect()
}

/// Reaps an adopted process that has ended.
fn reap(process: &Process) {
    // Nobody else reaps meanwhile, and no child of ours begins: the number cannot change hands.
    let _all = all_spawned();
    if members::read(process.pid).is_none_or(|now| now.started != process.started) {
        return;
    }
    if let Some(pid) = Pid::from_raw(process.pid) {
        let _ = waitid(
            WaitId::Pid(pid),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        );
    }
}

fn adopted(all: &[Process], wanted: impl Fn(&State, &Process) -> bool) -> Vec<Process> {
    let Some(own) = own() else {
        return Vec::new();
    };
    drop(all_spawned());
    let state = state();
    let adopted = |one: &&Process| state.is_adopted(one, &own) && wanted(&state, one);
    all.iter().filter(adopted).copied().collect()
}

/// Makes this process the one that orphans of its commands are given to, until it is dropped.
///
/// While it lives, nothing that a command has started gets away from its end, also if it has forked twice,
/// left its session, cleared its environment *and* lost the mark that [`Reach::Tree`](super::Reach::Tree)
/// looks for; and this process reaps what it has adopted. An orphan without a mark that can be from several commands which run at the
/// same time is killed with the last of them, and at the latest when this is dropped.
///
/// It is a setting of the whole process, so a program claims it and a library does not. Claim it before
/// the first command. Children that the program starts by other means than this module keep out of its way
/// as long as they stay in the program's own process group; of one that leaves it (a daemon) the orphans
/// could not be told from those of a command, and the child itself not from an orphan. When the program
/// has children already, or runs a command with [`Reach::Group`](super::Reach::Group), which may leave
/// processes behind, then from there on orphans without a mark are let alone. So are they where the program
/// is the first process of a container, which gets the orphans of whoever else is in it: it reaps them.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> std::io::Result<()> {
/// use offshoot_core::process::Subreaper;
/// let adopting = Subreaper::claim()?;
/// // … run commands …
/// drop(adopting);
/// # Ok(()) }
/// ```
#[must_use = "dropping it ends the claim"]
pub struct Subreaper {
    sweeper: AbortHandle,
}

impl fmt::Debug for Subreaper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subreaper").finish_non_exhaustive()
    }
}

impl Subreaper {
    /// Makes the claim.
    ///
    /// # Errors
    ///
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists) when this process has claimed it, and
    /// [`Unsupported`](io::ErrorKind::Unsupported) where the system has no such thing (it is Linux's) or
    /// there is no `/proc`. Without the claim commands run as they would.
    ///
    /// # Panics
    ///
    /// When called outside a Tokio runtime with its IO enabled; that runtime reaps.
    pub fn claim() -> io::Result<Self> {
        let own = own().ok_or(io::ErrorKind::Unsupported)?;
        let exits = signal(SignalKind::child())?;
        let _all = all_spawned();
        let mut state = state();
        if state.claimed {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        adopt(true)?;
        let before = members::all().any(|one| one.parent == own.pid);
        *state = State {
            claimed: true,
            commands: Vec::new(),
            abandoned: Vec::new(),
            attendants: Vec::new(),
            spared_from: others_orphans_come(&own, before).then_some(0),
        };
        let sweeper = tokio::spawn(reap_all(exits)).abort_handle();
        Ok(Self { sweeper })
    }
}

impl Drop for Subreaper {
    fn drop(&mut self) {
        self.sweeper.abort();
        let all: Vec<_> = members::all().collect();
        // Of commands that are not over their own ends take care.
        let left = adopted(&all, |state, one| {
            !one.is_dead() && !state.can_be_from_another(one, None)
        });
        for one in left {
            tree::send((one.pid, one.started), Signal::KILL);
        }
        let _all = all_spawned();
        let mut state = state();
        state.claimed = false;
        state.commands.clear();
        state.abandoned.clear();
        state.attendants.clear();
        // It can fail only where it could not be claimed.
        let _ = adopt(false);
    }
}

#[cfg(target_os = "linux")]
fn adopt(on: bool) -> io::Result<()> {
    let own = on.then(rustix::process::getpid);
    Ok(rustix::process::set_child_subreaper(own)?)
}

#[cfg(not(target_os = "linux"))]
fn adopt(_on: bool) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Reaps what was adopted and has ended.
async fn reap_all(mut exits: tokio::signal::unix::Signal) {
    while exits.recv().await.is_some() {
        tokio::time::sleep(PAUSE).await;
        if any_unreaped() {
            // It reads about every process of the system. It fails only when the runtime goes.
            let _ = spawn_blocking(reap_adopted).await;
        }
    }
}

/// Whether a child has ended and was not reaped.
fn any_unreaped() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::All, options), Ok(Some(_)))
}

fn reap_adopted() {
    let all: Vec<_> = members::all().collect();
    adopted(&all, |_, one| one.is_dead()).iter().for_each(reap);
    let there: Vec<_> = all.iter().map(|one| (one.pid, one.started)).collect();
    let mut state = state();
    state.attendants.retain(|one| there.contains(one));
    state.abandoned.retain(|one| there.contains(one));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, group: i32, started: u64) -> Process {
        Process {
            pid,
            state: 'S',
            parent,
            group,
            started,
        }
    }

    fn with(commands: &[Identity]) -> State {
        State {
            claimed: true,
            commands: commands.to_vec(),
            abandoned: vec![(45, 100)],
            attendants: vec![(50, 100)],
            spared_from: None,
        }
    }

    #[test]
    fn only_children_that_nobody_here_has_started_are_adopted() {
        let (own, state) = (process(1000, 1, 900, 10), with(&[(40, 100)]));
        for (child, adopted) in [
            (process(60, 1000, 60, 200), true),
            (process(60, 1, 60, 200), false),
            // In this process's own group.
            (process(60, 1000, 900, 200), false),
            (process(40, 1000, 40, 100), false),
            (process(45, 1000, 45, 100), false),
            (process(50, 1000, 50, 100), false),
            // With a number that was somebody's.
            (process(40, 1000, 40, 101), true),
        ] {
            assert_eq!(state.is_adopted(&child, &own), adopted, "{child:?}");
        }
    }

    #[test]
    fn the_first_process_of_a_container_gets_the_orphans_of_others() {
        assert!(others_orphans_come(&process(1, 0, 1, 10), false));
        assert!(others_orphans_come(&process(7, 1, 7, 10), true));
        assert!(!others_orphans_come(&process(7, 1, 7, 10), false));
    }

    #[test]
    fn an_orphan_is_from_no_command_that_is_younger() {
        let (first, second) = ((40, 100), (41, 200));
        let mut state = with(&[first, second]);
        let early = process(60, 1, 60, 150);
        let late = process(61, 1, 61, 200);
        assert!(!state.can_be_from_another(&early, Some(first)));
        assert!(state.can_be_from_another(&early, Some(second)));
        assert!(state.can_be_from_another(&late, Some(first)));
        state.commands.retain(|one| *one != second);
        assert!(!state.can_be_from_another(&late, Some(first)));
        assert!(state.can_be_from_another(&late, None));
        // A command that lets its processes go has begun.
        state.spared_from = Some(180);
        assert!(!state.can_be_from_another(&early, Some(first)));
        assert!(state.can_be_from_another(&late, Some(first)));
    }
}
