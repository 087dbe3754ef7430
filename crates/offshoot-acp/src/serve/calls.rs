//! Both pipes of a client: a message a line, from somebody who may write anything.
//!
//! - A line that is no message, or is too long, is answered with an error, and nothing of it is repeated.
//! - A request whose id is in use is refused, so that each answer belongs to one request.
//! - Nothing more is read while messages wait to be handled, or while answers to faulty lines wait to be
//!   written.
//!
//! What the messages mean is not known here.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol::{
    Error, RawJsonRpcId, RawJsonRpcMessage, RawJsonRpcResponse, TransportFrame,
};
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender};
use offshoot_core::process::{Line, LineReader};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

/// How long one message of a client may be.
pub(super) const MAX_LINE: usize = 32 * 1024 * 1024;

/// Messages that were read and are not yet being handled.
const MAX_QUEUED: usize = 16;

/// Answers to faulty lines that may wait to be written.
const MAX_FAULTS: usize = 16;

/// Messages that may wait for a client to read them.
const MAX_UNREAD: usize = 50_000;

/// What is known of both pipes. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Calls(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The requests that are not answered.
    open: Mutex<HashSet<RawJsonRpcId>>,
    places: Semaphore,
    unread: AtomicUsize,
    /// The client does not read, or cannot.
    deaf: CancellationToken,
}

/// The answers to faulty lines, on their way from the reader to the writer.
pub(super) struct Faults(mpsc::Receiver<String>);

/// Where the reader puts them.
pub(super) struct Faulty(mpsc::Sender<String>);

impl Calls {
    pub(super) fn new() -> Self {
        Self(Arc::new(Inner {
            open: Mutex::default(),
            places: Semaphore::new(MAX_QUEUED),
            unread: AtomicUsize::new(0),
            deaf: CancellationToken::new(),
        }))
    }

    pub(super) fn faults() -> (Faulty, Faults) {
        let (faulty, faults) = mpsc::channel(MAX_FAULTS);
        (Faulty(faulty), Faults(faults))
    }

    fn open(&self) -> MutexGuard<'_, HashSet<RawJsonRpcId>> {
        // Nothing that can panic half way runs under this lock.
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a message that is to be written.
    pub(super) fn queued(&self) {
        if self.0.unread.fetch_add(1, Ordering::Relaxed) >= MAX_UNREAD {
            self.0.deaf.cancel();
        }
    }

    /// A message that was read is being handled: another one may be read.
    pub(super) fn handled(&self) {
        self.0.places.add_permits(1);
    }

    /// Waits until the client turns out not to read. Dropping the future has no effect.
    pub(super) async fn deaf(&self) {
        self.0.deaf.cancelled().await;
    }

    /// How many messages wait, when they are too many.
    pub(super) fn overrun(&self) -> Option<usize> {
        let waiting = self.0.unread.load(Ordering::Relaxed);
        (waiting > MAX_UNREAD).then_some(waiting)
    }

    /// Hands on what the client writes, to the end of its input.
    pub(super) async fn read(
        &self,
        input: impl AsyncRead + Unpin,
        calls: UnboundedSender<TransportFrame>,
        faulty: Faulty,
    ) -> io::Result<()> {
        let mut lines = LineReader::new(input, MAX_LINE);
        while let Some(line) = lines.next().await.map_err(unread)? {
            let message = match line {
                Line::TooLong { .. } => {
                    let words = format!("the line is too long: expected at most {MAX_LINE} bytes");
                    Err(invalid_request(words))
                }
                Line::Text(line) if line.trim().is_empty() => continue,
                Line::Text(line) => parse(&line),
            };
            match message.and_then(|message| self.admit(message)) {
                Ok(Some(message)) => {
                    // Closed never: and a place that was taken is given back by `handled`.
                    if let Ok(place) = self.0.places.acquire().await {
                        place.forget();
                    }
                    if calls
                        .unbounded_send(TransportFrame::Single(message))
                        .is_err()
                    {
                        return Ok(());
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    let answer = json!({ "jsonrpc": "2.0", "id": null, "error": error });
                    if faulty.0.send(answer.to_string()).await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a message goes on. A request is open from here on.
    fn admit(&self, message: RawJsonRpcMessage) -> Result<Option<RawJsonRpcMessage>, Error> {
        match &message {
            RawJsonRpcMessage::Request(request) => {
                if !self.open().insert(request.id.clone()) {
                    let words = "the request's id is in use: expected one of its own";
                    // Without the id: an answer with it would be the other request's.
                    return Err(invalid_request(words.to_owned()));
                }
                Ok(Some(message))
            }
            // Of the protocol itself: nothing that begins so has to be understood.
            RawJsonRpcMessage::Notification(it) if it.method.starts_with("$/") => Ok(None),
            RawJsonRpcMessage::Notification(_) => Ok(Some(message)),
            // Nothing was asked of the client.
            RawJsonRpcMessage::Response(_) => Ok(None),
        }
    }

    /// Writes what the client is to read, until both sources have ended.
    pub(super) async fn write(
        &self,
        output: impl AsyncWrite + Unpin,
        mut answers: UnboundedReceiver<TransportFrame>,
        mut faults: Faults,
    ) -> io::Result<()> {
        let mut output = output;
        loop {
            let line = tokio::select! {
                Some(line) = faults.0.recv() => line,
                Some(frame) = answers.next() => {
                    if let TransportFrame::Single(RawJsonRpcMessage::Response(response)) = &frame {
                        let (RawJsonRpcResponse::Result { id, .. }
                        | RawJsonRpcResponse::Error { id, .. }) = response;
                        // Before it is written: the client may use the id as soon as it has read it.
                        self.open().remove(id);
                    }
                    self.wrote();
                    frame.to_json().map_err(|error| io::Error::other(error.message))?
                }
                else => return Ok(()),
            };
            if let Err(error) = self.put(&mut output, line).await {
                self.0.deaf.cancel();
                return Err(failed("cannot write to the client", &error));
            }
        }
    }

    fn wrote(&self) {
        let less = |unread: usize| unread.checked_sub(1);
        let unread = &self.0.unread;
        let _ = unread.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    async fn put(&self, output: &mut (impl AsyncWrite + Unpin), line: String) -> io::Result<()> {
        let mut bytes = line.into_bytes();
        bytes.push(b'\n');
        output.write_all(&bytes).await?;
        output.flush().await
    }
}

fn unread(error: io::Error) -> io::Error {
    failed("cannot read from the client", &error)
}

fn failed(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

fn invalid_request(words: String) -> Error {
    let mut error = Error::invalid_request();
    error.message = words;
    error
}

fn parse(line: &str) -> Result<RawJsonRpcMessage, Error> {
    let value: Value = serde_json::from_str(line).map_err(|error| {
        // Where, and never what: the line may have something secret.
        let mut answer = Error::parse_error();
        let (kind, column) = (error.classify(), error.column());
        answer.message = format!("the line is not JSON ({kind:?} error at column {column})");
        answer
    })?;
    if !value.is_object() {
        let words = "expected one JSON-RPC message a line, as an object; batches are not supported";
        return Err(invalid_request(words.to_owned()));
    }
    serde_json::from_value(value).map_err(|_| {
        let words = "expected a JSON-RPC request, notification or response";
        invalid_request(words.to_owned())
    })
}
