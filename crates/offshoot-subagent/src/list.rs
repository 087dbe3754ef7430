//! The children of an agent.

use offshoot_agent::{Agent, AgentId, Projection};

use crate::event::children;
use crate::host::Look;
use crate::{Mode, RunRecord, Subagents, TreeUsage};

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
    /// What its present residency cost so far; of a child that is not resident, its last one.
    pub usage: TreeUsage,
    /// What it started and is alive.
    pub works: Vec<String>,
}

impl Subagents {
    /// The continuable children of `agent`, in the order in which they were started; with
    /// `descendants` also those below them, each after its parent.
    #[must_use]
    pub fn list(&self, agent: &Agent, descendants: bool) -> Vec<Listed> {
        let mut listed = Vec::new();
        let runs = agent.with_projection(children);
        self.list_below(
            agent.id(),
            agent.depth() + 1,
            runs,
            descendants,
            &mut listed,
        );
        listed
    }

    fn list_below(
        &self,
        parent: &AgentId,
        depth: u32,
        runs: Vec<(RunRecord, TreeUsage)>,
        descendants: bool,
        listed: &mut Vec<Listed>,
    ) {
        for (run, cost) in runs {
            let live = self.0.host.agents.get(&run.child);
            if run.mode == Mode::Continuable {
                listed.push(self.describe(&run, cost, parent, depth));
            }
            // Bounded by the depth of real sessions; a ring in damaged ones ends at the limit.
            if !descendants || depth >= self.0.settings.max_depth {
                continue;
            }
            let below = match &live {
                Some(agent) => agent.with_projection(children),
                None => match self.0.host.store.read(&run.child) {
                    Ok(events) => children(&Projection::of(&events)),
                    Err(_) => Vec::new(),
                },
            };
            self.list_below(&run.child, depth + 1, below, descendants, listed);
        }
    }

    fn describe(&self, run: &RunRecord, cost: TreeUsage, parent: &AgentId, depth: u32) -> Listed {
        let look = self.children().look(&run.child);
        let look = look.unwrap_or(Look {
            status: ChildStatus::Ready,
            usage: cost,
            works: Vec::new(),
        });
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
}
