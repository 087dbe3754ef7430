//! One running program as a process group, from its start to the last trace of its processes. What
//! goes through its pipes is somebody else's.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, sleep, sleep_until};

use super::end::{ProgramEnd, ProgramOutcome};
use super::env::{EnvPolicy, looks_secret, secrets_in};
use super::error::SpawnError;
use super::group::Group;
use super::guardian::Guardian;
use super::subreaper::{self, Role};
use super::tree::{MARK, Mark};

// The life of a run; each arrow is taken once, and `wait` goes on where a dropped `wait` was:
//
//   Running --stop--> Stopping --grace--> Killed
//      |                 |                  |
//      +------- the leader exits -----------+--> Exited: KILL the group, reap the leader
//                                                  |
//                                          Reaped: until the group is gone
//                                                  |
//                                                Ended

/// How long the members of a killed group may take to disappear.
const GONE_LIMIT: Duration = Duration::from_secs(5);

/// How programs are run. Start from the default and change what should differ.
#[derive(Clone, Debug)]
pub struct ProgramConfig {
    /// How long a stopped program may take to end by itself before it is killed (3 s).
    pub stop_grace: Duration,
    /// Which variables of this process a program sees.
    pub env: EnvPolicy,
    /// How far the end of a program reaches (the whole tree).
    pub reach: Reach,
    /// Kills the programs when this process is killed (absent: nobody does).
    pub guardian: Option<Guardian>,
}

impl Default for ProgramConfig {
    fn default() -> Self {
        Self {
            stop_grace: Duration::from_secs(3),
            env: EnvPolicy::default(),
            reach: Reach::default(),
            guardian: None,
        }
    }
}

/// How far the end of a program reaches, when it is stopped and when it exits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reach {
    /// Its process group. What leaves the group (`setsid`) goes on and is nobody's.
    Group,
    /// Also what has left the group, wherever it went, as far as the system lets us find it: in
    /// every case what still has the environment of the program, which has a variable
    /// `OFFSHOOT_COMMAND` for this. Where there is no `/proc` it is the group.
    #[default]
    Tree,
}

/// A program with its arguments, no shell between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    program: PathBuf,
    args: Vec<String>,
    cwd: Option<PathBuf>,
    env: Vec<(String, String)>,
    stdin: bool,
    output: Output,
}

/// Where the two streams of a program go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    /// Each to a pipe of its own.
    Apart,
    /// Both to the same.
    Joined,
}

impl Program {
    /// The program of this name, or at this path, without arguments, in the working directory of this
    /// process, with nothing on its standard input. A name without `/` is looked for in the `PATH`
    /// that the program itself gets.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            cwd: None,
            env: Vec::new(),
            stdin: false,
            output: Output::Apart,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<T: Into<String>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Runs it in `path`.
    #[must_use]
    pub fn cwd(mut self, path: impl Into<PathBuf>) -> Self {
        self.cwd = Some(path.into());
        self
    }

    /// Sets a variable for it, whatever the policy says of the name.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Gives it a pipe as its standard input: see [`ProgramRun::take_stdin`].
    #[must_use]
    pub fn piped_stdin(mut self) -> Self {
        self.stdin = true;
        self
    }

