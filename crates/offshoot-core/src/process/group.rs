//! The process group of one command: the leader, its exit, and signals to all members.

use std::io;
use std::process::ExitStatus;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process_group, test_kill_process_group, waitid,
};
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::guardian::{Covers, Guardian, Listed};
use super::members;
use super::subreaper;
use super::tree::{self, Identity, Mark, Tree};

// Invariants
// 1. The leader's pid is the id of the group. The system gives the number to nobody else while the
//    leader is not reaped. So signals are sent only before that, and `reap` is the only thing that
//    reaps: an exit is noticed without reaping (`NOWAIT`).
// 2. After it nothing is sent any more; only whether members are left is asked.
// 3. The drop of a group that was not reaped kills it. The runtime reaps the leader then.

pub(crate) struct Group {
    child: Child,
    /// `None` after the leader was reaped.
    leader: Option<Pid>,
    id: Pid,
    identity: Identity,
    exits: tokio::signal::unix::Signal,
    /// What has left the group, when that is killed too.
    tree: Option<Tree>,
    /// Nothing of the command is left, in the group or out of it.
    cleared: bool,
    /// The guardian has the group on its list: only while the leader is not reaped.
    listed: Option<Listed>,
    #[cfg(test)]
    pub(crate) sent: usize,
}

impl Group {
    /// Takes over a child that leads a group of its own.
    pub(crate) fn new(mut child: Child, mark: Option<Mark>) -> io::Result<Self> {
        let id = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw)
            .ok_or_else(|| io::Error::other("the process has no id"))?;
        let identity = tree::identity(id);
        let exits = match signal(SignalKind::child()) {
            Ok(exits) => exits,
            Err(error) => {
                subreaper::ended(identity);
                let _ = kill_process_group(id, Signal::KILL);
                let _ = child.try_wait();
                return Err(error);
            }
        };
        Ok(Self {
            child,
            leader: Some(id),
            id,
            identity,
            exits,
            tree: mark.map(|mark| Tree::new(mark, identity)),
            cleared: false,
            listed: None,
            #[cfg(test)]
            sent: 0,
        })
    }

    /// Lets a guardian kill the group when this process is killed.
    pub(crate) fn guard(&mut self, guardian: &Guardian) {
        let covers = match &self.tree {
            Some(tree) => Covers::Tree(tree.label()),
            None => Covers::Group,
        };
        self.listed = Some(guardian.list(self.id, covers));
    }

    pub(crate) fn child_mut(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Whether the leader has exited. It may still be unreaped.
    pub(crate) fn has_exited(&self) -> bool {
        let Some(leader) = self.leader else {
            return true;
        };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(leader), options) {
            Ok(status) => status.is_some(),
            // It is not our child any more: somebody else has reaped it.
            Err(error) => error == rustix::io::Errno::CHILD,
        }
    }

    /// Waits for the leader's exit. Dropping the future loses nothing.
    pub(crate) async fn exited(&mut self) {
        while !self.has_exited() {
            // A signal that came between the look and this line is kept by the stream.
            if self.exits.recv().await.is_none() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Sends `signal` to every member, unless the leader was reaped.
    pub(crate) fn send(&mut self, signal: Signal) {
        if self.leader.is_some() {
            #[cfg(test)]
            {
                self.sent += 1;
            }
            // The only error left is that no member may be signalled; the group is then found alive.
            let _ = kill_process_group(self.id, signal);
        }
    }

    /// Sends `signal` to every member and to what has left the group. The latter is looked for first:
    /// afterwards its parents may be gone.
    pub(crate) fn send_to_all(&mut self, signal: Signal) {
        let beyond = self.tree.as_mut().map(Tree::find);
        self.send(signal);
        for identity in beyond.into_iter().flatten() {
            tree::send(identity, signal);
        }
    }

    /// Kills what has left the group; false when something was still there.
    ///
    /// Dropping the future loses nothing.
    async fn clear_tree(&mut self) -> bool {
        let Some(mut tree) = self.tree.clone() else {
            return true;
        };
        // It reads about every process of the system: off the runtime's threads, and for two commands
        // at a time.
        static LOOKS: Semaphore = Semaphore::const_new(2);
        let permit = LOOKS.acquire().await;
        let look = spawn_blocking(move || {
            let found = tree.find();
            for identity in &found {
                tree::send(*identity, Signal::KILL);
            }
            (tree, found.len())
        });
        let looked = look.await;
        drop(permit);
        // It fails when the runtime goes: then the drop looks once more.
        let Ok((tree, found)) = looked else {
            return false;
        };
        self.tree = Some(tree);
        found == 0
    }

    /// Takes the exit status of a leader that has exited. From here on no signal is sent.
    pub(crate) async fn reap(&mut self) -> Option<ExitStatus> {
        self.listed = None;
        let status = self.child.wait().await.ok();
        self.leader = None;
        subreaper::ended(self.identity);
        status
    }

    /// Whether nothing of the command is left, asked after the leader was reaped. What has left the
    /// group is killed on the way.
    pub(crate) async fn clear(&mut self) -> bool {
        self.cleared = self.is_gone() && self.clear_tree().await;
        self.cleared
    }

    fn is_gone(&self) -> bool {
        self.leader.is_none()
            && (test_kill_process_group(self.id) == Err(rustix::io::Errno::SRCH)
                || members::any_alive(self.id) == Some(false))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.cleared {
            return;
        }
        subreaper::abandoned(self.identity);
        self.send_to_all(Signal::KILL);
    }
}
