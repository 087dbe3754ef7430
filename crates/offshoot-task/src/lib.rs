//! A registry of background tasks: ids, status, ownership, output, waits and settlement.
//!
//! A new kind of long work needs a [`TaskSpec`] and a starter:
//!
//! ```
//! use offshoot_core::Scope;
//! use offshoot_task::{StartError, TaskId, TaskOutcome, TaskRegistry, TaskSpec};
//!
//! fn start_render(registry: &TaskRegistry, owner: &Scope, frame: u32) -> Result<TaskId, StartError> {
//!     let spec = TaskSpec::new("render", format!("frame {frame}")).streaming();
//!     registry.start(owner, spec, |context| {
//!         Ok(async move {
//!             let output = context.output();
//!             for line in 0..1000 {
//!                 if context.stop_request().is_some() {
//!                     return TaskOutcome::killed();
//!                 }
//!                 if let Some(output) = &output {
//!                     output.write(&format!("line {line}\n"));
//!                 }
//!                 tokio::task::yield_now().await;
//!             }
//!             TaskOutcome::completed()
//!         })
//!     })
//! }
//! ```
//!
//! The registry knows nothing of agents, models, tools or JSON.

mod changes;
mod close;
mod config;
mod context;
mod controller;
mod counters;
mod drive;
mod error;
mod expired;
mod id;
mod index;
#[cfg(test)]
mod interleavings;
mod kind;
mod kinds;
mod lifecycle;
mod observe;
mod output;
mod owner;
mod producer;
mod progress;
mod read;
mod record;
mod registry;
mod restore;
mod shard;
mod shards;
mod slab;
mod snapshot;
mod spec;
mod start;
mod status;
mod sync;
mod table;
mod unread;
mod wait;
mod waker_set;

pub use changes::Changes;
pub use config::TaskConfig;
pub use context::{Cancelled, TaskContext};
pub use controller::Controller;
pub use error::{AccessError, StartError, StarterError};
pub use id::{ParseTaskIdError, TaskId};
pub use kind::TaskKind;
pub use observe::{ObserverHandle, TaskChange, TaskObserver};
pub use output::{OutputBuffer, OutputSlice, OutputWriter, Overflow};
pub use producer::Producer;
pub use progress::TaskProgress;
pub use read::{Reading, Receipt};
pub use registry::TaskRegistry;
pub use snapshot::TaskSnapshot;
pub use spec::TaskSpec;
pub use status::{KillOutcome, StopRequest, StoppedBy, TaskOutcome, TaskStatus};
pub use wait::Waited;
