//! What a run came to.

use std::time::Duration;

use offshoot::agent::{Agent, Entry, Event, MessageId, Source, Status, Target, TurnEndReason};
use offshoot::subagent::TreeUsage;
use serde::Serialize;

use super::host::Host;
use super::rest::End;

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
    #[serde(skip)]
    error: Option<String>,
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
        match (&self.error, self.outcome) {
            (Some(error), outcome) => format!("the run ended with {outcome}: {error}"),
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
        Some(reason) => (Some(reason), facts.text),
        None => before(host, root),
    };
    let failure = unasked.or(root.failure());
    let outcome = match (end, &failure, last) {
        (End::Timeout, ..) => "timeout",
        (_, Some(_), _) => "error",
        (End::Signal | End::StdoutClosed, ..) => "aborted",
        (.., Some(reason)) => outcome(reason),
        // Nothing was asked and nothing ran.
        (.., None) => "completed",
    };
    let (own, total) = root.usage();
    ResultRecord {
        kind: "result",
        session: root.id().to_string(),
        outcome,
        text,
        usage: TreeUsage::new(own, total),
        sessions: host.sessions(),
        pending,
        stopped,
        wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
        error: failure.or(facts.error),
    }
}

fn outcome(reason: TurnEndReason) -> &'static str {
    match reason {
        TurnEndReason::Completed => "completed",
        TurnEndReason::MaxTokens => "max_tokens",
        TurnEndReason::Refusal => "refusal",
        TurnEndReason::Aborted => "aborted",
        TurnEndReason::Interrupted => "interrupted",
        // The step limit among them: the work was not done.
        _ => "error",
    }
}

/// How the session stood before this run, in which no turn ran: its last turn and last words.
fn before(host: &Host, root: &Agent) -> (Option<TurnEndReason>, String) {
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
            Event::TurnEnd { reason, .. } => last = Some(*reason),
            Event::MessageAssistant { message, .. } if !message.text.trim().is_empty() => {
                text.clone_from(&message.text);
            }
            _ => {}
        }
    }
    (last, text)
}
