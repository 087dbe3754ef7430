//! Shell commands as background tasks: process groups, streamed output, graceful stop.
//!
//! [`ShellRun`] is one running command and owns everything about it: the process group, the pipe,
//! the end. [`start_shell`] runs one as a task of a registry; [`ShellRun::into_task`] makes a task of
//! one that runs already.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use offshoot_shell::{ShellCommand, ShellConfig, ShellRun};
//!
//! let mut run = ShellRun::spawn(&ShellCommand::new("echo hello"), &ShellConfig::default())?;
//! assert_eq!(run.wait().await.to_string(), "exit code: 0");
//! assert_eq!(run.output().read_at(0).text, "hello\n");
//! # Ok(()) }
//! ```
//!
//! A command is a process group, led by the shell. The shell's exit ends the command: what it left
//! running is killed then, in the group and also out of it ([`Reach`]), and nothing is reported before
//! it is gone. With a [`Guardian`] that is so even when this process is killed. Output that the window
//! does not hold can go to a file ([`SpillConfig`]).
//!
//! [`ProgramRun`](offshoot_core::process::ProgramRun) is the same for any program, without the shell and
//! with its pipes in your hands.
//!
//! Unix only.

/// The examples of the guide. They are here because the guide ends with shell commands.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tasks.md")]
struct Guide;

mod command;
mod gate;
mod outcome;
mod pipe;
mod run;
mod spill;
mod task;

pub use command::{ShellCommand, ShellConfig};
pub use offshoot_core::process::{
    EnvPolicy, Guardian, ProgramEnd, ProgramOutcome, Reach, SpawnError, Subreaper,
};
pub use outcome::task_outcome;
pub use run::ShellRun;
pub use spill::{FolderError, SpillConfig};
pub use task::{ShellTask, start_shell};
