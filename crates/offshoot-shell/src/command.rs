//! What to run, and how commands are run.

use std::path::PathBuf;
use std::time::Duration;

use offshoot_core::process::{EnvPolicy, Guardian, Program, ProgramConfig, Reach, SpawnError};

use crate::gate;
use crate::spill::SpillConfig;

/// How commands are run. Start from the default and change what should differ.
#[derive(Clone, Debug)]
pub struct ShellConfig {
    /// The shell, called as `<shell> -c <command>` (`/bin/sh`). One with a usual name (`sh`, `bash`, …)
    /// is called twice, the second time in place of the first: it waits until it is marked as the
    /// command's ([`Reach::Tree`]), so that nothing of the command begins before.
    pub shell: PathBuf,
    /// How long a stopped command may take to end by itself before it is killed (3 s).
    pub stop_grace: Duration,
    /// How many bytes of output are kept (256 KiB): the last ones.
    pub output_window: usize,
    /// How long the pipe is still read after the process group is gone, when a program that left
    /// the group holds it open (250 ms).
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

    /// The shell that runs it.
    pub(crate) fn program(&self, config: &ShellConfig) -> Result<Program, SpawnError> {
        if self.line.trim().is_empty() {
            return Err(SpawnError::EmptyCommand);
        }
        let bytes = self.line.len();
        if let Some(limit) = longest_argument().filter(|limit| bytes > *limit) {
            return Err(SpawnError::CommandTooLong { bytes, limit });
        }
        let shell = Program::new(&config.shell).joined_output();
        let program = match gate::before(config) {
            Some(name) => shell
                .args(["-c", gate::GATE, name, self.line.as_str()])
                .piped_stdin(),
            None => shell.args(["-c", self.line.as_str()]),
        };
        let program = match &self.cwd {
            Some(cwd) => program.cwd(cwd),
            None => program,
        };
        let variables = self.env.iter();
        Ok(variables.fold(program, |program, (name, value)| program.env(name, value)))
    }
}

/// The longest text that the system hands to a program as one argument, in bytes; `None` where only all of
/// them together are bounded.
fn longest_argument() -> Option<usize> {
    // "MAX_ARG_STRLEN": 32 pages, with the NUL at the end.
    cfg!(target_os = "linux").then(|| 32 * rustix::param::page_size() - 1)
}
