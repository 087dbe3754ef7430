//! One residency of a continuable child: from its start, or its resume, to its settlement.
//!
//! ```text
//!            turn ends            no holds, nothing parked
//!  running ───────────▶ quiet ─────────────────────────────▶ settling ──▶ settled
//!     ▲                   │ holds > 0: waiting                   ▲
//!     └───────────────────┘ (the parent is told once)            │
//!       a message wakes it                  forced: the parent closes, dispose
//! ```
//!
//! One task watches each activation and is the only one that settles it, whoever began the closing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use offshoot_agent::{Agent, Pending, Status};
use offshoot_core::{CleanupId, CloseReport, Hold};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::event::RunRecord;
use crate::limit::Place;
use crate::notice::{self, Settlement};
use crate::{Outcome, StartError, Subagents, TreeUsage};

/// What the parent's scope gives back when the child has settled.
struct Ties {
    hold: Hold,
    place: Place,
    cleanup: Option<CleanupId>,
}

pub(crate) struct Activation {
    child: Agent,
    parent: Agent,
    run: RunRecord,
    ties: Mutex<Option<Ties>>,
    settled: watch::Sender<bool>,
    /// The turn after which the child was interrupted while it only waited.
    interrupted_after: Mutex<Option<u64>>,
    /// Whoever asked for this residency was told that it did not come to be.
    unannounced: AtomicBool,
}

impl Activation {
    pub(crate) fn child(&self) -> &Agent {
        &self.child
    }

    pub(crate) fn parent(&self) -> &Agent {
        &self.parent
    }

    /// Waits until the child has settled and its parent was told.
    pub(crate) async fn settled(&self) {
        let mut settled = self.settled.subscribe();
        // An error means that the activation is gone, which it is only after it settled.
        let _ = settled.wait_for(|settled| *settled).await;
    }

    /// The child's turn had ended and it was told to wait no longer.
    pub(crate) fn note_interrupt(&self) {
        let turn = self.child.with_projection(|p| p.turn());
        *self
            .interrupted_after
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(turn);
    }

    fn was_interrupted(&self) -> bool {
        let turn = self.child.with_projection(|p| p.turn());
        let after = self
            .interrupted_after
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *after == Some(turn)
    }

    /// The parent was told that there is no such residency: it is not told of the end either.
    pub(crate) fn keep_from_parent(&self) {
        self.unannounced.store(true, Ordering::Release);
    }

    fn ties(&self) -> std::sync::MutexGuard<'_, Option<Ties>> {
        self.ties.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subagents {
    /// Takes charge of a child that was created and not started. The parent's closing closes it.
    pub(crate) fn activate(
        &self,
        parent: &Agent,
        child: Agent,
        run: RunRecord,
        hold: Hold,
        place: Place,
    ) -> Result<Arc<Activation>, StartError> {
        let activation = Arc::new(Activation {
            child,
            parent: parent.clone(),
            run,
            ties: Mutex::new(Some(Ties {
                hold,
                place,
                cleanup: None,
            })),
            settled: watch::Sender::new(false),
            interrupted_after: Mutex::default(),
            unannounced: AtomicBool::new(false),
        });
        let closing = Arc::clone(&activation);
        let name = format!("subagent {}", activation.child.id());
        let cleanup = parent.scope().on_close(name, async move || {
            closing.child.begin_close(Pending::Keep);
            closing.settled().await;
            Ok(())
        });
        let Ok(cleanup) = cleanup else {
            return Err(StartError::ParentClosing);
        };
        if let Err(error) = parent.record(activation.run.started()) {
            // The cleanup would wait for a settlement that never comes, and keep what it holds.
            parent.scope().forget_cleanup(cleanup);
            return Err(error.into());
        }
        if let Some(ties) = activation.ties().as_mut() {
            ties.cleanup = Some(cleanup);
        }
        self.enter(&activation);
        Ok(activation)
    }

    /// Begins to watch an activation. From here on it settles, whatever happens.
    pub(crate) fn watch(&self, activation: &Arc<Activation>) {
        let (service, activation) = (self.clone(), Arc::clone(activation));
        tokio::spawn(async move {
            service.until_settling(&activation).await;
            service.settle(&activation).await;
        });
    }

    /// Waits until the child is closing: because it has nothing left to do, or because somebody
    /// closes it. Tells the parent once a quiet period that the child waits.
    async fn until_settling(&self, activation: &Activation) {
        let child = &activation.child;
        let mut period: Option<(u64, Instant, bool)> = None;
        loop {
            let epoch = child.epoch();
            if child.status() == Status::Closing || child.close_if_settled() {
                return;
            }
            // Idle and not settled: it waits for what it started, or, after an interrupt, for a
            // message that wakes it.
            let quiet = child.status() == Status::Idle;
            let held = child.scope().holds() > 0;
            let turn = child.with_projection(|p| p.turn());
            match (quiet, &period) {
                (false, _) => period = None,
                (true, Some((seen, ..))) if *seen == turn => {}
                (true, _) => {
                    let due = Instant::now() + self.0.settings.waiting_after;
                    period = Some((turn, due, false));
                }
            }
            let due = period.filter(|(.., told)| !told).map(|(_, due, _)| due);
            tokio::select! {
                () = child.changed_since(epoch) => {}
                // All children of a parent that closes are cut at once, not one after the other.
                () = activation.parent.scope().closing() => {
                    child.begin_close(Pending::Keep);
                    return;
                }
                () = child.scope().unheld(), if held => {}
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.tell_waiting(activation);
                    period = period.map(|(turn, due, _)| (turn, due, true));
                }
            }
        }
    }

