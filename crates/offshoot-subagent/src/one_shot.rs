//! One-shot runs: a child that ends with its turn.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use offshoot_agent::{Agent, AgentId, RunId};
use offshoot_core::Hold;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::event::RunRecord;
use crate::host::Settlement;
use crate::limit::Place;
use crate::past::RunPast;
use crate::provider::contain;
use crate::settle::charge;
use crate::{
    ChildRequest, Mode, Outcome, OutputSchema, Provider, ProviderError, Run, RunRequest, RunResult,
    StartError, StopSignal, Subagents, TreeUsage, compose,
};

/// What a one-shot run came to, after it was disposed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OneShotResult {
    /// The child.
    pub child: AgentId,
    /// The run.
    pub run_id: RunId,
    /// How it ended.
    pub outcome: Outcome,
    /// The child's last message; partial when the outcome is not `completed`.
    pub text: String,
    /// The answer that fits the schema of the request. There when there was a schema and the outcome
    /// is `completed`.
    pub structured: Option<Value>,
    /// Why it did not complete: one line.
    pub diagnostic: Option<String>,
    /// Whether the run was dropped, since it did not end in time after it was stopped; the
    /// diagnostic says so.
    pub gave_up: bool,
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
        self.run_until(request, cancel.into()).await
    }

    /// As [`run`](Self::run), with a cancellation that can say why: the run sees the reason, and it is
    /// the diagnostic of a run that was stopped.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub async fn run_until(
        &self,
        request: ChildRequest,
        stop: StopSignal,
    ) -> Result<OneShotResult, StartError> {
        let provider = self.check_request(&request, Mode::OneShot)?;
        let parent = request.parent.clone();
        let hold = parent
            .scope()
            .hold()
            .map_err(|_| StartError::ParentClosing)?;
        let place = self.0.limit.take(parent.scope())?;
        if stop.token().is_cancelled() {
            return Err(StartError::Cancelled);
        }
        let stop = stop.child();
        let cancel = stop.token().clone();
        let on_drop = cancel.clone().drop_guard();
        let (done, ended) = oneshot::channel::<()>();
        let closed = cancel.clone();
        let cleanup = parent
            .scope()
            .on_close("a one-shot subagent", async move || {
                closed.cancel();
                // The sender is dropped when the run has been disposed.
                let _ = ended.await;
                Ok(())
            });
        let Ok(cleanup) = cleanup else {
            return Err(StartError::ParentClosing);
        };
        let (service, owner) = (self.clone(), parent.clone());
        let work = tokio::spawn(async move {
            let close_grace = service.0.settings.close_grace;
            let cut = CancellationToken::new();
            let conduct = service.conduct(provider, request, stop, cut.clone(), hold, place);
            let mut conduct = std::pin::pin!(conduct);
            let result = tokio::select! {
                result = &mut conduct => result,
                // All runs of a parent that closes are cut at once, not one after the other.
                () = owner.scope().closing() => {
                    cancel.cancel();
                    let ended = tokio::time::timeout(close_grace, &mut conduct).await;
                    match ended {
                        Ok(result) => result,
                        Err(_) => {
                            cut.cancel();
                            conduct.await
                        }
                    }
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
        stop: StopSignal,
        cut: CancellationToken,
        hold: Hold,
        place: Place,
    ) -> Result<OneShotResult, StartError> {
        let parent = request.parent.clone();
        let run_id = RunId::fresh();
        let (label, task_id) = (compose::label(&request.label), request.task_id.clone());
        let call_id = request.call_id.clone();
        let (name, generation) = (request.provider.clone(), request.generation);
        let record = move |child: &AgentId, run_id: &RunId| RunRecord {
            child: child.clone(),
            run_id: run_id.clone(),
            provider: name.clone(),
            mode: Mode::OneShot,
            label: label.clone(),
            task_id: task_id.clone(),
            call_id: call_id.clone(),
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
        let schema = request.output_schema.clone();
        let cancelled = stop.token().clone();
        let began = Instant::now();
        let asked = RunRequest::new(request, run_id.clone(), stop.clone(), Box::new(publish));
        let settings = &self.0.settings;
        let start = contain("start", || provider.start(asked));
        let begun = within(settings.stop_grace, &cancelled, &cut, start).await;
        let had = || match cut.is_cancelled() {
            true => settings.close_grace,
            false => settings.stop_grace,
        };
        let mut run = match begun.unwrap_or_else(|| Err(deaf("start", had()))) {
            Ok(run) => run,
            Err(error) => {
                if let Some(child) = published.get() {
                    // What was recorded as started has ended, too.
                    let record = record(child, &run_id);
                    let result = failed(&error);
                    self.finish(&parent, &record, None, result, began, generation);
                }
                // Nothing began, as was asked.
                let nothing_left = published.get().is_none() && error.is_undone();
                if nothing_left && parent.scope().is_closing() {
                    return Err(StartError::ParentClosing);
                }
                if nothing_left && cancelled.is_cancelled() {
                    return Err(StartError::Cancelled);
                }
                return Err(error.into());
            }
        };
        let child = run.child().clone();
        if published.get().is_none() {
            tracing::warn!(%child, "a provider did not publish its run");
            if let Err(error) = parent.record(record(&child, &run_id).started()) {
                tracing::warn!(%child, %error, "a start could not be recorded");
            }
        }
        let agent = run.local_agent().cloned();
        let ended = contain("run", || run.result());
        let ended = within(settings.stop_grace, &cancelled, &cut, ended).await;
        let said = || {
            let agent = agent.as_ref();
            agent.map_or_else(String::new, |agent| {
                agent.with_projection(|p| p.facts().text.clone())
            })
        };
        let gave_up = ended.is_none();
        let result = match ended {
            Some(Ok(mut result)) => {
                // Whoever stopped it knows best why it did not complete.
                if result.outcome == Outcome::Aborted && result.diagnostic.is_none() {
                    result.diagnostic = stop.reason().map(str::to_owned);
                }
                fitting(result.bounded(), schema.as_ref())
            }
            Some(Err(error)) => RunResult::new(Outcome::Error, said()).with_diagnostic(error),
            None => RunResult::new(Outcome::Aborted, said()).with_diagnostic(deaf("run", had())),
        };
        let stopped = agent
            .as_ref()
            .map(|agent| self.alive_below(agent))
            .unwrap_or_default();
        let disposed = dispose(run, settings.dispose_grace, &cut).await;
        let result = self.finish(
            &parent,
            &record(&child, &run_id),
            agent,
            result,
            began,
            generation,
        );
        drop(place);
        drop(hold);
        Ok(OneShotResult {
            gave_up,
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
        mut result: RunResult,
        began: Instant,
        generation: u64,
    ) -> OneShotResult {
        let has_children = agent.as_ref().is_some_and(|agent| {
            // After the disposal: what its own children used is in it now.
            result.usage = TreeUsage::of(agent);
            agent.with_projection(|p| p.fold::<RunPast>().has_children())
        });
        // Timed here: every provider's run by the same measure.
        result.usage = result.usage.lasting(began.elapsed());
        let settlement = Settlement {
            outcome: result.outcome,
            text: String::new(),
            cut: false,
            error: None,
            usage: result.usage,
            generation,
            stopped: Vec::new(),
        };
        charge(parent, settlement.usage);
        self.settle_up(parent, record, &settlement, false, has_children);
        OneShotResult {
            child: record.child.clone(),
            run_id: record.run_id.clone(),
            outcome: result.outcome,
            text: result.text,
            structured: result.structured,
            diagnostic: result.diagnostic,
            gave_up: false,
            stopped: Vec::new(),
            dispose_error: None,
            usage: result.usage,
        }
    }
}

/// Awaits `work`. After the cancel it has `grace` left, and after the cut none; `None` when it was
/// dropped then.
async fn within<F: Future>(
    grace: Duration,
    cancel: &CancellationToken,
    cut: &CancellationToken,
    work: F,
) -> Option<F::Output> {
    let mut work = std::pin::pin!(work);
    tokio::select! {
        biased;
        output = &mut work => Some(output),
        () = cancel.cancelled() => {
            let rest = tokio::time::timeout(grace, work);
            cut.run_until_cancelled(rest).await?.ok()
        }
    }
}

/// Of something that never answered, nobody knows what is left.
fn deaf(what: &str, grace: Duration) -> ProviderError {
    let seconds = grace.as_secs_f64();
    ProviderError::not_undone(format!(
        "the {what} did not end within {seconds} s after it was stopped, and was dropped"
    ))
}

fn failed(error: &ProviderError) -> RunResult {
    RunResult::new(Outcome::Error, "").with_diagnostic(error)
}

/// A run that completed has the answer that was asked for, or it did not do what it was asked.
fn fitting(mut result: RunResult, schema: Option<&OutputSchema>) -> RunResult {
    let Some(schema) = schema else {
        result.structured = None;
        return result;
    };
    if result.outcome != Outcome::Completed {
        return result;
    }
    let fault = match &result.structured {
        None => "it ended without a structured answer".to_owned(),
        Some(answer) => match schema.check(answer) {
            Ok(()) => return result,
            Err(fault) => format!("its structured answer does not fit the schema: {fault}"),
        },
    };
    RunResult::new(Outcome::Error, result.text)
        .with_diagnostic(fault)
        .with_usage(result.usage)
}

async fn dispose(
    run: Box<dyn Run>,
    grace: Duration,
    cut: &CancellationToken,
) -> Result<(), String> {
    let disposed = tokio::time::timeout(grace, contain("dispose", || run.dispose()));
    match cut.run_until_cancelled(disposed).await {
        Some(Ok(disposed)) => disposed.map_err(|error| error.message),
        None => Err("its parent was closed, and it was dropped".to_owned()),
        Some(Err(_)) => Err(format!(
            "it did not end within {} s, and was dropped",
            grace.as_secs_f64()
        )),
    }
}
