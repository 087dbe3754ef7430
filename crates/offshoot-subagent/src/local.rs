//! Children that live in this process.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use offshoot_agent::{Agent, AgentId, CancelCause, Delivered, Message, Pending, RunId, Status};
use offshoot_core::CloseReport;

use crate::ground::Ground;
use crate::host::{
    ChildHost, HostError, Interrupt, Look, OpenChild, Opened, Report, Residency, Session,
    Settlement, Waiting,
};
use crate::settle::began;
use crate::state::tenancy::{Command, Reply, Tenancy};
use crate::{ChildStatus, Interrupter, Outcome, TreeUsage, Verb};

/// A resident child.
struct Tenant {
    residency: Residency,
    child: Agent,
    state: Mutex<Tenancy>,
    /// It accepted its first message.
    begun: AtomicBool,
    resumed: bool,
}

impl Tenant {
    fn apply(&self, command: Command) -> Reply {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.apply(command)
    }

    fn turn(&self) -> u64 {
        self.child.with_projection(|p| p.turn())
    }
}

type Tenants = Mutex<HashMap<AgentId, Arc<Tenant>>>;

struct House {
    ground: Arc<Ground>,
    tenants: Tenants,
    /// Runs that were taken back lately, of which their parents' sessions do not tell.
    retracted: Mutex<VecDeque<RunId>>,
}

/// How many of them are known: what strays longer than this many others is no repetition any more.
const RETRACTED: usize = 64;

/// Continuable children as agents of this process. Each residency is driven by whoever reads its
/// reports: nothing else runs for it.
#[derive(Clone)]
pub struct LocalHost(Arc<House>);

impl fmt::Debug for LocalHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalHost")
            .field("resident", &self.tenants().len())
            .finish_non_exhaustive()
    }
}

impl LocalHost {
    pub(crate) fn new(ground: Arc<Ground>) -> Self {
        Self(Arc::new(House {
            ground,
            tenants: Tenants::default(),
            retracted: Mutex::default(),
        }))
    }

    fn tenants(&self) -> MutexGuard<'_, HashMap<AgentId, Arc<Tenant>>> {
        let tenants = &self.0.tenants;
        tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The child, if this residency of it is the present one.
    fn tenant(&self, residency: &Residency) -> Option<Arc<Tenant>> {
        let tenants = self.tenants();
        let tenant = tenants.get(&residency.child);
        tenant
            .filter(|tenant| tenant.residency.run == residency.run)
            .cloned()
    }

    fn retracted(&self) -> MutexGuard<'_, VecDeque<RunId>> {
        let retracted = &self.0.retracted;
        retracted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn was_retracted(&self, residency: &Residency) -> bool {
        self.retracted().contains(&residency.run)
    }

    fn note_retracted(&self, residency: &Residency) {
        let mut retracted = self.retracted();
        if retracted.len() == RETRACTED {
            retracted.pop_front();
        }
        retracted.push_back(residency.run.clone());
    }

    fn leave(&self, tenant: &Tenant) {
        let mut tenants = self.tenants();
        if let Entry::Occupied(entry) = tenants.entry(tenant.residency.child.clone())
            && entry.get().residency.run == tenant.residency.run
        {
            entry.remove();
        }
    }

    fn make(&self, asked: OpenChild) -> Result<Opened, HostError> {
        let host = &self.0.ground.host;
        let OpenChild {
            residency,
            parent,
            session,
        } = asked;
        let resumed = matches!(session, Session::Stored { .. });
        // A new session cannot be made twice; one that is over must not go on for a late repetition.
        // Whether it is there is asked first: it is on its parent's record before it leaves, so that who
        // does not find it finds that it was.
        let there = self.tenant(&residency).is_some();
        let over = self.was_retracted(&residency) || resumed && began(&parent, &residency.run);
        if there || over {
            return Err(HostError::Duplicate(residency.run));
        }
        let child = match session {
            Session::New(mut spec) => {
                spec.id = Some(residency.child.clone());
                Agent::create(host, Some(parent.scope()), spec)?
            }
            Session::Stored { extra, kit } => {
                Agent::resume(host, Some(parent.scope()), &residency.child, extra, kit)?
            }
        };
        // Its parent's scope ends it.
        let child = child.into_agent();
        let tenant = Arc::new(Tenant {
            residency,
            child,
            state: Mutex::new(Tenancy::new(self.0.ground.settings.waiting_after)),
            begun: AtomicBool::new(false),
            resumed,
        });
        let id = tenant.residency.child.clone();
        self.tenants().insert(id, Arc::clone(&tenant));
        let watched = Some((self.clone(), tenant));
        let reports = stream::unfold(watched, |watched| async move {
            let (host, tenant) = watched?;
            Some(match host.until_reported(&tenant).await {
                Some(waiting) => (Report::Waiting(waiting), Some((host, tenant))),
                None => (Report::Settled(host.settle(&tenant).await), None),
            })
        });
        Ok(Opened {
            reports: reports.boxed(),
        })
    }

    fn put(&self, to: &Residency, message: Message, verb: Verb) -> Result<Delivered, HostError> {
        let tenant = self.tenant(to);
        let tenant = tenant.ok_or_else(|| HostError::NotResident(to.run.clone()))?;
        let child = &tenant.child;
        let first = !tenant.begun.load(Ordering::Acquire);
        if first && tenant.resumed && child.status() != Status::Closing {
            self.0.ground.recover(child);
        }
        let delivered = match verb {
            Verb::Followup => child.followup(message),
            Verb::Steer => child.steer(message),
            Verb::Inject => child.inject(message),
        }?;
        if first {
            tenant.begun.store(true, Ordering::Release);
            child.start();
        }
        Ok(delivered)
    }

