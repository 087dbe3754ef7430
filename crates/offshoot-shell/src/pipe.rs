//! The output pipe of a command: bytes in, text out.

use offshoot_core::text::Utf8Decoder;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::spill::Sink;

const CHUNK: usize = 8 * 1024;

/// Reads a pipe into a sink. A character that comes in two pieces is whole.
pub(crate) struct Pipe<R> {
    /// `None` at the end of the stream.
    source: Option<R>,
    decoder: Utf8Decoder,
    replaced: u64,
    sink: Sink,
    chunk: Box<[u8]>,
}

impl<R: AsyncRead + Unpin> Pipe<R> {
    pub(crate) fn new(source: Option<R>, sink: Sink) -> Self {
        Self {
            source,
            decoder: Utf8Decoder::default(),
            replaced: 0,
            sink,
            chunk: vec![0; CHUNK].into(),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.source.is_some()
    }

    /// Reads once and writes what came. Never completes once the stream has ended.
    ///
    /// Dropping the future loses nothing: what was read is written in the same poll.
    pub(crate) async fn pump(&mut self) {
        let Some(source) = &mut self.source else {
            return std::future::pending().await;
        };
        match source.read(&mut self.chunk).await {
            Ok(0) | Err(_) => self.finish(),
            Ok(read) => {
                let text = self.decoder.push(&self.chunk[..read]);
                self.write(&text);
            }
        }
    }

    /// Ends the stream: what the decoder holds back is written.
    pub(crate) fn finish(&mut self) {
        if self.source.take().is_some() {
            let text = self.decoder.finish();
            self.write(&text);
        }
    }

    fn write(&mut self, text: &str) {
        self.sink.write(text);
        let replaced = self.decoder.replaced();
        self.sink.note_replaced(replaced - self.replaced);
        self.replaced = replaced;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use offshoot_task::OutputBuffer;
    use tokio::io::AsyncWriteExt;

    fn pair(buffer: &OutputBuffer) -> (tokio::io::DuplexStream, Pipe<tokio::io::DuplexStream>) {
        let (near, far) = tokio::io::duplex(64 * 1024);
        (
            near,
            Pipe::new(Some(far), Sink::new(buffer.writer(), 0, None)),
        )
    }

    #[tokio::test]
    async fn b065_a_character_in_two_chunks_is_whole() {
        let buffer = OutputBuffer::new(1024);
        let (mut near, mut pipe) = pair(&buffer);
        near.write_all(b"a\xed\x95").await.unwrap();
        pipe.pump().await;
        assert_eq!(buffer.read_at(0).text, "a");
        near.write_all(b"\x9c\n").await.unwrap();
        pipe.pump().await;
        assert_eq!(buffer.read_at(0).text, "a한\n");
        assert_eq!(buffer.replaced(), 0);
    }

    #[tokio::test]
    async fn b071_a_character_across_the_edge_of_the_chunk_does_not_end_the_stream() {
        let buffer = OutputBuffer::new(64 * 1024);
        let (mut near, mut pipe) = pair(&buffer);
        let text = format!("{}И{}", "a".repeat(CHUNK - 1), "b".repeat(1000));
        near.write_all(text.as_bytes()).await.unwrap();
        drop(near);
        while pipe.is_open() {
            pipe.pump().await;
        }
        assert_eq!(buffer.read_at(0).text, text);
    }

    #[tokio::test]
    async fn b067_bytes_that_are_not_text_are_replaced_and_counted() {
        let buffer = OutputBuffer::new(1024);
        let (mut near, mut pipe) = pair(&buffer);
        near.write_all(b"foo\xff\xfebar\xe7\x95").await.unwrap();
        drop(near);
        while pipe.is_open() {
            pipe.pump().await;
        }
        assert_eq!(buffer.read_at(0).text, "foo\u{fffd}\u{fffd}bar\u{fffd}");
        assert_eq!(buffer.replaced(), 4);
    }

    #[tokio::test]
    async fn b041_a_partial_line_survives_a_read_that_lost_the_race() {
        let buffer = OutputBuffer::new(1024);
        let (mut near, mut pipe) = pair(&buffer);
        for part in ["o", "k"] {
            near.write_all(part.as_bytes()).await.unwrap();
            pipe.pump().await;
            tokio::select! {
                biased;
                () = pipe.pump() => unreachable!("there is nothing"),
                () = std::future::ready(()) => {}
            }
        }
        drop(near);
        while pipe.is_open() {
            pipe.pump().await;
        }
        assert_eq!(buffer.read_at(0).text, "ok");
    }
}
