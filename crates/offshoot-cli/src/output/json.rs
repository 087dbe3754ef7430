//! JSON lines on stdout, written by a thread of their own: no agent waits for who reads them.

use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use offshoot::agent::EventRecord;
use serde::Serialize;
use tokio::sync::Notify;

use super::{plain, terminal};

enum Order {
    Line(Vec<u8>),
    /// Answer when everything before is out.
    Flush(SyncSender<()>),
}

#[derive(Default)]
struct Broken {
    flag: AtomicBool,
    changed: Notify,
    error: Mutex<Option<std::io::Error>>,
}

impl Broken {
    fn set(&self, error: std::io::Error) {
        *lock(&self.error) = Some(error);
        self.flag.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }
}

/// Where lines go. They are written in the order of the calls.
pub(crate) struct JsonLines {
    sender: Sender<Order>,
    broken: Arc<Broken>,
    writer: Mutex<Option<JoinHandle<()>>>,
    for_terminal: bool,
}

impl JsonLines {
    /// Lines on stdout.
    pub(crate) fn stdout() -> std::io::Result<Self> {
        Self::to(std::io::stdout(), terminal::is_stdout())
    }

    fn to(out: impl Write + Send + 'static, for_terminal: bool) -> std::io::Result<Self> {
        let (sender, orders) = channel();
        let broken = Arc::new(Broken::default());
        let seen = Arc::clone(&broken);
        let writer = std::thread::Builder::new()
            .name("json lines".to_owned())
            .spawn(move || {
                let out = std::io::BufWriter::with_capacity(64 * 1024, out);
                if let Err(error) = write_all(out, &orders) {
                    seen.set(error);
                }
            })?;
        Ok(Self {
            sender,
            broken,
            writer: Mutex::new(Some(writer)),
            for_terminal,
        })
    }

    /// Hands over an event.
    pub(crate) fn event(&self, record: &EventRecord) {
        #[derive(Serialize)]
        struct Line<'a> {
            #[serde(rename = "type")]
            kind: &'static str,
            #[serde(flatten)]
            record: &'a EventRecord,
        }
        let kind = "event";
        self.line(&Line { kind, record });
    }

    /// Hands over one line.
    pub(crate) fn line(&self, value: &impl Serialize) {
        match serde_json::to_vec(value) {
            Ok(mut line) => {
                if self.for_terminal {
                    line = plain::plain_json(&line).into_owned();
                }
                line.push(b'\n');
                // The writer is gone only when stdout is; `broken` says so.
                let _ = self.sender.send(Order::Line(line));
            }
            Err(error) => tracing::error!(%error, "an event could not be written as JSON"),
        }
    }

    /// Waits until what was handed over is out, at most for `limit`. False when it is not. Blocks.
    pub(crate) fn flush(&self, limit: Duration) -> bool {
        let (done, out) = sync_channel(1);
        self.sender.send(Order::Flush(done)).is_ok() && out.recv_timeout(limit).is_ok()
    }

    /// Waits until stdout cannot be written to any more. Dropping the future has no effect.
    pub(crate) async fn broken(&self) {
        loop {
            let changed = self.broken.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if self.broken.flag.load(Ordering::Acquire) {
                return;
            }
            changed.await;
        }
    }

    /// Waits until everything is out; what went wrong, if anything did. Blocks.
    pub(crate) fn finish(&self) -> std::io::Result<()> {
        if self.flush(Duration::MAX) {
            return Ok(());
        }
        // The writer has ended, or is about to: it says why before it does.
        if let Some(writer) = lock(&self.writer).take() {
            let _ = writer.join();
        }
        lock(&self.broken.error).take().map_or(Ok(()), Err)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether nobody reads any more.
pub(crate) fn is_closed(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe
}

fn write_all(mut out: impl Write, orders: &Receiver<Order>) -> std::io::Result<()> {
    loop {
        // What is there is written together, and is out before the writer waits for more.
        let order = match orders.try_recv() {
            Ok(order) => order,
            Err(TryRecvError::Disconnected) => return out.flush(),
            Err(TryRecvError::Empty) => {
                out.flush()?;
                match orders.recv() {
                    Ok(order) => order,
                    Err(_) => return Ok(()),
                }
            }
        };
        match order {
            Order::Line(line) => out.write_all(&line)?,
            Order::Flush(done) => {
                out.flush()?;
                let _ = done.send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("unpoisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_line_is_out_in_order_when_it_is_finished() {
        let out = Shared::default();
        let lines = JsonLines::to(out.clone(), false).expect("a thread");
        for n in 0..1000 {
            lines.line(&n);
        }
        lines.finish().expect("a good end");
        let expected: String = (0..1000).map(|n| format!("{n}\n")).collect();
        let written = out.0.lock().expect("unpoisoned").clone();
        assert_eq!(String::from_utf8(written).expect("text"), expected);
    }

    #[tokio::test]
    async fn a_closed_end_is_told_once_something_was_written() {
        let lines = JsonLines::to(Closed, false).expect("a thread");
        lines.line(&1);
        lines.broken().await;
        lines.line(&2);
        let error = lines.finish().expect_err("a broken pipe");
        assert!(is_closed(&error));
    }
}
