//! The protocol over a pair of streams: a message a line, from a client that may send anything.
//!
//! - A line that is no message is answered with an error, and nothing of it is repeated.
//! - A line that is too long is skipped without being kept; a blank one is no line.
//! - While too many requests are not answered, nothing more is read.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use rmcp::service::RoleServer;
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Mutex as AsyncMutex, Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::message::{self, Fault};

/// Requests that are not answered: beyond it nothing is read.
const MAX_OPEN: usize = 256;
/// Answers to lines that are no messages that may wait to be written.
const MAX_FAULTS: usize = 16;
/// Cancelled requests whose ids are remembered.
const MAX_CANCELLED: usize = 1024;
/// How long a client that has gone may take what is still written to it.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The two streams. Cloning gives another handle to the same ones.
pub(crate) struct Lines<R, W>(Arc<Inner<R, W>>);

impl<R, W> Clone for Lines<R, W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Inner<R, W> {
    read: AsyncMutex<Reading<R>>,
    write: AsyncMutex<W>,
    open: Mutex<Open>,
    /// After each change of `open`.
    changed: Notify,
    faults: Arc<Semaphore>,
    gone: CancellationToken,
    /// Why a stream failed, the first time, when it was not that the client has gone.
    failed: OnceLock<io::Error>,
}

struct Reading<R> {
    from: BufReader<R>,
    line: Vec<u8>,
    max: usize,
    /// The rest of a line that was too long is skipped.
    skipping: bool,
}

#[derive(Default)]
struct Open {
    ids: HashSet<RequestId>,
    /// Answers on their way. Their ids are free again: the client may have read them.
    writing: usize,
    /// They get no answer, and their work may still be about to give one: an id of theirs is not good
    /// for another request.
    cancelled: VecDeque<RequestId>,
    /// A request that begins the protocol was read: what is no request may come.
    begun: bool,
}

impl Open {
    fn len(&self) -> usize {
        self.ids.len() + self.writing
    }
}

/// What one line came to.
enum Line {
    Whole,
    TooLong,
    End,
}

impl<R: AsyncRead + Unpin> Reading<R> {
    /// Reads on to the end of a line. Dropping the future loses nothing: what was taken is in `line`.
    async fn next(&mut self) -> io::Result<Line> {
        loop {
            let there = self.from.fill_buf().await?;
            if there.is_empty() {
                return Ok(Line::End);
            }
            let end = there.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(there.len(), |end| end + 1);
            let too_long = self.line.len() + taken > self.max;
            if !self.skipping && !too_long {
                self.line.extend_from_slice(&there[..taken]);
            }
            self.from.consume(taken);
            self.skipping |= too_long;
            if end.is_none() {
                continue;
            }
            if std::mem::take(&mut self.skipping) {
                return Ok(Line::TooLong);
            }
            // "Messages are delimited by newlines": one more is no message.
            if !self.line.trim_ascii().is_empty() {
                return Ok(Line::Whole);
            }
            self.line.clear();
        }
    }
}

