//! The locks of this crate, and where a model checker may switch between threads.
//!
//! Every lock and every atomic that orders something is used through this module. In unit tests, and
//! only while a model runs, each use is a point where the model's scheduler may let another thread
//! go on. Critical sections do not nest, so these points are all there is to interleave.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks; a poisoned lock too. A panic under a lock is a broken invariant of ours; going on beats
/// losing every task.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    point();
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Another thread may come before what follows.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn point() {}

#[cfg(test)]
pub(crate) use model::point;

#[cfg(test)]
pub(crate) mod model {
    use std::cell::Cell;

    thread_local! {
        static RUNS: Cell<bool> = const { Cell::new(false) };
    }

    pub(crate) fn point() {
        if RUNS.get() {
            shuttle::thread::yield_now();
        }
    }

    /// Says that a model runs on this thread, until it is dropped.
    pub(crate) struct Running(());

    impl Running {
        pub(crate) fn new() -> Self {
            RUNS.set(true);
            Self(())
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            RUNS.set(false);
        }
    }
}
