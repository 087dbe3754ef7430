//! Every event of every session, in the order of commit: to observers at once, to subscribers through
//! bounded buffers.
//!
//! Events are queued under the lock that commits them and handed out after it is released, by one
//! thread at a time. An observer may therefore call back into any agent: what that commits is
//! queued and handed out after the event that is being handed out now.
//!
//! Nobody hands out for others without end: a thread that has done so for [`BACKLOG`] events gives it up
//! to the next one that commits, and while so many wait to be handed out, whoever commits waits for its
//! turn to hand out. So the queue is bounded, and each thread pays for about its own share.

mod subscription;

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use offshoot_core::{Timestamp, text};
use serde::Serialize;
use tokio::sync::Notify;

use crate::event::rfc3339;
use crate::sync::point;
use crate::{AgentId, Event, StoredEvent};
use subscription::Buffer;

pub use subscription::{Observed, Subscription};

/// One event, with the session that it belongs to.
#[derive(Clone, Debug, Serialize)]
pub struct EventRecord {
    /// The session.
    pub session: AgentId,
    /// What the session is called.
    #[serde(serialize_with = "as_str")]
    pub label: Arc<str>,
    /// How deep it is.
    pub depth: u32,
    /// The event's place in the session; absent for a live-only event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// When it was committed.
    #[serde(serialize_with = "rfc3339::serialize")]
    pub time: Timestamp,
    /// What happened.
    pub event: Event,
}

fn as_str<S: serde::Serializer>(text: &Arc<str>, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(text)
}

/// Sees every event.
///
/// # Implementing
///
/// Called for one event at a time, in order, on the thread that committed it or another one. It may call
/// any agent's methods. It must not block, and not wait for another thread that commits: that one may be
/// waiting for this call to end. A panic is contained and logged.
pub trait EventObserver: Send + Sync + 'static {
    /// One event was committed.
    fn on_event(&self, record: &EventRecord);
}

impl<F: Fn(&EventRecord) + Send + Sync + 'static> EventObserver for F {
    fn on_event(&self, record: &EventRecord) {
        self(record);
    }
}

#[derive(Clone)]
enum Watcher {
    Observer(Arc<dyn EventObserver>),
    Subscriber(Arc<Buffer>),
}

/// How many events may wait to be handed out before those who commit wait too.
const BACKLOG: usize = 1024;

#[derive(Default)]
struct Queue {
    pending: VecDeque<EventRecord>,
    /// A thread hands out now.
    dispatching: bool,
    /// It has handed out enough for others: the next one that commits takes over.
    tired: bool,
    /// Threads that wait to take over.
    successors: usize,
    /// Replaced when it changes: handing out an event takes a reference and no copy.
    watchers: Arc<Vec<(u64, Watcher)>>,
    next_key: u64,
}

#[derive(Default)]
struct Inner {
    queue: Mutex<Queue>,
    watchers: AtomicUsize,
    /// Whether something may be queued. Set under the queue's lock, read without it.
    queued: AtomicBool,
    handed_over: Condvar,
    drained: Notify,
}

impl Inner {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, watcher: Watcher) -> u64 {
        let mut queue = self.queue();
        let key = queue.next_key;
        queue.next_key += 1;
        let watchers = Arc::make_mut(&mut queue.watchers);
        watchers.push((key, watcher));
        self.watchers.store(watchers.len(), Ordering::Release);
        key
    }

    fn remove(&self, key: u64) {
        let removed = {
            let mut queue = self.queue();
            let before = Arc::clone(&queue.watchers);
            let watchers = Arc::make_mut(&mut queue.watchers);
            watchers.retain(|(other, _)| *other != key);
            self.watchers.store(watchers.len(), Ordering::Release);
            before
        };
        // A watcher is dropped outside the lock: its own drop may use the hub.
        drop(removed);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for (_, watcher) in self.queue().watchers.iter() {
            if let Watcher::Subscriber(buffer) = watcher {
                buffer.end();
            }
        }
    }
}

/// The ordered event stream of one runtime. Cloning gives another handle to the same stream.
#[derive(Clone, Default)]
pub struct EventHub(Arc<Inner>);

impl fmt::Debug for EventHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventHub")
            .field("watchers", &self.0.watchers)
            .finish_non_exhaustive()
    }
}

impl EventHub {
    /// Adds an observer; dropping the guard removes it.
    #[must_use = "dropping the guard removes the observer"]
    pub fn observe(&self, observer: Arc<dyn EventObserver>) -> ObserverGuard {
        ObserverGuard {
            hub: self.clone(),
            key: self.0.add(Watcher::Observer(observer)),
        }
    }

    /// Adds a subscriber, which takes what is handed out from now on when it comes to it. At most
    /// `capacity` events are kept for it: then the oldest make room, and it learns how many.
    pub fn subscribe(&self, capacity: NonZeroUsize) -> Subscription {
        let buffer = Arc::new(Buffer::new(capacity));
        Subscription {
            key: self.0.add(Watcher::Subscriber(Arc::clone(&buffer))),
            hub: Arc::downgrade(&self.0),
            buffer,
        }
    }

