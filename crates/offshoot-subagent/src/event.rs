//! What a parent's session says of its children: `subagent/started` and `subagent/settled`.

use std::collections::{HashMap, HashSet};

use offshoot_agent::{AgentId, CallId, Extension, Projection, RunId};
use serde_json::Value;

use crate::{Mode, Outcome, TreeUsage, compose};

const STARTED: &str = "subagent/started";
const SETTLED: &str = "subagent/settled";

/// The types of the events that say what becomes of an agent's children.
pub const EVENT_TYPES: [&str; 2] = [STARTED, SETTLED];

/// One run of a child, as its parent's session knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// The child.
    pub child: AgentId,
    /// The run: a new one each time that the child becomes resident.
    pub run_id: RunId,
    /// The provider's name, which stays valid when the provider has gone.
    pub provider: String,
    /// How long the child lives.
    pub mode: Mode,
    /// What the child is called.
    pub label: String,
    /// The task that carries the run.
    pub task_id: Option<String>,
    /// The tool call that waits for the run.
    pub call_id: Option<CallId>,
}

impl RunRecord {
    fn event(&self, kind: &str) -> Extension {
        Extension::new(kind)
            .with("child", self.child.as_str())
            .with("run_id", self.run_id.as_str())
            .with("provider", self.provider.as_str())
            .with("mode", self.mode.as_str())
            .with("label", self.label.as_str())
            .with_some("task_id", self.task_id.clone())
            .with_some("call_id", self.call_id.as_ref().map(|id| id.0.clone()))
    }

    pub(crate) fn started(&self) -> Extension {
        self.event(STARTED)
    }

    pub(crate) fn settled(&self, outcome: Outcome, usage: TreeUsage) -> Extension {
        self.event(SETTLED)
            .with("outcome", outcome.as_str())
            .with("usage", serde_json::to_value(usage).unwrap_or(Value::Null))
    }

    /// The run that a settlement tells of, with its outcome and what it cost.
    pub(crate) fn read_settled(event: &Extension) -> Option<(Self, Outcome, TreeUsage)> {
        if event.kind != SETTLED {
            return None;
        }
        let of = |key: &str| event.fields.get(key).cloned();
        let outcome = serde_json::from_value(of("outcome")?).ok()?;
        let usage = of("usage").and_then(|usage| serde_json::from_value(usage).ok());
        Some((Self::read(event)?, outcome, usage.unwrap_or_default()))
    }

    /// The run that a start tells of.
    pub(crate) fn read_started(event: &Extension) -> Option<Self> {
        (event.kind == STARTED).then(|| Self::read(event))?
    }

    fn read(event: &Extension) -> Option<Self> {
        let mode = match event.field("mode")? {
            "one-shot" => Mode::OneShot,
            "continuable" => Mode::Continuable,
            _ => return None,
        };
        Some(Self {
            child: event.field("child")?.parse().ok()?,
            run_id: event.field("run_id")?.parse().ok()?,
            provider: event.field("provider")?.to_owned(),
            mode,
            label: compose::label(event.field("label").unwrap_or_default()),
            task_id: event.field("task_id").map(str::to_owned),
            call_id: event.field("call_id").map(|id| CallId(id.to_owned())),
        })
    }
}

/// The last run of each child that a session started, in the order of the children, with what all
/// settled runs of the child cost together.
pub(crate) fn children(projection: &Projection) -> Vec<(RunRecord, TreeUsage)> {
    let mut runs: Vec<(RunRecord, TreeUsage)> = Vec::new();
    let mut places: HashMap<AgentId, usize> = HashMap::new();
    for event in projection.extensions() {
        let settled = event.kind == SETTLED;
        if !settled && event.kind != STARTED {
            continue;
        }
        let Some(run) = RunRecord::read(event) else {
            continue;
        };
        let place = places.get(&run.child).copied();
        match place {
            Some(place) if settled => runs[place].1 += usage(event),
            Some(place) => runs[place].0 = run,
            None if settled => {}
            None => {
                places.insert(run.child.clone(), runs.len());
                runs.push((run, TreeUsage::default()));
            }
        }
    }
    runs
}

/// Whether a session says that this run began.
pub(crate) fn started(projection: &Projection, run: &RunId) -> bool {
    knows(projection, STARTED, run)
}

/// Whether a session says that this run is over.
pub(crate) fn settled(projection: &Projection, run: &RunId) -> bool {
    knows(projection, SETTLED, run)
}

fn knows(projection: &Projection, kind: &str, run: &RunId) -> bool {
    projection
        .extensions()
        .any(|event| event.kind == kind && event.field("run_id") == Some(run.as_str()))
}

fn usage(settled: &Extension) -> TreeUsage {
    let usage = settled.fields.get("usage").cloned();
    usage
        .and_then(|usage| serde_json::from_value(usage).ok())
        .unwrap_or_default()
}

/// The runs that a session started and that have not settled in it, in order.
#[must_use]
pub fn open_runs(projection: &Projection) -> Vec<RunRecord> {
    let settled: HashSet<_> = projection
        .extensions()
        .filter(|event| event.kind == SETTLED)
        .filter_map(|event| event.field("run_id"))
        .collect();
    projection
        .extensions()
        .filter(|event| event.kind == STARTED)
        .filter_map(RunRecord::read)
        .filter(|run| !settled.contains(run.run_id.as_str()))
        .collect()
}
