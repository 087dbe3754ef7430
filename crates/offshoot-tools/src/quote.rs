//! Text that somebody else wrote, quoted so that no line of it passes for one of the runtime's.
//!
//! Only what imitates a [`Shape`] is quoted, and all that is added is the mark: everything else comes
//! through byte by byte.

mod looks;

use crate::shape::Shape;
use looks::{breaks_a_line, ends_a_place, escape_len, is_nothing, opens, plainly, sequence_len};

const MARK: &str = "> ";

/// How many bytes a quoted line has more.
pub(crate) const COST: usize = MARK.len();

/// Quotes every line, and what could pass for the beginning of a further one within it.
pub(crate) fn every_line(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + text.len() / 8);
    for line in lines(text) {
        quoted.push_str(MARK);
        for (n, (place, rest)) in places(line).enumerate() {
            if n > 0 && imitates(place, rest) {
                quoted.push_str(MARK);
            }
            quoted.push_str(place);
        }
    }
    quoted
}

/// Quotes those lines that a reader could take for the runtime's, and no other. What is quoted already
/// stays as it is.
pub(crate) fn imitations(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for (place, rest) in places(text) {
        if imitates(place, rest) {
            quoted.push_str(MARK);
        }
        quoted.push_str(place);
    }
    quoted
}

/// How many marks [`imitations`] adds.
pub(crate) fn count_imitations(text: &str) -> usize {
    let imitating = places(text).filter(|(place, rest)| imitates(place, rest));
    imitating.count()
}

/// Whether what a reader sees first in `place` is the beginning of a line of ours, whatever is between
/// its letters and whatever they are written with. It may go on after the place, in `rest`, which
/// begins with the place.
fn imitates(place: &str, rest: &str) -> bool {
    let mut seen = place.char_indices().filter(|(_, c)| !is_nothing_before(*c));
    let Some((at, _)) = seen.next().filter(|(_, c)| opens(*c)) else {
        return false;
    };
    let words = appearance(&rest[at..]);
    Shape::ALL.iter().any(|shape| begins(&words, shape.head()))
}

/// Whether what follows it is still the first thing that is read on a line: bullets and boxes say
/// nothing.
fn is_nothing_before(c: char) -> bool {
    is_nothing(c) || !(c.is_ascii() || c.is_alphanumeric() || opens(c))
}

/// How much of a line is compared: more than any head has.
const COMPARED: usize = 40;

/// The beginning of a line as a reader takes it: without what is not seen, letters plain, a number one
/// digit.
fn appearance(line: &str) -> String {
    let (mut seen, mut added) = (String::new(), 0);
    let mut at = 0;
    // What was taken back counts too, so that nobody makes it look further.
    while let Some(c) = line[at..].chars().next()
        && !breaks_a_line(c)
        && added < COMPARED
    {
        at += match escape_len(&line[at..]) {
            0 => c.len_utf8(),
            escape => escape,
        };
        if c == '\u{8}' {
            seen.pop();
        } else if !is_nothing(c) {
            plainly(c, |part| {
                if !(is_number(part) && seen.ends_with(is_number)) {
                    seen.push(part);
                    added += 1;
                }
            });
        }
    }
    seen
}

/// Whether `words` begin with `head`, in which `#` is a number and spaces do not count.
fn begins(words: &str, head: &str) -> bool {
    let mut rest = words;
    head.chars().filter(|c| *c != ' ').all(|c| {
        let after = match c {
            '#' => {
                let after = rest.trim_start_matches(is_number);
                (after.len() < rest.len()).then_some(after)
            }
            c => rest.strip_prefix(c.to_ascii_lowercase()),
        };
        rest = after.unwrap_or_default();
        after.is_some()
    })
}

/// Whether it can be a part of a number.
fn is_number(c: char) -> bool {
    c.is_numeric() || matches!(c, ',' | '.' | '_' | '\'')
}

/// Whatever somebody may see as a line, with its end.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = end_of_line(rest, breaks_a_line);
        let (line, after) = rest.split_at(end);
        rest = after;
        (!line.is_empty()).then_some(line)
    })
}

/// The length of `text` up to the first of what `ends`, with that.
fn end_of_line(text: &str, ends: impl Fn(char) -> bool) -> usize {
    let at = text.find(ends).unwrap_or(text.len());
    match &text[at..] {
        after if after.starts_with("\r\n") => at + 2,
        after => at + after.chars().next().map_or(0, char::len_utf8),
    }
}

/// The places where a line may seem to begin, each up to the next one, and with all that follows it.
/// Besides the lines: after a control character, and after a control sequence of a terminal, of which
/// the part after its first character is a place too.
fn places(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut at = 0;
    // Where the sequence ends whose first character was the last one of the place before.
    let mut sequence_end = 0;
    std::iter::from_fn(move || {
        let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
        let mut length = end_of_line(rest, ends_a_place);
        if sequence_end > at {
            length = length.min(sequence_end - at);
        }
        let place = &rest[..length];
        let last = place.char_indices().next_back();
        if let Some((last, _)) = last {
            sequence_end = at + last + sequence_len(&rest[last..]);
        }
        at += length;
        Some((place, rest))
    })
}

#[cfg(test)]
mod tests;
