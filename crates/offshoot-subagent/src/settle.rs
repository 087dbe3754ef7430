//! How the end of a child reaches its parent.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use offshoot_agent::{Agent, AgentHost, AgentId, Event, Message, Pending, RunId, SendError};
use offshoot_core::text;

use crate::event::{self, RunRecord};
use crate::host::{Report, Residency, Settlement};
use crate::past::{Known, RunPast};
use crate::resident::{Resident, With};
use crate::state::activation::{Command, Reply};
use crate::{Outcome, Subagents, TreeUsage};

/// What became of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reported {
    /// The parent was told.
    Told,
    /// It had been told before: nothing changed.
    Duplicate,
    /// It came when it did not matter any more: nothing changed.
    Late,
    /// Nobody here has such a child.
    Unknown,
}

impl Subagents {
    /// Takes what a host says of a residency. Reading the reports of
    /// [`Opened`](crate::Opened) comes here; a host may say the same again, at any time.
    ///
    /// A report that overtakes the answer of its residency's opening waits for it. Dropping the future
    /// leaves the report either taken or not.
    pub async fn report(&self, of: &Residency, report: &Report) -> Reported {
        let command = match report {
            Report::Waiting(waiting) => Command::Waiting { turn: waiting.turn },
            Report::Settled(_) => Command::Settled,
        };
        loop {
            let resident = self.resident(&of.child);
            let Some(resident) = resident.filter(|resident| resident.residency == *of) else {
                return self.reported_before(of);
            };
            let reply = self.tell(&resident, command, &With::Report(report));
            match reply {
                Reply::Later => resident.opened().await,
                Reply::Done => return Reported::Told,
                Reply::NoOp => return Reported::Late,
                Reply::Duplicate => {
                    tracing::debug!(child = %of.child, run = %of.run, "reported twice");
                    return Reported::Duplicate;
                }
            }
        }
    }

    /// A residency that is not there any more is remembered by its parent's session.
    fn reported_before(&self, of: &Residency) -> Reported {
        let start = self.session_start(&of.child);
        let Some(parent) = start.and_then(|start| start.parent) else {
            return Reported::Unknown;
        };
        let host = &self.0.host;
        let known = host.agents.get(&parent);
        let known = known.and_then(|parent| known_to(&parent, &of.run));
        match known.unwrap_or_else(|| known_to_log(host, &parent, &of.run)) {
            Known::Ended => Reported::Duplicate,
            Known::Open | Known::Never => Reported::Unknown,
        }
    }

    /// Begins to watch a residency. From here on it settles, whatever happens.
    pub(crate) fn watch(&self, resident: &Arc<Resident>, reports: BoxStream<'static, Report>) {
        let (service, resident) = (self.clone(), Arc::clone(resident));
        tokio::spawn(async move { service.follow(&resident, reports).await });
    }

    async fn follow(&self, resident: &Arc<Resident>, mut reports: BoxStream<'static, Report>) {
        let parent = resident.parent.scope();
        let mut closing = false;
        loop {
            let mut next = AssertUnwindSafe(reports.next()).catch_unwind();
            let report = loop {
                tokio::select! {
                    report = &mut next => break report,
                    // All children of a parent that closes are cut at once, not one after the other.
                    () = parent.closing(), if !closing => {
                        closing = true;
                        self.tell(resident, Command::Close(Pending::Keep), &With::Nothing);
                    }
                }
            };
            let why = match report {
                Ok(Some(report)) => {
                    self.report(&resident.residency, &report).await;
                    continue;
                }
                Ok(None) => "its host says nothing of it any more".to_owned(),
                Err(panic) => format!("its host panicked: {}", text::panic_message(&*panic)),
            };
            // Without effect when it was settled, as it should be.
            let lost = Report::Settled(lost(why));
            let reply = self.tell(resident, Command::Settled, &With::Report(&lost));
            if reply == Reply::Done {
                tracing::warn!(child = %resident.child(), "a host lost a child");
            }
            return;
        }
    }
}

fn known_to(parent: &Agent, run: &RunId) -> Option<Known> {
    parent.with_projection(|p| p.fold::<RunPast>().knows(run))
}

fn known_to_log(host: &AgentHost, parent: &AgentId, run: &RunId) -> Known {
    let mut known = Known::Never;
    let read = host.store.scan(parent, &mut |stored| {
        if let Event::Extension(event) = &stored.event {
            if event::is_end_of(event, run) {
                known = Known::Ended;
            } else if event::is_start_of(event, run) {
                known = Known::Open;
            }
        }
    });
    if let Err(error) = read {
        tracing::debug!(%parent, %error, "a session cannot be read");
    }
    known
}

/// Whether a parent's session says that this run began. One from long ago is looked up in the log.
pub(crate) fn began(parent: &Agent, run: &RunId) -> bool {
    let known = known_to(parent, run);
    known.unwrap_or_else(|| known_to_log(parent.host(), parent.id(), run)) != Known::Never
}

pub(crate) fn lost(why: String) -> Settlement {
    Settlement {
        outcome: Outcome::Lost,
        text: String::new(),
        cut: false,
        error: Some(why),
        usage: TreeUsage::default(),
        stopped: Vec::new(),
        generation: 1,
    }
}

/// Adds what a run cost to the residency of its parent.
pub(crate) fn charge(parent: &Agent, usage: TreeUsage) {
    parent.add_subtree_usage(usage.total(), usage.total_wall());
}

/// Records the settlement in the parent's session and, with a notice, tells it; `has_children` matters of
/// one-shot runs. What is refused was logged.
pub(crate) fn tell_parent(
    parent: &Agent,
    run: &RunRecord,
    settlement: &Settlement,
    has_children: bool,
    notice: Option<Message>,
) -> Result<(), SendError> {
    let fact = run.settled(settlement.outcome, settlement.usage, has_children);
    let told = match notice {
        Some(notice) => parent.notify_with(vec![fact], notice, true).map(drop),
        None => parent.record(fact),
    };
    if let Err(error) = &told {
        tracing::warn!(child = %run.child, %error, "a settlement could not be recorded");
    }
    told
}
