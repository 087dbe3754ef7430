//! A provider of threads of work that are no agents passes; each way of breaking it is found, by the
//! case that is there for it.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use offshoot_agent::{Agent, AgentId, StoredEvent};
use offshoot_provider_conformance::{
    ANSWER, Behaviour, Case, PARTIAL, Subject, check, check_case, hostile_fault,
};
use offshoot_subagent::{
    Capabilities, Outcome, Provider, ProviderError, Run, RunRequest, RunResult, TreeUsage,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// What is wrong with the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    NoName,
    NeverPublishes,
    PublishesAnother,
    StartPanics,
    StartsThoughCancelled,
    LeaksOnDroppedStart,
    LeaksOnDrop,
    LeaksOnDispose,
    IgnoresCancel,
    CompletesOnCancel,
    SharedCancel,
    HangsOnCrash,
    ResultFailsOnCrash,
    LosesPartialText,
    FaultInText,
    RawDiagnostic,
    DiagnosticOfCompleted,
    UnboundedText,
    KeepsTheHead,
    UsageShrinks,
    DisposeFails,
    DisposeHangs,
    DisposePanics,
    ResultPanics,
    AnswersAnything,
    SeedsHalfATurn,
}

#[derive(Clone)]
struct Threads {
    flaw: Flaw,
    behaviour: Behaviour,
    /// Work that goes on.
    live: Arc<AtomicUsize>,
    shared: CancellationToken,
}

/// Counts as work that goes on.
struct Working(Arc<AtomicUsize>);

impl Working {
    fn begin(live: &Arc<AtomicUsize>) -> Self {
        live.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(live))
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

struct ThreadRun {
    child: AgentId,
    threads: Threads,
    structured: bool,
    cancel: CancellationToken,
    working: Option<Working>,
}

impl Provider for Threads {
    fn name(&self) -> &str {
        if self.flaw == Flaw::NoName {
            ""
        } else {
            "threads"
        }
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.structured_output = true;
        capabilities.continuable = self.flaw == Flaw::SeedsHalfATurn;
        capabilities
    }

    fn start(&self, mut request: RunRequest) -> BoxFuture<'_, Result<Box<dyn Run>, ProviderError>> {
        Box::pin(async move {
            assert_ne!(self.flaw, Flaw::StartPanics, "no more threads");
            if request.cancel.is_cancelled() && self.flaw != Flaw::StartsThoughCancelled {
                return Err(ProviderError::new("cancelled"));
            }
            let working = Working::begin(&self.live);
            if self.flaw == Flaw::LeaksOnDroppedStart {
                std::mem::forget(Working::begin(&self.live));
                tokio::task::yield_now().await;
                self.live.fetch_sub(1, Ordering::SeqCst);
            }
            tokio::task::yield_now().await;
            let child = AgentId::fresh();
            match self.flaw {
                Flaw::NeverPublishes => {}
                Flaw::PublishesAnother => request.publish(&AgentId::fresh())?,
                _ => request.publish(&child)?,
            }
            let cancel = match self.flaw {
                Flaw::SharedCancel => {
                    let (own, all) = (request.cancel.clone(), self.shared.clone());
                    tokio::spawn(async move {
                        own.cancelled().await;
                        all.cancel();
                    });
                    self.shared.clone()
                }
                Flaw::StartsThoughCancelled => CancellationToken::new(),
                _ => request.cancel.clone(),
            };
            Ok(Box::new(ThreadRun {
                child,
                threads: self.clone(),
                structured: request.child.output_schema.is_some(),
                cancel,
                working: Some(working),
            }) as Box<dyn Run>)
        })
    }

    fn seed<'a>(
        &'a self,
        parent: &'a Agent,
    ) -> BoxFuture<'a, Result<Option<Vec<StoredEvent>>, ProviderError>> {
        Box::pin(async move {
            let mut events = parent.host().store.read(parent.id()).unwrap();
            events.pop();
            Ok(Some(events))
        })
    }
}

