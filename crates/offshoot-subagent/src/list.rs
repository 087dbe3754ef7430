//! The children of an agent.

use std::collections::HashSet;

use offshoot_agent::{Agent, AgentId};

use crate::host::Look;
use crate::past::children;
use crate::{Descriptor, Mode, RunRecord, Subagents, TreeUsage};

/// What a child is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildStatus {
    /// It runs a turn.
    Running,
    /// It is quiet and waits for what it started.
    Waiting,
    /// It is quiet.
    Idle,
    /// It is not resident; a message resumes it.
    Ready,
    /// It is not resident, and its session cannot be read or is not that of this child. A listing reads only
    /// the beginning of a session; what is damaged further on is known since the child could not be resumed.
    Broken,
}

impl ChildStatus {
    /// The name in values.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Idle => "idle",
            Self::Ready => "ready",
            Self::Broken => "broken",
        }
    }
}

/// One child in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The child.
    pub id: AgentId,
    /// Its parent.
    pub parent: AgentId,
    /// How deep it is.
    pub depth: u32,
    /// What it is called.
    pub label: String,
    /// What it is doing.
    pub status: ChildStatus,
    /// What it cost so far, in all its residencies together.
    pub usage: TreeUsage,
    /// What it started and is alive.
    pub works: Vec<String>,
}

/// The children of one agent that are still to be listed.
struct Level {
    parent: AgentId,
    depth: u32,
    runs: std::vec::IntoIter<(RunRecord, TreeUsage)>,
}

impl Subagents {
    /// The continuable children of `agent`, in the order in which they were started; with
    /// `descendants` also those below them, each after its parent. Sessions that are damaged are listed as
    /// broken, and what they say is below them is not listed.
    #[must_use]
    pub fn list(&self, agent: &Agent, descendants: bool) -> Vec<Listed> {
        self.pay(agent);
        let mut listed = Vec::new();
        let mut seen = HashSet::from([agent.id().clone()]);
        let level = |parent: &AgentId, depth, runs: Vec<_>| Level {
            parent: parent.clone(),
            depth,
            runs: runs.into_iter(),
        };
        let runs = agent.with_projection(children);
        let mut levels = vec![level(agent.id(), agent.depth().saturating_add(1), runs)];
        while let Some(at) = levels.last_mut() {
            let Some((run, cost)) = at.runs.next() else {
                levels.pop();
                continue;
            };
            let depth = at.depth;
            let look = self.look(&run.child, cost, &at.parent);
            // What a damaged session says is below it may be below somebody else.
            let whole = look.status != ChildStatus::Broken;
            if whole && !seen.insert(run.child.clone()) {
                continue;
            }
            if run.mode == Mode::Continuable {
                listed.push(listed_as(&run, look, &at.parent, depth));
            }
            if descendants && whole {
                let below = self.runs_of(&run.child);
                levels.push(level(&run.child, depth.saturating_add(1), below));
            }
        }
        listed
    }

    fn runs_of(&self, child: &AgentId) -> Vec<(RunRecord, TreeUsage)> {
        if let Some(agent) = self.0.host.agents.get(child) {
            return agent.with_projection(children);
        }
        let stored = self.0.host.project(child);
        stored.map_or_else(|_| Vec::new(), |p| children(&p))
    }

    fn look(&self, child: &AgentId, cost: TreeUsage, parent: &AgentId) -> Look {
        let start = match self.0.host.agents.get(child) {
            Some(agent) => agent.with_projection(|p| p.start().cloned()),
            None => self.session_start(child),
        };
        let whole = !self.0.damaged.has(child)
            && start.is_some_and(|start| {
                start.parent.as_ref() == Some(parent) && Descriptor::read(&start).is_some()
            });
        let resident = self.children().look(child).filter(|_| whole);
        let resident = resident.map(|mut look| {
            look.usage += cost;
            look
        });
        resident.unwrap_or_else(|| {
            let status = match whole {
                true => ChildStatus::Ready,
                false => ChildStatus::Broken,
            };
            Look {
                status,
                usage: cost,
                works: Vec::new(),
            }
        })
    }
}

fn listed_as(run: &RunRecord, look: Look, parent: &AgentId, depth: u32) -> Listed {
    Listed {
        id: run.child.clone(),
        parent: parent.clone(),
        depth,
        label: run.label.clone(),
        status: look.status,
        usage: look.usage,
        works: look.works,
    }
}
