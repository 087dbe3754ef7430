//! The end of a text that comes in pieces.

use crate::text::{self, Utf8Decoder};

/// Keeps the last bytes of a stream as text, cut on a character, and counts what it let go.
///
/// ```
/// let mut tail = offshoot_core::process::TailText::new(4);
/// tail.push(b"abcd");
/// tail.push("é".as_bytes());
/// assert_eq!((tail.text(), tail.dropped()), ("cdé", 2));
/// ```
#[derive(Clone, Debug)]
pub struct TailText {
    limit: usize,
    decoder: Utf8Decoder,
    text: String,
    dropped: u64,
}

impl TailText {
    /// Keeps at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            decoder: Utf8Decoder::default(),
            text: String::new(),
            dropped: 0,
        }
    }

    /// Adds what came next.
    pub fn push(&mut self, bytes: &[u8]) {
        let text = self.decoder.push(bytes);
        self.add(&text);
    }

    /// Ends the stream: an incomplete last character becomes U+FFFD.
    pub fn finish(&mut self) {
        let text = self.decoder.finish();
        self.add(&text);
    }

    fn add(&mut self, more: &str) {
        self.text.push_str(more);
        // Not at every piece: a cut moves everything.
        if self.text.len() > self.limit.saturating_mul(2) {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let kept = text::tail(&self.text, self.limit).len();
        let gone = self.text.len() - kept;
        self.text.drain(..gone);
        self.dropped += gone as u64;
    }

    /// What is kept.
    #[must_use]
    pub fn text(&self) -> &str {
        text::tail(&self.text, self.limit)
    }

    /// How many bytes of text came before what is kept.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped + (self.text.len() - self.text().len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_keeps_its_end_and_its_count() {
        let mut tail = TailText::new(10);
        for n in 0..1000 {
            tail.push(format!("{n:03}").as_bytes());
        }
        assert_eq!(tail.text(), "6997998999");
        assert_eq!(tail.dropped(), 2990);
        assert!(tail.text.capacity() < 100);
    }

    #[test]
    fn half_a_character_at_the_end_is_replaced() {
        let mut tail = TailText::new(10);
        tail.push(b"a\xed\x95");
        assert_eq!(tail.text(), "a");
        tail.finish();
        assert_eq!(tail.text(), "a\u{fffd}");
    }
}