impl ThreadRun {
    async fn child_ends(&self) -> RunResult {
        let flaw = self.threads.flaw;
        let partial = if flaw == Flaw::LosesPartialText {
            ""
        } else {
            PARTIAL
        };
        match self.threads.behaviour {
            Behaviour::Answer if self.structured && flaw != Flaw::AnswersAnything => {
                RunResult::new(Outcome::Error, ANSWER).with_diagnostic("no answer that fits")
            }
            Behaviour::Answer => RunResult::new(Outcome::Completed, ANSWER),
            Behaviour::Structured => {
                RunResult::new(Outcome::Completed, "").with_structured(json!({ "answer": 42 }))
            }
            Behaviour::Flood => {
                let mut result = RunResult::new(Outcome::Completed, "");
                let flood = "flood ".repeat(RunResult::MAX_TEXT_BYTES);
                result.text = match flaw {
                    Flaw::UnboundedText => format!("{flood}{ANSWER}"),
                    Flaw::KeepsTheHead => flood[..RunResult::MAX_TEXT_BYTES].to_owned(),
                    _ => RunResult::new(Outcome::Completed, flood + ANSWER).text,
                };
                result
            }
            Behaviour::Fail if flaw == Flaw::FaultInText => {
                RunResult::new(Outcome::Error, format!("{PARTIAL} {}", hostile_fault()))
            }
            Behaviour::Fail if flaw == Flaw::RawDiagnostic => {
                let mut result = RunResult::new(Outcome::Error, partial);
                result.diagnostic = Some(hostile_fault());
                result
            }
            Behaviour::Fail => {
                RunResult::new(Outcome::Error, partial).with_diagnostic(hostile_fault())
            }
            Behaviour::Crash if flaw == Flaw::HangsOnCrash => std::future::pending().await,
            Behaviour::Crash => RunResult::new(Outcome::Error, partial).with_diagnostic("it died"),
            _ => std::future::pending().await,
        }
    }
}

impl Run for ThreadRun {
    fn child(&self) -> &AgentId {
        &self.child
    }

    fn result(&mut self) -> BoxFuture<'_, Result<RunResult, ProviderError>> {
        Box::pin(async move {
            let flaw = self.threads.flaw;
            assert_ne!(flaw, Flaw::ResultPanics, "no result");
            if flaw == Flaw::ResultFailsOnCrash && self.threads.behaviour == Behaviour::Crash {
                return Err(ProviderError::new("the connection was lost"));
            }
            let cancelled = async {
                self.cancel.cancelled().await;
                if flaw == Flaw::IgnoresCancel {
                    std::future::pending::<()>().await;
                }
            };
            let mut result = tokio::select! {
                result = self.child_ends() => result,
                () = cancelled => {
                    let outcome = match flaw {
                        Flaw::CompletesOnCancel => Outcome::Completed,
                        _ => Outcome::Aborted,
                    };
                    RunResult::new(outcome, PARTIAL)
                }
            };
            match flaw {
                Flaw::DiagnosticOfCompleted => result.diagnostic = Some("fine".to_owned()),
                Flaw::UsageShrinks => {
                    result.usage = TreeUsage {
                        input: 2,
                        ..TreeUsage::default()
                    };
                }
                _ => {}
            }
            Ok(result)
        })
    }

    fn dispose(mut self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>> {
        Box::pin(async move {
            let working = self.working.take();
            match self.threads.flaw {
                Flaw::LeaksOnDispose => std::mem::forget(working),
                Flaw::DisposeFails => return Err(ProviderError::new("it would not go")),
                Flaw::DisposePanics => panic!("it would not go"),
                Flaw::DisposeHangs => std::future::pending().await,
                _ => {}
            }
            Ok(())
        })
    }
}

impl Drop for ThreadRun {
    fn drop(&mut self) {
        if self.threads.flaw == Flaw::LeaksOnDrop {
            std::mem::forget(self.working.take());
        }
    }
}

/// Makes providers with one flaw, and sees what goes on of all of them.
struct Flawed {
    flaw: Flaw,
    live: Mutex<Vec<Arc<AtomicUsize>>>,
}

impl Flawed {
    fn new(flaw: Flaw) -> Self {
        Self {
            flaw,
            live: Mutex::default(),
        }
    }
}

impl Subject for Flawed {
    fn provider(&self, behaviour: Behaviour) -> Option<Arc<dyn Provider>> {
        let live: Arc<AtomicUsize> = Arc::default();
        self.live.lock().unwrap().push(Arc::clone(&live));
        Some(Arc::new(Threads {
            flaw: self.flaw,
            behaviour,
            live,
            shared: CancellationToken::new(),
        }))
    }

