//! One-shot runs: a child that ends with its turn.

use std::sync::{Arc, OnceLock};

use offshoot_agent::{Agent, AgentId, RunId};
use offshoot_core::Hold;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::activation::tell_parent;
use crate::event::RunRecord;
use crate::limit::Place;
use crate::notice::Settlement;
use crate::provider::contain;
use crate::{
    ChildRequest, Mode, Outcome, Provider, ProviderError, Run, RunRequest, RunResult, StartError,
    Subagents, TreeUsage, compose,
};

/// What a one-shot run came to, after it was disposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneShotResult {
    /// The child.
    pub child: AgentId,
    /// The run.
    pub run_id: RunId,
    /// How it ended.
    pub outcome: Outcome,
    /// The child's last message; partial when the outcome is not `completed`.
    pub text: String,
    /// Why it did not complete.
    pub diagnostic: Option<String>,
    /// What the child had started and was stopped with it.
    pub stopped: Vec<String>,
    /// What went wrong when the child was disposed, independent of how it ended.
    pub dispose_error: Option<String>,
    /// What it cost.
    pub usage: TreeUsage,
}

impl Subagents {
    /// Runs a child to the end of its turn and disposes it.
    ///
    /// Dropping the future cancels the run, which is then disposed in the background; its settlement
    /// is recorded all the same.
    ///
    /// # Errors
    ///
    /// [`StartError`] when the run never began; how a begun run ended is in the result.
    pub async fn run(
        &self,
        request: ChildRequest,
        cancel: CancellationToken,
    ) -> Result<OneShotResult, StartError> {
        let provider = self.check_request(&request, Mode::OneShot)?;
        let parent = request.parent.clone();
        let hold = parent
            .scope()
            .hold()
            .map_err(|_| StartError::ParentClosing)?;
        let place = self.0.limit.take(parent.scope())?;
        if cancel.is_cancelled() {
            return Err(StartError::Cancelled);
        }
        let cancel = cancel.child_token();
        let on_drop = cancel.clone().drop_guard();
        let (done, ended) = oneshot::channel::<()>();
        let stop = cancel.clone();
        let cleanup = parent
            .scope()
            .on_close("a one-shot subagent", async move || {
                stop.cancel();
                // The sender is dropped when the run has been disposed.
                let _ = ended.await;
                Ok(())
            });
        let Ok(cleanup) = cleanup else {
            return Err(StartError::ParentClosing);
        };
        let (service, owner) = (self.clone(), parent.clone());
        let work = tokio::spawn(async move {
            let conduct = service.conduct(provider, request, cancel.clone(), hold, place);
            let mut conduct = std::pin::pin!(conduct);
            let result = tokio::select! {
                result = &mut conduct => result,
                // All runs of a parent that closes are cut at once, not one after the other.
                () = owner.scope().closing() => {
                    cancel.cancel();
                    conduct.await
                }
            };
            owner.scope().forget_cleanup(cleanup);
            drop(done);
            result
        });
        let result = work.await.unwrap_or_else(|error| {
            Err(ProviderError::new(format!("the run was lost: {error}")).into())
        });
        on_drop.disarm();
        result
    }

    async fn conduct(
        &self,
        provider: Arc<dyn Provider>,
        request: ChildRequest,
        cancel: CancellationToken,
        hold: Hold,
        place: Place,
    ) -> Result<OneShotResult, StartError> {
        let parent = request.parent.clone();
        let run_id = RunId::fresh();
        let (label, task_id) = (compose::label(&request.label), request.task_id.clone());
        let (name, generation) = (request.provider.clone(), request.generation);
        let record = move |child: &AgentId, run_id: &RunId| RunRecord {
            child: child.clone(),
            run_id: run_id.clone(),
            provider: name.clone(),
            mode: Mode::OneShot,
            label: label.clone(),
            task_id: task_id.clone(),
        };
        let published: Arc<OnceLock<AgentId>> = Arc::default();
        let publish = {
            let (parent, run_id, record) = (parent.clone(), run_id.clone(), record.clone());
            let published = Arc::clone(&published);
            move |child: &AgentId| {
                parent
                    .record(record(child, &run_id).started())
                    .map_err(|error| ProviderError::new(error.to_string()))?;
                let _ = published.set(child.clone());
                Ok(())
            }
        };
        let cancelled = cancel.clone();
        let asked = RunRequest::new(request, run_id.clone(), cancel, Box::new(publish));
        let mut run = match contain("start", || provider.start(asked)).await {
            Ok(run) => run,
            Err(error) => {
                if let Some(child) = published.get() {
                    // What was recorded as started has ended, too.
                    let record = record(child, &run_id);
                    self.finish(&parent, &record, None, Err(error.clone()), generation);
                }
                // Nothing began, as was asked.
                if published.get().is_none() && parent.scope().is_closing() {
                    return Err(StartError::ParentClosing);
                }
                if published.get().is_none() && cancelled.is_cancelled() {
                    return Err(StartError::Cancelled);
                }
                return Err(error.into());
            }
        };
        if published.get().is_none() {
            tracing::warn!(child = %run.child(), "a provider did not publish its run");
            if let Err(error) = parent.record(record(run.child(), &run_id).started()) {
                tracing::warn!(child = %run.child(), %error, "a start could not be recorded");
            }
        }
        let child = run.child().clone();
        let result = contain("run", || run.result()).await;
        let agent = run.local_agent().cloned();
        let stopped = agent
            .as_ref()
            .map(|agent| self.alive_below(agent))
            .unwrap_or_default();
        let disposed = dispose(run).await;
        let result = self.finish(&parent, &record(&child, &run_id), agent, result, generation);
        drop(place);
        drop(hold);
        Ok(OneShotResult {
            stopped,
            dispose_error: disposed.err(),
            ..result
        })
    }

    /// Records how the run ended in the parent's session.
    fn finish(
        &self,
        parent: &Agent,
        record: &RunRecord,
        agent: Option<Agent>,
        result: Result<RunResult, ProviderError>,
        generation: u64,
    ) -> OneShotResult {
        let mut result = result.unwrap_or_else(|error| RunResult {
            outcome: Outcome::Error,
            text: String::new(),
            diagnostic: Some(error.message),
            usage: TreeUsage::default(),
        });
        if let Some(agent) = agent {
            // After the disposal: what its own children used is in it now.
            let (own, total) = agent.usage();
            result.usage = TreeUsage::new(own, total);
        }
        let settlement = Settlement {
            outcome: result.outcome,
            text: String::new(),
            cut: false,
            error: None,
            usage: result.usage,
            generation,
            stopped: Vec::new(),
        };
        tell_parent(parent, record, &settlement, false);
        OneShotResult {
            child: record.child.clone(),
            run_id: record.run_id.clone(),
            outcome: result.outcome,
            text: result.text,
            diagnostic: result.diagnostic,
            stopped: Vec::new(),
            dispose_error: None,
            usage: result.usage,
        }
    }
}

async fn dispose(run: Box<dyn Run>) -> Result<(), String> {
    contain("dispose", || run.dispose())
        .await
        .map_err(|error| error.message)
}