    /// Gives it one pipe for its standard output and its standard error, which
    /// [`take_stdout`](ProgramRun::take_stdout) takes: what it writes to the two is in the order in which
    /// it was written. Nothing in the pipe says which of them a byte was written to.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use offshoot_core::process::{Program, ProgramConfig, ProgramRun};
    /// use tokio::io::AsyncReadExt;
    ///
    /// let program = Program::new("sh").args(["-c", "echo a; echo b >&2; echo c"]).joined_output();
    /// let mut run = ProgramRun::spawn(&program, &ProgramConfig::default())?;
    /// let mut pipe = run.take_stdout().expect("it is taken once");
    /// assert!(run.take_stderr().is_none());
    /// let mut text = String::new();
    /// pipe.read_to_string(&mut text).await?;
    /// assert_eq!(text, "a\nb\nc\n");
    /// # run.wait().await;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn joined_output(mut self) -> Self {
        self.output = Output::Joined;
        self
    }

    /// `text` without the values of the variables that the program sees and that look like secrets, by
    /// their names or their values, set for it or admitted by `policy`: what it says may have them.
    #[must_use]
    pub fn redacted(&self, text: &str, policy: &EnvPolicy) -> String {
        let admitted = policy.variables().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        let mut text = text.to_owned();
        for (name, value) in self.env.iter().cloned().chain(admitted) {
            let parts = secrets_in(&name, &value);
            let whole = (looks_secret(&name) || !parts.is_empty()).then_some(value.as_str());
            // The whole first: it has the parts in it.
            for secret in whole.into_iter().chain(parts) {
                // A value of a few characters is no secret, and is in every other word.
                if secret.len() >= 4 {
                    text = text.replace(secret, &format!("[{name}]"));
                }
            }
        }
        text
    }

    /// The process to start: leader of a new group, with pipes.
    fn build(&self, config: &ProgramConfig, mark: Option<&Mark>) -> Result<Command, SpawnError> {
        let args = self.args.iter().map(OsStr::new);
        let mut texts = std::iter::once(self.program.as_os_str()).chain(args);
        if self.program.as_os_str().is_empty() {
            return Err(SpawnError::EmptyCommand);
        }
        if texts.any(|text| text.as_encoded_bytes().contains(&0)) {
            return Err(SpawnError::NulInCommand);
        }
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .stdin(if self.stdin {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .process_group(0)
            .env_clear()
            .envs(config.env.variables())
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(marks) = mark.map_or_else(Mark::outer, |mark| Some(mark.value())) {
            command.env(MARK, marks);
        }
        if let Some(cwd) = &self.cwd {
            check_directory(cwd)?;
            command.current_dir(cwd);
        }
        Ok(command)
    }

    /// Gives `command` its pipes for output. What is returned is to be read when it cannot be taken from
    /// the child.
    ///
    /// The command holds its end of the pipe: the pipe ends when also that is dropped. No other child
    /// gets one of the ends, since both are closed on exec.
    fn connect(&self, command: &mut Command) -> io::Result<Option<ChildStdout>> {
        match self.output {
            Output::Apart => {
                command.stdout(Stdio::piped()).stderr(Stdio::piped());
                Ok(None)
            }
            Output::Joined => {
                let (read, write) = io::pipe()?;
                command.stdout(write.try_clone()?).stderr(write);
                let read = std::process::ChildStdout::from(OwnedFd::from(read));
                ChildStdout::from_std(read).map(Some)
            }
        }
    }
}

/// What a program is started with, in bytes: its arguments and its variables.
fn length(command: &Command) -> usize {
    let command = command.as_std();
    let name = command.get_program().len() + 1;
    let arguments = command.get_args().map(|argument| argument.len() + 1);
    // Each has a `=` in it, and a NUL at its end.
    let variables = command
        .get_envs()
        .map(|(name, value)| name.len() + value.map_or(0, OsStr::len) + 2);
    name + arguments.chain(variables).sum::<usize>()
}

/// Without this check a directory that cannot be used reads as if the program could not.
fn check_directory(path: &Path) -> Result<(), SpawnError> {
    can_enter(path).map_err(|source| SpawnError::Directory {
        path: path.to_owned(),
        source,
    })
}

/// Whether a program can run in `path`: it is a directory, and may be entered.
///
/// # Errors
///
/// What the system says.
pub fn can_enter(path: &Path) -> io::Result<()> {
    if !std::fs::metadata(path)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    // To see what is in it, itself, takes the right to enter it.
    std::fs::metadata(path.join(".")).map(|_| ())
}

enum Phase {
    Running,
    Stopping {
        kill_at: Instant,
    },
    Killed,
    Reaped {
        end: ProgramEnd,
        give_up_at: Instant,
    },
    Ended(ProgramOutcome),
}

/// One running program: its process group and its end.
///
/// Take its pipes and read them, or it may wait for ever for room in them. Dropping the run kills the
/// whole group with `SIGKILL`; the runtime reaps the leader.
///
/// Not `Clone`: one owner decides when a program ends.
pub struct ProgramRun {
    group: Group,
    phase: Phase,
    stopped: bool,
    stop_grace: Duration,
}

impl fmt::Debug for ProgramRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgramRun")
            .field("stopped", &self.stopped)
            .finish_non_exhaustive()
    }
}

