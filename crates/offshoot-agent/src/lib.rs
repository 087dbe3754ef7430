//! Agents: a session, an inbox with one durable order, turns and steps, tools and prompt sections.
//!
//! - [`Agent`]: a live agent. Three verbs put a message into its inbox: [`Agent::followup`] (next
//!   turn, wakes), [`Agent::steer`] (next step, wakes), [`Agent::inject`] (next step, quiet; or
//!   [passively](Agent::inject_passively)).
//!   *Accepted* means *appended to the session log*.
//! - [`TurnDriver`]: what one step of a turn does. Bring your own, or take the stock one.
//! - [`SessionStore`]: where session logs live: [`MemoryStore`], [`JsonlStore`], or your own.
//! - [`Tool`], [`ToolSet`], [`Prompt`]: what a model is shown, and what runs when it calls.
//! - [`machine`]: the state machine behind an agent, pure, for a host that runs it elsewhere.
//! - [`EventHub`]: every event of every session, in the order of commit: for an observer that is
//!   called at once, or a [`Subscription`] that may be slow.
//!
//! The guide, with whole programs, is `docs/agents.md` of the repository; `docs/sessions.md` has the logs.
//! The least there is to it, a driver that has nothing to do:
//!
//! ```
//! use std::sync::Arc;
//!
//! use futures::FutureExt;
//! use futures::future::BoxFuture;
//! use offshoot_agent::{
//!     Agent, AgentHost, AgentKit, AgentSettings, AgentSpec, DriverError, MemoryStore, Message, Pending,
//!     Placement, Prompt, StepContext, StepOutcome, ToolSet, TurnDriver, TurnEndReason,
//! };
//!
//! struct Idler;
//!
//! impl TurnDriver for Idler {
//!     fn step<'a>(
//!         &'a self,
//!         context: &'a StepContext,
//!     ) -> BoxFuture<'a, Result<StepOutcome, DriverError>> {
//!         assert_eq!(context.history().len(), 1); // Ask a model here.
//!         async { Ok(StepOutcome::Completed) }.boxed()
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let host = AgentHost::new(Arc::new(MemoryStore::default()), AgentSettings::default());
//! let kit = AgentKit {
//!     driver: Arc::new(Idler),
//!     tools: ToolSet::default(),
//!     prompt: Prompt::default(),
//! };
//! let agent = Agent::create(&host, None, AgentSpec::root(kit))?;
//! agent.start();
//! let delivered = agent.followup(Message::user("hello"))?;
//! assert_eq!(delivered.placement, Placement::TurnStarted);
//! assert_eq!(agent.idle().await.end, Some(TurnEndReason::Completed));
//! agent.close(Pending::Keep).await;
//! # Ok(())
//! # }
//! ```
//!
//! This crate knows no model, no background task and no subagent: those add their events as
//! [`Extension`]s and their messages with a [`Source`] of their own kind.

/// The examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/agents.md")]
struct Guide;

pub mod agent;
mod driver;
mod event;
mod hub;
mod id;
mod inbox;
#[cfg(test)]
mod interleavings;
pub mod machine;
mod message;
mod projection;
mod prompt;
mod registry;
pub mod store;
mod sync;
mod tool;

/// The examples of a document of the repository, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/sessions.md")]
struct SessionsDocument;

pub use agent::{
    Agent, AgentHandle, AgentHost, AgentKit, AgentSettings, AgentSpec, CallState, CancelCause,
    Delivered, Idle, OpenCall, OpenError, Pending, Placement, Resumed, SendError, Status,
    WeakAgent,
};
pub use driver::{DriverError, StepContext, StepKey, StepOutcome, TurnDriver};
pub use event::{
    AssistantMessage, CallRequest, Event, Extension, Finish, Inherited, Origin, SessionStart,
    StoredEvent, ToolResultRecord, TurnEndReason, Usage,
};
pub use hub::{EventHub, EventObserver, EventRecord, Observed, ObserverGuard, Subscription};
pub use id::{AgentId, BadId, CallId, MessageId, RunId};
pub use inbox::{Entry, Inbox, Target};
pub use message::{ContentBlock, Message, Source};
pub use projection::{
    ActivationFacts, EventFold, Fold, HistoryItem, OUTCOME_UNKNOWN, OpenTurn, Projection,
};
pub use prompt::{Prompt, PromptSection};
pub use registry::AgentRegistry;
pub use store::examine::rule::{EventCheck, EventRule};
pub use store::{
    AppendError, Flushed, JsonlStore, MemoryStore, OpenedSession, SessionLog, SessionStore,
    StoreError, SyncPolicy, Visit,
};
pub use tool::{Deadline, Effects, FilterError, Tool, ToolCall, ToolFilter, ToolOutput, ToolSet};
