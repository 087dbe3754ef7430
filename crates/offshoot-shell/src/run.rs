//! One running command: a program whose output is read.

use std::fmt;
use std::time::Duration;

use offshoot_core::process::{ProgramOutcome, ProgramRun, SpawnError};
use offshoot_task::OutputBuffer;
use tokio::process::ChildStdout;
use tokio::time::{Instant, timeout};

use crate::command::{ShellCommand, ShellConfig};
use crate::gate;
use crate::pipe::Pipe;
use crate::spill::Sink;

/// One running command: its process group, its pipe, its output.
///
/// Its output grows while [`wait`](Self::wait) or [`stop`](Self::stop) is polled. Dropping the run
/// kills the whole group with `SIGKILL`; the runtime reaps the leader.
///
/// Not `Clone`: one owner decides when a command ends.
pub struct ShellRun {
    program: ProgramRun,
    /// Of both streams.
    pipe: Pipe<ChildStdout>,
    output: OutputBuffer,
    drain_limit: Duration,
    drain_until: Option<Instant>,
}

impl fmt::Debug for ShellRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShellRun")
            .field("output", &self.output)
            .field("program", &self.program)
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
        let mut program = ProgramRun::spawn(&command.program(config)?, &config.program())?;
        gate::open(&mut program).map_err(|source| SpawnError::Program {
            program: config.shell.clone(),
            source,
        })?;
        let sink = Sink::new(output.writer(), config.output_window, config.spill.clone());
        Ok(Self {
            pipe: Pipe::new(program.take_stdout(), sink),
            program,
            output,
            drain_limit: config.drain_limit,
            drain_until: None,
        })
    }

    /// What the command has written, to standard output and standard error in the order in which it was
    /// written: they are one pipe. A character that one of them has a part of when the other is written
    /// to is in pieces, as it would be on a terminal.
    #[must_use]
    pub fn output(&self) -> OutputBuffer {
        self.output.clone()
    }

    /// Waits until the command has ended, its process group is gone and its output is complete. A
    /// second call gives the same outcome.
    ///
    /// Dropping the future loses nothing: the command goes on (though it may have to wait for room in
    /// its pipe), and the next call continues.
    pub async fn wait(&mut self) -> ProgramOutcome {
        let outcome = {
            let mut ended = std::pin::pin!(self.program.wait());
            loop {
                tokio::select! {
                    outcome = &mut ended => break outcome,
                    () = self.pipe.pump() => {}
                }
            }
        };
        let limit = self.drain_limit;
        let until = *self
            .drain_until
            .get_or_insert_with(|| Instant::now() + limit);
        self.drain(until).await;
        outcome
    }

    /// Asks the command to stop, and waits for its end like [`wait`](Self::wait): `SIGTERM` to the
    /// group, and `SIGKILL` when its shell has not exited in the grace. The shell's exit ends the
    /// grace for all.
    ///
    /// A command that has ended already is not signalled and keeps its outcome. Dropping the future
    /// does not take the request back; call either method to go on.
    pub async fn stop(&mut self) -> ProgramOutcome {
        self.program.request_stop();
        self.wait().await
    }

    /// Reads what the pipe still holds. Somebody who left the group may keep it open for ever.
    async fn drain(&mut self, until: Instant) {
        let left = until.saturating_duration_since(Instant::now());
        let rest = async {
            while self.pipe.is_open() {
                self.pipe.pump().await;
            }
        };
        let _ = timeout(left, rest).await;
        self.pipe.finish();
    }
}
