//! Everything that the program prints.

pub(crate) mod json;
pub(crate) mod progress;
pub(crate) mod terminal;
mod tree;

use std::io::{ErrorKind, Write as _};

use anyhow::Context as _;

use crate::fault::Fault;

/// Says on stderr, in one line, why the program does not go on.
pub(crate) fn complain(fault: &Fault) {
    if !matches!(fault, Fault::StdoutClosed) {
        note(fault);
    }
}

/// One line on stderr. A closed stderr is nobody's fault.
pub(crate) fn note(line: impl std::fmt::Display) {
    let line = line.to_string().replace(['\n', '\r'], " ");
    let _ = writeln!(std::io::stderr(), "offshoot: {line}");
}

/// A result on stdout, with a line end.
pub(crate) fn result(text: &str) -> Result<(), Fault> {
    let mut out = std::io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let written = write!(out, "{text}{end}").and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Fault::StdoutClosed),
        other => Ok(other.context("stdout")?),
    }
}

/// A value on stdout, as JSON.
pub(crate) fn json_result(value: &impl serde::Serialize) -> Result<(), Fault> {
    result(&serde_json::to_string_pretty(value).context("the result")?)
}