impl ProgramRun {
    /// Starts a program.
    ///
    /// # Errors
    ///
    /// [`SpawnError`]; nothing runs.
    ///
    /// # Panics
    ///
    /// When called outside a Tokio runtime with its IO and timers enabled.
    pub fn spawn(program: &Program, config: &ProgramConfig) -> Result<Self, SpawnError> {
        let failed = |source| SpawnError::Program {
            program: program.program.clone(),
            source,
        };
        let too_long = |bytes| SpawnError::ArgumentsTooLong {
            program: program.program.clone(),
            bytes,
        };
        // What may leave the command is not marked as its.
        let mark = (config.reach == Reach::Tree).then(Mark::new);
        let mut command = program.build(config, mark.as_ref())?;
        let joined = program.connect(&mut command).map_err(failed)?;
        let bytes = length(&command);
        let mut run = Self::start(command, config, mark).map_err(|error| match error.kind() {
            io::ErrorKind::ArgumentListTooLong => too_long(bytes),
            _ => failed(error),
        })?;
        if joined.is_some() {
            run.group.child_mut().stdout = joined;
        }
        Ok(run)
    }

    /// Starts what leads a group of its own, and has the mark if there is one. The command is dropped,
    /// and with it what it holds of the pipes.
    fn start(mut command: Command, config: &ProgramConfig, mark: Option<Mark>) -> io::Result<Self> {
        if let Some(guardian) = &config.guardian {
            guardian.ready();
        }
        let role = Role::Command {
            whole: mark.is_some(),
        };
        let child = subreaper::spawn(role, || command.spawn(), tokio::process::Child::id)?;
        let mut group = Group::new(child, mark)?;
        if let Some(guardian) = &config.guardian {
            group.guard(guardian);
        }
        Ok(Self {
            group,
            phase: Phase::Running,
            stopped: false,
            stop_grace: config.stop_grace,
        })
    }

