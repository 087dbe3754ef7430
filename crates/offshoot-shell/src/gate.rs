//! The moment between the start of a shell and that of its command.
//!
//! A process is marked as its command's after it was started: what it starts before that has not all the
//! marks. So the shell waits, as its first act, for a line that says that it is marked, and then becomes
//! the shell of the command. When this process dies meanwhile, the line never comes and nothing runs.

use std::fs::File;
use std::io::{self, Write};

use offshoot_core::process::{ProgramRun, Reach};

use crate::command::ShellConfig;

/// What the first shell runs; `$0` is the shell, `$1` the command. Its variable is no command's: a name that
/// is in the environment would be overwritten there.
pub(crate) const GATE: &str = r#"read -r offshoot_gate && exec "$0" -c "$1" </dev/null"#;

/// Shells that can run [`GATE`], by the names of their files.
const ABLE: &[&str] = &["sh", "dash", "ash", "bash", "ksh", "mksh", "zsh"];

/// The shell that waits, by its name; `None` where nothing needs it, or the shell cannot.
pub(crate) fn before(config: &ShellConfig) -> Option<&str> {
    let file = config.shell.file_name()?.to_str()?;
    let wanted = cfg!(target_os = "linux") && config.reach == Reach::Tree && ABLE.contains(&file);
    config.shell.to_str().filter(|_| wanted)
}

/// Lets the command begin.
pub(crate) fn open(run: &mut ProgramRun) -> io::Result<()> {
    let Some(stdin) = run.take_stdin() else {
        return Ok(());
    };
    let written = File::from(stdin.into_owned_fd()?).write_all(b"\n");
    match written {
        // It was killed already, and says so itself.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
