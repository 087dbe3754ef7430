//! One running command, from its start to the last trace of its processes.

use std::fmt;
use std::time::Duration;

use offshoot_task::OutputBuffer;
use rustix::process::Signal;
use tokio::process::{ChildStderr, ChildStdout};
use tokio::time::{Instant, sleep_until, timeout};

use crate::command::{Reach, ShellCommand, ShellConfig, SpawnError};
use crate::group::Group;
use crate::outcome::{ShellEnd, ShellOutcome};
use crate::pipe::Pipe;
use crate::spill::Sink;
use crate::tree::Mark;

// The life of a run; each arrow is taken once, and `wait` goes on where a dropped `wait` was:
//
//   Running --stop--> Stopping --grace--> Killed
//      |                 |                  |
//      +------- the leader exits -----------+--> Exited: KILL the group, reap the leader
//                                                  |
//                                          Reaped: until the group is gone
//                                                  |
//                                          Gone: read what the pipes still hold
//                                                  |
//                                                Ended

/// How long the members of a killed group may take to disappear.
const GONE_LIMIT: Duration = Duration::from_secs(5);

enum Phase {
    Running,
    Stopping {
        kill_at: Instant,
    },
    Killed,
    Reaped {
        end: ShellEnd,
        give_up_at: Instant,
    },
    Gone {
        end: ShellEnd,
        group_gone: bool,
        until: Instant,
    },
    Ended(ShellOutcome),
}

/// One running command: its process group, its pipes, its output.
///
/// Its output grows while [`wait`](Self::wait) or [`stop`](Self::stop) is polled. Dropping the run
/// kills the whole group with `SIGKILL`; the runtime reaps the leader.
///
/// Not `Clone`: one owner decides when a command ends.
pub struct ShellRun {
    group: Group,
    stdout: Pipe<ChildStdout>,
    stderr: Pipe<ChildStderr>,
    output: OutputBuffer,
    phase: Phase,
    stopped: bool,
    stop_grace: Duration,
    drain_limit: Duration,
}

impl fmt::Debug for ShellRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShellRun")
            .field("output", &self.output)
            .field("stopped", &self.stopped)
            .finish_non_exhaustive()
    }
}

impl ShellRun {
    /// Starts a command.
    ///
    /// # Errors
    ///
    /// [`SpawnError`]; nothing runs.
    ///
    /// # Panics
    ///
    /// When called outside a Tokio runtime with its IO and timers enabled.
    pub fn spawn(command: &ShellCommand, config: &ShellConfig) -> Result<Self, SpawnError> {
        Self::spawn_into(command, config, OutputBuffer::new(config.output_window))
    }

    /// Starts a command that writes to a buffer which exists already.
    pub(crate) fn spawn_into(
        command: &ShellCommand,
        config: &ShellConfig,
        output: OutputBuffer,
    ) -> Result<Self, SpawnError> {
        let failed = |source| SpawnError::Shell {
            shell: config.shell.clone(),
            source,
        };
        let mark = Mark::new();
        let child = command.build(config, &mark)?.spawn().map_err(failed)?;
        let mark = (config.reach == Reach::Tree).then_some(mark);
        let mut group = Group::new(child, mark).map_err(failed)?;
        if let Some(guardian) = &config.guardian {
            group.guard(guardian);
        }
        let child = group.child_mut();
        let sink = Sink::new(output.writer(), config.output_window, config.spill.clone());
        let stdout = Pipe::new(child.stdout.take(), sink.clone());
        let stderr = Pipe::new(child.stderr.take(), sink);
        Ok(Self {
            group,
            stdout,
            stderr,
            output,
            phase: Phase::Running,
            stopped: false,
            stop_grace: config.stop_grace,
            drain_limit: config.drain_limit,
        })
    }

    /// What the command has written, standard output and standard error as they came.
    #[must_use]
    pub fn output(&self) -> OutputBuffer {
        self.output.clone()
    }

