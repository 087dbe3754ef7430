//! What is left of a run when its process is gone: what its session says.

use offshoot_agent::{
    Agent, AgentId, HistoryItem, OUTCOME_UNKNOWN, Projection, SessionStore, StoreError,
};

use crate::event::RunRecord;
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

/// The run that a task of a resumed agent carried, as soon as the agent's session says how it ended:
/// after [`Subagents::recover`](crate::Subagents::recover) began, of every run.
#[must_use]
pub fn ended_run(agent: &Agent, task_id: &str) -> Option<EndedRun> {
    let settled = agent.with_projection(|projection| {
        let settled = projection.extensions().filter_map(RunRecord::read_settled);
        let of_task = settled.filter(|(run, ..)| run.task_id.as_deref() == Some(task_id));
        of_task.last()
    });
    let (run, outcome, _) = settled?;
    let remains = Remains::of(agent.host().store.as_ref(), &run.child);
    let known = remains.known;
    let text = remains.text(outcome);
    let error = remains.session.facts().error.clone();
    Some(EndedRun {
        outcome,
        text: known.then_some(text),
        error,
    })
}

/// The session of a run.
pub(crate) struct Remains {
    pub(crate) session: Projection,
    /// Whether the store has it. A run of another program has none.
    pub(crate) known: bool,
}

impl Remains {
    pub(crate) fn of(store: &dyn SessionStore, child: &AgentId) -> Self {
        let read = store.project(child);
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
pub(crate) fn cut_calls(projection: &Projection) -> Vec<(RunRecord, Outcome, crate::TreeUsage)> {
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
    let ends = projection.last_step_extensions();
    ends.filter_map(RunRecord::read_settled)
        .filter(|(run, ..)| run.call_id.as_ref().is_some_and(|id| cut.contains(&id)))
        .collect()
}
