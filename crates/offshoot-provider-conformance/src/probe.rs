//! A provider around the one that is examined: it sees every call, and breaks into some.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use offshoot_agent::{Agent, AgentId, Projection, StoredEvent};
use offshoot_core::text;
use offshoot_subagent::{
    Capabilities, Outcome, Provider, ProviderError, Run, RunRequest, RunResult,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What the probe does to a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Meddling {
    /// Looks on.
    #[default]
    None,
    /// Cancels just before the provider is asked to start.
    CancelBeforeStart,
    /// Drops the start after it was asked once.
    DropStart,
    /// Drops the run instead of awaiting its result.
    DropRun,
    /// Panics instead of disposing the run, which drops it.
    PanicInDispose,
    /// Disposes the run without awaiting its result.
    DisposeAtOnce,
    /// Awaits the result for a moment, then disposes the run.
    DropResult,
    /// Disposes the run, then takes a while to say so.
    SlowDispose(Duration),
    /// Disposes the run, then says that it could not.
    FailDispose,
    /// Ends runs and never says so.
    HangInDispose,
}

/// How long a result is awaited that is then dropped.
const A_MOMENT: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Notes {
    faults: Vec<String>,
    /// What the provider itself returned, before the service looked at it.
    results: Vec<RunResult>,
    starts: usize,
    children: Vec<AgentId>,
    started: Option<Instant>,
}

#[derive(Clone, Default)]
pub(crate) struct Notebook(Arc<Mutex<Notes>>);

impl Notebook {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn fault(&self, fault: impl Into<String>) {
        self.notes().faults.push(fault.into());
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        self.notes().faults.clone()
    }

    pub(crate) fn results(&self) -> Vec<RunResult> {
        self.notes().results.clone()
    }

    pub(crate) fn starts(&self) -> usize {
        self.notes().starts
    }

    pub(crate) fn children(&self) -> Vec<AgentId> {
        self.notes().children.clone()
    }
}

pub(crate) struct Probe {
    inner: Arc<dyn Provider>,
    meddling: Meddling,
    notes: Notebook,
    stop_grace: Duration,
    dispose_grace: Duration,
}

impl Probe {
    pub(crate) fn new(
        inner: Arc<dyn Provider>,
        meddling: Meddling,
        notes: Notebook,
        (stop_grace, dispose_grace): (Duration, Duration),
    ) -> Self {
        Self {
            inner,
            meddling,
            notes,
            stop_grace,
            dispose_grace,
        }
    }
}

/// Notes a panic of the provider, and goes on with it.
async fn watched<T>(notes: &Notebook, what: &str, work: impl Future<Output = T>) -> T {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(output) => output,
        Err(panic) => {
            let message = text::panic_message(&*panic);
            notes.fault(format!("{what} panicked: {message}"));
            std::panic::resume_unwind(panic)
        }
    }
}

/// Awaits `work`, and notes when it takes longer than `grace` after `since` is cancelled.
async fn timely<T>(
    notes: &Notebook,
    what: &str,
    grace: Duration,
    since: &CancellationToken,
    work: impl Future<Output = T>,
) -> T {
    let mut work = std::pin::pin!(work);
    tokio::select! {
        biased;
        output = &mut work => return output,
        () = since.cancelled() => {}
    }
    // A little before the service would drop it.
    match tokio::time::timeout(grace * 9 / 10, &mut work).await {
        Ok(output) => output,
        Err(_) => {
            notes.fault(format!(
                "{what} did not end within {grace:?} after it was cancelled"
            ));
            work.await
        }
    }
}

fn is_published(parent: &Agent, child: &AgentId) -> bool {
    let started = |p: &Projection| {
        p.extensions().any(|event| {
            event.kind == "subagent/started" && event.field("child") == Some(child.as_str())
        })
    };
    parent.with_projection(started)
}

impl Provider for Probe {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn start(&self, request: RunRequest) -> BoxFuture<'_, Result<Box<dyn Run>, ProviderError>> {
        Box::pin(async move {
            let (parent, cancel) = (request.child.parent.clone(), request.cancel.clone());
            {
                let mut notes = self.notes.notes();
                notes.starts += 1;
                notes.started = Some(Instant::now());
            }
            if self.meddling == Meddling::CancelBeforeStart {
                cancel.cancel();
            }
            let start = async { self.inner.start(request).await };
            let start = watched(&self.notes, "start", start);
            let mut start = Box::pin(timely(
                &self.notes,
                "start",
                self.stop_grace,
                &cancel,
                start,
            ));
            let run = if self.meddling == Meddling::DropStart {
                let polled = std::future::poll_fn(|cx| Poll::Ready(start.as_mut().poll(cx))).await;
                drop(start);
                drop(polled);
                return Err(ProviderError::new("the start was dropped"));
            } else {
                start.await?
            };
            let child = run.child().clone();
            if !is_published(&parent, &child) {
                self.notes.fault(format!(
                    "start returned a run of {child} that it had not published"
                ));
            }
            if let Some(agent) = run.local_agent()
                && *agent.id() != child
            {
                self.notes
                    .fault("the local agent of the run is not the child".to_owned());
            }
            self.notes.notes().children.push(child);
            Ok(Box::new(ProbeRun {
                child: run.child().clone(),
                inner: Some(run),
                cancel,
                meddling: self.meddling,
                notes: self.notes.clone(),
                stop_grace: self.stop_grace,
                dispose_grace: self.dispose_grace,
            }) as Box<dyn Run>)
        })
    }

    fn seed<'a>(
        &'a self,
        parent: &'a Agent,
    ) -> BoxFuture<'a, Result<Option<Vec<StoredEvent>>, ProviderError>> {
        Box::pin(async move {
            let seed = async { self.inner.seed(parent).await };
            let seed = watched(&self.notes, "seed", seed).await?;
            if let Some(events) = &seed {
                self.check_seed(events);
            }
            Ok(seed)
        })
    }
}

