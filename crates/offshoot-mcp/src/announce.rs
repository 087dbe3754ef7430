//! Log messages for clients that asked for them: what has just arrived in a connection's inbox.
//!
//! They tell, and deliver nothing: the notice itself waits for the next result. One that cannot be sent
//! in time is therefore no loss.

#![expect(
    deprecated,
    reason = "log messages are what the older generation of clients can ask for"
)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use offshoot_agent::Message;
use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam};
use rmcp::service::{Peer, RoleServer};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const LOGGER: &str = "offshoot";
const LEVEL: LoggingLevel = LoggingLevel::Info;
/// Messages that wait to be sent.
const QUEUE: usize = 64;

/// Somebody who asked.
struct Sink {
    key: u64,
    peer: Peer<RoleServer>,
}

#[derive(Default)]
struct Sinks {
    next: u64,
    all: Vec<Sink>,
    /// There from the first sink on.
    queue: Option<mpsc::Sender<Value>>,
}

/// Tells who asked of what arrives.
#[derive(Clone)]
pub(crate) struct Announcer {
    sinks: Arc<Mutex<Sinks>>,
    ended: CancellationToken,
}

/// Keeps a sink.
#[must_use = "dropping it removes the sink"]
pub(crate) struct SinkGuard {
    announcer: Announcer,
    key: u64,
}

impl SinkGuard {
    /// Keeps the sink for as long as the connection lives.
    pub(crate) fn forget(mut self) {
        self.key = u64::MAX;
    }
}

impl Drop for SinkGuard {
    fn drop(&mut self) {
        let key = self.key;
        self.announcer.sinks().all.retain(|sink| sink.key != key);
    }
}

fn is_asked(level: LoggingLevel) -> bool {
    level as u8 <= LEVEL as u8
}

impl Announcer {
    pub(crate) fn new(ended: CancellationToken) -> Self {
        Self {
            sinks: Arc::default(),
            ended,
        }
    }

    fn sinks(&self) -> MutexGuard<'_, Sinks> {
        self.sinks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends messages to `peer`, if its `level` is low enough, until the guard is dropped.
    pub(crate) fn add(&self, peer: &Peer<RoleServer>, level: LoggingLevel) -> Option<SinkGuard> {
        if !is_asked(level) {
            return None;
        }
        let mut sinks = self.sinks();
        let key = sinks.next;
        sinks.next += 1;
        let peer = peer.clone();
        sinks.all.push(Sink { key, peer });
        if sinks.queue.is_none() {
            let (queue, messages) = mpsc::channel(QUEUE);
            sinks.queue = Some(queue);
            tokio::spawn(self.clone().send(messages));
        }
        Some(SinkGuard {
            announcer: self.clone(),
            key,
        })
    }

    /// Forgets every sink: the client has set another level.
    pub(crate) fn clear(&self) {
        self.sinks().all.clear();
    }

    /// Something has arrived. Does not block.
    pub(crate) fn tell(&self, message: &Message) {
        let sinks = self.sinks();
        if sinks.all.is_empty() {
            return;
        }
        if let Some(queue) = &sinks.queue
            && queue.try_send(data(message)).is_err()
        {
            tracing::warn!(message = %message.id, "a client does not keep up with its log messages");
        }
    }

    async fn send(self, mut messages: mpsc::Receiver<Value>) {
        loop {
            let data = tokio::select! {
                biased;
                () = self.ended.cancelled() => return,
                data = messages.recv() => data,
            };
            let Some(data) = data else { return };
            let peers: Vec<_> = self.sinks().all.iter().map(|s| s.peer.clone()).collect();
            for peer in peers {
                let param = LoggingMessageNotificationParam::new(LEVEL, data.clone());
                let param = param.with_logger(LOGGER);
                tokio::select! {
                    () = self.ended.cancelled() => return,
                    sent = peer.notify_logging_message(param) => {
                        if let Err(error) = sent {
                            tracing::debug!(%error, "a log message was not sent");
                        }
                    }
                }
            }
        }
    }
}

/// A message as a program reads it.
fn data(message: &Message) -> Value {
    let mut data = Map::new();
    data.insert("kind".to_owned(), message.source.kind.clone().into());
    for key in ["task_id", "status", "child", "outcome", "from"] {
        if let Some(value) = message.source.fields.get(key) {
            data.insert(key.to_owned(), value.clone());
        }
    }
    data.insert("text".to_owned(), message.to_text().into());
    Value::Object(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_warnings_does_not_ask_for_ends() {
        assert!(is_asked(LoggingLevel::Debug));
        assert!(is_asked(LoggingLevel::Info));
        assert!(!is_asked(LoggingLevel::Notice));
        assert!(!is_asked(LoggingLevel::Emergency));
    }
}
