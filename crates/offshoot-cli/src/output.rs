//! Everything that the program prints.

pub(crate) mod json;
mod plain;
pub(crate) mod progress;
pub(crate) mod terminal;
mod tree;

use std::borrow::Cow;
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
    let line = plain::plain(&line.to_string()).replace('\n', " ");
    let _ = writeln!(std::io::stderr(), "offshoot: {line}");
}

/// To a person who has started a server himself: why nothing happens.
pub(crate) fn says_who_is_awaited(client: &str) {
    if terminal::is_stdin() {
        note(format_args!(
            "waits on stdin for the messages of {client}, which starts this command itself; \
             Ctrl-C or Ctrl-D ends it"
        ));
    }
}

/// A result on stdout, with a line end. A pipe gets the text as it is; a terminal gets nothing that
/// it would obey.
pub(crate) fn result(text: &str) -> Result<(), Fault> {
    let text = match terminal::is_stdout() {
        true => plain::plain(text),
        false => Cow::Borrowed(text),
    };
    write_out(&text)
}

/// A value on stdout, as JSON.
pub(crate) fn json_result(value: &impl serde::Serialize) -> Result<(), Fault> {
    let text = serde_json::to_vec_pretty(value).context("the result")?;
    let text = match terminal::is_stdout() {
        true => plain::plain_json(&text),
        false => Cow::Borrowed(&text[..]),
    };
    write_out(&String::from_utf8_lossy(&text))
}

/// A line between the tree and the answer, when one terminal shows both.
pub(crate) fn gap() {
    if terminal::is_stderr() && terminal::is_stdout() {
        let _ = writeln!(std::io::stderr());
    }
}

fn write_out(text: &str) -> Result<(), Fault> {
    let mut out = std::io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let written = write!(out, "{text}{end}").and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Fault::StdoutClosed),
        other => Ok(other.context("stdout")?),
    }
}
