//! Results that fit their bound: what has to be cut is cut from the front of the output, with a line
//! that says how much, and every line of the runtime's stays whole.
//!
//! A result is an output and lines of the runtime's around it. A line of the output that could pass for
//! one of those is quoted.

use std::fmt::Write;
use std::path::Path;

use offshoot_core::text;

use crate::quote;
use crate::shape::Shape;

/// The most bytes that a result has: never less than the lines around an output need with an output
/// that is of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room(usize);

/// The longest path that is shown.
const PATH_BYTES: usize = 300;

impl Room {
    pub(crate) const MIN: usize = 2048;

    /// A bound that is too small is the smallest one.
    pub(crate) fn new(bytes: usize) -> Self {
        Self(bytes.max(Self::MIN))
    }

    pub(crate) const fn bytes(self) -> usize {
        self.0
    }
}

/// What a result is made of.
#[derive(Debug, Default)]
pub(crate) struct Body<'a> {
    /// Lines of the runtime's before the output; none when empty.
    pub(crate) heading: &'a str,
    pub(crate) text: &'a str,
    /// Bytes before `text` that are gone already.
    pub(crate) gap: u64,
    /// Bytes in `text` that were no text and were replaced.
    pub(crate) replaced: u64,
    /// The file that has the output from its first byte on.
    pub(crate) file: Option<File<'a>>,
    /// Stands for an empty output.
    pub(crate) empty: &'a str,
    /// Lines of the runtime's after the output; none when empty.
    pub(crate) last: &'a str,
}

/// A file with an output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File<'a> {
    pub(crate) path: &'a Path,
    /// How many bytes at the end of the output it does not have.
    pub(crate) missing: u64,
}

/// The parts of a body, each on lines of its own, in as many bytes as there is room for: when they do
/// not fit, the output's beginning goes, and a line says how many bytes are missing.
///
/// The lines around the output are never cut; they are bounded by what makes them.
pub(crate) fn fit(body: &Body<'_>, room: Room) -> String {
    let replaced = match body.replaced {
        0 => String::new(),
        n => Shape::Replaced.counted(n, " were replaced]"),
    };
    let ours = body.text.is_empty() && body.gap == 0;
    let words = if ours { body.empty } else { body.text };
    let words = words.strip_suffix('\n').unwrap_or(words);
    let around = [body.heading, &replaced, body.last];
    // Each with the end of its line.
    let around: usize = around.map(|part| part.len() + 1).iter().sum();
    let room = room.bytes().saturating_sub(around);
    let marks = |text: &str| {
        if ours {
            0
        } else {
            quote::COST * quote::count_imitations(text)
        }
    };
    let whole = mark(body, body.gap).len() + 1 + words.len() + marks(words);
    let kept = if whole <= room {
        words
    } else {
        // The mark's length depends on its number: room is kept for the longest one.
        let longest = mark(body, u64::MAX).len() + 1;
        let kept = text::tail(words, room.saturating_sub(longest));
        // What is left of a line may imitate one of ours where the whole line did not.
        let marks = marks(kept) + quote::COST;
        text::tail(kept, kept.len().saturating_sub(marks))
    };
    let missing = body.gap + (words.len() - kept.len()) as u64;
    let kept = if ours {
        kept.to_owned()
    } else {
        quote::imitations(kept)
    };
    lines([
        body.heading,
        &mark(body, missing),
        &kept,
        &replaced,
        body.last,
    ])
}

/// The last of `entries`, whole, one a line, in as many bytes as there is room for.
pub(crate) fn fit_list(entries: &[String], empty: &str, room: Room) -> String {
    if entries.is_empty() {
        return empty.to_owned();
    }
    let all: usize = entries.iter().map(|entry| entry.len() + 1).sum();
    if all - 1 <= room.bytes() {
        return entries.join("\n");
    }
    let mut left = room.bytes() - Shape::Omitted.counted(u64::MAX, "]").len();
    let fits = entries.iter().rev().take_while(|entry| {
        let after = left.checked_sub(entry.len() + 1);
        left = after.unwrap_or(left);
        after.is_some()
    });
    let kept = &entries[entries.len() - fits.count()..];
    let shown: usize = kept.iter().map(|entry| entry.len() + 1).sum();
    let mark = Shape::Omitted.counted((all - shown) as u64, "]");
    lines([&mark, &kept.join("\n")])
}

/// Those parts that there are, each on a line of its own.
fn lines<const N: usize>(parts: [&str; N]) -> String {
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("\n")
}

/// What says that `missing` bytes before the rest are not shown, and where they are.
fn mark(body: &Body<'_>, missing: u64) -> String {
    // A path may hold anything: it must not look like a line of the runtime's.
    let shown = body.file.map(|file| {
        let path = text::one_line(&file.path.display().to_string(), PATH_BYTES);
        (path, file.missing)
    });
    let mut rest = String::new();
    match shown {
        _ if missing == 0 => return rest,
        None => {}
        Some((path, 0)) => {
            let _ = write!(rest, "; the output from its beginning is in {path}");
        }
        Some((path, lost)) => {
            let _ = write!(
                rest,
                "; the beginning of the output is in {path}, which is full: \
the last {lost} bytes of the output are not in it"
            );
        }
    }
    Shape::Omitted.counted(missing, format_args!("{rest}]"))
}

#[cfg(test)]
mod tests;
