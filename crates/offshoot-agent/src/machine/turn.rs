//! How turns and steps begin and end, and when an agent rests.

use super::{Change, Command, Effects, Machine, Phase, Then};
use crate::projection::is_work;
use crate::{Entry, Event, Resumed, SendError, StepOutcome, Target, TurnEndReason};

/// How a turn ended, if nobody cancelled it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnEnded {
    /// How.
    pub reason: TurnEndReason,
    /// What failed.
    pub error: Option<String>,
}

impl TurnEnded {
    /// It ended so.
    #[must_use]
    pub fn new(reason: TurnEndReason) -> Self {
        Self {
            reason,
            error: None,
        }
    }

    /// It failed.
    #[must_use]
    pub fn error(message: impl Into<String>) -> Self {
        Self {
            reason: TurnEndReason::Error,
            error: Some(message.into()),
        }
    }
}

/// Lets the agent run: if a message that may wake waits, its turn begins at once.
#[derive(Debug)]
pub struct Start;

impl Command for Start {
    type Reply = ();

    fn apply(self, machine: &mut Machine) -> ((), Effects) {
        let Phase::Preparing(preparing) = &machine.phase else {
            return ((), Effects::none());
        };
        let asked = machine.any_waits(&preparing.asked);
        machine.phase = Phase::Idle;
        let resumed = machine.projection.activations() > 1;
        let may = asked || machine.limits.auto_wake || !resumed;
        // A stop by a user outlives the process: a notice from before it begins nothing by itself.
        let stopped = machine.projection.stopped_by_user();
        let begins = |entry: &Entry| entry.wake && (!stopped || is_work(&entry.message));
        let begins = machine.projection.inbox().entries().any(begins);
        if machine.closing.is_some() || !may || !begins {
            return ((), Effects::none());
        }
        // When the log refuses, what waits stays parked.
        ((), machine.open_turn(Vec::new(), None))
    }
}

/// Goes on with what waits: an idle agent opens a turn for it, as with a message that wakes.
#[derive(Debug)]
pub struct ResumeParked;

impl Command for ResumeParked {
    type Reply = Result<Resumed, SendError>;

    fn apply(self, machine: &mut Machine) -> (Self::Reply, Effects) {
        if let Some(refusal) = machine.edit_refusal() {
            return (Err(refusal), Effects::none());
        }
        let inbox = machine.projection.inbox();
        if inbox.is_empty() {
            return (Ok(Resumed::Nothing), Effects::none());
        }
        // For all of it: what is taken back meanwhile is no reason to leave the rest.
        let later = |of: fn(&Entry) -> bool| {
            let asking = inbox.entries().filter(|entry| of(entry));
            let asking = asking.map(|entry| entry.message.id.clone()).collect();
            let effects = Effects {
                then: Then(Change::LatchAll(asking)),
                ..Effects::none()
            };
            (Ok(Resumed::Later), effects)
        };
        match &machine.phase {
            Phase::Idle => (
                Ok(Resumed::TurnStarted),
                machine.open_turn(Vec::new(), None),
            ),
            Phase::Running(running) if running.cut.is_some() => later(|_| true),
            Phase::Running(_) => (Ok(Resumed::Running), Effects::none()),
            Phase::Preparing(_) if inbox.has_waking() => later(|entry| entry.wake),
            Phase::Preparing(_) => (Ok(Resumed::Nothing), Effects::none()),
        }
    }
}

/// A step of the turn that runs begins: the one before ends, what waits for this one is claimed. All
/// of it is one append. The reply is `None` when the turn was cancelled.
#[derive(Debug)]
pub struct BeginStep;

/// The step that began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Its turn.
    pub turn: u64,
    /// Its number in the turn, from 1.
    pub step: u64,
    /// The generation of the turn from this step on.
    pub generation: u64,
}

impl Command for BeginStep {
    type Reply = Option<Begun>;

    fn apply(self, machine: &mut Machine) -> (Self::Reply, Effects) {
        if !machine.is_running() || machine.is_cut() {
            return (None, Effects::none());
        }
        let Some(open) = machine.projection.open_turn() else {
            return (None, Effects::none());
        };
        let (turn, step) = (open.turn, open.step + 1);
        let mut events = machine.projection.close_step(not_answered);
        let inbox = machine.projection.inbox();
        let batch = if step > 1 {
            inbox.batch(Target::NextStep)
        } else {
            Vec::new()
        };
        // As the fold of the claims has it.
        let waking = batch.iter().filter(|entry| entry.wake);
        let generations = waking.map(|entry| entry.message.source.generation);
        let generation = generations.fold(open.generation, u64::min);
        events.reserve_exact(1 + inbox.claimed().count() + 2 * batch.len());
        events.extend(batch.iter().map(|entry| Event::InboxClaimed {
            message_id: entry.message.id.clone(),
            turn,
            step,
        }));
        events.push(Event::StepStart { turn, step });
        let entering = inbox.claimed().chain(batch.iter().copied());
        events.extend(entering.map(|entry| Event::MessageUser {
            turn,
            step,
            message: entry.message.clone(),
        }));
        let begun = Begun {
            turn,
            step,
            generation,
        };
        (Some(begun), Effects::append(events))
    }
}

fn not_answered(_: bool) -> (&'static str, &'static str) {
    (
        "NOT_ANSWERED",
        "the step ended before this call was answered",
    )
}

/// What a step came to.
#[derive(Debug)]
pub enum StepEnded {
    /// It returned.
    Came(StepOutcome),
    /// It failed.
    Failed(String),
    /// It was dropped: it did not return in time after a cancel.
    Dropped,
}

/// What comes after a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// Another step of the turn.
    Step,
    /// The end of the turn.
    End(TurnEnded),
}

