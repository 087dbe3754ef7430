//! The bounded way to watch the stream: each subscriber has a buffer of its own, and a mark where it
//! was too slow. It holds up nobody.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use futures::Stream;

use super::{EventRecord, Inner};

/// What a subscriber is given.
#[derive(Clone, Debug)]
pub enum Observed {
    /// The next event.
    Event(Arc<EventRecord>),
    /// So many events came faster than they were taken. They were before the one that is given next;
    /// those that have a `seq` are in their session's log.
    Gap {
        /// How many.
        missed: u64,
    },
}

#[derive(Debug, Default)]
struct State {
    /// Events in order, without a gap between two.
    events: VecDeque<Arc<EventRecord>>,
    /// How many were lost in front of them.
    missed: u64,
    waker: Option<Waker>,
    ended: bool,
}

/// What one subscriber has not taken.
#[derive(Debug)]
pub(super) struct Buffer {
    capacity: NonZeroUsize,
    state: Mutex<State>,
}

impl Buffer {
    pub(super) fn new(capacity: NonZeroUsize) -> Self {
        Self {
            capacity,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event; the oldest makes room for it.
    pub(super) fn push(&self, record: &Arc<EventRecord>) {
        let (waker, oldest) = {
            let mut state = self.state();
            let full = state.events.len() >= self.capacity.get();
            let oldest = full.then(|| state.events.pop_front());
            state.missed += u64::from(full);
            state.events.push_back(Arc::clone(record));
            (state.waker.take(), oldest)
        };
        drop(oldest);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Nothing comes any more.
    pub(super) fn end(&self) {
        let waker = {
            let mut state = self.state();
            state.ended = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Observed>> {
        let mut state = self.state();
        let missed = std::mem::take(&mut state.missed);
        if missed > 0 {
            return Poll::Ready(Some(Observed::Gap { missed }));
        }
        if let Some(record) = state.events.pop_front() {
            return Poll::Ready(Some(Observed::Event(record)));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Every event of every session, in the order of commit, for one subscriber that may be slow. Ends
/// with the hub. Dropping it ends the subscription.
#[must_use = "a subscription that is dropped sees nothing"]
#[derive(Debug)]
pub struct Subscription {
    pub(super) buffer: Arc<Buffer>,
    pub(super) hub: Weak<Inner>,
    pub(super) key: u64,
}

impl Subscription {
    /// The next event, or how many were missed before it; `None` when the hub is gone. Dropping the
    /// future loses nothing.
    pub async fn recv(&mut self) -> Option<Observed> {
        std::future::poll_fn(|cx| self.buffer.poll(cx)).await
    }
}

impl Stream for Subscription {
    type Item = Observed;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Observed>> {
        self.buffer.poll(cx)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(hub) = self.hub.upgrade() {
            hub.remove(self.key);
        }
    }
}
