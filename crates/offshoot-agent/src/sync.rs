//! The lock of an agent, the spawning of its drive, and where a model checker may switch threads.
//!
//! In unit tests, and only while a model runs, each use is a point where the model's scheduler may let
//! another thread go on. The other locks of the crate are taken under the agent's, or hold nobody up:
//! they have no point of their own.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;

/// Locks; a poisoned lock too. Under an agent's lock only the machine and the store run; a panic there
/// leaves a state that was not changed, or a log that refuses to be appended to.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    point();
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Another thread may come before what follows.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn point() {}

/// Runs `future` on `runtime`.
#[cfg(not(test))]
#[inline]
pub(crate) fn spawn(runtime: &Handle, future: impl Future<Output = ()> + Send + 'static) {
    runtime.spawn(future);
}

/// Whether a runtime was shut down: what is spawned on it then is dropped at once.
#[cfg(not(test))]
pub(crate) fn is_gone(runtime: &Handle) -> bool {
    use futures::FutureExt;
    let probe = runtime.spawn(std::future::ready(()));
    probe.now_or_never().is_some_and(|ended| ended.is_err())
}

#[cfg(test)]
pub(crate) use model::{is_gone, point, spawn};

#[cfg(test)]
pub(crate) mod model {
    use std::cell::Cell;

    use super::Handle;

    thread_local! {
        static RUNS: Cell<bool> = const { Cell::new(false) };
    }

    pub(crate) fn point() {
        if RUNS.get() {
            shuttle::thread::yield_now();
        }
    }

    pub(crate) fn spawn(runtime: &Handle, future: impl Future<Output = ()> + Send + 'static) {
        if RUNS.get() {
            // A drive that rests at the end of a schedule is not waited for.
            drop(shuttle::future::spawn(future));
        } else {
            runtime.spawn(future);
        }
    }

    /// The runtime of a model outlives it.
    pub(crate) fn is_gone(_: &Handle) -> bool {
        false
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
