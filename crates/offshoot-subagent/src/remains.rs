//! What is left of a run when its process is gone: what its session says.

use offshoot_agent::{
    Agent, AgentHost, AgentId, HistoryItem, OUTCOME_UNKNOWN, Projection, StoreError,
};

#[cfg(doc)]
use crate::RunRecord;
use crate::past::{End, RunPast};
use crate::{ANSWER_TOOL, Outcome};

/// A one-shot run of an earlier process, whose end a task was to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndedRun {
    /// How it ended.
    pub outcome: Outcome,
    /// What it came to, as text: its answer, or its last words. Absent when no session of this store
    /// says so.
    pub text: Option<String>,
    /// What failed in it.
    pub error: Option<String>,
}

/// What a one-shot run of an earlier process came to, by the outcome that its parent's session gives it (see
/// [`RunRecord::read_settled`]) and by what its own session says. `agent` is the parent, which is resumed:
/// when [`Subagents::recover`](crate::Subagents::recover) asks for the work of its last process, each run is
/// settled.
#[must_use]
pub fn ended_run(agent: &Agent, child: &AgentId, outcome: Outcome) -> EndedRun {
    let remains = Remains::of(agent.host(), child);
    let known = remains.known;
    let text = remains.text(outcome);
    let error = remains.session.facts().error.clone();
    EndedRun {
        outcome,
        text: known.then_some(text),
        error,
    }
}

/// The session of a run.
pub(crate) struct Remains {
    pub(crate) session: Projection,
    /// Whether the store has it. A run of another program has none.
    pub(crate) known: bool,
}

impl Remains {
    pub(crate) fn of(host: &AgentHost, child: &AgentId) -> Self {
        let read = host.project(child);
        if let Err(error) = &read
            && !matches!(error, StoreError::NotFound(_))
        {
            tracing::warn!(%child, %error, "a child's session cannot be read");
        }
        let known = read.is_ok();
        let session = read.unwrap_or_default();
        Self { session, known }
    }

    /// What the run came to: the answer that has a schema, of one that completed with such an answer,
    /// else its last words.
    pub(crate) fn text(&self, outcome: Outcome) -> String {
        let answer = match outcome {
            Outcome::Completed => self.answer(),
            _ => None,
        };
        answer.unwrap_or_else(|| self.session.facts().text.clone())
    }

    fn answer(&self) -> Option<String> {
        let mut taken = Vec::new();
        for item in self.session.history().iter().rev() {
            match item {
                HistoryItem::ToolResult(result) if !result.is_error => taken.push(&result.call_id),
                HistoryItem::Assistant(reply) => {
                    let mut calls = reply.calls.iter().rev();
                    let answer =
                        calls.find(|call| call.name == ANSWER_TOOL && taken.contains(&&call.id))?;
                    return Some(answer.args.to_string());
                }
                HistoryItem::ToolResult(_) => {}
                _ => return None,
            }
        }
        None
    }
}

/// The runs that ended in a call whose own result was cut off by the death of the process: its agent
/// was told of a call with an unknown outcome, and nothing of the run.
pub(crate) fn cut_calls(projection: &Projection) -> Vec<End> {
    if !projection.interrupted() {
        return Vec::new();
    }
    let mut cut = Vec::new();
    for item in projection.history().iter().rev() {
        match item {
            HistoryItem::ToolResult(result) => {
                if result.code.as_deref() == Some(OUTCOME_UNKNOWN) {
                    cut.push(&result.call_id);
                }
            }
            _ => break,
        }
    }
    let past = projection.fold::<RunPast>();
    let ends = past.call_ends().iter();
    ends.filter(|(run, ..)| run.call_id.as_ref().is_some_and(|id| cut.contains(&id)))
        .cloned()
        .collect()
}
