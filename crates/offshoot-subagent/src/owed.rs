//! Settlements that a parent's log did not take, such as on a full disk: told at the parent's next chance.
//!
//! Only for as long as the parent lives: what a process that ends still owes, the parent's log shows as a
//! run that has not settled, and the parent is told of it when it goes on.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use offshoot_agent::{Agent, AgentId, SendError, Status};

use crate::event::RunRecord;
use crate::host::Settlement;
use crate::{Subagents, notice, settle};

struct Owed {
    parent: Agent,
    run: RunRecord,
    settlement: Settlement,
    announce: bool,
    has_children: bool,
}

/// By parent, in the order of the ends.
#[derive(Default)]
pub(crate) struct OwedSettlements(Mutex<HashMap<AgentId, Vec<Owed>>>);

impl OwedSettlements {
    fn all(&self) -> MutexGuard<'_, HashMap<AgentId, Vec<Owed>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owed {
    /// Whether the parent has to be told again.
    fn is_refused(&self) -> bool {
        let (run, settlement) = (&self.run, &self.settlement);
        let notice = self.announce.then(|| notice::settled(settlement, run));
        let told = settle::tell_parent(&self.parent, run, settlement, self.has_children, notice);
        matches!(told, Err(SendError::Log(_)))
    }
}

impl Subagents {
    /// Records a settlement in the parent's session and, when `announce`, tells it; `has_children` matters of
    /// one-shot runs.
    pub(crate) fn settle_up(
        &self,
        parent: &Agent,
        run: &RunRecord,
        settlement: &Settlement,
        announce: bool,
        has_children: bool,
    ) {
        self.pay(parent);
        let owed = Owed {
            parent: parent.clone(),
            run: run.clone(),
            settlement: settlement.clone(),
            announce,
            has_children,
        };
        if owed.is_refused() {
            self.0
                .owed
                .all()
                .entry(parent.id().clone())
                .or_default()
                .push(owed);
        }
    }

    /// Tells a parent what its log did not take before, until it refuses again.
    pub(crate) fn pay(&self, parent: &Agent) {
        let owed = {
            let mut all = self.0.owed.all();
            all.retain(|_, owed| owed.iter().all(|one| one.parent.status() != Status::Closed));
            all.remove(parent.id()).unwrap_or_default()
        };
        let mut owed = owed.into_iter();
        let refused = owed.find(Owed::is_refused);
        if let Some(refused) = refused {
            let again = std::iter::once(refused).chain(owed);
            self.0
                .owed
                .all()
                .entry(parent.id().clone())
                .or_default()
                .extend(again);
        }
    }
}
