//! What a session store is tested with, whoever wrote it.
//!
//! A test gives [`run`] a way to make empty media; every check gets one of its own. What a medium
//! cannot do, such as tearing what it writes, its [`Medium`] says by the defaults, and the check of it
//! is passed over: [`Passed::skipped`] has its name.
//!
//! ```
//! use std::sync::Arc;
//! use offshoot_agent::store::conformance::{self, Medium};
//! use offshoot_agent::{MemoryStore, SessionStore};
//!
//! struct InMemory(MemoryStore);
//!
//! impl Medium for InMemory {
//!     fn store(&self) -> Arc<dyn SessionStore> {
//!         Arc::new(self.0.clone())
//!     }
//! }
//!
//! let passed = conformance::run(|| Box::new(InMemory(MemoryStore::default())))?;
//! assert!(passed.passed.contains(&"one writer"));
//! assert!(passed.skipped.contains(&"torn tail"), "memory is not torn");
//! # Ok::<(), conformance::Failed>(())
//! ```

mod checks;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use offshoot_core::text;

use crate::{AgentId, SessionStore};

/// One medium with a store on it, empty at first. Its methods but the first do to the medium what no
/// store does; each says whether it could, and the default is that it cannot.
pub trait Medium: Send + Sync {
    /// The store, as one more process would open it: all of them show the same sessions.
    fn store(&self) -> Arc<dyn SessionStore>;

    /// How many bytes the stored form of a session has.
    fn size(&self, id: &AgentId) -> Option<usize> {
        let _ = id;
        None
    }

    /// Takes bytes off the end of the stored form, down to `size`: a process died while it wrote.
    fn tear(&self, id: &AgentId, size: usize) -> bool {
        let _ = (id, size);
        false
    }

    /// Makes the stored form of one event, not the last one, unreadable.
    fn damage(&self, id: &AgentId, seq: u64) -> bool {
        let _ = (id, seq);
        false
    }

    /// Marks the stored form as one of a newer version of the store.
    fn make_newer(&self, id: &AgentId) -> bool {
        let _ = id;
        false
    }

    /// Adds an event as a newer version of the program would have stored it: `event` is the whole
    /// stored event as JSON.
    fn plant(&self, id: &AgentId, event: &str) -> bool {
        let _ = (id, event);
        false
    }

    /// From now on appends fail, or no longer.
    fn fail(&self, failing: bool) -> bool {
        let _ = failing;
        false
    }
}

/// The store did what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// The checks that it passed.
    pub passed: Vec<&'static str>,
    /// The checks of what its medium cannot do.
    pub skipped: Vec<&'static str>,
}

/// The store did something else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{check}: {what}")]
pub struct Failed {
    /// The check.
    pub check: &'static str,
    /// What was expected, and what happened.
    pub what: String,
}

/// How a check ends when it does not end well.
enum Stop {
    /// The medium cannot do what the check needs.
    Skip,
    Fail(String),
}

impl<E: fmt::Display> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Fail(error.to_string())
    }
}

type Checked = Result<(), Stop>;

/// Runs every check, each on a medium of its own from `make`.
///
/// # Errors
///
/// [`Failed`], of the first check that failed.
pub fn run(make: impl Fn() -> Box<dyn Medium>) -> Result<Passed, Failed> {
    let mut passed = Vec::new();
    let mut skipped = Vec::new();
    for (check, run) in checks::ALL {
        let medium = make();
        let ended = catch_unwind(AssertUnwindSafe(|| run(&*medium)));
        match ended {
            Ok(Ok(())) => passed.push(*check),
            Ok(Err(Stop::Skip)) => skipped.push(*check),
            Ok(Err(Stop::Fail(what))) => return Err(Failed { check, what }),
            Err(panic) => {
                let what = format!("the store panicked: {}", text::panic_message(&*panic));
                return Err(Failed { check, what });
            }
        }
    }
    Ok(Passed { passed, skipped })
}
