//! What a parent's session says of its children: `subagent/started` and `subagent/settled`.

use offshoot_agent::{AgentId, CallId, Extension, RunId};
use serde::Deserialize as _;
use serde_json::Value;

use crate::{Mode, Outcome, TreeUsage, compose};

const STARTED: &str = "subagent/started";
const SETTLED: &str = "subagent/settled";
/// The field of a settled one-shot run: whether somebody can still be found below it.
const HAS_CHILDREN: &str = "has_children";

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

    pub(crate) fn settled(
        &self,
        outcome: Outcome,
        usage: TreeUsage,
        has_children: bool,
    ) -> Extension {
        let settled = self.event(SETTLED);
        let settled = settled
            .with("outcome", outcome.as_str())
            .with("usage", serde_json::to_value(usage).unwrap_or(Value::Null));
        // A continuable child is listed itself.
        let is_one_shot = self.mode == Mode::OneShot;
        settled.with_some(HAS_CHILDREN, is_one_shot.then_some(has_children))
    }

    /// The run whose end a `subagent/settled` event is, how it ended and what it cost; absent when it is
    /// another event, or is not whole.
    #[must_use]
    pub fn read_settled(event: &Extension) -> Option<(Self, Outcome, TreeUsage)> {
        let end = RunEvent::settled(event)?;
        let (outcome, usage) = end.end?;
        Some((end.record()?, outcome, usage))
    }
}

/// What an event says of a run, where it stands.
pub(crate) struct RunEvent<'a> {
    pub(crate) child: &'a str,
    pub(crate) run_id: &'a str,
    provider: &'a str,
    mode: Mode,
    pub(crate) call_id: Option<&'a str>,
    event: &'a Extension,
    /// How the run ended, and what it cost, of a settlement.
    pub(crate) end: Option<(Outcome, TreeUsage)>,
}

impl<'a> RunEvent<'a> {
    /// What an event of either type says; absent when it is another event, or is not whole.
    pub(crate) fn read(event: &'a Extension) -> Option<Self> {
        match event.kind.as_str() {
            STARTED => Self::of(event, None),
            SETTLED => Self::settled(event),
            _ => None,
        }
    }

    fn settled(event: &'a Extension) -> Option<Self> {
        if event.kind != SETTLED {
            return None;
        }
        let outcome = Outcome::deserialize(event.fields.get("outcome")?).ok()?;
        let usage = event.fields.get("usage");
        let usage = usage.and_then(|usage| TreeUsage::deserialize(usage).ok());
        Self::of(event, Some((outcome, usage.unwrap_or_default())))
    }

    fn of(event: &'a Extension, end: Option<(Outcome, TreeUsage)>) -> Option<Self> {
        let mode = match event.field("mode")? {
            "one-shot" => Mode::OneShot,
            "continuable" => Mode::Continuable,
            _ => return None,
        };
        Some(Self {
            child: event.field("child").filter(|id| AgentId::is_valid(id))?,
            run_id: event.field("run_id").filter(|id| RunId::is_valid(id))?,
            provider: event.field("provider")?,
            mode,
            call_id: event.field("call_id"),
            event,
            end,
        })
    }

    pub(crate) fn record(&self) -> Option<RunRecord> {
        Some(RunRecord {
            child: self.child.parse().ok()?,
            run_id: self.run_id.parse().ok()?,
            provider: self.provider.to_owned(),
            mode: self.mode,
            label: compose::label(self.event.field("label").unwrap_or_default()),
            task_id: self.event.field("task_id").map(str::to_owned),
            call_id: self.call_id.map(|id| CallId(id.to_owned())),
        })
    }
}

/// Whether the run of a settlement may have children that a listing shows. Logs of earlier versions do not
/// say so of any.
pub(crate) fn may_have_children(settled: &Extension) -> bool {
    settled.fields.get(HAS_CHILDREN) != Some(&Value::Bool(false))
}

/// Whether an event is the settlement of this run.
pub(crate) fn is_end_of(event: &Extension, run: &RunId) -> bool {
    event.kind == SETTLED && event.field("run_id") == Some(run.as_str())
}

/// Whether an event is the beginning of this run.
pub(crate) fn is_start_of(event: &Extension, run: &RunId) -> bool {
    event.kind == STARTED && event.field("run_id") == Some(run.as_str())
}
