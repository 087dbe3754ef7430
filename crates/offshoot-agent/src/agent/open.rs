//! How an agent comes to be: a new session, or one that goes on.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use offshoot_core::{CloseReport, Scope, ScopeClosed};
use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::close::LastCleanup;
use super::state::{Drive, Inner, State};
use super::wait::Waiters;
use super::{Agent, AgentHandle, AgentHost, AgentKit, Pending};
use crate::machine::{Closed, Machine, Start};
use crate::store::examine::{Examination, order};
use crate::{
    AgentId, AppendError, Event, Inherited, OpenedSession, Origin, Projection, SessionLog,
    SessionStart, StoreError, StoredEvent, Usage,
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
    /// A session cannot have delegated to itself.
    #[error("agent {0} cannot be its own parent")]
    OwnParent(AgentId),
    /// The session's log has no beginning.
    #[error("session {0} has no beginning")]
    Empty(AgentId),
    /// What the session should begin with is not the whole past of another one.
    #[error("a session cannot begin with this past: {0}")]
    BadSeed(&'static str),
    /// There is no Tokio runtime that the agent could live on.
    #[error("an agent is made inside a Tokio runtime")]
    NoRuntime,
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The first event could not be written.
    #[error(transparent)]
    Append(#[from] AppendError),
}

impl OpenError {
    /// A stable name of the kind of error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::OwnerClosing => "OWNER_CLOSING",
            Self::Live(_) => "AGENT_LIVE",
            Self::OwnParent(_) => "OWN_PARENT",
            Self::Empty(_) => "SESSION_EMPTY",
            Self::BadSeed(_) => "BAD_SEED",
            Self::NoRuntime => "NO_RUNTIME",
            Self::Store(error) => error.code(),
            Self::Append(error) => error.code(),
        }
    }
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
    pub seed: Option<Vec<StoredEvent>>,
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

/// What an agent is made of, besides its place and its kit.
struct Session {
    id: AgentId,
    log: Box<dyn SessionLog>,
    projection: Projection,
    start: SessionStart,
    torn_bytes: u64,
    /// What the agent lives on.
    runtime: Handle,
}

fn runtime() -> Result<Handle, OpenError> {
    Handle::try_current().map_err(|_| OpenError::NoRuntime)
}

fn scope_in(owner: Option<&Scope>, id: &AgentId) -> Result<Scope, ScopeClosed> {
    match owner {
        Some(owner) => owner.child(format!("agent {id}")),
        None => Ok(Scope::root(format!("agent {id}"))),
    }
}

/// Opens a session and folds it as it is read.
pub(super) fn folded(
    host: &AgentHost,
    id: &AgentId,
) -> Result<(OpenedSession, Projection), StoreError> {
    let mut examination = Examination::of(host, id);
    let opened = host.store.open(id, &mut |stored| examination.see(stored))?;
    let mut projection = examination.end()?;
    projection.skip_to(opened.next_seq);
    Ok((opened, projection))
}

/// The state that another session's log leads to, when it is whole and ends outside a turn.
fn past(host: &AgentHost, seed: &[StoredEvent]) -> Result<Projection, OpenError> {
    if (0..).zip(seed).any(|(seq, stored)| seq != stored.seq) {
        return Err(OpenError::BadSeed("its events are not numbered from 0"));
    }
    let mut projection = host.projection();
    for stored in seed {
        if order::fault(&projection, stored).is_some() {
            return Err(OpenError::BadSeed("its events do not follow each other"));
        }
        projection.apply(stored);
    }
    if projection.open_turn().is_some() {
        return Err(OpenError::BadSeed("it ends in the middle of a turn"));
    }
    Ok(projection)
}

impl Agent {
    /// Makes an agent with a new session, inside `owner` when there is one. It accepts messages, and
    /// runs nothing before [`start`](Self::start). Who holds the handle is to close it.
    ///
    /// # Errors
    ///
    /// [`OpenError`]; nothing is left then.
    pub fn create(
        host: &AgentHost,
        owner: Option<&Scope>,
        spec: AgentSpec,
    ) -> Result<AgentHandle, OpenError> {
        let runtime = runtime()?;
        let id = spec.id.clone().unwrap_or_else(AgentId::fresh);
        if spec.parent.as_ref() == Some(&id) {
            return Err(OpenError::OwnParent(id));
        }
        let seed = spec.seed.unwrap_or_default();
        let projection = past(host, &seed)?;
        let inherited = (!seed.is_empty()).then(|| Inherited {
            events: projection.next_seq(),
            turns: projection.turn(),
        });
        let is_root = spec.depth == 0 && spec.parent.is_none();
        let start = SessionStart {
            parent: spec.parent,
            label: Some(spec.label),
            origin: if is_root {
                Origin::Root
            } else {
                Origin::Subagent
            },
            depth: spec.depth,
            resumed: false,
            inherited,
            extra: spec.extra,
        };
        let scope = scope_in(owner, &id)?;
        let mut log = match host.store.create(&id, seed.len() as u64) {
            Ok(log) => log,
            Err(error) => {
                drop(scope.close());
                return Err(error.into());
            }
        };
        if !seed.is_empty()
            && let Err(error) = log.append(0, &seed)
        {
            log.abandon();
            drop(scope.close());
            return Err(error.into());
        }
        let session = Session {
            id,
            log,
            projection,
            start,
            torn_bytes: 0,
            runtime,
        };
        Self::publish(host, scope, session, spec.kit)
    }

    /// Goes on with a stored session. What a dead process left open is closed on the record;
    /// messages that were accepted and not read still wait. Runs nothing before
    /// [`start`](Self::start), and does no turn again that was cut.
    ///
    /// `kit` is not stored: it is what the agent works with from now on. `extra` is recorded with the
    /// beginning of this residency; [`Projection::start`](crate::Projection::start) keeps that of the first.
    ///
    /// # Errors
    ///
    /// [`OpenError`]; the session is unchanged then, but for a torn last line that was cut off before its
    /// beginning could not be appended.
    pub fn resume(
        host: &AgentHost,
        owner: Option<&Scope>,
        id: &AgentId,
        extra: Map<String, Value>,
        kit: AgentKit,
    ) -> Result<AgentHandle, OpenError> {
        let runtime = runtime()?;
        if host.agents.get(id).is_some() {
            return Err(OpenError::Live(id.clone()));
        }
        let (opened, projection) = folded(host, id)?;
        let Some(first) = projection.start().cloned() else {
            return Err(OpenError::Empty(id.clone()));
        };
        let start = SessionStart {
            resumed: true,
            inherited: None,
            extra,
            ..first
        };
        let session = Session {
            id: id.clone(),
            log: opened.log,
            projection,
            start,
            torn_bytes: opened.torn_bytes,
            runtime,
        };
        Self::publish(host, scope_in(owner, id)?, session, kit)
    }

    fn publish(
        host: &AgentHost,
        scope: Scope,
        session: Session,
        kit: AgentKit,
    ) -> Result<AgentHandle, OpenError> {
        let Session {
            id,
            log,
            projection,
            start,
            torn_bytes,
            runtime,
        } = session;
        let label: Arc<str> = start.label.clone().unwrap_or_default().into();
        let fresh = !start.resumed;
        let activation = projection.activations() + 1;
        let repairs = projection.repairs();
        let agent = Self(Arc::new(Inner {
            id,
            label,
            depth: start.depth,
            parent: start.parent.clone(),
            scope,
            kit,
            host: host.clone(),
            activation,
            torn_bytes,
            runtime,
            began: Instant::now(),
            state: Mutex::new(State {
                machine: Machine::new(projection, Arc::clone(&host.settings)),
                log: Some(log),
                signal: None,
                born: false,
                fresh,
                retracted: false,
                undriven: false,
                drive: Drive::None,
                waiters: Waiters::default(),
                failure: None,
                subtree: Usage::default(),
                subtree_wall: Duration::ZERO,
                settled: None,
                ending: None,
                epoch: 0,
            }),
        }));
        let last = LastCleanup(agent.clone());
        let closing = agent.clone();
        let scope = agent.scope();
        let attached = scope
            .on_close("let the session go", move || last.run())
            // Whoever closes the scope, or one around it: at once, not when the cleanups come to it.
            .and_then(|_| {
                scope.on_closing(move || {
                    closing.begin_close(Pending::Keep);
                })
            });
        let events = std::iter::once(Event::from(start)).chain(repairs).collect();
        let begun = attached
            .map_err(OpenError::from)
            .and_then(|()| agent.begin(events));
        match begun {
            Ok(()) => Ok(AgentHandle::new(agent)),
            Err(error) => {
                agent.unmake();
                Err(error)
            }
        }
    }

    /// Writes the session's beginning and lists the agent, as one: who finds it finds it begun.
    fn begin(&self, events: Vec<Event>) -> Result<(), OpenError> {
        self.commit(|state, inner| {
            if state.machine.is_closed() || inner.scope.is_closing() {
                return Err(OpenError::OwnerClosing);
            }
            if !inner.host.agents.enter(self) {
                return Err(OpenError::Live(inner.id.clone()));
            }
            if let Err(error) = state.append(inner, events) {
                inner.host.agents.leave(self);
                return Err(error.into());
            }
            state.born = true;
            Ok(())
        })
    }

    /// Takes back an agent that nobody came to know.
    fn unmake(&self) {
        let log = {
            let mut state = self.lock();
            let _ = state.run(&self.0, Closed);
            state.log.take().filter(|_| state.fresh)
        };
        if let Some(log) = log {
            log.abandon();
        }
        drop(self.scope().close());
    }

    /// Takes back an agent of which nobody was told: it ends, and the session that began with it is
    /// removed. A session that was there before stays.
    ///
    /// Dropping the returned future does not stop the end.
    pub fn retract(&self) -> impl Future<Output = Arc<CloseReport>> + Send + 'static + use<> {
        self.lock().retracted = true;
        self.close(Pending::Discard)
    }

    /// Lets the agent run: if a message that may wake waits, its turn begins at once. In a resumed session
    /// that is so with [`AgentSettings::auto_wake`](crate::AgentSettings::auto_wake), and after a stop by a
    /// user a notice is no reason. Called again it does nothing.
    pub fn start(&self) {
        self.commit(|state, inner| {
            state.follow_scope(inner);
            // When the log refuses, what waits stays parked and `failure` tells.
            let _ = state.repair(inner).and_then(|()| state.run(inner, Start).1);
        });
    }
}
