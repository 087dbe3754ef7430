//! Programs that end: a process group whose last trace is gone before its end is told.
//!
//! [`ProgramRun`] is one running [`Program`] and owns everything about it: its process group, its
//! pipes, its end. Its exit ends what it left running, in the group and also out of it ([`Reach`]), and
//! nothing is reported before that is gone. With a [`Guardian`] that is so even when this process is
//! killed. [`LineReader`] and [`TailText`] read its pipes within bounds.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use offshoot_core::process::{Program, ProgramConfig, ProgramRun};
//!
//! let mut run = ProgramRun::spawn(&Program::new("true"), &ProgramConfig::default())?;
//! assert_eq!(run.wait().await.to_string(), "exit code: 0");
//! # Ok(()) }
//! ```
//!
//! With the feature `process`. Unix only.

mod end;
mod env;
mod error;
mod group;
mod guardian;
mod label;
mod lines;
mod members;
mod program;
mod subreaper;
mod tail;
mod tree;

pub use end::{ProgramEnd, ProgramOutcome};
pub use env::{EnvPolicy, looks_secret};
pub use error::SpawnError;
pub use guardian::Guardian;
pub use lines::{Line, LineReader};
pub use program::{Program, ProgramConfig, ProgramRun, Reach, can_enter};
pub use subreaper::Subreaper;
pub use tail::TailText;
