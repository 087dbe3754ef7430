//! A one-shot run of an agent in this process.

use futures::future::BoxFuture;
use offshoot_agent::{Agent, AgentId, CancelCause, Pending, StoredEvent};
use offshoot_subagent::{
    ChildPlan, Mode, Outcome, ProviderError, Run, RunRequest, RunResult, TreeUsage,
};
use tokio_util::sync::CancellationToken;

use crate::capture::Capture;

struct InProcessRun {
    child: Agent,
    cancel: CancellationToken,
    /// Where the answer comes, when one was asked for that fits a schema.
    capture: Option<Capture>,
}

/// Creates the child, publishes it, and gives it its prompt, unless the run was cancelled meanwhile.
///
/// Dropping the future ends what was made.
pub(crate) async fn start(
    mut request: RunRequest,
    seed: Option<Vec<StoredEvent>>,
) -> Result<Box<dyn Run>, ProviderError> {
    let fail = |error: &dyn std::fmt::Display| ProviderError::new(error.to_string());
    if request.cancel.is_cancelled() {
        return Err(ProviderError::new("cancelled before the start"));
    }
    let mut plan = ChildPlan::new(&request.child, Mode::OneShot, &request.run_id, seed)
        .map_err(|error| fail(&error))?;
    let capture = request.child.output_schema.as_ref().map(|schema| {
        let capture = Capture::default();
        capture.equip(&mut plan.spec.kit, schema);
        capture
    });
    let parent = request.child.parent.clone();
    let child = Agent::create(parent.host(), Some(parent.scope()), plan.spec)
        .map_err(|error| fail(&error))?
        .into_agent();
    if let Err(error) = request.publish(&child.id().clone()) {
        child.retract().await;
        return Err(error);
    }
    if let Err(error) = child.followup(plan.prompt) {
        drop(child.close(Pending::Discard));
        return Err(fail(&error));
    }
    if request.cancel.is_cancelled() {
        // Cancelled between publication and prompt: the model is never asked.
        child.cancel(CancelCause::Parent, Pending::Discard);
    }
    child.start();
    Ok(Box::new(InProcessRun {
        child,
        cancel: request.cancel,
        capture,
    }))
}

impl Run for InProcessRun {
    fn child(&self) -> &AgentId {
        self.child.id()
    }

    fn local_agent(&self) -> Option<&Agent> {
        Some(&self.child)
    }

    fn result(&mut self) -> BoxFuture<'_, Result<RunResult, ProviderError>> {
        Box::pin(async move {
            tokio::select! {
                biased;
                _ = self.child.idle() => {}
                () = self.cancel.cancelled() => {
                    self.child.cancel(CancelCause::Parent, Pending::Discard);
                    // No message that comes now, such as a notice, starts another turn.
                    self.child.begin_close(Pending::Discard);
                    // Bounded: a step that is deaf to the cancel is dropped after the grace.
                    self.child.idle().await;
                }
            }
            let facts = self.child.with_projection(|p| p.facts().clone());
            // It ends with its turn: a notice of its work does not start another one.
            self.child.begin_close(Pending::Discard);
            let mut outcome = Outcome::of(&facts);
            let mut diagnostic = facts.error;
            if let Some(failure) = self.child.failure() {
                outcome = Outcome::Error;
                diagnostic = Some(failure);
            }
            let answer = self.capture.as_ref().and_then(Capture::answer);
            if let Some(capture) = &self.capture
                && outcome == Outcome::Completed
                && answer.is_none()
            {
                outcome = Outcome::Error;
                diagnostic = Some(capture.missing());
            }
            let mut result =
                RunResult::new(outcome, facts.text).with_usage(TreeUsage::of(&self.child));
            if outcome == Outcome::Completed {
                result.structured = answer;
            }
            Ok(match diagnostic {
                Some(diagnostic) => result.with_diagnostic(diagnostic),
                None => result,
            })
        })
    }

    fn dispose(self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>> {
        Box::pin(async move {
            let report = self.child.close(Pending::Discard).await;
            let failures: Vec<_> = report
                .failures
                .iter()
                .map(|failure| format!("{}: {}", failure.name, failure.error))
                .collect();
            if failures.is_empty() {
                return Ok(());
            }
            let failures = failures.join("; ");
            Err(ProviderError::new(format!(
                "the subagent could not be closed: {failures}"
            )))
        })
    }
}

impl Drop for InProcessRun {
    fn drop(&mut self) {
        // A run that is dropped undisposed ends in the background.
        self.child.begin_close(Pending::Discard);
        if tokio::runtime::Handle::try_current().is_ok() {
            drop(self.child.close(Pending::Discard));
        }
    }
}
