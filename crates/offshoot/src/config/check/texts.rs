//! What texts may have in them, so that what they are for can work.

use std::path::Path;

use offshoot_core::text::one_line;

use super::Fault;

/// The longest name of a provider, in bytes: it stands in lines of listings and of models.
const MAX_NAME: usize = 64;

/// The longest argument, or variable with its value, that Linux hands to a program, in bytes.
const MAX_ARGUMENT: usize = 131_071;

/// A text with something in it.
pub(super) fn not_blank(text: &str, key: &str) -> Result<(), Fault> {
    match text.trim().is_empty() {
        true => Err(Fault::at(key, "expected a text that is not empty")),
        false => Ok(()),
    }
}

/// The name of a provider: one line that reads as it is written.
pub(super) fn name(text: &str, key: &str) -> Result<(), Fault> {
    not_blank(text, key)?;
    if one_line(text, MAX_NAME) == text {
        return Ok(());
    }
    let what = format!(
        "expected a name of one line, at most {MAX_NAME} bytes, without control characters and outer spaces, not `{}`",
        shown(text)
    );
    Err(Fault::at(key, what))
}

/// What a system can hand to a program.
pub(super) fn argument(text: &str, key: &str) -> Result<(), Fault> {
    fits(text.len(), key)?;
    match text.contains('\0') {
        true => Err(Fault::at(key, nul(text))),
        false => Ok(()),
    }
}

/// A variable and its value.
pub(super) fn variable(name: &str, value: &str, key: &str) -> Result<(), Fault> {
    if !is_variable(name) {
        let what = format!("expected the name of a variable, not `{}`", shown(name));
        return Err(Fault::at(key, what));
    }
    let key = format!("{key}.{name}");
    argument(value, &key)?;
    fits(name.len() + "=".len() + value.len(), &key)
}

/// The name of a variable, or the beginning of one. `*` alone would name nothing.
pub(super) fn pattern(text: &str, key: &str) -> Result<(), Fault> {
    let name = text.strip_suffix('*').unwrap_or(text);
    if is_variable(name) && !name.contains('*') {
        return Ok(());
    }
    let what = format!(
        "expected the name of a variable, or the beginning of one and `*`, not `{}`",
        shown(text)
    );
    Err(Fault::at(key, what))
}

/// The whole name of a variable.
pub(super) fn variable_name(text: &str, key: &str) -> Result<(), Fault> {
    if is_variable(text) && !text.contains('*') {
        return Ok(());
    }
    let what = format!(
        "expected the whole name of a variable, not `{}`",
        shown(text)
    );
    Err(Fault::at(key, what))
}

/// A path that may be that of a folder.
pub(super) fn folder(path: &Path, key: &str) -> Result<(), Fault> {
    let text = path.to_string_lossy();
    if text.trim().is_empty() {
        return Err(Fault::at(key, "expected a folder, not an empty text"));
    }
    match text.contains('\0') {
        true => Err(Fault::at(key, nul(&text))),
        false => Ok(()),
    }
}

/// An address. A reader of URLs leaves out white space in it, and another place is meant.
pub(super) fn address(text: &str, key: &str) -> Result<(), Fault> {
    let text = text.trim();
    if !text.is_empty() && !has_gap(text) {
        return Ok(());
    }
    let what = format!("expected a URL without white space, not `{}`", shown(text));
    Err(Fault::at(key, what))
}

fn fits(length: usize, key: &str) -> Result<(), Fault> {
    if length <= MAX_ARGUMENT {
        return Ok(());
    }
    let what = format!(
        "expected at most {MAX_ARGUMENT} bytes, which is what a program can be given, not {length}"
    );
    Err(Fault::at(key, what))
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && !name.contains('=') && !has_gap(name)
}

fn has_gap(text: &str) -> bool {
    text.contains(|c: char| c.is_whitespace() || c.is_control())
}

fn nul(text: &str) -> String {
    let shown = shown(text);
    format!("expected a text without NUL characters, which no program can be given, not `{shown}`")
}

/// The beginning of a text, with what cannot be seen in it written out.
fn shown(text: &str) -> String {
    const MOST: usize = 80;
    let shown = text.escape_debug().to_string();
    match shown.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &shown[..end]),
        None => shown,
    }
}
