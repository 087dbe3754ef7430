//! How an agent comes to be: a new session, or one that goes on.

use std::sync::{Arc, Mutex};

use offshoot_core::{Scope, ScopeClosed};
use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::state::{Inner, Phase, State};
use super::{Agent, AgentHost, AgentKit};
use crate::{
    AgentId, AppendError, Event, Inherited, Origin, Projection, SessionLog, SessionStart,
    StoreError, StoredEvent, Usage,
};

/// An agent could not be made; nothing of it is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// What it should belong to is closing.
    #[error("the owner is closing")]
    OwnerClosing,
    /// An agent of this id is live.
    #[error("agent {0} is live already")]
    Live(AgentId),
    /// The session's log has no beginning.
    #[error("session {0} has no beginning")]
    Empty(AgentId),
    /// What the session should begin with is not the whole past of another one.
    #[error("a session cannot begin with this past: {0}")]
    BadSeed(&'static str),
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The first event could not be written.
    #[error(transparent)]
    Append(#[from] AppendError),
}

impl From<ScopeClosed> for OpenError {
    fn from(_: ScopeClosed) -> Self {
        Self::OwnerClosing
    }
}

/// What a new agent is.
#[derive(Clone, Debug)]
pub struct AgentSpec {
    /// Its id, when the caller chose one.
    pub id: Option<AgentId>,
    /// What it is called.
    pub label: String,
    /// The session that delegates to it.
    pub parent: Option<AgentId>,
    /// How deep it is.
    pub depth: u32,
    /// What crates above need to make the same agent again.
    pub extra: Map<String, Value>,
    /// Another session's past, to begin with: its log up to the end of a turn.
    pub seed: Option<Vec<Arc<StoredEvent>>>,
    /// What it works with.
    pub kit: AgentKit,
}

impl AgentSpec {
    /// A root agent.
    #[must_use]
    pub fn root(kit: AgentKit) -> Self {
        Self {
            id: None,
            label: "root".to_owned(),
            parent: None,
            depth: 0,
            extra: Map::new(),
            seed: None,
            kit,
        }
    }
}

impl Agent {
    /// Makes an agent with a new session, inside `owner` when there is one. It accepts messages, and
    /// runs nothing before [`start`](Self::start).
    ///
    /// # Errors
    ///
    /// [`OpenError`]; nothing is left then.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub fn create(
        host: &AgentHost,
        owner: Option<&Scope>,
        spec: AgentSpec,
    ) -> Result<Self, OpenError> {
        let id = spec.id.clone().unwrap_or_else(AgentId::fresh);
        let seed = spec.seed.unwrap_or_default();
        let mut log = host.store.create(&id, seed.len() as u64)?;
        let projection = Projection::of(&seed);
        let inherited = (!seed.is_empty()).then(|| Inherited {
            events: projection.next_seq(),
            turns: projection.turn(),
        });
        if !seed.is_empty() {
            log.append(0, &seed)?;
        }
        let start = SessionStart {
            parent: spec.parent,
            label: Some(spec.label),
            origin: if spec.depth == 0 {
                Origin::Root
            } else {
                Origin::Subagent
            },
            depth: spec.depth,
            resumed: false,
            inherited,
            extra: spec.extra,
        };
        Self::publish(host, owner, id, log, projection, start, spec.kit)
    }

    /// Goes on with a stored session. What a dead process left open is closed on the record;
    /// messages that were accepted and not read still wait. Runs nothing before
    /// [`start`](Self::start).
    ///
    /// # Errors
    ///
    /// [`OpenError`]; the session is unchanged then, but for a torn last line that was cut off.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub fn resume(
        host: &AgentHost,
        owner: Option<&Scope>,
        id: &AgentId,
        extra: Map<String, Value>,
        kit: AgentKit,
    ) -> Result<Self, OpenError> {
        let opened = host.store.open(id)?;
        let projection = Projection::of(&opened.events);
        let Some(first) = projection.start().cloned() else {
            return Err(OpenError::Empty(id.clone()));
        };
        let start = SessionStart {
            resumed: true,
            inherited: None,
            extra,
            ..first
        };
        Self::publish(host, owner, id.clone(), opened.log, projection, start, kit)
    }

    fn publish(
        host: &AgentHost,
        owner: Option<&Scope>,
        id: AgentId,
        log: Box<dyn SessionLog>,
        projection: Projection,
        start: SessionStart,
        kit: AgentKit,
    ) -> Result<Self, OpenError> {
        let label: Arc<str> = start.label.clone().unwrap_or_default().into();
        let scope = match owner {
            Some(owner) => owner.child(format!("agent {id}"))?,
            None => Scope::root(format!("agent {id}")),
        };
        let activation = projection.activations() + 1;
        let repairs = projection.repairs();
        let stopped_by_user = projection.stopped_by_user();
        let agent = Self(Arc::new(Inner {
            id,
            label,
            depth: start.depth,
            parent: start.parent.clone(),
            scope,
            kit,
            host: host.clone(),
            activation,
            runtime: Handle::current(),
            changed: Notify::new(),
            state: Mutex::new(State {
                projection,
                log: Some(log),
                phase: Phase::Preparing,
                closing: None,
                closed: false,
                failure: None,
                subtree: Usage::default(),
                stopped_by_user,
                epoch: 0,
            }),
        }));
        if !host.agents.enter(&agent) {
            drop(agent.scope().close());
            return Err(OpenError::Live(agent.id().clone()));
        }
        let events = std::iter::once(Event::SessionStart(start))
            .chain(repairs)
            .collect();
        let begun = agent.commit(|state, inner| state.append(inner, events));
        let last = agent.clone();
        let attached = agent
            .scope()
            .on_close("let the session go", move || last.let_go());
        match (begun, attached) {
            (Ok(()), Ok(_)) => Ok(agent),
            (Err(error), _) => {
                agent.abandon();
                Err(error.into())
            }
            (_, Err(closed)) => {
                agent.abandon();
                Err(closed.into())
            }
        }
    }

    /// Takes back an agent that was not published.
    fn abandon(&self) {
        self.host().agents.leave(self);
        self.lock().log = None;
        self.begin_close(super::Pending::Keep);
        drop(self.scope().close());
    }

    /// Lets the agent run: if a message that may wake waits, its turn begins at once.
    pub fn start(&self) {
        self.commit(|state, _| {
            if !matches!(state.phase, Phase::Preparing) {
                return;
            }
            state.phase = Phase::Idle;
            if state.closing.is_none() && state.projection.inbox().has_waking() {
                self.open_turn(state);
            }
        });
    }
}
