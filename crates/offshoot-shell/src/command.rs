//! What to run, and how commands are run.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::env::EnvPolicy;
use crate::guardian::Guardian;
use crate::program::{ProgramConfig, check_directory};
use crate::spill::SpillConfig;
use crate::tree::{MARK, Mark};

/// How commands are run. Start from the default and change what should differ.
#[derive(Clone, Debug)]
pub struct ShellConfig {
    /// The shell, called as `<shell> -c <command>` (`/bin/sh`).
    pub shell: PathBuf,
    /// How long a stopped command may take to end by itself before it is killed (3 s).
    pub stop_grace: Duration,
    /// How many bytes of output are kept (256 KiB): the last ones.
    pub output_window: usize,
    /// How long the pipes are still read after the process group is gone, when a program that left
    /// the group holds them open (250 ms).
    pub drain_limit: Duration,
    /// Which variables of this process a command sees.
    pub env: EnvPolicy,
    /// How far the end of a command reaches (the whole tree).
    pub reach: Reach,
    /// Where output goes that the window does not hold (nowhere).
    pub spill: Option<SpillConfig>,
    /// Kills the commands when this process is killed (absent: nobody does). A library does not start
    /// a process that nobody asked for; a program should have one.
    pub guardian: Option<Guardian>,
}

/// How far the end of a command reaches, when it is stopped and when its shell exits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reach {
    /// Its process group. What leaves the group (`setsid`) goes on and is nobody's.
    Group,
    /// Also what has left the group, wherever it went, as far as the system lets us find it: in
    /// every case what still has the environment of the command, which has a variable
    /// `OFFSHOOT_COMMAND` for this. Where there is no `/proc` it is the group.
    #[default]
    Tree,
}

impl Default for ShellConfig {
    fn default() -> Self {
        Self {
            shell: PathBuf::from("/bin/sh"),
            stop_grace: Duration::from_secs(3),
            output_window: 256 * 1024,
            drain_limit: Duration::from_millis(250),
            env: EnvPolicy::default(),
            reach: Reach::default(),
            spill: None,
            guardian: None,
        }
    }
}

impl ShellConfig {
    /// How the shell itself is run.
    pub(crate) fn program(&self) -> ProgramConfig {
        ProgramConfig {
            stop_grace: self.stop_grace,
            env: self.env.clone(),
            reach: self.reach,
            guardian: self.guardian.clone(),
        }
    }
}

/// One command line for the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShellCommand {
    line: String,
    cwd: Option<PathBuf>,
    env: Vec<(String, String)>,
}

impl ShellCommand {
    /// The command `line`, in the working directory of this process.
    pub fn new(line: impl Into<String>) -> Self {
        Self {
            line: line.into(),
            cwd: None,
            env: Vec::new(),
        }
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

    /// The command line.
    #[must_use]
    pub fn line(&self) -> &str {
        &self.line
    }

    /// The process to start: leader of a new group, no standard input, two pipes.
    pub(crate) fn build(&self, config: &ShellConfig, mark: &Mark) -> Result<Command, SpawnError> {
        if self.line.trim().is_empty() {
            return Err(SpawnError::EmptyCommand);
        }
        if self.line.contains('\0') {
            return Err(SpawnError::NulInCommand);
        }
        let mut command = Command::new(&config.shell);
        command
            .arg("-c")
            .arg(&self.line)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .env_clear()
            .envs(config.env.variables())
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .env(MARK, mark.value());
        if let Some(cwd) = &self.cwd {
            check_directory(cwd)?;
            command.current_dir(cwd);
        }
        Ok(command)
    }
}

/// Why a command was not started. Nothing runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The command line has nothing but white space.
    #[error("the command is empty")]
    EmptyCommand,
    /// The command line has a NUL character, which no program can be given.
    #[error("the command contains a NUL character")]
    NulInCommand,
    /// The working directory cannot be used.
    #[error("cannot run in {}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The program could not be started.
    #[error("cannot start {}: {source}", program.display())]
    Program {
        /// The program.
        program: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The shell could not be started.
    #[error("cannot start {}: {source}", shell.display())]
    Shell {
        /// The shell.
        shell: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl SpawnError {
    /// A name that does not change between versions.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::EmptyCommand => "EMPTY_COMMAND",
            Self::NulInCommand => "NUL_IN_COMMAND",
            Self::Directory { .. } => "DIRECTORY_NOT_USABLE",
            Self::Program { .. } => "PROGRAM_NOT_STARTED",
            Self::Shell { .. } => "SHELL_NOT_STARTED",
        }
    }
}
