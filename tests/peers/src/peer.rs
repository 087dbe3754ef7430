//! A peer's process: a group of its own, lines in and out with deadlines, and its end.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// A command line of a peer, made by [`Home::command`](crate::Home::command).
#[derive(Debug)]
pub struct Command(std::process::Command);

impl Command {
    pub(crate) fn new(program: &Path, cwd: &Path, env: Vec<(OsString, OsString)>) -> Self {
        let mut command = std::process::Command::new(program);
        command
            .current_dir(cwd)
            .env_clear()
            .envs(env)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self(command)
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.0.arg(arg);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.0.args(args);
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    /// Runs in this folder.
    #[must_use]
    pub fn cwd(mut self, folder: impl AsRef<Path>) -> Self {
        self.0.current_dir(folder);
        self
    }

    /// Runs it to its end, without standard input.
    ///
    /// # Panics
    ///
    /// When it cannot be started, or has not ended in time; the message has what it wrote.
    #[must_use]
    pub fn run(self, timeout: Duration) -> Outcome {
        let mut peer = self.spawn();
        drop(peer.stdin.take());
        let mut stdout = String::new();
        let deadline = Instant::now() + timeout;
        while let Some(line) = peer.line_until(deadline) {
            stdout.push_str(&line);
            stdout.push('\n');
        }
        let status = peer.ended_until(deadline);
        let stderr = peer.stderr();
        Outcome {
            status,
            stdout,
            stderr,
        }
    }

    /// Starts it with pipes.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    #[must_use]
    pub fn spawn(mut self) -> Peer {
        self.0.stdin(Stdio::piped());
        let what = format!("{:?}", self.0);
        let mut child = self
            .0
            .spawn()
            .unwrap_or_else(|error| panic!("{what} does not start: {error}"));
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("a pipe");
        let stderr = child.stderr.take().expect("a pipe");
        let (lines, received) = sync_channel(1024);
        std::thread::spawn(move || pass_lines(stdout, |line| lines.send(line).is_ok()));
        let (errors, error_lines) = channel();
        std::thread::spawn(move || pass_lines(stderr, |line| errors.send(line).is_ok()));
        Peer {
            what,
            child,
            stdin,
            lines: received,
            errors: error_lines,
        }
    }
}

/// Hands over line by line, until nobody takes them.
fn pass_lines(from: impl Read, pass: impl Fn(String) -> bool) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        let text = String::from_utf8_lossy(&line);
        let text = text.strip_suffix('\n').unwrap_or(&text).to_owned();
        if !pass(text) {
            return;
        }
        line.clear();
    }
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its status.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Outcome {
    /// Its standard output.
    ///
    /// # Panics
    ///
    /// When it did not succeed; the message has everything that it wrote.
    #[must_use]
    pub fn success(self) -> String {
        let Self {
            status,
            stdout,
            stderr,
        } = self;
        assert!(status.success(), "{status}\n{stdout}\n{stderr}");
        stdout
    }
}

/// A running peer. Dropping it kills its process group.
#[derive(Debug)]
pub struct Peer {
    what: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Receiver<String>,
}

impl Peer {
    /// Its process id, which is its group's.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Writes bytes to its standard input. An error is a peer that does not read any more.
    ///
    /// # Errors
    ///
    /// As the pipe's.
    ///
    /// # Panics
    ///
    /// When the input was closed before.
    pub fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let stdin = self.stdin.as_mut().expect("an open standard input");
        stdin.write_all(bytes)?;
        stdin.flush()
    }

    /// Writes one line to its standard input.
    ///
    /// # Panics
    ///
    /// When it does not read any more.
    pub fn send(&mut self, line: &str) {
        let written = self.write(format!("{line}\n").as_bytes());
        written.unwrap_or_else(|error| panic!("{}: {error}", self.what));
    }

    /// Closes its standard input.
    pub fn close_input(&mut self) {
        self.stdin = None;
    }

    /// The next line of its standard output; `None` at the end.
    ///
    /// # Panics
    ///
    /// When none comes in time.
    pub fn line(&mut self, timeout: Duration) -> Option<String> {
        self.line_until(Instant::now() + timeout)
    }

    fn line_until(&mut self, deadline: Instant) -> Option<String> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => self.late("wrote no line"),
        }
    }

    /// Waits for its end.
    ///
    /// # Panics
    ///
    /// When it does not end in time.
    pub fn ended(&mut self, timeout: Duration) -> ExitStatus {
        self.ended_until(Instant::now() + timeout)
    }

    fn ended_until(&mut self, deadline: Instant) -> ExitStatus {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return status,
                Ok(None) if Instant::now() >= deadline => self.late("did not end"),
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => panic!("{}: {error}", self.what),
            }
        }
    }

    fn late(&mut self, how: &str) -> ! {
        self.kill();
        let stderr = self.stderr();
        panic!("{} {how} in time; stderr:\n{stderr}", self.what);
    }

    /// Sends its group a signal.
    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(group) = id {
            let _ = kill_process_group(group, signal);
        }
    }

    /// Kills its group and waits for it.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }

    /// The next line of its standard error; `None` at the end.
    ///
    /// # Panics
    ///
    /// When none comes in time.
    pub fn error_line(&mut self, timeout: Duration) -> Option<String> {
        match self.errors.recv_timeout(timeout) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => self.late("wrote no line to standard error"),
        }
    }

    /// What else it wrote to standard error; waits until that is closed.
    #[must_use]
    pub fn stderr(&mut self) -> String {
        let lines: Vec<_> = self.errors.iter().collect();
        lines.join("\n")
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}