    /// The end of its standard input that is written to, once, if it has one. Dropping it is the end
    /// of the input.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.group.child_mut().stdin.take()
    }

    /// Its standard output, once; both streams when they are [joined](Program::joined_output).
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.group.child_mut().stdout.take()
    }

    /// Its standard error, once; `None` when it is in the standard output.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.group.child_mut().stderr.take()
    }

    /// Waits until the program has exited and its processes are gone: what it left running is killed.
    /// A second call gives the same outcome.
    ///
    /// Dropping the future loses nothing: the program goes on, and the next call continues.
    pub async fn wait(&mut self) -> ProgramOutcome {
        loop {
            match self.phase {
                Phase::Running | Phase::Killed => self.until_exit(None).await,
                Phase::Stopping { kill_at } => self.until_exit(Some(kill_at)).await,
                Phase::Reaped { end, give_up_at } => self.until_gone(end, give_up_at).await,
                Phase::Ended(outcome) => return outcome,
            }
        }
    }

    /// Asks the program to stop, and waits for its end like [`wait`](Self::wait): `SIGTERM` to the
    /// group, and `SIGKILL` when the program has not exited in the grace. Its exit ends the grace for
    /// all that it started.
    ///
    /// A program that has ended already is not signalled and keeps its outcome. Dropping the future
    /// does not take the request back; call either method to go on.
    pub async fn stop(&mut self) -> ProgramOutcome {
        self.request_stop();
        self.wait().await
    }

    /// The request of [`stop`](Self::stop) without the wait; the grace ends only while
    /// [`wait`](Self::wait) is polled. Changes nothing when it was made before.
    pub fn request_stop(&mut self) {
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

    /// Waits until the leader has exited or `kill_at` has come.
    async fn until_exit(&mut self, kill_at: Option<Instant>) {
        let grace = async {
            match kill_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.group.exited() => {}
            () = grace => {
                self.group.send_to_all(Signal::KILL);
                self.phase = Phase::Killed;
                return;
            }
        }
        // The leader is not reaped yet, so the group's id is still its own.
        self.group.send(Signal::KILL);
        let status = self.group.reap().await;
        self.phase = Phase::Reaped {
            end: status.map_or(ProgramEnd::Unknown, ProgramEnd::from),
            give_up_at: Instant::now() + GONE_LIMIT,
        };
    }

    /// Waits until no member of the group is left.
    async fn until_gone(&mut self, end: ProgramEnd, give_up_at: Instant) {
        let mut pause = Duration::from_millis(1);
        let mut group_gone = self.group.clear().await;
        while !group_gone && Instant::now() < give_up_at {
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
            group_gone = self.group.clear().await;
        }
        if !group_gone {
            tracing::warn!("processes of a killed command are still there");
        }
        self.phase = Phase::Ended(ProgramOutcome {
            end,
            stopped: self.stopped,
            group_gone,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn b056_nothing_is_signalled_after_the_command_has_ended() {
        let config = ProgramConfig::default();
        let mut run = ProgramRun::spawn(&Program::new("true"), &config).unwrap();
        let outcome = run.wait().await;
        // The one signal clears the group, while the unreaped leader still keeps its id.
        assert_eq!(run.group.sent, 1);
        assert_eq!(run.stop().await, outcome);
        run.request_stop();
        run.group.send(Signal::KILL);
        assert_eq!(run.group.sent, 1);
        assert!(!outcome.stopped);
    }

    #[test]
    fn secrets_that_were_given_are_taken_out_of_what_it_prints() {
        let program = Program::new("true")
            .env("API_KEY", "k-123")
            .env("PLACE", "home")
            .env("X_TOKEN", "")
            .env("HTTPS_PROXY", "http://me:pw12@proxy");
        let policy = EnvPolicy::nothing();
        let text = program.redacted("bad key k-123 at home", &policy);
        assert_eq!(text, "bad key [API_KEY] at home");
        let text = program.redacted("no http://me:pw12@proxy; pw12?", &policy);
        assert_eq!(text, "no [HTTPS_PROXY]; [HTTPS_PROXY]?");
        // Also what it was allowed to see, though it was not set for it.
        let (name, value) = ("CARGO_PKG_NAME", env!("CARGO_PKG_NAME"));
        let plain = program.redacted(value, &policy.clone().allow(name));
        assert_eq!(plain, value, "its name is not that of a secret");
    }

    #[tokio::test]
    async fn what_cannot_be_a_program_is_refused() {
        let spawn = |program: Program| {
            let error = ProgramRun::spawn(&program, &ProgramConfig::default()).unwrap_err();
            (error.code(), error.to_string())
        };
        assert_eq!(spawn(Program::new("")).0, "EMPTY_COMMAND");
        assert_eq!(
            spawn(Program::new("true").args(["a\0b"])).0,
            "NUL_IN_COMMAND"
        );
        let missing = spawn(Program::new("no-such-program-anywhere"));
        assert_eq!(missing.0, "PROGRAM_NOT_STARTED");
        assert!(
            missing
                .1
                .starts_with("cannot start no-such-program-anywhere: ")
        );
        let nowhere = spawn(Program::new("true").cwd("/nowhere/at/all"));
        assert_eq!(nowhere.0, "DIRECTORY_NOT_USABLE");
    }
}
