//! Subagents: delegation from one agent to another.
//!
//! - [`Provider`]: the seam for kinds of children. This crate does not know which ones exist.
//! - [`Subagents`]: starts one-shot runs and continuable children, delivers messages between adjacent
//!   agents, settles children child-first, and tells the parent of each exactly once.
//! - [`ChildHost`]: the seam under continuable children. [`LocalHost`] has them in this process.
//!
//! A continuable child is a durable session; it is resident while it has something to do. *Running*,
//! *waiting* (quiet, but its scope has holds) and *settled* are derived, never stored.

mod compose;
mod deliver;
mod error;
mod event;
mod ground;
mod host;
mod limit;
mod list;
mod local;
mod notice;
mod one_shot;
mod open;
mod outcome;
mod owed;
mod past;
mod provider;
mod recover;
mod remains;
mod request;
mod resident;
mod rule;
mod schema;
mod service;
mod settle;
mod start;
pub mod state;
mod stop;

pub use compose::{ChildPlan, Descriptor};
pub use deliver::{Authority, Destination, Sent, Verb};
pub use error::{DeliverError, RegisterError, StartError};
pub use event::{EVENT_TYPES, RunRecord};
pub use host::{
    ChildHost, HostError, Interrupt, Look, OpenChild, Opened, Report, Residency, Session,
    Settlement, Waiting,
};
pub use list::{ChildStatus, Listed};
pub use local::LocalHost;
pub use one_shot::OneShotResult;
pub use outcome::{Outcome, TreeUsage};
pub use past::open_runs;
pub use provider::{
    Capabilities, DEPTH_VARIABLE, Provider, ProviderError, Run, RunRequest, RunResult,
};
pub use remains::{EndedRun, ended_run};
pub use request::{ChildRequest, Mode};
pub use rule::RunRule;
pub use schema::{ANSWER_TOOL, OutputSchema, SchemaError};
pub use service::{Interrupter, LiveWork, SubagentSettings, Subagents};
pub use settle::Reported;
pub use start::Started;
pub use stop::{StopReply, StopSignal};
