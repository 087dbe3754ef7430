//! A provider whose runs are no agents, and which fails where it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use offshoot_agent::{Agent, AgentId, StoredEvent};
use offshoot_subagent::{
    Capabilities, Outcome, Provider, ProviderError, Run, RunRequest, RunResult, TreeUsage,
};
use tokio_util::sync::CancellationToken;

use super::Gate;

/// Where the provider fails, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    None,
    StartFails,
    StartPanics,
    StartPanicsAtOnce,
    StartFailsAfterPublishing,
    NeverPublishes,
    ResultFails,
    ResultPanics,
    ResultPanicsAtOnce,
    DisposeFails,
    DisposePanics,
    DisposePanicsAtOnce,
    SeedFails,
    SeedPanics,
    SeedPanicsAtOnce,
    ResultAndDisposeFail,
    /// The result never comes, whatever is cancelled, until the gate opens.
    Deaf,
    /// The start never comes, whatever is cancelled.
    DeafStart,
    /// The disposal never ends.
    NeverDisposed,
    DeafAndNeverDisposed,
}

#[derive(Clone, Default)]
pub struct Odd {
    pub fault: Fault,
    pub capabilities: Capabilities,
    /// Waited for in `start` and `seed`.
    pub slow_start: Option<Gate>,
    /// Waited for in `dispose`.
    pub slow_dispose: Option<Gate>,
    /// Waited for before the result, unless the run is cancelled.
    pub slow_result: Option<Gate>,
    pub starts: Arc<AtomicUsize>,
    /// Runs that were started and not disposed.
    pub live: Arc<AtomicUsize>,
}

impl Odd {
    pub fn new(fault: Fault) -> Self {
        Self {
            fault,
            capabilities: Capabilities::in_process(false),
            ..Self::default()
        }
    }

    async fn ready(&self) {
        if let Some(gate) = &self.slow_start {
            gate.opened().await;
        }
    }
}

struct OddRun {
    child: AgentId,
    odd: Odd,
    cancel: CancellationToken,
}

impl Provider for Odd {
    fn name(&self) -> &'static str {
        "odd"
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn start(&self, mut request: RunRequest) -> BoxFuture<'_, Result<Box<dyn Run>, ProviderError>> {
        self.starts.fetch_add(1, Ordering::SeqCst);
        assert_ne!(
            self.fault,
            Fault::StartPanicsAtOnce,
            "start panicked at once"
        );
        Box::pin(async move {
            tokio::select! {
                () = request.cancel.cancelled(), if self.slow_start.is_some() => {
                    return Err(ProviderError::new("cancelled while it started"));
                }
                () = self.ready() => {}
            }
            assert_ne!(self.fault, Fault::StartPanics, "start panicked");
            if self.fault == Fault::DeafStart {
                std::future::pending::<()>().await;
            }
            if self.fault == Fault::StartFails {
                return Err(ProviderError::new("no such program"));
            }
            let child = AgentId::fresh();
            if self.fault != Fault::NeverPublishes {
                request.publish(&child)?;
            }
            if self.fault == Fault::StartFailsAfterPublishing {
                return Err(ProviderError::new("died at birth"));
            }
            self.live.fetch_add(1, Ordering::SeqCst);
            Ok(Box::new(OddRun {
                child,
                odd: self.clone(),
                cancel: request.cancel,
            }) as Box<dyn Run>)
        })
    }

    fn seed<'a>(
        &'a self,
        _: &'a Agent,
    ) -> BoxFuture<'a, Result<Option<Vec<StoredEvent>>, ProviderError>> {
        assert_ne!(self.fault, Fault::SeedPanicsAtOnce, "seed panicked at once");
        Box::pin(async move {
            self.ready().await;
            assert_ne!(self.fault, Fault::SeedPanics, "seed panicked");
            if self.fault == Fault::SeedFails {
                return Err(ProviderError::new("no past"));
            }
            Ok(None)
        })
    }
}

impl Run for OddRun {
    fn child(&self) -> &AgentId {
        &self.child
    }

    fn result(&mut self) -> BoxFuture<'_, Result<RunResult, ProviderError>> {
        let fault = self.odd.fault;
        assert_ne!(fault, Fault::ResultPanicsAtOnce, "result panicked at once");
        Box::pin(async move {
            assert_ne!(fault, Fault::ResultPanics, "result panicked");
            if matches!(fault, Fault::ResultFails | Fault::ResultAndDisposeFail) {
                return Err(ProviderError::new("the connection was lost"));
            }
            let ready = async {
                if let Some(gate) = &self.odd.slow_result {
                    gate.opened().await;
                }
            };
            let deaf = matches!(fault, Fault::Deaf | Fault::DeafAndNeverDisposed);
            let outcome = tokio::select! {
                biased;
                () = ready => Outcome::Completed,
                () = self.cancel.cancelled(), if !deaf => Outcome::Aborted,
            };
            let usage = TreeUsage {
                input: 1,
                output: 2,
                total_input: 3,
                total_output: 4,
                ..TreeUsage::default()
            };
            Ok(RunResult::new(outcome, "odd answer").with_usage(usage))
        })
    }

    fn dispose(self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>> {
        let fault = self.odd.fault;
        self.odd.live.fetch_sub(1, Ordering::SeqCst);
        assert_ne!(
            fault,
            Fault::DisposePanicsAtOnce,
            "dispose panicked at once"
        );
        Box::pin(async move {
            if let Some(gate) = &self.odd.slow_dispose {
                gate.opened().await;
            }
            assert_ne!(fault, Fault::DisposePanics, "dispose panicked");
            match fault {
                Fault::NeverDisposed | Fault::DeafAndNeverDisposed => std::future::pending().await,
                Fault::DisposeFails | Fault::ResultAndDisposeFail => {
                    Err(ProviderError::new("it would not go"))
                }
                _ => Ok(()),
            }
        })
    }
}
