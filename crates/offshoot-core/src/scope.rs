//! Structured ownership: the lifetime of one exact owner.
//!
//! A [`Scope`] has an identity, a parent, cleanups that closing awaits, and [holds](Hold) that say
//! "something that this owner started is still alive". It deliberately does not know what is held.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! use offshoot_core::Scope;
//!
//! let owner = Scope::root("agent a");
//! let hold = owner.hold().unwrap();
//! assert_eq!(owner.holds(), 1);
//! drop(hold);
//! owner.unheld().await;
//! owner.on_close("say goodbye", async || Ok(())).unwrap();
//! assert!(owner.close().await.is_clean());
//! assert!(owner.hold().is_err());
//! # }
//! ```

mod cleanups;
mod closing;

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use cleanups::{Cleanup, Cleanups};
use closing::Closing;

// Invariants
// 1. `word` is (closing bit, watched bit, number of holds). A hold is taken by a compare-and-swap that
//    fails once the closing bit is set, so no hold appears after closing began.
// 2. `Phase` only moves Open -> Told -> Closing -> Closed, under `state`'s lock. Below a scope that is
//    not open none is, but for one that its maker is being refused.
// 3. Cleanups are popped last in first out by the one task that closes, and neighbouring child scopes
//    together; the lock is never held while a cleanup or a listener runs.
// 4. Every wait re-checks its condition after it registered with `changed`.
// 5. Whoever waits for the holds sets the watched bit before it looks at them, so the release of the
//    last hold either sees the bit, or is seen. Where nobody ever waited, a release wakes nobody. The
//    bit stays.
const CLOSING: u64 = 1 << 63;
const WATCHED: u64 = 1 << 62;
const HOLDS: u64 = WATCHED - 1;

/// The identity of one exact owner. It is never used again within the process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopeId(NonZeroU64);

impl ScopeId {
    fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(NonZeroU64::new(n).unwrap_or(NonZeroU64::MAX))
    }
}

impl fmt::Debug for ScopeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScopeId({})", self.0)
    }
}

impl fmt::Display for ScopeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The scope no longer takes anything: closing has begun or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScopeClosed;

impl fmt::Display for ScopeClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the owner is closing")
    }
}

impl std::error::Error for ScopeClosed {}

/// Names one registered cleanup, to take it back with [`Scope::forget_cleanup`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CleanupId(u64);

/// A cleanup that did not do its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CleanupFailure {
    /// The name that the cleanup was registered with.
    pub name: String,
    /// What went wrong: its error, its panic message, or that it took too long.
    pub error: String,
}

/// How closing went. The same report goes to every caller of [`Scope::close`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloseReport {
    /// The cleanups that failed, in the order in which they ran.
    pub failures: Vec<CleanupFailure>,
    /// What was dropped because it did not end in time, in this scope and in those inside it: what
    /// [`Scope::report_dropped`] was told.
    pub dropped: Vec<String>,
    /// Holds that were still taken when closing ended.
    pub holds_left: usize,
}

impl CloseReport {
    /// Whether every cleanup succeeded, nothing was dropped and nothing is held any more.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.failures.is_empty() && self.dropped.is_empty() && self.holds_left == 0
    }
}

enum Phase {
    Open,
    /// Closing has begun with that of a scope around this one: the cleanups wait for their turn.
    Told,
    /// The cleanups run.
    Closing(Box<CloseReport>),
    Closed(Arc<CloseReport>),
}

type Listener = Box<dyn FnOnce() + Send>;

struct State {
    phase: Phase,
    cleanups: Cleanups,
    /// Called once, when closing begins.
    listener: Option<Listener>,
}

struct Inner {
    id: ScopeId,
    name: Box<str>,
    parent: Option<(Scope, CleanupId)>,
    word: AtomicU64,
    state: Mutex<State>,
    changed: Notify,
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this lock, so a poisoned one is still consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lifetime of one exact owner. Cloning gives another handle to the same scope.
///
/// Dropping the last handle does not close the scope: closing is explicit, because it awaits.
#[derive(Clone)]
pub struct Scope(Arc<Inner>);

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("id", &self.0.id)
            .field("name", &self.0.name)
            .field("holds", &self.holds())
            .field("closing", &self.is_closing())
            .finish_non_exhaustive()
    }
}