impl<R, W> Lines<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub(crate) fn new(read: R, write: W, max_line_bytes: usize) -> Self {
        Self(Arc::new(Inner {
            read: AsyncMutex::new(Reading {
                from: BufReader::new(read),
                line: Vec::new(),
                max: max_line_bytes,
                skipping: false,
            }),
            write: AsyncMutex::new(write),
            open: Mutex::default(),
            changed: Notify::new(),
            faults: Arc::new(Semaphore::new(MAX_FAULTS)),
            gone: CancellationToken::new(),
            failed: OnceLock::new(),
        }))
    }

    /// What ended the protocol when the client did not.
    pub(crate) fn failure(&self) -> io::Result<()> {
        match self.0.failed.get() {
            Some(error) => Err(io::Error::new(error.kind(), error.to_string())),
            None => Ok(()),
        }
    }

    /// Keeps why a stream failed. A client that has gone is no failure.
    fn fail(&self, what: &str, error: &io::Error) {
        let gone = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
        if !gone.contains(&error.kind()) {
            let told = io::Error::new(error.kind(), format!("{what}: {error}"));
            // A later one follows from the first.
            let _ = self.0.failed.set(told);
        }
    }

    /// Cancelled when the client has closed its side, or does not take what is written to it any more.
    pub(crate) fn gone(&self) -> CancellationToken {
        self.0.gone.clone()
    }

    /// Waits until every request that was read is answered. Dropping the future has no effect.
    pub(crate) async fn all_answered(&self) {
        self.until(|open| open.len() == 0).await;
    }

    async fn until(&self, done: impl Fn(&Open) -> bool) {
        loop {
            let changed = self.0.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if done(&self.0.open()) {
                return;
            }
            changed.await;
        }
    }

    /// The next message, or what is wrong with the next line. `None` at the end.
    async fn read(&self) -> Option<Result<ClientJsonRpcMessage, Fault>> {
        let mut reading = self.0.read.lock().await;
        match reading.next().await {
            Ok(Line::Whole) => {
                let mut line = std::mem::take(&mut reading.line);
                let message = message::parse(line.trim_ascii());
                line.clear();
                if line.capacity() <= 64 * 1024 {
                    reading.line = line;
                }
                Some(message)
            }
            Ok(Line::TooLong) => {
                reading.line = Vec::new();
                let message = format!(
                    "the line is too long: expected at most {} bytes",
                    reading.max
                );
                Some(Err(Fault::new(ErrorData::invalid_request(message, None))))
            }
            // A line without an end is no message.
            Ok(Line::End) => None,
            Err(error) => {
                self.fail("cannot read from the client", &error);
                None
            }
        }
    }

    /// Whether a message goes on to the protocol. A request is open from here on.
    fn admit(&self, message: &ClientJsonRpcMessage) -> Result<bool, Fault> {
        let mut open = self.0.open();
        match message {
            JsonRpcMessage::Request(request) => {
                if open.cancelled.contains(&request.id) || !open.ids.insert(request.id.clone()) {
                    let message = "the request's id is in use: expected one of its own";
                    // Without the id: an answer with it would be the other request's.
                    return Err(Fault::new(ErrorData::invalid_request(message, None)));
                }
                open.begun = true;
                Ok(true)
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) =
                    &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    if open.ids.remove(id) {
                        open.cancelled.push_back(id.clone());
                        if open.cancelled.len() > MAX_CANCELLED {
                            open.cancelled.pop_front();
                        }
                    }
                    self.0.changed.notify_waiters();
                }
                Ok(open.begun)
            }
            // Nothing was asked of the client.
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => Ok(false),
        }
    }

    async fn write(&self, message: &ServerJsonRpcMessage) -> io::Result<()> {
        let mut line = serde_json::to_vec(message).map_err(io::Error::other)?;
        line.push(b'\n');
        let writing = async {
            let mut write = self.0.write.lock().await;
            write.write_all(&line).await?;
            write.flush().await
        };
        let written = tokio::select! {
            written = writing => {
                if let Err(error) = &written {
                    self.fail("cannot write to the client", error);
                }
                written
            }
            () = async { self.0.gone.cancelled().await; tokio::time::sleep(LAST_WORDS).await } => {
                Err(io::ErrorKind::TimedOut.into())
            }
        };
        if written.is_err() {
            self.0.gone.cancel();
        }
        written
    }
}

impl<R, W> Inner<R, W> {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer on its way.
struct Answering<R, W>(Lines<R, W>);

impl<R, W> Answering<R, W> {
    fn begin(lines: &Lines<R, W>, message: &ServerJsonRpcMessage) -> Option<Self> {
        let id = match message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            _ => None,
        };
        let mut open = lines.0.open();
        open.ids.remove(id?);
        open.writing += 1;
        Some(Self(lines.clone()))
    }
}

impl<R, W> Drop for Answering<R, W> {
    fn drop(&mut self) {
        self.0.0.open().writing -= 1;
        self.0.0.changed.notify_waiters();
    }
}

impl<R, W> Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let lines = self.clone();
        let answering = Answering::begin(&lines, &item);
        async move {
            let written = lines.write(&item).await;
            drop(answering);
            written
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            self.until(|open| open.len() < MAX_OPEN).await;
            // Taken before the line: whoever drops this future drops no answer.
            let Ok(place) = Arc::clone(&self.0.faults).acquire_owned().await else {
                return None;
            };
            let read = tokio::select! {
                read = self.read() => read,
                () = self.0.gone.cancelled() => None,
            };
            let Some(read) = read else {
                self.0.gone.cancel();
                return None;
            };
            let fault = match read {
                Ok(message) => match self.admit(&message) {
                    Ok(true) => return Some(message),
                    Ok(false) => continue,
                    Err(fault) => fault,
                },
                Err(fault) => fault,
            };
            let answer = ServerJsonRpcMessage::error(*fault.error, fault.id);
            let lines = self.clone();
            tokio::spawn(async move {
                // A client that takes no answers is gone, and is read as such.
                let _ = lines.write(&answer).await;
                drop(place);
            });
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}