    fn left(&self) -> Vec<String> {
        let live = self.live.lock().unwrap();
        let left: usize = live.iter().map(|live| live.load(Ordering::SeqCst)).sum();
        (0..left).map(|_| "a thread".to_owned()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_without_flaws_passes() {
    check(&Flawed::new(Flaw::None)).await.assert_conforms(&[]);
}

/// The case that is there for the flaw fails, and says what is wrong.
async fn found(flaw: Flaw, case: Case, fault: &str) {
    let subject = Flawed::new(flaw);
    let checking = check_case(&subject, case);
    let report = tokio::time::timeout(Duration::from_secs(3600), checking)
        .await
        .expect("a case ends, whatever the provider does");
    let faults: Vec<_> = report.failures().flat_map(|(_, faults)| faults).collect();
    assert!(
        faults.iter().any(|it| it.contains(fault)),
        "{flaw:?}: expected {fault:?} in\n{report}"
    );
}

macro_rules! flaws {
    ($($name:ident: $flaw:ident, $case:ident, $fault:literal;)*) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            found(Flaw::$flaw, Case::$case, $fault).await;
        }
    )*};
}

flaws! {
    an_empty_name_is_found: NoName, Identity, "empty name";
    a_start_that_is_not_published_is_found: NeverPublishes, Answer, "had not published";
    the_publication_of_another_child_is_found: PublishesAnother, Answer, "had not published";
    a_panic_of_the_start_is_found: StartPanics, Answer, "start panicked: ";
    a_start_against_a_cancel_is_found: StartsThoughCancelled, CancelBeforeStart, "did not end within";
    a_leak_of_a_dropped_start_is_found: LeaksOnDroppedStart, DroppedStart, "a thread is left";
    a_leak_of_a_dropped_run_is_found: LeaksOnDrop, DroppedRun, "a thread is left";
    a_leak_of_a_disposal_is_found: LeaksOnDispose, Answer, "a thread is left";
    a_leak_without_a_disposal_is_found: LeaksOnDrop, PanicInDispose, "a thread is left";
    a_run_that_is_deaf_is_found: IgnoresCancel, CancelRunning, "did not end within";
    a_child_that_is_deaf_and_let_be_is_found: IgnoresCancel, Deaf, "did not end within";
    a_cancel_that_completes_is_found: CompletesOnCancel, CancelRunning, "ended as completed";
    a_cancel_at_publication_that_completes_is_found: CompletesOnCancel, CancelAtPublication, "ended as completed";
    a_shared_cancel_is_found: SharedCancel, Siblings, "ended another";
    a_child_that_died_unseen_is_found: HangsOnCrash, Crash, "in vain for the run to end";
    a_death_that_is_no_outcome_is_found: ResultFailsOnCrash, Crash, "result failed: ";
    lost_partial_text_is_found: LosesPartialText, Fail, "expected it to have";
    a_fault_in_the_text_is_found: FaultInText, Fail, "in the text";
    a_raw_diagnostic_is_found: RawDiagnostic, Fail, "not one clean line";
    a_long_diagnostic_is_found: RawDiagnostic, Fail, "limit: 4096";
    a_diagnostic_of_a_success_is_found: DiagnosticOfCompleted, Answer, "has a diagnostic";
    an_unbounded_text_is_found: UnboundedText, Flood, "limit: 4194304";
    a_lost_end_of_a_text_is_found: KeepsTheHead, Flood, "was not kept";
    a_tree_that_used_less_is_found: UsageShrinks, Answer, "used less";
    a_disposal_that_fails_is_found: DisposeFails, Answer, "dispose failed: ";
    a_disposal_that_hangs_is_found: DisposeHangs, Answer, "dispose did not end within";
    a_disposal_that_panics_is_found: DisposePanics, Answer, "dispose panicked: ";
    a_result_that_panics_is_found: ResultPanics, Answer, "result panicked: ";
    an_answer_that_was_not_asked_for_is_found: AnswersAnything, StructuredOutputMissing, "claims to have completed";
    a_past_that_is_not_whole_is_found: SeedsHalfATurn, Seed, "middle of a turn";
}

#[tokio::test(start_paused = true)]
async fn what_a_subject_cannot_do_is_skipped_and_said() {
    let flawed = Flawed::new(Flaw::None);
    let subject = |behaviour: Behaviour| match behaviour {
        Behaviour::Deaf => None,
        other => flawed.provider(other),
    };
    let report = check(&subject).await;
    assert_eq!(report.skipped().collect::<Vec<_>>(), [Case::Deaf]);
    report.assert_conforms(&[Case::Deaf]);
    assert!(report.to_string().contains("skipped  Deaf"), "{report}");
    let silent = std::panic::catch_unwind(|| report.assert_conforms(&[]));
    assert!(silent.is_err(), "what is skipped unasked is a fault");
}
