//! The residencies that a service answers for: the shell around their state machines.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use offshoot_agent::{Agent, AgentId};
use offshoot_core::{CleanupId, Hold};
use tokio::sync::watch;

use crate::Subagents;
use crate::event::RunRecord;
use crate::host::{Interrupt, Report, Residency, Settlement};
use crate::limit::Place;
use crate::state::activation::{Activation, Command, Effect, Phase, Reply};
use crate::{notice, settle};

/// What the parent's scope gives back when the child has settled.
#[derive(Default)]
pub(crate) struct Ties {
    pub(crate) hold: Option<Hold>,
    pub(crate) place: Option<Place>,
    pub(crate) cleanup: Option<CleanupId>,
}

/// One residency of a child.
pub(crate) struct Resident {
    pub(crate) residency: Residency,
    pub(crate) parent: Agent,
    pub(crate) run: RunRecord,
    state: Mutex<Activation>,
    ties: Mutex<Ties>,
    /// Follows the state: a phase is seen here when everything that led to it was done.
    phase: watch::Sender<Phase>,
}

impl Resident {
    pub(crate) fn new(parent: &Agent, run: RunRecord) -> Arc<Self> {
        Arc::new(Self {
            residency: Residency {
                child: run.child.clone(),
                run: run.run_id.clone(),
            },
            parent: parent.clone(),
            run,
            state: Mutex::default(),
            ties: Mutex::default(),
            phase: watch::Sender::new(Phase::Opening),
        })
    }

    pub(crate) fn child(&self) -> &AgentId {
        &self.residency.child
    }

    pub(crate) fn ties(&self) -> MutexGuard<'_, Ties> {
        self.ties.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn until(&self, reached: impl FnMut(&Phase) -> bool) {
        // An error means that the residency is gone, which it is only after it settled.
        let _ = self.phase.subscribe().wait_for(reached).await;
    }

    /// Waits until the residency is over and its parent was told.
    pub(crate) async fn settled(&self) {
        self.until(|phase| *phase == Phase::Settled).await;
    }

    /// Waits until the phase in which nothing can be delivered has passed.
    pub(crate) async fn passed(&self) {
        let open = |phase: &Phase| matches!(phase, Phase::Live | Phase::Settled);
        self.until(open).await;
    }

    /// Waits until the residency has begun, or did not.
    pub(crate) async fn opened(&self) {
        self.until(|phase| *phase != Phase::Opening).await;
    }
}

/// What a command comes with.
pub(crate) enum With<'a> {
    Nothing,
    Report(&'a Report),
}

impl Subagents {
    /// Gives a residency a command and does what is to be done about it.
    pub(crate) fn tell(
        &self,
        resident: &Arc<Resident>,
        command: Command,
        with: &With<'_>,
    ) -> Reply {
        let (before, reply, effects, after) = {
            let mut state = resident
                .state
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let before = state.phase();
            let (reply, effects) = state.apply(command);
            (before, reply, effects, state.phase())
        };
        for effect in effects {
            self.perform(resident, effect, with);
        }
        if before != after {
            resident.phase.send_replace(after);
        }
        reply
    }

    fn perform(&self, resident: &Arc<Resident>, effect: Effect, with: &With<'_>) {
        let residency = &resident.residency;
        match (effect, with) {
            (Effect::Close(pending), _) => self.children().close(residency, pending),
            (Effect::Retract, _) => self.children().retract(residency),
            (Effect::Interrupt { number, by }, _) => {
                self.children()
                    .interrupt(residency, Interrupt { number, by });
            }
            (Effect::TellWaiting, With::Report(Report::Waiting(waiting))) => {
                let message = notice::waiting(&resident.run, waiting);
                if let Err(error) = resident.parent.notify(message, true) {
                    let child = resident.child();
                    tracing::debug!(%child, %error, "the parent could not be told of a wait");
                }
            }
            (Effect::RecordSettlement, With::Report(Report::Settled(settlement))) => {
                self.conclude(resident, settlement, false);
            }
            (Effect::TellSettlement, With::Report(Report::Settled(settlement))) => {
                self.conclude(resident, settlement, true);
            }
            (Effect::Release, _) => self.release(resident),
            (effect, _) => debug_assert!(false, "{effect:?} without what it needs"),
        }
    }

    fn release(&self, resident: &Arc<Resident>) {
        let ties = std::mem::take(&mut *resident.ties());
        if let Some(cleanup) = ties.cleanup {
            resident.parent.scope().forget_cleanup(cleanup);
        }
        // Who resumes the child finds its place free, and who sees the hold released finds it gone.
        drop(ties.place);
        self.leave(resident);
        drop(ties.hold);
    }

    fn conclude(&self, resident: &Resident, settlement: &Settlement, announce: bool) {
        tracing::info!(
            child = %resident.child(),
            run = %resident.residency.run,
            outcome = %settlement.outcome,
            "subagent settled"
        );
        settle::charge(&resident.parent, settlement.usage);
        self.settle_up(&resident.parent, &resident.run, settlement, announce, false);
    }
}
