//! A cast of scripted agents, providers that misbehave on purpose, and readable event streams.

#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test file is a program of its own and uses a part of this"
)]

mod broken;
mod cast;
mod far;
mod provider;
mod recorded;
mod refusing;
mod watched;
mod world;

use std::time::Duration;

pub use broken::{Break, Broken};
pub use cast::{Act, Cast, Gate};
pub use far::Far;
pub use provider::{Fault, Odd};
pub use recorded::{Recorded, Recording};
pub use refusing::{Refuse, Refusing};
pub use watched::Watched;
pub use world::{FakeWork, World, request, runs_at};

/// A bound on waits for something that must happen. The clock is virtual, or the wait is short.
pub const SOON: Duration = Duration::from_secs(60);

/// Runs `future` to its end, which must come.
pub async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(SOON, future).await {
        Ok(output) => output,
        Err(_) => panic!("never came: {what}"),
    }
}
