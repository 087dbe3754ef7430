//! The kind of a task: the first part of its id.

use std::fmt;
use std::ops::Deref;

/// Longest kind, in bytes.
pub(crate) const KIND_LIMIT: usize = 32;

/// The kind of a task: 1 to 32 characters of `[a-z0-9_-]`. It is a `str` to all intents, in place, so
/// that copying one costs no shared counter.
// The unused bytes are zero, so that the derived order is the order of the texts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskKind {
    bytes: [u8; KIND_LIMIT],
    len: u8,
}

impl TaskKind {
    /// `kind` as a kind, when it is one.
    #[must_use]
    pub fn new(kind: &str) -> Option<Self> {
        let valid = (1..=KIND_LIMIT).contains(&kind.len())
            && kind
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-');
        if !valid {
            return None;
        }
        let mut bytes = [0; KIND_LIMIT];
        bytes[..kind.len()].copy_from_slice(kind.as_bytes());
        let len = u8::try_from(kind.len()).ok()?;
        Some(Self { bytes, len })
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // A kind is ASCII.
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl Deref for TaskKind {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for TaskKind {
    fn as_ref(&self) -> &str {
        self
    }
}

impl fmt::Display for TaskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for TaskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl PartialEq<str> for TaskKind {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_ordered_and_compared_as_their_texts() {
        let texts = ["a", "a-b", "ab", "b", "bash", "bash-", "pty-send"];
        let kinds = texts.map(|text| TaskKind::new(text).unwrap());
        for (a, x) in kinds.iter().zip(texts) {
            for (b, y) in kinds.iter().zip(texts) {
                assert_eq!(a.cmp(b), x.cmp(y), "{x} and {y}");
            }
            assert_eq!((a.as_str(), format!("{a}").as_str()), (x, x));
        }
        for bad in ["", "Bash", "a b", "a.b", "ä", &"x".repeat(33)] {
            assert_eq!(TaskKind::new(bad), None, "{bad:?}");
        }
    }
}
