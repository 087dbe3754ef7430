//! What is known of the terminals behind stdin, stdout and stderr.

use std::io::{IsTerminal as _, stderr, stdin, stdout};
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};

/// Whether a person types what is read.
pub(crate) fn is_stdin() -> bool {
    stdin().is_terminal()
}

/// Whether stderr is shown to a person.
pub(crate) fn is_stderr() -> bool {
    stderr().is_terminal()
}

/// Whether stdout is shown to a person.
pub(crate) fn is_stdout() -> bool {
    stdout().is_terminal()
}

/// Whether lines can be redrawn in place.
pub(crate) fn can_redraw() -> bool {
    is_stderr() && std::env::var_os("TERM").is_some_and(|term| term != "dumb" && !term.is_empty())
}

/// Whether colours are wanted: <https://no-color.org>.
pub(crate) fn wants_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Columns and rows.
pub(crate) fn size() -> (usize, usize) {
    let variable = |name| {
        let value = std::env::var(name).ok()?.trim().parse().ok()?;
        (value > 0).then_some(value)
    };
    let asked = asked().unwrap_or((80, 24));
    (
        variable("COLUMNS").unwrap_or(asked.0),
        variable("LINES").unwrap_or(asked.1),
    )
}

/// What `stty` says, which knows how to ask.
fn asked() -> Option<(usize, usize)> {
    let terminal = stderr().as_fd().try_clone_to_owned().ok()?;
    let answer = Command::new("stty")
        .arg("size")
        .stdin(Stdio::from(terminal))
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(answer.stdout).ok()?;
    let mut numbers = text.split_whitespace().map(str::parse::<usize>);
    let rows = numbers.next()?.ok().filter(|rows| *rows > 0)?;
    let columns = numbers.next()?.ok().filter(|columns| *columns > 0)?;
    Some((columns, rows))
}
