//! What both sides of delegation share: the agents of this process, and what they have going.

use std::fmt;
use std::sync::{Arc, OnceLock};

use offshoot_agent::{Agent, AgentHost, AgentId, Projection, Status, TurnEndReason};

use crate::{Interrupter, LiveWork, SubagentSettings};

struct NoWork;

impl LiveWork for NoWork {
    fn describe(&self, _: &Agent) -> Vec<String> {
        Vec::new()
    }

    fn stop(&self, _: &Agent, _: Interrupter, _: &str) {}

    fn was_alive(&self, _: &Projection) -> bool {
        false
    }

    fn recover(&self, _: &Agent) {}
}

pub(crate) struct Ground {
    pub(crate) host: AgentHost,
    pub(crate) settings: SubagentSettings,
    work: OnceLock<Arc<dyn LiveWork>>,
}

impl fmt::Debug for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ground")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Ground {
    pub(crate) fn new(host: AgentHost, settings: SubagentSettings) -> Self {
        Self {
            host,
            settings,
            work: OnceLock::new(),
        }
    }

    pub(crate) fn set_work(&self, work: Arc<dyn LiveWork>) {
        let _ = self.work.set(work);
    }

    pub(crate) fn work(&self) -> &dyn LiveWork {
        self.work.get().map_or(&NoWork, AsRef::as_ref)
    }

    pub(crate) fn resident_children(&self, parent: &AgentId) -> Vec<Agent> {
        let agents = self.host.agents.list();
        let below = agents
            .into_iter()
            .filter(|agent| agent.parent_id() == Some(parent));
        below.collect()
    }

    /// Whether an agent is idle, and of what it started nothing is alive but children that are
    /// [`parked`](Self::is_parked).
    pub(crate) fn is_at_rest(&self, agent: &Agent) -> bool {
        if agent.is_at_rest() {
            return true;
        }
        let epoch = agent.epoch();
        let (idle, holds) = (agent.status() == Status::Idle, agent.scope().holds());
        let below = self.resident_children(agent.id());
        let parked = below.iter().filter(|child| self.is_parked(child)).count();
        // Whatever came or went meanwhile: not the same moment, so not known.
        let same = agent.epoch() == epoch && agent.scope().holds() == holds;
        idle && same && parked == holds
    }

    /// Whether a child is resident only for messages that an interrupt has parked, its own or below it.
    fn is_parked(&self, child: &Agent) -> bool {
        let waits = child.with_projection(|p| {
            p.facts().end == Some(TurnEndReason::Aborted) && p.inbox().has_waking()
        });
        self.is_at_rest(child) && (waits || child.scope().holds() > 0)
    }

    /// What an agent has started and is alive, each as one line.
    pub(crate) fn alive_below(&self, agent: &Agent) -> Vec<String> {
        let mut works = self.work().describe(agent);
        let below = self.resident_children(agent.id());
        works.extend(
            below
                .iter()
                .map(|agent| format!("subagent {} ({})", agent.id(), agent.label())),
        );
        works
    }
}
