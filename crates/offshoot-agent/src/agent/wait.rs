//! Who waits for an agent: wakers in the agent's state, so that a change that nobody waits for costs
//! nothing, and one wait is one critical section a poll.

// Invariants
// 1. A wait looks at what it waits for and leaves its waker in one critical section: the change that
//    makes it true comes before, and is seen, or after, and wakes it.
// 2. Waiters are in the order of their keys, and a key is never used again.
// 3. A waker is woken and dropped outside of the lock: it may be the last that keeps a task, and with it
//    whatever that holds. A waker is cloned under it, as by those of the runtime.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use smallvec::SmallVec;

use super::Agent;
use super::state::State;

/// What a wait sleeps through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// Nothing: it is woken after every critical section that may have changed something.
    Changed,
    /// What leaves a turn running.
    Rested,
}

struct Waiter {
    key: u64,
    until: Until,
    waker: Waker,
}

/// Those who wait. Mostly one.
#[derive(Default)]
pub(super) struct Waiters {
    list: SmallVec<[Waiter; 1]>,
    next_key: u64,
}

/// Those whose wait may be over, to be woken outside of the lock.
#[must_use = "they are woken outside of the lock"]
pub(super) struct Woken(SmallVec<[Waiter; 1]>);

impl Waiters {
    /// Takes out who is woken by a change that left a turn running, or did not.
    pub(super) fn take(&mut self, rested: bool) -> Woken {
        let woken = |waiter: &Waiter| rested || waiter.until == Until::Changed;
        if self.list.iter().all(woken) {
            return Woken(std::mem::take(&mut self.list));
        }
        if !self.list.iter().any(woken) {
            return Woken(SmallVec::new());
        }
        let all = std::mem::take(&mut self.list);
        let (taken, left) = all.into_iter().partition(woken);
        self.list = left;
        Woken(taken)
    }

    fn position(&self, key: u64) -> Option<usize> {
        self.list
            .binary_search_by_key(&key, |waiter| waiter.key)
            .ok()
    }

    /// Keeps the waker of a wait. Returns the one that it had before, to be dropped unlocked.
    fn keep(&mut self, key: &mut Option<u64>, until: Until, waker: &Waker) -> Option<Waker> {
        if let Some(at) = key.and_then(|key| self.position(key)) {
            let kept = &mut self.list[at].waker;
            let same = kept.will_wake(waker);
            return (!same).then(|| std::mem::replace(kept, waker.clone()));
        }
        let next = self.next_key;
        self.next_key += 1;
        *key = Some(next);
        self.list.push(Waiter {
            key: next,
            until,
            waker: waker.clone(),
        });
        None
    }

    /// Forgets a wait. Returns its waker, to be dropped unlocked.
    fn remove(&mut self, key: u64) -> Option<Waker> {
        self.position(key).map(|at| self.list.remove(at).waker)
    }
}

impl Woken {
    pub(super) fn wake(self) {
        for waiter in self.0 {
            waiter.waker.wake();
        }
    }
}

/// Waits until `done` holds of an agent's state. `done` runs under the agent's lock. Dropping it has no
/// effect.
#[must_use = "futures do nothing unless polled"]
pub(super) struct Wait<'a, F> {
    agent: &'a Agent,
    until: Until,
    done: F,
    /// Where its waker may be.
    key: Option<u64>,
}

impl<'a, F> Wait<'a, F> {
    pub(super) fn new<R>(agent: &'a Agent, until: Until, done: F) -> Self
    where
        F: FnMut(&State) -> Option<R>,
    {
        Self {
            agent,
            until,
            done,
            key: None,
        }
    }
}

// Nothing in it is pinned.
impl<F> Unpin for Wait<'_, F> {}

impl<R, F: FnMut(&State) -> Option<R>> Future for Wait<'_, F> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        let this = &mut *self;
        let mut state = this.agent.lock();
        let result = (this.done)(&state);
        let waker = match &result {
            Some(_) => this.key.take().and_then(|key| state.waiters.remove(key)),
            None => state.waiters.keep(&mut this.key, this.until, cx.waker()),
        };
        drop(state);
        drop(waker);
        result.map_or(Poll::Pending, Poll::Ready)
    }
}

impl<F> Drop for Wait<'_, F> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            let waker = self.agent.lock().waiters.remove(key);
            drop(waker);
        }
    }
}
