//! What a resumed parent is told of the children that its last process left behind.

use offshoot_agent::{Agent, Event, MessageId, Projection};

use crate::event::RunRecord;
use crate::ground::Ground;
use crate::host::Settlement;
use crate::past::{End, RunPast, open_runs};
use crate::remains::{Remains, cut_calls};
use crate::settle::{charge, tell_parent};
use crate::{Mode, Outcome, Subagents, TreeUsage, notice};

impl Subagents {
    /// Tells a resumed agent, before it runs, of everything that it had started and that was not
    /// settled in its session: children that settled unannounced with their outcome, the others as
    /// lost; then what [`LiveWork`](crate::LiveWork) knows. Told once: it is in the session then.
    pub fn recover(&self, agent: &Agent) {
        self.0.ground.recover(agent);
    }
}

/// What a process that ended left of a run.
struct LeftBehind {
    settlement: Settlement,
    /// Whether it has a session.
    known: bool,
    /// Whether somebody can be found below it.
    has_children: bool,
}

impl Ground {
    pub(crate) fn recover(&self, agent: &Agent) {
        self.retell(agent);
        self.tell_of_cut_calls(agent);
        self.work().retell(agent);
        for run in agent.with_projection(open_runs) {
            let left = self.left_behind(&run);
            let settlement = &left.settlement;
            // Of a child that was lost, its own lost children are in its settlement already.
            if agent.parent_id().is_none() {
                charge(agent, settlement.usage);
            }
            // The notice of a task tells of the run that it carried.
            let announce = run.task_id.is_none();
            let notice = announce.then(|| notice::left_behind(settlement, &run, left.known));
            // What is refused now is found again by the next recovery.
            let _ = tell_parent(agent, &run, settlement, left.has_children, notice);
        }
        self.work().recover(agent);
    }

    /// A settlement and its notice are one append. A process that died in the middle of it left the
    /// settlement as the last event: its notice is still owed.
    fn retell(&self, agent: &Agent) {
        let owed = agent.with_projection(|p| {
            let (fact, ..) = p.last_fact().and_then(RunRecord::read_settled)?;
            let past = p.fold::<RunPast>();
            let end = past.last_end();
            end.filter(|(run, ..)| run.run_id == fact.run_id).cloned()
        });
        if let Some(end) = owed.filter(|(run, ..)| run.mode == Mode::Continuable) {
            self.tell_again(agent, end);
        }
    }

    fn tell_of_cut_calls(&self, agent: &Agent) {
        for end in agent.with_projection(cut_calls) {
            let told: Option<MessageId> = end.0.run_id.as_str().parse().ok();
            let known = |id: &MessageId| agent.with_projection(|p| p.knows_message(id));
            if told.as_ref().is_none_or(known) {
                continue;
            }
            self.tell_again(agent, end);
        }
    }

    /// Tells of a settlement that is on the record.
    fn tell_again(&self, agent: &Agent, (run, outcome, usage): End) {
        let left = self.left_behind(&run);
        let settlement = Settlement {
            outcome,
            usage,
            ..left.settlement
        };
        let notice = notice::left_behind(&settlement, &run, left.known);
        if let Err(error) = agent.notify(notice, true) {
            tracing::warn!(child = %run.child, %error, "a settlement could not be announced");
        }
    }

    /// What a run came to, by its session.
    fn left_behind(&self, run: &RunRecord) -> LeftBehind {
        let remains = Remains::of(&self.host, &run.child);
        let projection = &remains.session;
        let facts = projection.facts();
        let cut = facts.end.is_none() || self.was_cut(projection);
        let outcome = if cut {
            Outcome::Lost
        } else {
            Outcome::of(facts)
        };
        if run.mode == Mode::OneShot {
            self.end_on_record(run, self.settings.max_depth);
        }
        let settlement = Settlement {
            outcome,
            text: remains.text(outcome),
            cut: facts.cut,
            error: facts.error.clone(),
            usage: self.cost(projection, self.settings.max_depth),
            stopped: Vec::new(),
            generation: facts.generation.saturating_add(1),
        };
        LeftBehind {
            settlement,
            known: remains.known,
            has_children: projection.fold::<RunPast>().has_children(),
        }
    }

    /// Whether a session stopped in the middle of something: a turn, an unread message that would have
    /// started one, or something that it had started.
    fn was_cut(&self, projection: &Projection) -> bool {
        projection.open_turn().is_some()
            || projection.inbox().has_waking()
            || projection.fold::<RunPast>().has_open_runs()
            || self.work().was_alive(projection)
    }

    /// What a residency and everything below it cost: its own, what its settled children used, and
    /// what was used below those that it had not heard of, at most `levels` deep: damaged sessions may
    /// name each other in a ring.
    fn cost(&self, projection: &Projection, levels: u32) -> TreeUsage {
        let mut cost = TreeUsage::alone(projection.facts().usage, projection.present_wall());
        // What the residency before it had started is told to this one, and was counted then.
        let past = projection.fold::<RunPast>();
        cost.add_below(past.present_cost());
        let Some(below) = levels.checked_sub(1) else {
            return cost;
        };
        for run in past.present_open_runs() {
            if let Ok(below_it) = self.host.project(&run.child) {
                cost.add_below(self.cost(&below_it, below));
            }
        }
        cost
    }

    /// Nobody can resume a one-shot run: what it had not read will never be read, and what it had begun
    /// has ended with its process. Its session says so, and so do those below it, at most `levels` deep.
    fn end_on_record(&self, run: &RunRecord, levels: u32) {
        let ended = self.host.amend(&run.child, |projection| {
            let inbox = projection.inbox();
            let unread = inbox.claimed().chain(inbox.entries());
            let unread = unread.map(|entry| Event::InboxDiscarded {
                message_id: entry.message.id.clone(),
                cause: Outcome::Lost.as_str().to_owned(),
            });
            let runs = open_runs(projection).into_iter().map(|run| {
                let below = levels.checked_sub(1);
                if let Some(below) = below {
                    self.end_on_record(&run, below);
                }
                let session = self.host.project(&run.child).unwrap_or_default();
                let cost = self.cost(&session, below.unwrap_or_default());
                let has_children = session.fold::<RunPast>().has_children();
                Event::from(run.settled(Outcome::Lost, cost, has_children))
            });
            let work = self.work().lost(projection).into_iter();
            let work = work.map(Event::from);
            unread.chain(runs).chain(work).collect()
        });
        if let Err(error) = ended {
            tracing::warn!(child = %run.child, %error, "the end of a lost run is not in its session");
        }
    }
}