    /// Waits until the child is closing, because it has nothing left to do or because somebody closes
    /// it, or until it has been quiet for long.
    async fn until_reported(&self, tenant: &Tenant) -> Option<Waiting> {
        let child = &tenant.child;
        loop {
            let epoch = child.epoch();
            let ending = matches!(child.status(), Status::Closing | Status::Closed);
            if ending || child.close_if_settled() {
                return None;
            }
            // Idle and not settled: it waits for what it started, or, after an interrupt, for a
            // message that wakes it.
            let quiet = child.status() == Status::Idle;
            let held = child.scope().holds() > 0;
            let (turn, now) = (tenant.turn(), tokio::time::Instant::now());
            let due = match tenant.apply(Command::Looked { quiet, turn, now }) {
                Reply::WakeAt(due) => Some(due),
                _ => None,
            };
            tokio::select! {
                () = child.changed_since(epoch) => {}
                () = child.scope().unheld(), if held => {}
                () = tokio::time::sleep_until(due.unwrap_or(now)), if due.is_some() => {
                    if tenant.apply(Command::Passed) == Reply::Report {
                        return Some(self.waiting(tenant));
                    }
                }
            }
        }
    }

    fn waiting(&self, tenant: &Tenant) -> Waiting {
        let works = self.0.ground.alive_below(&tenant.child);
        tenant.child.with_projection(|p| Waiting {
            turn: p.turn(),
            text: p.facts().text.clone(),
            works,
            parked: p.inbox().len(),
            generation: p.facts().generation.saturating_add(1),
        })
    }

    /// What the child started ends first, then the child.
    async fn settle(&self, tenant: &Tenant) -> Settlement {
        let child = &tenant.child;
        let cut_short = child.was_cut_short();
        let stopped = match cut_short {
            true => self.0.ground.alive_below(child),
            false => Vec::new(),
        };
        let report = child.close(Pending::Keep).await;
        let mut settlement = conclude(child, &report);
        settlement.stopped = stopped;
        let turn = tenant.turn();
        let state = tenant.state.lock().unwrap_or_else(PoisonError::into_inner);
        settlement.outcome = state.outcome(settlement.outcome, turn, cut_short);
        drop(state);
        self.leave(tenant);
        settlement
    }
}

/// What a closed child's residency came to.
fn conclude(child: &Agent, report: &CloseReport) -> Settlement {
    let facts = child.with_projection(|p| p.facts().clone());
    let mut settlement = Settlement {
        outcome: Outcome::of(&facts),
        text: facts.text,
        cut: facts.cut,
        error: facts.error,
        usage: TreeUsage::of(child),
        generation: facts.generation.saturating_add(1),
        stopped: Vec::new(),
    };
    let failed = report.failures.iter().map(|failure| {
        let (name, error) = (&failure.name, &failure.error);
        format!("it could not be closed: {name}: {error}")
    });
    let causes: Vec<_> = child.failure().into_iter().chain(failed).collect();
    if !causes.is_empty() {
        settlement.outcome = Outcome::Error;
        settlement.error = Some(causes.join("; "));
    }
    settlement
}

impl ChildHost for LocalHost {
    fn open(&self, child: OpenChild) -> BoxFuture<'_, Result<Opened, HostError>> {
        async move { self.make(child) }.boxed()
    }

    fn deliver<'a>(
        &'a self,
        to: &'a Residency,
        message: Message,
        verb: Verb,
    ) -> BoxFuture<'a, Result<Delivered, HostError>> {
        async move { self.put(to, message, verb) }.boxed()
    }

    fn interrupt(&self, child: &Residency, interrupt: Interrupt) {
        let Some(tenant) = self.tenant(child) else {
            return;
        };
        let number = interrupt.number;
        if tenant.apply(Command::Interrupt { number }) == Reply::Duplicate {
            return;
        }
        let child = &tenant.child;
        let cut = child.cancel(CancelCause::Interrupt, Pending::Keep);
        if !cut && child.status() == Status::Idle && child.scope().holds() > 0 {
            let turn = tenant.turn();
            tenant.apply(Command::StoppedWaiting { turn });
            if interrupt.by == Interrupter::Human {
                // A human's stop is told, and does not start the child again: quietly.
                child.cancel(CancelCause::User, Pending::Keep);
            }
            self.0
                .ground
                .work()
                .stop(child, interrupt.by, "interrupted");
        }
    }

    fn close(&self, child: &Residency, pending: Pending) {
        if let Some(tenant) = self.tenant(child) {
            tenant.child.begin_close(pending);
        }
    }

    fn retract(&self, child: &Residency) {
        let Some(tenant) = self.tenant(child) else {
            return;
        };
        self.note_retracted(child);
        if tenant.resumed {
            tenant.child.begin_close(Pending::Keep);
        } else {
            // Dropping what it returns does not stop it.
            drop(tenant.child.retract());
        }
    }

    fn look(&self, child: &AgentId) -> Option<Look> {
        let agent = self.0.ground.host.agents.get(child)?;
        let status = match agent.status() {
            Status::Running => ChildStatus::Running,
            _ if agent.scope().holds() > 0 => ChildStatus::Waiting,
            _ => ChildStatus::Idle,
        };
        Some(Look {
            status,
            usage: TreeUsage::of(&agent),
            works: self.0.ground.work().describe(&agent),
        })
    }
}
