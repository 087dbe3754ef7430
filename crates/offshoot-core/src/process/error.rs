//! Why a program was not started.

use std::io;
use std::path::PathBuf;

/// Why a program was not started. Nothing runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// There is no program, or a command line that has nothing but white space.
    #[error("the command is empty")]
    EmptyCommand,
    /// The program or an argument has a NUL character, which no program can be given.
    #[error("the command contains a NUL character")]
    NulInCommand,
    /// A command line is longer than what the system hands to a program in one piece.
    #[error(
        "the command has {bytes} bytes, and the system takes at most {limit}: write it to a file in several commands, \
         and run that"
    )]
    CommandTooLong {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        limit: usize,
    },
    /// The arguments of a program, or one of them, or they and its variables together are more than the
    /// system hands to a program.
    #[error(
        "cannot start {}: its arguments and variables have {bytes} bytes together, more than the system takes",
        program.display()
    )]
    ArgumentsTooLong {
        /// The program.
        program: PathBuf,
        /// How long they are together.
        bytes: usize,
    },
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
}

impl SpawnError {
    /// A name that does not change between versions.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::EmptyCommand => "EMPTY_COMMAND",
            Self::NulInCommand => "NUL_IN_COMMAND",
            Self::CommandTooLong { .. } => "COMMAND_TOO_LONG",
            Self::ArgumentsTooLong { .. } => "ARGUMENTS_TOO_LONG",
            Self::Directory { .. } => "DIRECTORY_NOT_USABLE",
            Self::Program { .. } => "PROGRAM_NOT_STARTED",
        }
    }
}
