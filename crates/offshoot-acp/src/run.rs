//! One run: a session with one prompt.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use offshoot_agent::{AgentId, Usage};
use offshoot_subagent::{Outcome, ProviderError, Run, RunRequest, RunResult, TreeUsage};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::peer::Peer;
use crate::{AcpError, AcpSettings, Stage};

/// The version of the protocol that is spoken.
const VERSION: u64 = 1;

/// How long an agent whose turn was cut may take to exit by itself.
const CUT_EXIT_GRACE: Duration = Duration::from_secs(1);

struct AcpRun {
    child: AgentId,
    settings: Arc<AcpSettings>,
    peer: Peer,
    session: String,
    prompt: Vec<Value>,
    cancel: CancellationToken,
}

/// Starts the agent, makes its session, publishes the run. Whatever fails, the agent is gone before the
/// error is told.
pub(crate) async fn start(
    settings: Arc<AcpSettings>,
    mut request: RunRequest,
) -> Result<Box<dyn Run>, ProviderError> {
    let failed = |why: String| {
        let name = &settings.name;
        ProviderError::new(format!("the subagent {name} could not be started: {why}"))
    };
    if request.cancel.is_cancelled() {
        return Err(failed(AcpError::Cancelled.to_string()));
    }
    let mut peer = Peer::start(&settings, request.child.parent.depth())
        .await
        .map_err(|error| failed(error.to_string()))?;
    let opened = tokio::select! {
        biased;
        () = request.cancel.cancelled() => Err(AcpError::Cancelled),
        opened = timeout(settings.start_timeout, open(&mut peer, &settings)) => {
            opened.unwrap_or(Err(AcpError::StartTimeout(settings.start_timeout)))
        }
    };
    let child = AgentId::fresh();
    let published = match opened {
        Ok(session) => request.publish(&child).map(|()| session),
        Err(error) => {
            tracing::debug!(
                code = error.code(),
                provider = settings.name,
                "an agent did not start"
            );
            Err(failed(peer.diagnostic(&error.to_string())))
        }
    };
    let session = match published {
        Ok(session) => session,
        Err(error) => {
            peer.end(settings.exit_grace.min(CUT_EXIT_GRACE)).await;
            return Err(error);
        }
    };
    tracing::debug!(%child, session, provider = settings.name, "an agent was started");
    let text = |text: &str| json!({ "type": "text", "text": text });
    let prompt = std::iter::once(&request.child.prompt).chain(&request.child.guidance);
    Ok(Box::new(AcpRun {
        prompt: prompt.map(|part| text(part)).collect(),
        child,
        settings,
        peer,
        session,
        cancel: request.cancel,
    }))
}

/// `initialize` and `session/new`; the id of the session.
async fn open(peer: &mut Peer, settings: &AcpSettings) -> Result<String, AcpError> {
    let hello = json!({
        "protocolVersion": VERSION,
        "clientCapabilities": peer.client.capabilities(),
        "clientInfo": { "name": "offshoot", "version": env!("CARGO_PKG_VERSION") },
    });
    let agent = peer.ask(Stage::Initialize, hello).await?;
    match agent.get("protocolVersion") {
        Some(version) if version.as_u64() == Some(VERSION) => {}
        other => {
            let version = other.map_or_else(|| "(none)".to_owned(), Value::to_string);
            let version = offshoot_core::text::one_line(&version, 40);
            return Err(AcpError::Version(version));
        }
    }
    let folder = settings.folder().map_err(AcpError::Folder)?;
    let params = json!({ "cwd": folder, "mcpServers": [] });
    let session = peer.ask(Stage::Session, params).await?;
    match session.get("sessionId").and_then(Value::as_str) {
        Some(id) if !id.is_empty() => {
            peer.client.turn().begin(id);
            Ok(id.to_owned())
        }
        _ => Err(AcpError::NoSession),
    }
}

