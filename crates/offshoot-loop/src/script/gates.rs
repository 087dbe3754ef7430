//! Named one-way gates: they make an order of events certain.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

// Invariants
// 1. A gate only moves Closed -> Opening -> Open. One call of `open` moves it out of Closed; that
//    call alone runs the callbacks and moves it to Open.
// 2. The callbacks run in the order in which they were registered, outside the lock, and all of them
//    before the gate is Open, so before anyone who waits is released.
// 3. A callback is registered before the gate is Open, or runs at once.

type Callback = Box<dyn FnOnce() + Send>;

/// The gates of one run. Clones are the same gates.
///
/// A gate exists from the first time that it is named and is closed until it is opened; it never
/// closes again.
#[derive(Clone, Default)]
pub struct Gates(Arc<Mutex<HashMap<String, Gate>>>);

#[derive(Default)]
struct Gate {
    phase: Phase,
    callbacks: VecDeque<Callback>,
    opened: Arc<Notify>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Closed,
    Opening,
    Open,
}

impl Gates {
    /// Gates that are all closed.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Gate>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `callback` when the gate opens, before anyone who waits for it is released; at once when
    /// it is open. Callbacks of one gate run one after the other, in the order of their registration.
    ///
    /// A callback may use these gates, also to open others. It runs on the thread that opens.
    pub fn on_open(&self, name: &str, callback: impl FnOnce() + Send + 'static) {
        {
            let mut gates = self.lock();
            let gate = gates.entry(name.to_owned()).or_default();
            if gate.phase != Phase::Open {
                gate.callbacks.push_back(Box::new(callback));
                return;
            }
        }
        callback();
    }

    /// Opens a gate: its callbacks run now, then those who wait are released. Does nothing when the
    /// gate is open or somebody is opening it.
    ///
    /// # Panics
    ///
    /// With the panic of a callback. The gate is open then, and callbacks that had not run are dropped.
    pub fn open(&self, name: &str) {
        {
            let mut gates = self.lock();
            let gate = gates.entry(name.to_owned()).or_default();
            if gate.phase != Phase::Closed {
                return;
            }
            gate.phase = Phase::Opening;
        }
        let _opening = Opening { gates: self, name };
        while let Some(callback) = self.next_callback(name) {
            callback();
        }
    }

    /// The next callback to run; with none, the gate is open when this returns.
    fn next_callback(&self, name: &str) -> Option<Callback> {
        let mut gates = self.lock();
        let gate = gates.get_mut(name)?;
        let next = gate.callbacks.pop_front();
        if next.is_none() {
            gate.phase = Phase::Open;
        }
        next
    }

    /// Whether a gate is open: its callbacks have run.
    #[must_use]
    pub fn is_open(&self, name: &str) -> bool {
        let gates = self.lock();
        gates.get(name).is_some_and(|g| g.phase == Phase::Open)
    }

    /// Waits until a gate is open. Dropping the future has no effect.
    pub async fn wait(&self, name: &str) {
        let opened = {
            let mut gates = self.lock();
            let gate = gates.entry(name.to_owned()).or_default();
            Arc::clone(&gate.opened)
        };
        let mut opened = std::pin::pin!(opened.notified());
        // Registered before the look, so that an opening between the two is not missed.
        opened.as_mut().enable();
        if !self.is_open(name) {
            opened.await;
        }
    }
}

/// Releases those who wait, also when a callback panics.
struct Opening<'a> {
    gates: &'a Gates,
    name: &'a str,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        // Outside the lock: what is woken and the captures of callbacks that did not run.
        let (opened, _unrun) = {
            let mut gates = self.gates.lock();
            let Some(gate) = gates.get_mut(self.name) else {
                return;
            };
            gate.phase = Phase::Open;
            (
                Arc::clone(&gate.opened),
                std::mem::take(&mut gate.callbacks),
            )
        };
        opened.notify_waiters();
    }
}

impl fmt::Debug for Gates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gates = self.lock();
        f.debug_map()
            .entries(gates.iter().map(|(name, gate)| (name, gate.phase)))
            .finish()
    }
}

#[cfg(test)]
mod tests;
