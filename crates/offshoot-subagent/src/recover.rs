//! What a resumed parent is told of the children that its last process left behind.

use std::collections::HashSet;

use offshoot_agent::{Agent, Event, MessageId, Projection, RunId};

use crate::event::{self, RunRecord, open_runs};
use crate::ground::Ground;
use crate::host::Settlement;
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

impl Ground {
    pub(crate) fn recover(&self, agent: &Agent) {
        self.retell(agent);
        self.tell_of_cut_calls(agent);
        self.work().retell(agent);
        for run in agent.with_projection(open_runs) {
            let (settlement, known) = self.left_behind(&run);
            // Of a child that was lost, its own lost children are in its settlement already.
            if agent.parent_id().is_none() {
                charge(agent, settlement.usage);
            }
            // The notice of a task tells of the run that it carried.
            let announce = run.task_id.is_none();
            let notice = announce.then(|| notice::left_behind(&settlement, &run, known));
            // What is refused now is found again by the next recovery.
            let _ = tell_parent(agent, &run, &settlement, notice);
        }
        self.work().recover(agent);
    }

    /// A settlement and its notice are one append. A process that died in the middle of it left the
    /// settlement as the last event: its notice is still owed.
    fn retell(&self, agent: &Agent) {
        let owed = agent.with_projection(|p| {
            let end = p.last_fact().and_then(RunRecord::read_settled);
            // Of a run whose beginning the log refused nobody was told that it began.
            end.filter(|(run, ..)| event::started(p, &run.run_id))
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
    fn tell_again(&self, agent: &Agent, (run, outcome, usage): (RunRecord, Outcome, TreeUsage)) {
        let (left, known) = self.left_behind(&run);
        let settlement = Settlement {
            outcome,
            usage,
            ..left
        };
        let notice = notice::left_behind(&settlement, &run, known);
        if let Err(error) = agent.notify(notice, true) {
            tracing::warn!(child = %run.child, %error, "a settlement could not be announced");
        }
    }

    /// What a run came to, by its session; and whether there is one.
    fn left_behind(&self, run: &RunRecord) -> (Settlement, bool) {
        let remains = Remains::of(self.host.store.as_ref(), &run.child);
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
        (settlement, remains.known)
    }

    /// Whether a session stopped in the middle of something: a turn, an unread message that would have
    /// started one, or something that it had started.
    fn was_cut(&self, projection: &Projection) -> bool {
        projection.open_turn().is_some()
            || projection.inbox().has_waking()
            || !open_runs(projection).is_empty()
            || self.work().was_alive(projection)
    }

    /// What a residency and everything below it cost: its own, what its settled children used, and
    /// what was used below those that it had not heard of, at most `levels` deep: damaged sessions may
    /// name each other in a ring.
    fn cost(&self, projection: &Projection, levels: u32) -> TreeUsage {
        let mut cost = TreeUsage::alone(projection.facts().usage, projection.present_wall());
        // What the residency before it had started is told to this one, and was counted then.
        let started: HashSet<RunId> = projection
            .present_extensions()
            .filter_map(RunRecord::read_started)
            .map(|run| run.run_id)
            .collect();
        let settled = projection
            .present_extensions()
            .filter_map(RunRecord::read_settled)
            .filter(|(run, ..)| started.contains(&run.run_id));
        for (.., usage) in settled {
            cost.add_below(usage);
        }
        let Some(below) = levels.checked_sub(1) else {
            return cost;
        };
        let open = open_runs(projection).into_iter();
        for run in open.filter(|run| started.contains(&run.run_id)) {
            if let Ok(below_it) = self.host.store.project(&run.child) {
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
                let session = self.host.store.project(&run.child);
                let cost = session.map_or_else(
                    |_| TreeUsage::default(),
                    |session| self.cost(&session, below.unwrap_or_default()),
                );
                Event::from(run.settled(Outcome::Lost, cost))
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
