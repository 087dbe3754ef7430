//! Files that somebody names.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The most that a configuration, a schema or a script may have, in bytes.
const LIMIT: u64 = 16 * 1024 * 1024;

/// Reads a text that somebody has named, of at most 16 MiB: it may be a pipe, and it may be without end.
/// A mark of the byte order at its beginning is left out.
///
/// # Errors
///
/// What the system says; `InvalidData` when it is longer, or is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    read_limited(File::open(path)?, LIMIT)
}

fn read_limited(from: impl Read, limit: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    from.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let what = format!("it has more than {limit} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    // A mark of the byte order, which some editors put before a text, is no part of it.
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    let utf8 = String::from_utf8(bytes);
    utf8.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_refused() {
        let endless = read_limited(io::repeat(b' '), 100).expect_err("no end");
        assert_eq!(endless.to_string(), "it has more than 100 bytes");
        let whole = read_limited(io::repeat(b' ').take(100), 100).expect("a text");
        assert_eq!(whole.len(), 100);
        assert!(read_limited(&b"\xff"[..], 100).is_err());
    }

    #[test]
    fn a_mark_of_the_byte_order_is_left_out_once_and_only_at_the_beginning() {
        let read = |text: &str| read_limited(text.as_bytes(), 100).expect("a text");
        assert_eq!(read("\u{feff}a\u{feff}b"), "a\u{feff}b");
        assert_eq!(read("\u{feff}"), "");
    }
}