    /// Waits until the command has ended, its process group is gone and its output is complete. A
    /// second call gives the same outcome.
    ///
    /// Dropping the future loses nothing: the command goes on (though it may have to wait for room in
    /// its pipes), and the next call continues.
    pub async fn wait(&mut self) -> ShellOutcome {
        loop {
            match self.phase {
                Phase::Running => self.until_exit(None).await,
                Phase::Stopping { kill_at } => self.until_exit(Some(kill_at)).await,
                Phase::Killed => self.until_exit(None).await,
                Phase::Reaped { end, give_up_at } => self.until_gone(end, give_up_at).await,
                Phase::Gone {
                    end,
                    group_gone,
                    until,
                } => {
                    self.drain(until).await;
                    self.phase = Phase::Ended(ShellOutcome {
                        end,
                        stopped: self.stopped,
                        group_gone,
                    });
                }
                Phase::Ended(outcome) => return outcome,
            }
        }
    }

    /// Asks the command to stop, and waits for its end like [`wait`](Self::wait): `SIGTERM` to the
    /// group, and `SIGKILL` when its shell has not exited in the grace. The shell's exit ends the
    /// grace for all.
    ///
    /// A command that has ended already is not signalled and keeps its outcome. Dropping the future
    /// does not take the request back; call either method to go on.
    pub async fn stop(&mut self) -> ShellOutcome {
        self.request_stop();
        self.wait().await
    }

    fn request_stop(&mut self) {
        // What has exited by itself before the request was not stopped by it.
        if matches!(self.phase, Phase::Running) && !self.group.has_exited() {
            self.stopped = true;
            self.group.send_to_all(Signal::TERM);
            // A stopped job (SIGSTOP, SIGTTIN) would sleep through the grace.
            self.group.send(Signal::CONT);
            self.phase = Phase::Stopping {
                kill_at: Instant::now() + self.stop_grace,
            };
        }
    }

    /// Reads both pipes until the leader has exited or `kill_at` has come.
    async fn until_exit(&mut self, kill_at: Option<Instant>) {
        loop {
            let grace = async {
                match kill_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.group.exited() => break,
                () = self.stdout.pump() => {}
                () = self.stderr.pump() => {}
                () = grace => {
                    self.group.send_to_all(Signal::KILL);
                    self.phase = Phase::Killed;
                    return;
                }
            }
        }
        // The leader is not reaped yet, so the group's id is still its own.
        self.group.send(Signal::KILL);
        let status = self.group.reap().await;
        self.phase = Phase::Reaped {
            end: status.map_or(ShellEnd::Unknown, ShellEnd::from),
            give_up_at: Instant::now() + GONE_LIMIT,
        };
    }

    /// Reads both pipes until no member of the group is left.
    async fn until_gone(&mut self, end: ShellEnd, give_up_at: Instant) {
        let mut pause = Duration::from_millis(1);
        let mut group_gone = self.group.clear().await;
        while !group_gone && Instant::now() < give_up_at {
            let _ = timeout(pause, self.pump_both()).await;
            pause = (pause * 2).min(Duration::from_millis(50));
            group_gone = self.group.clear().await;
        }
        if !group_gone {
            tracing::warn!("processes of a killed command are still there");
        }
        self.phase = Phase::Gone {
            end,
            group_gone,
            until: Instant::now() + self.drain_limit,
        };
    }

    /// Reads what the pipes still hold. Somebody who left the group may keep them open for ever.
    async fn drain(&mut self, until: Instant) {
        let left = until.saturating_duration_since(Instant::now());
        let _ = timeout(left, self.pump_both()).await;
        self.stdout.finish();
        self.stderr.finish();
    }

    /// Reads both pipes to their ends.
    async fn pump_both(&mut self) {
        while self.stdout.is_open() || self.stderr.is_open() {
            tokio::select! {
                () = self.stdout.pump() => {}
                () = self.stderr.pump() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn b056_nothing_is_signalled_after_the_command_has_ended() {
        let config = ShellConfig::default();
        let mut run = ShellRun::spawn(&ShellCommand::new("exit 0"), &config).unwrap();
        let outcome = run.wait().await;
        // The one signal clears the group, while the unreaped leader still keeps its id.
        assert_eq!(run.group.sent, 1);
        assert_eq!(run.stop().await, outcome);
        run.request_stop();
        run.group.send(Signal::KILL);
        assert_eq!(run.group.sent, 1);
        assert!(!outcome.stopped);
    }
}
