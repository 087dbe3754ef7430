//! One session of a client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use agent_client_protocol::{Client, ConnectionTo, Error, UntypedMessage};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use offshoot_agent::{
    Agent, CancelCause, EventObserver, EventRecord, Message, Pending, Status, TurnEndReason,
};
use serde_json::{Value, json};

use super::calls::Calls;
use super::show::{self, Who};
use super::{Answer, Opened, invalid};

/// An open session. Clones are the same one.
#[derive(Clone)]
pub(super) struct Session(Arc<Inner>);

struct Inner {
    agent: Agent,
    stop: Box<dyn Fn() + Send + Sync>,
    /// Begins with its first poll.
    closed: Shared<BoxFuture<'static, ()>>,
    closing: AtomicBool,
    view: Arc<View>,
    /// How often the user has cancelled.
    cancels: AtomicU64,
}

/// What sends a session's updates.
struct View {
    session: String,
    client: ConnectionTo<Client>,
    calls: Calls,
}

impl View {
    fn send(&self, update: Value) {
        let message = UntypedMessage {
            method: "session/update".to_owned(),
            params: json!({ "sessionId": self.session, "update": update }),
        };
        self.calls.queued();
        // A client that is gone is noticed elsewhere.
        let _ = self.client.send_notification(message);
    }
}

impl EventObserver for View {
    fn on_event(&self, record: &EventRecord) {
        let id = record.session.as_str();
        let who = match record.depth {
            0 if id == self.session => Who::Root,
            0 => return,
            _ => Who::Child(id),
        };
        if let Some(update) = show::update(who, &record.event) {
            self.send(update);
        }
    }
}

impl Session {
    pub(super) fn new(opened: Opened, client: ConnectionTo<Client>, calls: Calls) -> Self {
        let session = opened.agent.id().to_string();
        let view = Arc::new(View {
            session,
            client,
            calls,
        });
        let events = opened
            .agent
            .host()
            .hub
            .observe(Arc::clone(&view) as Arc<dyn EventObserver>);
        let close = opened.close;
        let closed = async move {
            close().await;
            drop(events);
        };
        Self(Arc::new(Inner {
            agent: opened.agent,
            stop: opened.stop,
            closed: closed.boxed().shared(),
            closing: AtomicBool::new(false),
            view,
            cancels: AtomicU64::new(0),
        }))
    }

    /// Shows the session's history.
    pub(super) fn replay(&self) {
        let agent = &self.0.agent;
        match agent.host().store.read(agent.id()) {
            Ok(events) => events
                .iter()
                .filter_map(|stored| show::replayed(&stored.event))
                .for_each(|update| self.0.view.send(update)),
            Err(error) => tracing::warn!(%error, "a session could not be shown"),
        }
    }

    /// Gives the agent a prompt. The answer comes when the agent is at rest.
    ///
    /// Dropping the answer leaves the agent at work.
    pub(super) fn prompt(
        &self,
        text: String,
    ) -> Result<impl Future<Output = Answer> + Send + use<>, Error> {
        let agent = &self.0.agent;
        let cancels = self.0.cancels.load(Ordering::Acquire);
        let message = Message::user(text);
        let accepted = match agent.status() {
            Status::Running => agent.steer(message),
            _ => agent.followup(message),
        };
        accepted.map_err(invalid)?;
        let session = self.clone();
        Ok(async move {
            session.rest().await;
            session.stop_reason(cancels)
        })
    }

    /// Waits until the agent is at rest and every event was shown.
    async fn rest(&self) {
        let agent = &self.0.agent;
        let events = &agent.host().hub;
        loop {
            agent.rest().await;
            events.drained().await;
            let over = matches!(agent.status(), Status::Closing | Status::Closed);
            if over || (agent.is_at_rest() && events.is_drained()) {
                return;
            }
        }
    }

    fn stop_reason(&self, cancels: u64) -> Answer {
        let facts = self
            .0
            .agent
            .with_projection(|projection| projection.facts().clone());
        let stopped = |reason: &str| Ok(json!({ "stopReason": reason }));
        if self.0.cancels.load(Ordering::Acquire) != cancels {
            return stopped("cancelled");
        }
        match facts.end {
            Some(TurnEndReason::Completed) => stopped("end_turn"),
            Some(TurnEndReason::MaxTokens) => stopped("max_tokens"),
            Some(TurnEndReason::Refusal) => stopped("refusal"),
            Some(TurnEndReason::StepLimit) => stopped("max_turn_requests"),
            Some(TurnEndReason::Aborted | TurnEndReason::Interrupted) | None => {
                stopped("cancelled")
            }
            Some(_) => {
                let mut error = Error::internal_error();
                error.message = self
                    .0
                    .agent
                    .failure()
                    .or(facts.error)
                    .unwrap_or(error.message);
                Err(error)
            }
        }
    }

    /// The user wants the work to stop: the turn, and what it has started. A second time changes
    /// nothing.
    pub(super) fn cancel(&self) {
        let agent = &self.0.agent;
        if agent.is_at_rest() {
            return;
        }
        self.0.cancels.fetch_add(1, Ordering::AcqRel);
        agent.cancel(CancelCause::User, Pending::Discard);
        (self.0.stop)();
    }

    /// The id that the client knows it by.
    pub(super) fn id(&self) -> &str {
        &self.0.view.session
    }

    /// Whether its end has begun.
    pub(super) fn is_closing(&self) -> bool {
        self.0.closing.load(Ordering::Acquire)
    }

    /// Ends the agent. Every caller awaits the same end, which goes on while one of them is polled.
    pub(super) fn close(&self) -> impl Future<Output = ()> + Send + use<> {
        self.0.closing.store(true, Ordering::Release);
        self.0.closed.clone()
    }
}