impl Scope {
    /// A scope without a parent. `name` is shown in logs and reports.
    #[must_use]
    pub fn root(name: impl Into<String>) -> Self {
        Self::make(name.into(), None)
    }

    fn make(name: String, parent: Option<(Scope, CleanupId)>) -> Self {
        Self(Arc::new(Inner {
            id: ScopeId::fresh(),
            name: name.into_boxed_str(),
            parent,
            word: AtomicU64::new(0),
            state: Mutex::new(State {
                phase: Phase::Open,
                cleanups: Cleanups::default(),
                listener: None,
            }),
            changed: Notify::new(),
        }))
    }

    /// A scope inside this one. From the moment that closing the parent begins the child is closing too,
    /// and so is what is inside it. Its cleanups run before those that the parent had before it; children
    /// that follow each other, without a cleanup of the parent's in between, close at the same time.
    ///
    /// # Errors
    ///
    /// [`ScopeClosed`] when this scope is closing.
    pub fn child(&self, name: impl Into<String>) -> Result<Self, ScopeClosed> {
        let name = name.into();
        let mut state = self.0.state();
        if !matches!(state.phase, Phase::Open) {
            return Err(ScopeClosed);
        }
        Ok(state
            .cleanups
            .push_child(|cleanup| Self::make(name, Some((self.clone(), cleanup)))))
    }

    /// The identity of this owner.
    #[must_use]
    pub fn id(&self) -> ScopeId {
        self.0.id
    }

    /// The name that the scope was made with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The scope that this one is inside of.
    #[must_use]
    pub fn parent(&self) -> Option<&Scope> {
        self.0.parent.as_ref().map(|(scope, _)| scope)
    }

