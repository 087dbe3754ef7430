//! The stock turn driver.
//!
//! - [`ModelLoop`]: asks a [`Model`], runs what it calls, records both. Calls that may run beside each
//!   other do; their results are recorded in the model's order.
//! - [`Model`]: the seam for models; a request has the system prompt, the history and the tools.
//! - [`ScriptedModel`]: a model without a key, which says what a [`script`] says.

mod calls;
mod model;
mod model_loop;
pub mod script;
mod scripted;

pub use model::{Model, ModelError, ModelReply, ModelRequest, PartialText};
pub use model_loop::{LoopSettings, ModelLoop};
pub use scripted::{Facts, ScriptRule, ScriptedModel};
