//! Delegation for agent programs: the facade over the Offshoot crates.
//!
//! A [`Runtime`] puts the parts together; each part is a crate of its own and can be replaced.

mod ask;
pub mod config;
#[cfg(feature = "mcp")]
mod connections;
mod external;
mod modelless;
#[cfg(feature = "llm")]
pub mod models;
mod routed;
mod runtime;
mod short;
pub mod snapshots;

pub use ask::AskError;
pub use config::Config;
#[cfg(feature = "acp")]
#[doc(inline)]
pub use offshoot_acp as acp;
#[doc(inline)]
pub use offshoot_agent as agent;
#[doc(inline)]
pub use offshoot_core as core;
#[doc(inline)]
pub use offshoot_inprocess as inprocess;
#[cfg(feature = "llm")]
#[doc(inline)]
pub use offshoot_llm as llm;
#[doc(inline)]
pub use offshoot_loop as driver;
#[cfg(feature = "mcp")]
#[doc(inline)]
pub use offshoot_mcp as mcp;
#[cfg(feature = "process")]
#[doc(inline)]
pub use offshoot_process as process;
#[doc(inline)]
pub use offshoot_shell as shell;
#[doc(inline)]
pub use offshoot_subagent as subagent;
#[doc(inline)]
pub use offshoot_task as task;
#[doc(inline)]
pub use offshoot_tools as tools;
pub use runtime::{Runtime, RuntimeBuilder, event_rules, event_types};
pub use short::{call, model, say, tool, tool_with};
