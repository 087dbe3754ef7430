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

use std::fmt;
use std::future::Future;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::Notify;

use cleanups::{Cleanup, Cleanups};

// Invariants
// 1. `word` is (closing bit, watched bit, number of holds). A hold is taken by a compare-and-swap that
//    fails once the closing bit is set, so no hold appears after closing began.
// 2. `Phase` only moves Open -> Closing -> Closed, under `state`'s lock.
// 3. Cleanups are popped one at a time, last in first out, by the one task that closes; the lock is
//    never held while a cleanup runs.
// 4. Every wait re-checks its condition after it registered with `changed`.
// 5. Whoever waits for the holds sets the watched bit before it looks at them, so the release of the
//    last hold either sees the bit, or is seen. Where nobody ever waited, a release wakes nobody. The
//    bit stays.
const CLOSING: u64 = 1 << 63;
const WATCHED: u64 = 1 << 62;
const HOLDS: u64 = WATCHED - 1;

/// How long closing waits for one cleanup before it gives it up and goes on.
const CLEANUP_LIMIT: Duration = Duration::from_secs(60);

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
    /// Holds that were still taken when closing ended.
    pub holds_left: usize,
}

impl CloseReport {
    /// Whether every cleanup succeeded and nothing is held any more.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.failures.is_empty() && self.holds_left == 0
    }
}

enum Phase {
    Open,
    Closing,
    Closed(Arc<CloseReport>),
}

struct State {
    phase: Phase,
    cleanups: Cleanups,
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
            }),
            changed: Notify::new(),
        }))
    }

    /// A scope inside this one: closing the parent closes it first.
    ///
    /// # Errors
    ///
    /// [`ScopeClosed`] when this scope is closing.
    pub fn child(&self, name: impl Into<String>) -> Result<Self, ScopeClosed> {
        // The parent's cleanup must know the child and the child its cleanup: the slot breaks the knot.
        let slot: Arc<Mutex<Option<Scope>>> = Arc::default();
        let taken = Arc::clone(&slot);
        let cleanup = self.on_close("close a child scope", async move || {
            let child = taken.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(child) = child {
                child.close().await;
            }
            Ok(())
        })?;
        let child = Self::make(name.into(), Some((self.clone(), cleanup)));
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(child.clone());
        if self.is_closing() {
            // Closing may have run the cleanup before the slot was filled.
            child.close_detached();
            return Err(ScopeClosed);
        }
        Ok(child)
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
        name: impl Into<String>,
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
        Ok(state.cleanups.push(name.into().into_boxed_str(), cleanup))
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

    /// Closes the scope: nothing new attaches from the moment of this call (not of its first poll),
    /// the cleanups run one after the other, and every caller gets the same report.
    ///
    /// Dropping the returned future does not stop closing, which runs as a task of its own.
    ///
    /// # Panics
    ///
    /// When called outside a Tokio runtime while the scope is open.
    pub fn close(&self) -> impl Future<Output = Arc<CloseReport>> + Send + 'static {
        self.close_detached();
        let scope = self.clone();
        async move {
            let mut report = None;
            scope
                .until(|| {
                    if let Phase::Closed(done) = &scope.0.state().phase {
                        report = Some(Arc::clone(done));
                    }
                    report.is_some()
                })
                .await;
            report.unwrap_or_default()
        }
    }

    fn close_detached(&self) {
        {
            let mut state = self.0.state();
            if !matches!(state.phase, Phase::Open) {
                return;
            }
            state.phase = Phase::Closing;
            self.0.word.fetch_or(CLOSING, Ordering::AcqRel);
        }
        self.0.changed.notify_waiters();
        tokio::spawn(run_cleanups(self.clone()));
    }
}

async fn run_cleanups(scope: Scope) {
    let mut failures = Vec::new();
    loop {
        let next = scope.0.state().cleanups.pop();
        let Some((name, cleanup)) = next else {
            break;
        };
        if let Err(error) = contain(cleanup).await {
            tracing::warn!(scope = %scope.name(), cleanup = %name, %error, "cleanup failed");
            failures.push(CleanupFailure {
                name: name.into_string(),
                error,
            });
        }
    }
    let report = Arc::new(CloseReport {
        failures,
        holds_left: scope.holds(),
    });
    scope.0.state().phase = Phase::Closed(report);
    if let Some((parent, cleanup)) = &scope.0.parent {
        parent.forget_cleanup(*cleanup);
    }
    scope.0.changed.notify_waiters();
}

/// Runs one cleanup as a task, so that its panic and its hang stay its own.
async fn contain(cleanup: Cleanup) -> Result<(), String> {
    let mut task = tokio::spawn(async move { cleanup().await });
    match tokio::time::timeout(CLEANUP_LIMIT, &mut task).await {
        Ok(Ok(result)) => result,
        Ok(Err(join)) if join.is_panic() => Err(format!(
            "panicked: {}",
            crate::text::panic_message(&*join.into_panic())
        )),
        Ok(Err(_)) => Err("the runtime shut down".to_owned()),
        Err(_) => {
            task.abort();
            Err(format!("took longer than {} s", CLEANUP_LIMIT.as_secs()))
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
