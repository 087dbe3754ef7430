//! What a run came to.

use std::time::Duration;

use offshoot::agent::{Agent, Entry, Event, MessageId, Source, Status, Target, TurnEndReason};
use offshoot::subagent::TreeUsage;
use serde::Serialize;

use super::host::Host;
use super::rest::{End, Limits};

/// The last line of the event stream.
#[derive(Debug, Serialize)]
pub(super) struct ResultRecord {
    #[serde(rename = "type")]
    kind: &'static str,
    session: String,
    outcome: &'static str,
    pub(super) text: String,
    usage: TreeUsage,
    sessions: usize,
    pending: Vec<PendingMessage>,
    stopped: Vec<Stopped>,
    wall_ms: u64,
    /// Why it did not complete.
    #[serde(skip)]
    why: Option<String>,
}

/// A message that still waits.
#[derive(Debug, Serialize)]
struct PendingMessage {
    id: MessageId,
    source: Source,
    target: Target,
}

impl PendingMessage {
    fn of(entry: &Entry) -> Self {
        Self {
            id: entry.message.id.clone(),
            source: entry.message.source.clone(),
            target: entry.target,
        }
    }
}

/// Something that was alive when the run was ended.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Stopped {
    Task { task_id: String, label: String },
    Child { child: String, label: String },
}

impl ResultRecord {
    pub(super) fn is_completed(&self) -> bool {
        self.outcome == "completed"
    }

    /// Why it did not complete, in one line.
    pub(super) fn complaint(&self) -> String {
        match (&self.why, self.outcome) {
            (Some(why), outcome) => format!("the run ended with {outcome}: {why}"),
            (None, outcome) => format!("the run ended with {outcome}"),
        }
    }
}

/// What is alive below the root: every live task, every child that has not settled.
pub(super) fn living(host: &Host, root: &Agent) -> Vec<Stopped> {
    let tasks = host.runtime().tasks();
    let mut living = Vec::new();
    for agent in host.runtime().host().agents.list() {
        if agent != *root && agent.status() != Status::Closed {
            living.push(Stopped::Child {
                child: agent.id().to_string(),
                label: agent.label().to_owned(),
            });
        }
        let live = tasks.list(agent.scope().id()).into_iter();
        let live = live.filter(|task| !task.status.is_terminal());
        living.extend(live.map(|task| Stopped::Task {
            task_id: task.id.to_string(),
            label: task.label.to_string(),
        }));
    }
    living
}

/// What the run came to. Called after the tree has closed.
pub(super) fn record(
    host: &Host,
    root: &Agent,
    end: End,
    limits: &Limits,
    stopped: Vec<Stopped>,
    unasked: Option<String>,
    wall: Duration,
) -> ResultRecord {
    let (facts, pending) = root.with_projection(|projection| {
        let inbox = projection.inbox();
        let waiting = inbox.claimed().chain(inbox.entries());
        let pending = waiting.map(PendingMessage::of).collect();
        (projection.facts().clone(), pending)
    });
    let (last, text) = match facts.end {
        Some(reason) => {
            let last = LastTurn {
                reason,
                cause: facts.cause,
                error: facts.error,
            };
            (Some(last), facts.text)
        }
        None => before(host, root),
    };
    let failure = unasked.or(root.failure());
    let (outcome, why) = match (end, failure, last) {
        (End::Timeout, ..) => {
            let limit = limits.timeout.unwrap_or(wall).as_secs_f64();
            let why = format!("it was not at rest after {limit} seconds");
            ("timeout", Some(why))
        }
        (_, Some(failure), _) => ("error", Some(failure)),
        (End::Signal, ..) => ("aborted", Some("it was ended by a signal".to_owned())),
        (End::StdoutClosed, ..) => ("aborted", Some("nobody reads its events".to_owned())),
        (.., Some(last)) => (last.outcome(), last.why()),
        // Nothing was asked and nothing ran.
        (.., None) => ("completed", None),
    };
    ResultRecord {
        kind: "result",
        session: root.id().to_string(),
        outcome,
        text,
        usage: TreeUsage::of(root),
        sessions: host.sessions(),
        pending,
        stopped,
        wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
        why,
    }
}

/// How the last turn of a session ended.
struct LastTurn {
    reason: TurnEndReason,
    cause: Option<String>,
    error: Option<String>,
}

impl LastTurn {
    fn outcome(&self) -> &'static str {
        match self.reason {
            TurnEndReason::Completed => "completed",
            TurnEndReason::MaxTokens => "max_tokens",
            TurnEndReason::Refusal => "refusal",
            TurnEndReason::Aborted => "aborted",
            TurnEndReason::Interrupted => "interrupted",
            // The step limit among them: the work was not done.
            _ => "error",
        }
    }

    /// Why the work was not done; `None` when it was.
    fn why(&self) -> Option<String> {
        if self.reason == TurnEndReason::Completed {
            return None;
        }
        if let Some(error) = &self.error {
            return Some(error.clone());
        }
        let why = match (self.reason, self.cause.as_deref()) {
            (TurnEndReason::MaxTokens, _) => "the model's token limit cut its answer off",
            (TurnEndReason::Refusal, _) => "the model refused to answer",
            (TurnEndReason::Aborted, Some("user")) => "the turn was cancelled by the user",
            (TurnEndReason::Aborted, Some("interrupt")) => "the turn was interrupted",
            (TurnEndReason::Aborted, Some("disposed")) => {
                "the agent was ended in the middle of its turn"
            }
            (TurnEndReason::Aborted, _) => "the turn was cancelled",
            (TurnEndReason::Interrupted, _) => "its process ended in the middle of the turn",
            (TurnEndReason::StepLimit, _) => {
                "the turn took as many steps as limits.max_steps_per_turn allows"
            }
            _ => "the last turn failed",
        };
        Some(why.to_owned())
    }
}

/// How the session stood before this run, in which no turn ran: its last turn and last words.
fn before(host: &Host, root: &Agent) -> (Option<LastTurn>, String) {
    let events = match host.runtime().host().store.read(root.id()) {
        Ok(events) => events,
        Err(error) => {
            tracing::warn!(%error, "the session could not be read again");
            return (None, String::new());
        }
    };
    let mut last = None;
    let mut text = String::new();
    for stored in &events {
        match &stored.event {
            Event::TurnEnd {
                reason,
                cause,
                error,
                ..
            } => {
                last = Some(LastTurn {
                    reason: *reason,
                    cause: cause.clone(),
                    error: error.clone(),
                });
            }
            Event::MessageAssistant { message, .. } if !message.text.trim().is_empty() => {
                text.clone_from(&message.text);
            }
            _ => {}
        }
    }
    (last, text)
}
