//! What a resumed parent is told of the children that its last process left behind.

use offshoot_agent::{Agent, Event, Projection, Usage};

use crate::event::{RunRecord, open_runs};
use crate::ground::Ground;
use crate::host::Settlement;
use crate::settle::tell_parent;
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
        self.work().retell(agent);
        for run in agent.with_projection(open_runs) {
            let settlement = self.left_behind(&run);
            // The notice of a task tells of the run that it carried.
            tell_parent(agent, &run, &settlement, run.task_id.is_none());
        }
        self.work().recover(agent);
    }

    /// A settlement and its notice are one append. A process that died in the middle of it left the
    /// settlement as the last event: its notice is still owed.
    fn retell(&self, agent: &Agent) {
        let owed = agent.with_projection(|p| p.last_fact().and_then(RunRecord::read_settled));
        let Some((run, outcome, usage)) = owed.filter(|(run, ..)| run.mode == Mode::Continuable)
        else {
            return;
        };
        let settlement = Settlement {
            outcome,
            usage,
            ..self.left_behind(&run)
        };
        if let Err(error) = agent.notify(notice::settled(&settlement, &run), true) {
            tracing::warn!(child = %run.child, %error, "a settlement could not be announced");
        }
    }

    fn left_behind(&self, run: &RunRecord) -> Settlement {
        let projection = match self.host.store.read(&run.child) {
            Ok(events) => Projection::of(&events),
            Err(error) => {
                tracing::warn!(child = %run.child, %error, "a child's session cannot be read");
                Projection::default()
            }
        };
        let facts = projection.facts();
        let cut = facts.end.is_none() || self.was_cut(&projection);
        let outcome = if cut {
            Outcome::Lost
        } else {
            Outcome::of(facts)
        };
        if run.mode == Mode::OneShot {
            self.discard_unread(run);
        }
        Settlement {
            outcome,
            text: facts.text.clone(),
            cut: facts.cut,
            error: facts.error.clone(),
            usage: TreeUsage::new(
                facts.usage,
                self.total(&projection, self.settings.max_depth),
            ),
            stopped: Vec::new(),
            generation: facts.generation + 1,
        }
    }

    /// Whether a session stopped in the middle of something: a turn, an unread message that would have
    /// started one, or something that it had started.
    fn was_cut(&self, projection: &Projection) -> bool {
        projection.open_turn().is_some()
            || projection.inbox().has_waking()
            || !open_runs(projection).is_empty()
            || self.work().was_alive(projection)
    }

    /// What a residency and everything below it used: its own, what its settled children used, and
    /// what was used below those that it had not heard of, at most `levels` deep: damaged sessions may
    /// name each other in a ring.
    fn total(&self, projection: &Projection, levels: u32) -> Usage {
        let mut total = projection.facts().usage;
        let settled = projection
            .present_extensions()
            .filter_map(RunRecord::read_settled);
        for (.., usage) in settled {
            total += usage.total();
        }
        let Some(below) = levels.checked_sub(1) else {
            return total;
        };
        for run in open_runs(projection) {
            if let Ok(events) = self.host.store.read(&run.child) {
                total += self.total(&Projection::of(&events), below);
            }
        }
        total
    }

    /// Nobody can resume a one-shot run: what it had not read will never be read.
    fn discard_unread(&self, run: &RunRecord) {
        let discarded = self.host.amend(&run.child, |projection| {
            let inbox = projection.inbox();
            let unread = inbox.claimed().chain(inbox.entries());
            unread
                .map(|entry| Event::InboxDiscarded {
                    message_id: entry.message.id.clone(),
                    cause: Outcome::Lost.as_str().to_owned(),
                })
                .collect()
        });
        if let Err(error) = discarded {
            tracing::warn!(child = %run.child, %error, "unread messages could not be discarded");
        }
    }
}