    /// Whether every event committed so far was handed to every observer.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let queue = self.0.queue();
        queue.pending.is_empty() && !queue.dispatching
    }

    /// Waits until the hub is drained. Dropping the future has no effect.
    pub async fn drained(&self) {
        loop {
            let drained = self.0.drained.notified();
            let mut drained = std::pin::pin!(drained);
            drained.as_mut().enable();
            if self.is_drained() {
                return;
            }
            drained.await;
        }
    }

    /// Hands out an event that is in no log, after everything committed so far. For a host that has
    /// something of its own to say in the stream, such as an input that could not be delivered.
    pub fn announce(&self, record: EventRecord) {
        if self.has_observers() {
            self.enqueue([record]);
            self.dispatch();
        }
    }

    pub(crate) fn has_observers(&self) -> bool {
        self.0.watchers.load(Ordering::Acquire) > 0
    }

    /// Queues events. Called under the lock that commits them, so that their order is the commits'.
    pub(crate) fn enqueue(&self, records: impl IntoIterator<Item = EventRecord>) {
        let mut queue = self.0.queue();
        queue.pending.extend(records);
        self.0.queued.store(true, Ordering::Release);
    }

    /// Queues events of one session's log.
    pub(crate) fn enqueue_stored(
        &self,
        session: &AgentId,
        label: &Arc<str>,
        depth: u32,
        stored: &[StoredEvent],
    ) {
        if self.has_observers() {
            self.enqueue(stored.iter().map(|stored| EventRecord {
                session: session.clone(),
                label: Arc::clone(label),
                depth,
                seq: Some(stored.seq),
                time: stored.time,
                event: stored.event.clone(),
            }));
        }
    }

    /// Hands out what is queued, unless another thread does so now and keeps up.
    pub(crate) fn dispatch(&self) {
        // Without observers nothing is queued, and a commit takes no lock but its agent's. A thread
        // that queued something sees its own store; what others queued, they hand out.
        if !self.0.queued.load(Ordering::Acquire) {
            return;
        }
        point();
        let mut queue = self.0.queue();
        while queue.dispatching {
            let keeps_up = !queue.tired && queue.pending.len() <= BACKLOG;
            // An observer's own commit does not wait: not for itself, and not for another stream, whose
            // observers may be committing to this one.
            if keeps_up || Inside::is_entered() {
                return;
            }
            queue.successors += 1;
            let woken = self.0.handed_over.wait(queue);
            queue = woken.unwrap_or_else(PoisonError::into_inner);
            queue.successors -= 1;
        }
        if queue.pending.is_empty() {
            return;
        }
        queue.dispatching = true;
        let inside = Inside::enter();
        // What waits now is handed out before anybody takes over, this thread's own among it.
        let mut due = queue.pending.len();
        let mut handed_out = 0;
        while let Some(record) = queue.pending.pop_front() {
            let watchers = Arc::clone(&queue.watchers);
            drop(queue);
            point();
            hand_out(record, &watchers);
            // The last of a watcher that was removed meanwhile.
            contained(|| drop(watchers));
            queue = self.0.queue();
            due = due.saturating_sub(1);
            handed_out += 1;
            queue.tired = handed_out >= BACKLOG;
            if due == 0 && queue.successors > 0 {
                break;
            }
        }
        drop(inside);
        queue.dispatching = false;
        let awaited = queue.successors > 0;
        queue.tired = false;
        let drained = queue.pending.is_empty();
        if drained {
            self.0.queued.store(false, Ordering::Release);
        }
        drop(queue);
        if drained {
            // There is nothing left to take over. To tell nobody of it would be a system call.
            if awaited {
                self.0.handed_over.notify_all();
            }
            self.0.drained.notify_waiters();
        } else {
            self.0.handed_over.notify_one();
        }
    }
}

thread_local! {
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}

/// Says that the thread hands out events, of whichever hub, until it is dropped.
struct Inside(());

impl Inside {
    fn enter() -> Self {
        INSIDE.set(INSIDE.get() + 1);
        Self(())
    }

    fn is_entered() -> bool {
        INSIDE.get() > 0
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(INSIDE.get() - 1);
    }
}

fn hand_out(record: EventRecord, watchers: &[(u64, Watcher)]) {
    let record = Arc::new(record);
    for (_, watcher) in watchers {
        contained(|| match watcher {
            Watcher::Subscriber(buffer) => buffer.push(&record),
            Watcher::Observer(observer) => observer.on_event(&record),
        });
    }
}

/// Who hands out goes on, whatever a watcher does: others may be waiting for its turn to end.
fn contained(call: impl FnOnce()) {
    if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(call)) {
        let message = text::panic_message(&*panic);
        tracing::error!(message, "an event observer panicked");
    }
}

/// Keeps an observer registered.
#[must_use = "dropping the guard removes the observer"]
#[derive(Debug)]
pub struct ObserverGuard {
    hub: EventHub,
    key: u64,
}

impl Drop for ObserverGuard {
    fn drop(&mut self) {
        self.hub.0.remove(self.key);
    }
}
