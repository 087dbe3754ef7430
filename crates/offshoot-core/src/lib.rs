//! The ground that every Offshoot crate stands on.
//!
//! - [`Scope`]: structured ownership. The lifetime of one exact owner, with awaited cleanups and
//!   [holds](Hold).
//! - [`text`]: cuts on character boundaries, one-line sanitising, incremental UTF-8 decoding.
//! - [`fresh_id`]: unique, sortable ids.
//! - [`WallClock`]: the time of day, taken only to be shown.
#![cfg_attr(
    feature = "process",
    doc = "- [`process`]: programs as process groups that are gone when their end is told."
)]
//!
//! This crate knows nothing of tasks, agents or JSON.

mod clock;
mod id;
#[cfg(feature = "process")]
pub mod process;
mod scope;
pub mod text;

pub use clock::{SystemClock, Timestamp, WallClock};
pub use id::{fresh_id, fresh_id_number};
pub use scope::{CleanupFailure, CleanupId, CloseReport, Hold, Scope, ScopeClosed, ScopeId};