    /// What an agent has started and is alive, each as one line.
    pub(crate) fn alive_below(&self, agent: &Agent) -> Vec<String> {
        let mut works = self.work().describe(agent);
        let below = self.resident_children(agent.id());
        works.extend(
            below
                .iter()
                .map(|agent| format!("subagent {} ({})", agent.id(), agent.label())),
        );
        works
    }

    fn tell_waiting(&self, activation: &Activation) {
        let child = &activation.child;
        let works = self.alive_below(child);
        let generation = child.with_projection(|p| p.facts().generation) + 1;
        let message = notice::waiting(child, &works, generation);
        if let Err(error) = activation.parent.notify(message, true) {
            tracing::debug!(child = %child.id(), %error, "the parent could not be told of a wait");
        }
    }

    /// Children first, then the agent, then the notice to the parent, then the parent's hold.
    async fn settle(&self, activation: &Arc<Activation>) {
        let child = &activation.child;
        let cut_short = child.was_cut_short();
        let stopped = if cut_short {
            self.alive_below(child)
        } else {
            Vec::new()
        };
        let report = child.close(Pending::Keep).await;
        let mut settlement = conclude(child, &report);
        settlement.stopped = stopped;
        let stopped = cut_short || activation.was_interrupted();
        if settlement.outcome == Outcome::Completed && stopped {
            settlement.outcome = Outcome::Aborted;
        }
        tracing::info!(
            child = %child.id(),
            run = %activation.run.run_id,
            outcome = %settlement.outcome,
            "subagent settled"
        );
        let announce = !activation.unannounced.load(Ordering::Acquire);
        tell_parent(&activation.parent, &activation.run, &settlement, announce);
        let ties = activation.ties().take();
        if let Some(Ties {
            hold,
            place,
            cleanup,
        }) = ties
        {
            if let Some(cleanup) = cleanup {
                activation.parent.scope().forget_cleanup(cleanup);
            }
            // Who resumes the child finds its place free, and who sees the hold released finds it
            // gone.
            drop(place);
            self.leave(activation);
            drop(hold);
        }
        activation.settled.send_replace(true);
    }
}

/// What a closed child's residency came to.
fn conclude(child: &Agent, report: &CloseReport) -> Settlement {
    let facts = child.with_projection(|p| p.facts().clone());
    let (own, total) = child.usage();
    let mut settlement = Settlement {
        outcome: Outcome::of(&facts),
        text: facts.text,
        cut: facts.cut,
        error: facts.error,
        usage: TreeUsage::new(own, total),
        generation: facts.generation + 1,
        stopped: Vec::new(),
    };
    let stuck = report
        .failures
        .iter()
        .map(|f| format!("it could not be closed: {}: {}", f.name, f.error));
    let failures: Vec<_> = child.failure().into_iter().chain(stuck).collect();
    let failure = (!failures.is_empty()).then(|| failures.join("; "));
    if let Some(failure) = failure {
        settlement.outcome = Outcome::Error;
        settlement.error = Some(failure);
    }
    settlement
}

/// Records the settlement in the parent's session and, when `announce`, tells it.
pub(crate) fn tell_parent(
    parent: &Agent,
    run: &RunRecord,
    settlement: &Settlement,
    announce: bool,
) {
    parent.add_subtree_usage(settlement.usage.total());
    let fact = run.settled(settlement.outcome, settlement.usage);
    let told = if announce {
        parent
            .notify_with(vec![fact], settlement.message(run), true)
            .map(drop)
    } else {
        parent.record(fact)
    };
    if let Err(error) = told {
        tracing::warn!(child = %run.child, %error, "a settlement could not be recorded");
    }
}
