//! An agent's pipes as lines: what it writes is bounded before anything else looks at it.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::{Sink, Stream};
use offshoot_core::process::{Line, LineReader};
use offshoot_core::text;
use serde::de::IgnoredAny;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::{AcpError, AcpSettings};

/// Lines that are no messages, such as a stray log line, up to which an agent is believed.
const GARBAGE_LIMIT: u64 = 1000;

/// Answers that may wait for an agent to read them.
const UNREAD_LIMIT: usize = 1000;

/// After so many lines whoever handles them gets a turn: the connection queues without a bound.
const LINES_AT_ONCE: u64 = 64;

/// What is known of both pipes. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wire(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// What the agent asked for and was not yet told.
    unread: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    fault: Option<AcpError>,
    garbage: u64,
    sample: String,
}

impl Wire {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // Nothing that can panic half way runs under this lock.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the agent did to its output that ended the connection, once.
    pub(crate) fn take_fault(&self) -> Option<AcpError> {
        self.state().fault.take()
    }

    /// The last line that was no message, for a diagnostic.
    pub(crate) fn garbage(&self) -> Option<String> {
        let state = self.state();
        (state.garbage > 0).then(|| state.sample.clone())
    }

    /// Counts an answer that is to be written.
    pub(crate) fn asked(&self) {
        self.0.unread.fetch_add(1, Ordering::Relaxed);
    }

    fn wrote(&self) {
        // What we ask ourselves is written, too, and was never counted.
        let less = |unread: usize| unread.checked_sub(1);
        let _ = self
            .0
            .unread
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    fn fail(&self, fault: AcpError) -> io::Error {
        let error = io::Error::other(fault.to_string());
        self.state().fault.get_or_insert(fault);
        error
    }

    /// Whether the line can be a message; another one is counted.
    fn admit(&self, line: &str) -> Result<bool, io::Error> {
        let is_object = line.trim_start().starts_with('{');
        if is_object && serde_json::from_str::<IgnoredAny>(line).is_ok() {
            return Ok(true);
        }
        if line.trim().is_empty() {
            return Ok(false);
        }
        let garbage = {
            let mut state = self.state();
            state.garbage += 1;
            state.sample = text::one_line(line, 200);
            (state.garbage > GARBAGE_LIMIT).then(|| AcpError::Garbage {
                lines: state.garbage,
                sample: state.sample.clone(),
            })
        };
        match garbage {
            Some(fault) => Err(self.fail(fault)),
            None => Ok(false),
        }
    }

    /// The messages that the agent writes, until it has written too much or none.
    pub(crate) fn incoming<R: AsyncRead + Unpin + Send + 'static>(
        &self,
        source: R,
        settings: &AcpSettings,
    ) -> impl Stream<Item = io::Result<String>> + Send + 'static {
        let reader = Incoming {
            wire: self.clone(),
            lines: LineReader::new(source, settings.max_line),
            max_line: settings.max_line,
            max_output: settings.max_output,
            read: 0,
            count: 0,
        };
        reader.stream()
    }

    /// Writes one line at a time.
    pub(crate) fn outgoing<W: AsyncWrite + Unpin + Send + 'static>(
        &self,
        pipe: W,
    ) -> impl Sink<String, Error = io::Error> + Send + 'static {
        futures::sink::unfold(
            (pipe, self.clone()),
            async |(mut pipe, wire), line: String| {
                let mut bytes = line.into_bytes();
                bytes.push(b'\n');
                pipe.write_all(&bytes).await?;
                pipe.flush().await?;
                wire.wrote();
                Ok((pipe, wire))
            },
        )
    }
}

struct Incoming<R> {
    wire: Wire,
    lines: LineReader<R>,
    max_line: usize,
    max_output: u64,
    read: u64,
    count: u64,
}

impl<R: AsyncRead + Unpin + Send + 'static> Incoming<R> {
    fn stream(self) -> impl Stream<Item = io::Result<String>> + Send + 'static {
        futures::stream::unfold(Some(self), async |reader| {
            let mut reader = reader?;
            match reader.next().await {
                Ok(Some(line)) => Some((Ok(line), Some(reader))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        })
    }

    async fn next(&mut self) -> io::Result<Option<String>> {
        loop {
            self.count += 1;
            if self.count.is_multiple_of(LINES_AT_ONCE) {
                tokio::task::yield_now().await;
            }
            let waiting = self.wire.0.unread.load(Ordering::Relaxed);
            if waiting > UNREAD_LIMIT {
                return Err(self.wire.fail(AcpError::Unread { waiting }));
            }
            let line = match self.lines.next().await? {
                None => return Ok(None),
                Some(Line::TooLong { bytes }) => {
                    let limit = self.max_line;
                    return Err(self.wire.fail(AcpError::LineTooLong { bytes, limit }));
                }
                Some(Line::Text(line)) => line,
            };
            let limit = self.max_output;
            self.read += line.len() as u64 + 1;
            if self.read > limit {
                return Err(self.wire.fail(AcpError::Flood { limit }));
            }
            if self.wire.admit(&line)? {
                return Ok(Some(line));
            }
        }
    }
}
