//! Lines of a pipe whose writer is not trusted: no line takes more memory than its limit.

use tokio::io::{AsyncRead, AsyncReadExt};

const CHUNK: usize = 16 * 1024;

/// One line, without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A line within the limit; bytes that are not UTF-8 are U+FFFD in it.
    Text(String),
    /// A line longer than the limit, which was read to its end and thrown away.
    TooLong {
        /// How long it was.
        bytes: u64,
    },
}

/// Reads lines, each of a bounded length. The last one need not end with a line feed.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> std::io::Result<()> {
/// use offshoot_core::process::{Line, LineReader};
/// let mut lines = LineReader::new(&b"one\r\na line that is long\ntwo"[..], 8);
/// assert_eq!(lines.next().await?, Some(Line::Text("one".to_owned())));
/// assert_eq!(lines.next().await?, Some(Line::TooLong { bytes: 19 }));
/// assert_eq!(lines.next().await?, Some(Line::Text("two".to_owned())));
/// assert_eq!(lines.next().await?, None);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct LineReader<R> {
    source: R,
    limit: usize,
    chunk: Box<[u8]>,
    /// The unread part of the chunk.
    from: usize,
    to: usize,
    line: Vec<u8>,
    /// How long the line is so far, kept or not.
    length: u64,
    ended: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// Reads lines of at most `limit` bytes.
    pub fn new(source: R, limit: usize) -> Self {
        Self {
            source,
            limit,
            chunk: vec![0; CHUNK].into(),
            from: 0,
            to: 0,
            line: Vec::new(),
            length: 0,
            ended: false,
        }
    }

    /// The next line; `None` at the end.
    ///
    /// Dropping the future loses nothing: what was read of a line is kept for the next call.
    ///
    /// # Errors
    ///
    /// When the source cannot be read.
    pub async fn next(&mut self) -> std::io::Result<Option<Line>> {
        loop {
            if let Some(line) = self.buffered() {
                return Ok(Some(line));
            }
            if self.ended {
                return Ok((self.length > 0).then(|| self.take()));
            }
            self.from = 0;
            self.to = 0;
            self.to = self.source.read(&mut self.chunk).await?;
            self.ended = self.to == 0;
        }
    }

    /// A line whose end is in the chunk.
    fn buffered(&mut self) -> Option<Line> {
        let rest = &self.chunk[self.from..self.to];
        let end = rest.iter().position(|byte| *byte == b'\n');
        let part = &rest[..end.unwrap_or(rest.len())];
        self.length += part.len() as u64;
        if self.length <= self.limit as u64 {
            self.line.extend_from_slice(part);
        } else {
            self.line = Vec::new();
        }
        self.from += part.len() + usize::from(end.is_some());
        end.map(|_| self.take())
    }

    fn take(&mut self) -> Line {
        let bytes = std::mem::take(&mut self.length);
        let line = std::mem::take(&mut self.line);
        if bytes > self.limit as u64 {
            return Line::TooLong { bytes };
        }
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        Line::Text(String::from_utf8_lossy(line).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(text: &[u8], limit: usize) -> Vec<Line> {
        let mut reader = LineReader::new(text, limit);
        let mut lines = Vec::new();
        while let Some(line) = reader.next().await.unwrap() {
            lines.push(line);
        }
        lines
    }

    #[tokio::test]
    async fn lines_at_the_limit_and_across_chunks_are_whole() {
        let long = "x".repeat(3 * CHUNK);
        let text = format!("\n{long}\nб\n{long}y\n");
        let lines = all(text.as_bytes(), long.len()).await;
        let text = |text: &str| Line::Text(text.to_owned());
        let bytes = long.len() as u64 + 1;
        let expected = [text(""), text(&long), text("б"), Line::TooLong { bytes }];
        assert_eq!(lines, expected);
    }

    #[tokio::test]
    async fn a_line_without_end_takes_no_memory() {
        let text = vec![b'y'; 1 << 20];
        let mut reader = LineReader::new(&text[..], 100);
        assert_eq!(
            reader.next().await.unwrap(),
            Some(Line::TooLong { bytes: 1 << 20 })
        );
        assert!(reader.line.capacity() <= 4 * CHUNK);
        assert_eq!(reader.next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_read_that_lost_a_race_loses_nothing() {
        use tokio::io::AsyncWriteExt;
        let (mut near, far) = tokio::io::duplex(64);
        let mut reader = LineReader::new(far, 100);
        near.write_all(b"half").await.unwrap();
        tokio::select! {
            biased;
            _ = reader.next() => unreachable!("the line has no end yet"),
            () = std::future::ready(()) => {}
        }
        near.write_all(b" a line\n").await.unwrap();
        assert_eq!(
            reader.next().await.unwrap(),
            Some(Line::Text("half a line".to_owned()))
        );
    }
}
