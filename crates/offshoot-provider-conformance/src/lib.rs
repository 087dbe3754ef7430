//! What every subagent provider has to do, as checks that its author runs.
//!
//! A provider promises more than its trait says: it leaves nothing running on any path, it ends in
//! time, it keeps what a child said and keeps apart what went wrong. Each [`Case`] is one such
//! promise. A case makes a runtime with one parent, delegates through the real service, looks on or
//! breaks in, and then checks what holds of all cases: each run that was started was ended once,
//! nothing is left of the child, the provider did not panic, what it returned is bounded.
//!
//! The author writes a [`Subject`]: a provider whose children behave as they are told.
//!
//! ```
//! use std::sync::Arc;
//! use offshoot_provider_conformance::{Behaviour, check};
//! use offshoot_subagent::Provider;
//! use offshoot_inprocess::Spawn;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! let subject = |_: Behaviour| Some(Arc::new(Spawn) as Arc<dyn Provider>);
//! check(&subject).await.assert_conforms(&[]);
//! # }
//! ```
//!
//! With children outside the process, use the real clock and a runtime of several threads; the whole
//! takes about a minute then, most of it in cases that wait for something that must not come.
//! [`check_case`] runs one case, so that each can be a test of its own.

/// The provider in the guide passes: the guide is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/subagents.md")]
struct Guide;

mod actor;
mod behaviour;
mod case;
mod cases;
mod probe;
mod report;
mod subject;
mod world;

pub use behaviour::{ANSWER, Behaviour, PARTIAL, UnknownBehaviour, hostile_fault};
pub use case::Case;
pub use report::{Report, Verdict};
pub use subject::Subject;

/// Runs every case, one after the other. Dropping the future ends the case that runs.
pub async fn check(subject: &dyn Subject) -> Report {
    let mut verdicts = Vec::new();
    for case in Case::ALL {
        verdicts.push((case, cases::run(subject, case).await));
    }
    Report(verdicts)
}

/// Runs one case. Dropping the future ends it.
pub async fn check_case(subject: &dyn Subject, case: Case) -> Report {
    Report(vec![(case, cases::run(subject, case).await)])
}
