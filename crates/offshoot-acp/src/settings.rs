//! How an external agent is run, and what it may do.

use std::path::PathBuf;
use std::time::Duration;

use offshoot_core::process::{Program, ProgramConfig};
use offshoot_subagent::{DEPTH_VARIABLE, RunResult};

/// How much of a run's text is left for what is said of an answer.
const NOTES: usize = 4096;

/// How an external agent is run as a subagent. Start from [`new`](Self::new) and change what should
/// differ.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AcpSettings {
    /// The provider's name.
    pub name: String,
    /// The program: a path, or a name that is looked for in `PATH`.
    pub command: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables that are set for it, whatever the policy says of their names. The values of all that it
    /// sees and whose names look like secrets are taken out of diagnostics.
    pub env: Vec<(String, String)>,
    /// How deep this process is itself, below other runtimes (0): the agent is told how deep it is, in
    /// [`DEPTH_VARIABLE`].
    pub depth: u32,
    /// Where it runs, and where its session is; the working directory of this process when absent.
    pub cwd: Option<PathBuf>,
    /// What it is answered when it asks for permission (no).
    pub permission: Permission,
    /// What it may do with files through this process (nothing).
    pub files: Files,
    /// How long it may take from its start until its session exists (60 s).
    pub start_timeout: Duration,
    /// How long its turn may take; for ever when absent.
    pub deadline: Option<Duration>,
    /// How long it may take to end its turn after it was asked to (1 s).
    pub cancel_grace: Duration,
    /// How long it may take to exit after its standard input was closed, before it gets a signal (3 s;
    /// at most a second after its turn was cut).
    pub exit_grace: Duration,
    /// How many bytes of its answer are kept (4 MiB, what a run may have, without room for notes): the
    /// last ones. How much is missing is said after them.
    pub max_answer: usize,
    /// How long one of its messages may be (8 MiB). A longer one ends the run: nobody knows what it was.
    pub max_line: usize,
    /// How many bytes it may write in all (1 GiB).
    pub max_output: u64,
    /// How it is stopped, which variables of this process it sees, who kills it when this process
    /// dies.
    pub run: ProgramConfig,
}

/// The answer to an agent that asks for permission. When its turn is being cut, it is always told so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Permission {
    /// No: the option that rejects this once, else the one that rejects always. An agent that offers
    /// neither is told that the request was cancelled.
    #[default]
    Reject,
    /// Yes: the first option that allows. An agent that offers none is told that the request was
    /// cancelled.
    Allow,
}

/// What an agent may do with files through this process. It may well have other ways to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Files {
    /// Nothing; it is told so.
    #[default]
    None,
    /// Read text files below its folder.
    Read,
    /// Read and write text files below its folder.
    ReadWrite,
}

impl AcpSettings {
    /// The provider `name` that runs `command` without arguments.
    pub fn new(name: impl Into<String>, command: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            command: command.into(),
            args: Vec::new(),
            env: Vec::new(),
            depth: 0,
            cwd: None,
            permission: Permission::default(),
            files: Files::default(),
            start_timeout: Duration::from_secs(60),
            deadline: None,
            cancel_grace: Duration::from_secs(1),
            exit_grace: Duration::from_secs(3),
            max_answer: RunResult::MAX_TEXT_BYTES - NOTES,
            max_line: 8 * 1024 * 1024,
            max_output: 1 << 30,
            run: ProgramConfig::default(),
        }
    }

    /// The folder of its session, absolute.
    pub(crate) fn folder(&self) -> std::io::Result<PathBuf> {
        std::path::absolute(self.cwd.as_deref().unwrap_or(".".as_ref()))
    }

    /// The program for a run of a parent at this depth.
    pub(crate) fn program(&self, parent: u32) -> Program {
        let depth = self.depth.saturating_add(parent).saturating_add(1);
        let mut program = Program::new(&self.command)
            .args(self.args.iter().cloned())
            .env(DEPTH_VARIABLE, depth.to_string())
            .piped_stdin();
        for (name, value) in &self.env {
            program = program.env(name, value);
        }
        match &self.cwd {
            Some(cwd) => program.cwd(cwd),
            None => program,
        }
    }
}
