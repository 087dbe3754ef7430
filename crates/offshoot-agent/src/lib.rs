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