impl Probe {
    fn check_seed(&self, events: &[StoredEvent]) {
        if events.is_empty() {
            self.notes
                .fault("seed gave an empty past: expected none".to_owned());
        }
        if (0..).zip(events).any(|(seq, stored)| stored.seq != seq) {
            self.notes
                .fault("seed gave events that are not numbered from 0".to_owned());
        }
        if Projection::of(events).open_turn().is_some() {
            self.notes
                .fault("seed gave a past that ends in the middle of a turn".to_owned());
        }
    }
}

struct ProbeRun {
    child: AgentId,
    inner: Option<Box<dyn Run>>,
    cancel: CancellationToken,
    meddling: Meddling,
    notes: Notebook,
    stop_grace: Duration,
    dispose_grace: Duration,
}

impl ProbeRun {
    fn check(&self, result: &RunResult) {
        let mut faults = Vec::new();
        if result.text.len() > RunResult::MAX_TEXT_BYTES {
            faults.push(format!(
                "the text has {} bytes (limit: {})",
                result.text.len(),
                RunResult::MAX_TEXT_BYTES
            ));
        }
        if let Some(diagnostic) = &result.diagnostic {
            if diagnostic.len() > RunResult::MAX_DIAGNOSTIC_BYTES {
                faults.push(format!(
                    "the diagnostic has {} bytes (limit: {})",
                    diagnostic.len(),
                    RunResult::MAX_DIAGNOSTIC_BYTES
                ));
            }
            if *diagnostic != text::one_line(diagnostic, usize::MAX) {
                let start = text::head(diagnostic, 60);
                faults.push(format!("the diagnostic is not one clean line: {start:?}"));
            }
            if result.outcome == Outcome::Completed {
                faults.push("a run that completed has a diagnostic".to_owned());
            }
        }
        if result.structured.is_some() && result.outcome != Outcome::Completed {
            faults.push("a run that did not complete has a structured answer".to_owned());
        }
        let usage = result.usage;
        if usage.total_input < usage.input
            || usage.total_output < usage.output
            || usage.total_wall_ms < usage.wall_ms
        {
            faults.push(format!("the tree used less than the run alone: {usage:?}"));
        }
        for fault in faults {
            self.notes.fault(fault);
        }
    }
}

impl Run for ProbeRun {
    fn child(&self) -> &AgentId {
        &self.child
    }

    fn local_agent(&self) -> Option<&Agent> {
        self.inner.as_ref().and_then(|run| run.local_agent())
    }

    fn result(&mut self) -> BoxFuture<'_, Result<RunResult, ProviderError>> {
        Box::pin(async move {
            match self.meddling {
                Meddling::DropRun => {
                    drop(self.inner.take());
                    return Err(ProviderError::new("the run was dropped"));
                }
                Meddling::DisposeAtOnce => return Err(ProviderError::new("not awaited")),
                _ => {}
            }
            let Some(run) = &mut self.inner else {
                return Err(ProviderError::new("the run was dropped"));
            };
            let result = async { run.result().await };
            let result = watched(&self.notes, "result", result);
            let result = timely(&self.notes, "result", self.stop_grace, &self.cancel, result);
            if self.meddling == Meddling::DropResult {
                let _ = tokio::time::timeout(A_MOMENT, result).await;
                return Err(ProviderError::new("the result was dropped"));
            }
            let result = result.await;
            match &result {
                Ok(result) => {
                    self.check(result);
                    self.notes.notes().results.push(result.clone());
                }
                Err(error) => self.notes.fault(format!("result failed: {error}")),
            }
            result
        })
    }

    fn dispose(mut self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>> {
        Box::pin(async move {
            assert_ne!(
                self.meddling,
                Meddling::PanicInDispose,
                "the check panicked in dispose"
            );
            let Some(run) = self.inner.take() else {
                return Ok(());
            };
            let now = CancellationToken::new();
            now.cancel();
            let disposed = async move { run.dispose().await };
            let disposed = watched(&self.notes, "dispose", disposed);
            let disposed = timely(&self.notes, "dispose", self.dispose_grace, &now, disposed);
            let disposed = disposed.await;
            if let Err(error) = &disposed {
                self.notes.fault(format!("dispose failed: {error}"));
            }
            match self.meddling {
                Meddling::SlowDispose(time) => tokio::time::sleep(time).await,
                Meddling::HangInDispose => std::future::pending().await,
                Meddling::FailDispose => return Err(ProviderError::new("the check failed it")),
                _ => {}
            }
            disposed
        })
    }
}
