//! Bounded text: every cut is on a character boundary, and nothing that a program prints can pass
//! for more than one line where one line is promised.

use std::any::Any;

/// The longest prefix of `text` that has at most `max` bytes and ends on a character boundary.
///
/// ```
/// assert_eq!(offshoot_core::text::head("a界b", 3), "a");
/// ```
#[must_use]
pub fn head(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// The longest suffix of `text` that has at most `max` bytes and begins on a character boundary.
///
/// ```
/// assert_eq!(offshoot_core::text::tail("a界b", 3), "b");
/// ```
#[must_use]
pub fn tail(text: &str, max: usize) -> &str {
    let from = text.len().saturating_sub(max);
    &text[text.ceil_char_boundary(from)..]
}

/// `text` in at most `max` bytes: when it does not fit, its end, after a line that says exactly how
/// many bytes are missing. A bound that has no room for that line gives the bare end.
///
/// ```
/// use offshoot_core::text::marked_tail;
/// assert_eq!(marked_tail("short", 10), "short");
/// assert_eq!(marked_tail(&"x".repeat(100), 50), format!("[70 bytes omitted]\n{}", "x".repeat(30)));
/// ```
#[must_use]
pub fn marked_tail(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mark = |missing: usize| format!("[{missing} bytes omitted]\n");
    // The length of the mark depends on its number: room is kept for the longest one.
    let Some(room) = max.checked_sub(mark(text.len()).len()) else {
        return tail(text, max).to_owned();
    };
    let kept = tail(text, room);
    format!("{}{kept}", mark(text.len() - kept.len()))
}

/// `text` as one line of at most `max` bytes: control and line-separating characters become
/// spaces, runs of white space one space, both ends are trimmed, `[` and `]` are kept, and a cut is
/// marked with `…` (three of the `max` bytes).
///
/// ```
/// use offshoot_core::text::one_line;
/// assert_eq!(one_line("  a\n\tb\u{1b}[2J ", 80), "a b [2J");
/// assert_eq!(one_line("abcdef", 5), "ab…");
/// ```
#[must_use]
pub fn one_line(text: &str, max: usize) -> String {
    const MARK: &str = "…";
    let mut line = String::new();
    let mut gap = false;
    for c in text.chars() {
        if c.is_whitespace() || breaks_a_line(c) {
            gap = !line.is_empty();
            continue;
        }
        let needed = c.len_utf8() + usize::from(gap);
        if line.len() + needed > max {
            if max < MARK.len() {
                line.truncate(line.floor_char_boundary(max));
                return line;
            }
            line.truncate(line.floor_char_boundary(max - MARK.len()));
            line.push_str(MARK);
            return line;
        }
        if gap {
            line.push(' ');
            gap = false;
        }
        line.push(c);
    }
    line
}

/// Control characters, and the invisible ones that reorder or hide what follows them.
fn breaks_a_line(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The message of a panic's payload.
#[must_use]
pub fn panic_message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a value that is not text")
}

/// Turns a stream of bytes into text, chunk by chunk: an incomplete trailing sequence waits for the
/// next chunk, and bytes that are not UTF-8 become U+FFFD and are counted.
///
/// ```
/// let mut decoder = offshoot_core::text::Utf8Decoder::default();
/// assert_eq!(decoder.push(b" \xed\x95"), " ");
/// assert_eq!(decoder.push(b"\x9c\n"), "한\n");
/// assert_eq!(decoder.finish(), "");
/// assert_eq!(decoder.replaced(), 0);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Utf8Decoder {
    held: Vec<u8>,
    replaced: u64,
}

impl Utf8Decoder {
    /// Decodes what is complete of everything pushed so far.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        let joined;
        let bytes = if self.held.is_empty() {
            bytes
        } else {
            self.held.extend_from_slice(bytes);
            joined = std::mem::take(&mut self.held);
            &joined
        };
        let mut text = String::with_capacity(bytes.len());
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            if invalid.is_empty() {
                continue;
            }
            if chunks.peek().is_none() && is_incomplete(invalid) {
                self.held = invalid.to_vec();
            } else {
                self.replaced += invalid.len() as u64;
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        text
    }

    /// Ends the stream: an incomplete sequence that still waits becomes U+FFFD.
    pub fn finish(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        if held.is_empty() {
            return String::new();
        }
        self.replaced += held.len() as u64;
        char::REPLACEMENT_CHARACTER.to_string()
    }

    /// How many bytes were replaced so far.
    #[must_use]
    pub fn replaced(&self) -> u64 {
        self.replaced
    }
}

/// Whether more bytes could make `bytes`, an invalid sequence at the end of the input, valid.
fn is_incomplete(bytes: &[u8]) -> bool {
    match std::str::from_utf8(bytes) {
        Err(error) => error.error_len().is_none(),
        Ok(_) => false,
    }
}