impl Command for StepEnded {
    type Reply = After;

    fn apply(self, machine: &mut Machine) -> (After, Effects) {
        (machine.after(self), Effects::none())
    }
}

impl Machine {
    fn after(&mut self, ended: StepEnded) -> After {
        let end = |reason| After::End(TurnEnded::new(reason));
        let outcome = match ended {
            StepEnded::Came(outcome) => outcome,
            StepEnded::Failed(message) => return After::End(TurnEnded::error(message)),
            StepEnded::Dropped => return end(TurnEndReason::Aborted),
        };
        let out_of_tokens = self.running().is_some_and(|running| {
            running.out_of_tokens |= outcome == StepOutcome::MaxTokens;
            running.out_of_tokens
        });
        let owed = match outcome {
            StepOutcome::Refusal => return end(TurnEndReason::Refusal),
            StepOutcome::Continue => true,
            StepOutcome::Completed | StepOutcome::MaxTokens | StepOutcome::Final => false,
        };
        let step = self.projection.open_turn().map_or(0, |open| open.step);
        let used_up = step >= self.limits.max_steps_per_turn;
        // A turn that has done its work is kept open for what arrives meanwhile, but not beyond its
        // budget, nor for ever while a followup waits: the next turn reads both.
        if !owed && (used_up || !self.is_steered()) {
            return end(if out_of_tokens {
                TurnEndReason::MaxTokens
            } else {
                TurnEndReason::Completed
            });
        }
        if used_up {
            return end(TurnEndReason::StepLimit);
        }
        After::Step
    }

    /// Whether a turn that owes nothing has another step for what waits.
    fn is_steered(&mut self) -> bool {
        let inbox = self.projection.inbox();
        let (next_step, followups) = (inbox.has_next_step(), inbox.has_next_turn());
        let most = self.limits.max_steered_steps;
        if !next_step || !followups {
            return next_step;
        }
        self.running().is_some_and(|running| {
            running.steered += 1;
            running.steered <= most
        })
    }
}

/// Ends the turn on the record. A cancel comes before what the turn says of itself.
#[derive(Debug)]
pub struct EndTurn(pub TurnEnded);

impl Command for EndTurn {
    type Reply = ();

    fn apply(self, machine: &mut Machine) -> ((), Effects) {
        let Some(open) = machine.projection.open_turn() else {
            return ((), Effects::none());
        };
        let turn = open.turn;
        let (cut, discard) = match &machine.phase {
            Phase::Running(running) => (running.cut, running.discard),
            Phase::Idle | Phase::Preparing(_) => (None, None),
        };
        let mut events = machine.projection.close_step(|dispatched| match cut {
            Some(_) if dispatched => ("ABORTED", "the call was aborted"),
            Some(_) => (
                "ABORTED_BEFORE_DISPATCH",
                "the call was aborted before it started",
            ),
            None => not_answered(dispatched),
        });
        if let Some(cause) = discard {
            let claimed = machine.projection.inbox().claimed();
            events.extend(claimed.map(|entry| Event::InboxDiscarded {
                message_id: entry.message.id.clone(),
                cause: cause.as_str().to_owned(),
            }));
        }
        events.push(match cut {
            Some(cause) => Event::TurnEnd {
                turn,
                reason: TurnEndReason::Aborted,
                cause: Some(cause.as_str().to_owned()),
                error: None,
            },
            None => Event::TurnEnd {
                turn,
                reason: self.0.reason,
                cause: None,
                error: self.0.error,
            },
        });
        ((), Effects::append(events))
    }
}

/// After a turn that ended so: opens the next one when something runnable waits, else rests. The
/// reply says whether one is opened; when the log refuses it, the host applies [`Rest`].
#[derive(Debug)]
pub struct NextTurn(pub TurnEndReason);

impl Command for NextTurn {
    type Reply = bool;

    fn apply(self, machine: &mut Machine) -> (bool, Effects) {
        let inbox = machine.projection.inbox();
        let waits = match &machine.phase {
            Phase::Running(running) if running.cut.is_some() => machine.any_waits(&running.latched),
            Phase::Running(_) if self.0.is_ordinary() => {
                // What wakes nothing is read as well when the work before it was done, unless it is passive.
                // A chain that is too long does not go on so: it would else have no end.
                let longest = machine.limits.max_wake_chain;
                let opens =
                    |e: &Entry| e.wake || !e.passive && e.message.source.generation <= longest;
                inbox.entries().any(opens)
            }
            // The limit is no failure: who asked for a turn has it.
            Phase::Running(_) => self.0 == TurnEndReason::StepLimit && inbox.has_waking(),
            Phase::Idle | Phase::Preparing(_) => false,
        };
        // A turn whose end could not be written is followed by none: what waits stays parked.
        if waits && machine.closing.is_none() && machine.projection.open_turn().is_none() {
            let mut effects = Effects::append(machine.opening(Vec::new(), None));
            effects.then = Then(Change::Open);
            return (true, effects);
        }
        let ((), effects) = Rest.apply(machine);
        (false, effects)
    }
}

/// Nobody drives turns any more.
#[derive(Debug)]
pub struct Rest;

impl Command for Rest {
    type Reply = ();

    fn apply(self, machine: &mut Machine) -> ((), Effects) {
        machine.phase = Phase::Idle;
        let mut effects = Effects::none();
        if machine.closing.is_none() {
            effects.status_after = Some(0);
        }
        ((), effects)
    }
}

/// Ends a turn whose end could not be written before. What it had claimed waits again.
#[derive(Debug)]
pub struct Repair;

impl Command for Repair {
    type Reply = ();

    fn apply(self, machine: &mut Machine) -> ((), Effects) {
        ((), Effects::append(machine.projection.repairs()))
    }
}
