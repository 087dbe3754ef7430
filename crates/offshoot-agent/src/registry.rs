//! The live agents of one runtime.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use offshoot_core::ScopeId;

use crate::agent::WeakAgent;
use crate::{Agent, AgentId};

#[derive(Debug, Default)]
struct Live {
    by_id: HashMap<AgentId, WeakAgent>,
    by_scope: HashMap<ScopeId, WeakAgent>,
}

/// Live agents by id and by scope. An agent is in it from its creation until it has closed.
///
/// Being listed says that the agent exists, not that it accepts messages.
#[derive(Clone, Debug, Default)]
pub struct AgentRegistry(Arc<Mutex<Live>>);

impl AgentRegistry {
    fn live(&self) -> MutexGuard<'_, Live> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The live agent of this id.
    #[must_use]
    pub fn get(&self, id: &AgentId) -> Option<Agent> {
        self.live().by_id.get(id).and_then(WeakAgent::upgrade)
    }

    /// The live agent that owns this scope.
    #[must_use]
    pub fn by_scope(&self, scope: ScopeId) -> Option<Agent> {
        self.live()
            .by_scope
            .get(&scope)
            .and_then(WeakAgent::upgrade)
    }

    /// Every live agent, in the order of ids, which is the order of creation.
    #[must_use]
    pub fn list(&self) -> Vec<Agent> {
        let mut agents: Vec<_> = self
            .live()
            .by_id
            .values()
            .filter_map(WeakAgent::upgrade)
            .collect();
        agents.sort_by(|a, b| a.id().cmp(b.id()));
        agents
    }

    /// False when an agent of this id is live already.
    pub(crate) fn enter(&self, agent: &Agent) -> bool {
        let mut live = self.live();
        if live
            .by_id
            .get(agent.id())
            .is_some_and(|old| old.upgrade().is_some())
        {
            return false;
        }
        live.by_id.insert(agent.id().clone(), agent.downgrade());
        live.by_scope.insert(agent.scope().id(), agent.downgrade());
        true
    }

    /// Takes out exactly this agent; one of the same id that came later stays.
    pub(crate) fn leave(&self, agent: &Agent) {
        let mut live = self.live();
        live.by_scope.remove(&agent.scope().id());
        let same = live.by_id.get(agent.id()).and_then(WeakAgent::upgrade);
        if same.is_some_and(|same| same == *agent) {
            live.by_id.remove(agent.id());
        }
    }
}