    /// Says that something that this owner started is alive, until the returned guard is dropped.
    ///
    /// # Errors
    ///
    /// [`ScopeClosed`] when the scope is closing.
    pub fn hold(&self) -> Result<Hold, ScopeClosed> {
        let mut word = self.0.word.load(Ordering::Relaxed);
        loop {
            if word & CLOSING != 0 {
                return Err(ScopeClosed);
            }
            // AcqRel: a hold is ordered with the release that a reader of `holds() == 0` saw.
            match self.0.word.compare_exchange_weak(
                word,
                word + 1,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    return Ok(Hold {
                        scope: self.clone(),
                    });
                }
                Err(seen) => word = seen,
            }
        }
    }

    /// How many holds are taken now.
    #[must_use]
    pub fn holds(&self) -> usize {
        let holds = self.0.word.load(Ordering::Acquire) & HOLDS;
        usize::try_from(holds).unwrap_or(usize::MAX)
    }

    /// Waits until nothing holds the scope. Dropping the future has no effect.
    pub async fn unheld(&self) {
        self.until(|| {
            // Not a load: in the order of the word it comes before the last release, or after it.
            self.0.word.fetch_or(WATCHED, Ordering::AcqRel) & HOLDS == 0
        })
        .await;
    }

    async fn until(&self, mut done: impl FnMut() -> bool) {
        loop {
            let changed = self.0.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if done() {
                return;
            }
            changed.await;
        }
    }

    /// Registers a cleanup that [`close`](Self::close) runs and awaits, last registered first. Its
    /// error, its panic and its taking longer than a minute are contained and reported.
    ///
    /// A cleanup must not await the closing of its own scope.
    ///
    /// # Errors
    ///
    /// [`ScopeClosed`] when the scope is closing; the cleanup is dropped unrun.
    pub fn on_close<F, Fut>(
        &self,
        name: impl Into<Cow<'static, str>>,
        cleanup: F,
    ) -> Result<CleanupId, ScopeClosed>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        let mut state = self.0.state();
        if !matches!(state.phase, Phase::Open) {
            return Err(ScopeClosed);
        }
        let cleanup: Cleanup = Box::new(move || cleanup().boxed());
        Ok(state.cleanups.push(name.into(), cleanup))
    }

    /// Registers what is called once, when closing begins: on the thread that begins it, here or with a
    /// scope around this one, when all scopes inside are closing too and before the call of
    /// [`close`](Self::close) returns. It must be short. Its panic is contained.
    ///
    /// [`on_close`](Self::on_close) is for what takes time; this is for what must not go on meanwhile.
    ///
    /// # Errors
    ///
    /// [`ScopeClosed`] when the scope is closing; the listener is dropped uncalled.
    pub fn on_closing(&self, listener: impl FnOnce() + Send + 'static) -> Result<(), ScopeClosed> {
        let mut state = self.0.state();
        if !matches!(state.phase, Phase::Open) {
            return Err(ScopeClosed);
        }
        state.listener = Some(match state.listener.take() {
            None => Box::new(listener),
            Some(first) => Box::new(move || {
                closing::contained("a listener to a closing", first);
                listener();
            }),
        });
        Ok(())
    }

    /// Says that something that this owner had started did not end in time and was dropped, for the
    /// [report](CloseReport::dropped). False when the report is out, or closing has not come to this
    /// scope.
    pub fn report_dropped(&self, what: impl Into<String>) -> bool {
        match &mut self.0.state().phase {
            Phase::Closing(report) => {
                report.dropped.push(what.into());
                true
            }
            Phase::Open | Phase::Told | Phase::Closed(_) => false,
        }
    }

    /// Takes a cleanup back, unrun. False when it is not registered any more: it ran, is running,
    /// or was taken back before.
    pub fn forget_cleanup(&self, id: CleanupId) -> bool {
        let taken = {
            let mut state = self.0.state();
            state.cleanups.take(id)
        };
        // The closure is dropped after the lock: its captures may lock the scope again.
        taken.is_some()
    }

    /// Whether closing has begun (or has ended).
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.0.word.load(Ordering::Acquire) & CLOSING != 0
    }

    /// Whether closing has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.0.state().phase, Phase::Closed(_))
    }

    /// Waits until closing has begun. Dropping the future has no effect.
    pub async fn closing(&self) {
        self.until(|| self.is_closing()).await;
    }

    /// Closes the scope: nothing new attaches to it, nor to a scope inside it, from the moment of this
    /// call (not of its first poll); the cleanups run, last registered first; and every caller gets the
    /// same report.
    ///
    /// Dropping the returned future does not stop closing, which runs as a task of its own. When the
    /// runtime of that task is shut down first, the cleanups that are left are dropped unrun and
    /// reported as failed: closing ends.
    ///
    /// # Panics
    ///
    /// When called outside a Tokio runtime while the scope is open; nothing is begun then.
    pub fn close(&self) -> impl Future<Output = Arc<CloseReport>> + Send + 'static + use<> {
        self.close_detached();
        self.clone().ended()
    }

    /// Waits for the end of closing.
    async fn ended(self) -> Arc<CloseReport> {
        let mut report = None;
        self.until(|| {
            if let Phase::Closed(done) = &self.0.state().phase {
                report = Some(Arc::clone(done));
            }
            report.is_some()
        })
        .await;
        report.unwrap_or_default()
    }

    fn close_detached(&self) {
        if matches!(self.0.state().phase, Phase::Closing(_) | Phase::Closed(_)) {
            return;
        }
        let runtime = Handle::current();
        self.begin_closing();
        if let Some(closing) = Closing::of(self) {
            runtime.spawn(closing.run());
        }
    }
}

/// Says "something that this owner started is still alive" until it is dropped.
#[must_use = "dropping the hold at once releases it"]
#[derive(Debug)]
pub struct Hold {
    scope: Scope,
}

impl Hold {
    /// The scope that is held.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // AcqRel: what was done under the hold happens before a reader sees it released.
        let before = self.scope.0.word.fetch_sub(1, Ordering::AcqRel);
        if before & HOLDS == 1 && before & WATCHED != 0 {
            self.scope.0.changed.notify_waiters();
        }
    }
}