impl AcpRun {
    /// Sends the prompt and waits for the end of the turn, or cuts it.
    async fn prompt(&mut self) -> (Result<Value, AcpError>, Option<AcpError>) {
        let session = json!({ "sessionId": self.session });
        let params = json!({ "sessionId": self.session, "prompt": self.prompt });
        let (client, to_agent) = (self.peer.client.clone(), self.peer.to_agent());
        let deadline = async {
            match self.settings.deadline {
                Some(limit) => sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        let mut turn = std::pin::pin!(self.peer.ask(Stage::Prompt, params));
        let cut = tokio::select! {
            // A cancel that came before the prompt was sent is seen first.
            biased;
            () = self.cancel.cancelled() => AcpError::Cancelled,
            () = deadline => AcpError::Deadline(self.settings.deadline.unwrap_or_default()),
            ended = &mut turn => return (ended, None),
        };
        client.turn().cut = true;
        crate::peer::tell(&to_agent, "session/cancel", session);
        let ended = timeout(self.settings.cancel_grace, turn).await;
        (
            ended.unwrap_or(Err(AcpError::Ended(Stage::Prompt))),
            Some(cut),
        )
    }

    fn conclude(&self, ended: Result<Value, AcpError>, cut: Option<AcpError>) -> RunResult {
        let turn = self.peer.client.turn();
        let usage = ended.as_ref().map(usage).unwrap_or_default();
        let (outcome, why) = match (cut, ended) {
            (Some(AcpError::Cancelled), _) => (Outcome::Aborted, Some("it was stopped".to_owned())),
            (Some(cut), _) => (Outcome::Error, Some(cut.to_string())),
            (None, Ok(answer)) => outcome(&answer),
            (None, Err(error)) => {
                tracing::debug!(code = error.code(), child = %self.child, "an agent failed");
                (Outcome::Error, Some(error.to_string()))
            }
        };
        let text = turn.answer();
        drop(turn);
        let result = RunResult::new(outcome, text).with_usage(TreeUsage::new(usage, usage));
        match why {
            Some(why) => result.with_diagnostic(self.peer.diagnostic(&why)),
            None => result,
        }
    }
}

/// What the reason says for which a turn ended.
fn outcome(answer: &Value) -> (Outcome, Option<String>) {
    let reason = answer.get("stopReason").and_then(Value::as_str);
    let outcome = match reason {
        Some("end_turn") => return (Outcome::Completed, None),
        Some("max_tokens") => Outcome::MaxTokens,
        Some("refusal") => Outcome::Refusal,
        Some("cancelled") => Outcome::Aborted,
        _ => Outcome::Error,
    };
    let reason = offshoot_core::text::one_line(reason.unwrap_or("no stopReason"), 80);
    (outcome, Some(AcpError::StopReason(reason).to_string()))
}

/// What the turn cost, if the agent says so.
fn usage(answer: &Value) -> Usage {
    let tokens = |name: &str| answer.pointer(name).and_then(Value::as_u64).unwrap_or(0);
    Usage {
        input: tokens("/usage/inputTokens"),
        output: tokens("/usage/outputTokens"),
    }
}

impl Run for AcpRun {
    fn child(&self) -> &AgentId {
        &self.child
    }

    fn result(&mut self) -> BoxFuture<'_, Result<RunResult, ProviderError>> {
        Box::pin(async move {
            let (ended, cut) = self.prompt().await;
            Ok(self.conclude(ended, cut))
        })
    }

    fn dispose(mut self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>> {
        Box::pin(async move {
            let mut grace = self.settings.exit_grace;
            if self.peer.client.turn().cut {
                grace = grace.min(CUT_EXIT_GRACE);
            }
            if self.peer.end(grace).await {
                return Ok(());
            }
            let what = "some processes of the subagent could not be killed";
            Err(ProviderError::new(what))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s121_each_stop_reason_has_its_outcome_and_an_unknown_one_is_an_error() {
        for (reason, expected) in [
            (json!("end_turn"), Outcome::Completed),
            (json!("max_tokens"), Outcome::MaxTokens),
            (json!("refusal"), Outcome::Refusal),
            (json!("cancelled"), Outcome::Aborted),
            (json!("max_turn_requests"), Outcome::Error),
            (json!("of the future"), Outcome::Error),
            (json!(null), Outcome::Error),
        ] {
            let (outcome, why) = outcome(&json!({ "stopReason": reason }));
            assert_eq!(outcome, expected, "{reason}");
            assert_eq!(why.is_none(), expected == Outcome::Completed);
        }
    }
}
