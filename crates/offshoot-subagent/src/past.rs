//! What is still true of the children that a session has started: what is kept in place of its events.

#[cfg(test)]
mod tests;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use offshoot_agent::{AgentId, EventFold, Extension, Projection, RunId};

use crate::event::{EVENT_TYPES, RunEvent, RunRecord, may_have_children};
use crate::{Mode, Outcome, TreeUsage};

/// So many of the runs that ended last are known by their ids.
const RECENT: usize = 256;

/// A run that has ended, how, and what it cost.
pub(crate) type End = (Arc<RunRecord>, Outcome, TreeUsage);

/// The children of a session. As large as what a listing shows of them, and what is open: a one-shot run
/// without children of its own leaves nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunPast {
    /// How many runs began.
    count: u64,
    open: HashMap<RunId, Open>,
    children: HashMap<AgentId, Child>,
    /// What the settled runs cost that began in this residency, with all below them.
    below: TreeUsage,
    in_step: bool,
    /// The runs of calls that ended since the last step began: in it, or when they were found after the death of
    /// the process that it was in.
    call_ends: Vec<End>,
    /// The last one that ended, of those that began.
    last_end: Option<End>,
    recent: Recent,
}

#[derive(Clone, Debug)]
struct Open {
    /// Its place among all runs.
    at: u64,
    run: Arc<RunRecord>,
    /// Whether it began in this residency.
    present: bool,
}

#[derive(Clone, Debug)]
struct Child {
    /// The place of its first run.
    at: u64,
    /// Its last run.
    last: Arc<RunRecord>,
    /// What all its settled runs cost together.
    cost: TreeUsage,
}

/// The runs that ended last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent {
    ids: HashSet<RunId>,
    order: VecDeque<RunId>,
    /// The greatest id that is no longer among them. Ids are in the order of their making.
    forgotten: Option<RunId>,
}

impl Recent {
    pub(crate) fn has(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    pub(crate) fn push(&mut self, id: RunId) {
        if self.order.len() == RECENT
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
            self.forgotten = self.forgotten.take().max(Some(oldest));
        }
        self.ids.insert(id.clone());
        self.order.push_back(id);
    }
}

impl EventFold for RunPast {
    const CLAIMS: &'static [&'static str] = &EVENT_TYPES;

    fn apply(&mut self, event: &Extension) {
        let Some(said) = RunEvent::read(event) else {
            return;
        };
        match said.end {
            None => said.record().into_iter().for_each(|run| self.begin(run)),
            Some((outcome, usage)) => self.end(&said, outcome, usage, may_have_children(event)),
        }
    }

    fn step_begins(&mut self) {
        self.in_step = true;
        self.call_ends.clear();
    }

    fn step_ends(&mut self) {
        self.in_step = false;
    }

    fn residency_begins(&mut self) {
        self.below = TreeUsage::default();
        for open in self.open.values_mut() {
            open.present = false;
        }
    }
}

impl RunPast {
    fn begin(&mut self, run: RunRecord) {
        let at = self.count;
        self.count += 1;
        let run = Arc::new(run);
        match self.children.entry(run.child.clone()) {
            Entry::Occupied(mut child) => child.get_mut().last = Arc::clone(&run),
            Entry::Vacant(place) => {
                place.insert(Child {
                    at,
                    last: Arc::clone(&run),
                    cost: TreeUsage::default(),
                });
            }
        }
        let present = true;
        let id = run.run_id.clone();
        self.open.insert(id, Open { at, run, present });
    }

    fn end(&mut self, said: &RunEvent<'_>, outcome: Outcome, usage: TreeUsage, below: bool) {
        if let Some(child) = self.children.get_mut(said.child) {
            child.cost += usage;
            // Nobody lists it, nor anything below it.
            if child.last.mode == Mode::OneShot && !below {
                self.children.remove(said.child);
            }
        }
        let begun = self.open.remove(said.run_id);
        let present = begun.as_ref().map(|open| open.present);
        if present == Some(true) {
            self.below.add_below(usage);
        }
        self.last_end = begun.map(|open| (open.run, outcome, usage));
        let run = match &self.last_end {
            Some((run, ..)) => Arc::clone(run),
            None => match said.record() {
                Some(run) => Arc::new(run),
                None => return,
            },
        };
        self.recent.push(run.run_id.clone());
        if (self.in_step || present == Some(false)) && run.call_id.is_some() {
            self.call_ends.push((run, outcome, usage));
        }
    }

    /// The runs that have not settled, in the order of their beginnings.
    pub(crate) fn open_runs(&self) -> Vec<RunRecord> {
        self.open_where(|_| true)
    }

    /// Those of them that began in this residency.
    pub(crate) fn present_open_runs(&self) -> Vec<RunRecord> {
        self.open_where(|open| open.present)
    }

    fn open_where(&self, wanted: impl Fn(&Open) -> bool) -> Vec<RunRecord> {
        let mut open: Vec<_> = self.open.values().filter(|open| wanted(open)).collect();
        open.sort_unstable_by_key(|open| open.at);
        open.into_iter()
            .map(|open| RunRecord::clone(&open.run))
            .collect()
    }

    pub(crate) fn has_open_runs(&self) -> bool {
        !self.open.is_empty()
    }

    /// What the runs cost that began in this residency and have settled, with all below them.
    pub(crate) fn present_cost(&self) -> TreeUsage {
        self.below
    }

    /// The last run of each child that is listed or has such children, and of each that is open, in the
    /// order of the children, with what all its settled runs cost together.
    pub(crate) fn children(&self) -> Vec<(RunRecord, TreeUsage)> {
        let mut children: Vec<_> = self.children.values().collect();
        children.sort_unstable_by_key(|child| child.at);
        let children = children.into_iter();
        children
            .map(|child| (RunRecord::clone(&child.last), child.cost))
            .collect()
    }

    pub(crate) fn has_children(&self) -> bool {
        !self.children.is_empty()
    }

    /// The runs of calls that ended in the last step, and those of its process that were found to be over, in order.
    pub(crate) fn call_ends(&self) -> &[End] {
        &self.call_ends
    }

    /// The last run that ended, if it began: nobody was told of one whose beginning the log refused.
    pub(crate) fn last_end(&self) -> Option<&End> {
        self.last_end.as_ref()
    }

    /// Whether this run is open, or is over; unknown of one from long ago, which the log tells.
    pub(crate) fn knows(&self, run: &RunId) -> Option<Known> {
        if self.open.contains_key(run) {
            return Some(Known::Open);
        }
        if self.recent.has(run.as_str()) {
            return Some(Known::Ended);
        }
        match self.recent.forgotten.as_ref().is_some_and(|it| run <= it) {
            true => None,
            false => Some(Known::Never),
        }
    }
}

/// What a session knows of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Never,
    Open,
    Ended,
}

/// The runs that a session started and that have not settled in it, in order.
#[must_use]
pub fn open_runs(projection: &Projection) -> Vec<RunRecord> {
    projection.fold::<RunPast>().open_runs()
}

/// See [`RunPast::children`].
pub(crate) fn children(projection: &Projection) -> Vec<(RunRecord, TreeUsage)> {
    projection.fold::<RunPast>().children()
}
