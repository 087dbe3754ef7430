//! How a message is accepted, and how one that waits is taken back.

use std::sync::Arc;

use super::chain::Opened;
use super::{Change, Command, Effects, Machine, Phase, Then};
use crate::{Delivered, Entry, Event, Extension, Message, MessageId, Placement, SendError, Target};

/// A message for the inbox. If it may wake an idle agent, the turn that it opens is appended with it.
#[derive(Debug)]
pub struct Accept {
    facts: Vec<Extension>,
    message: Arc<Message>,
    target: Target,
    wake: bool,
    /// Notices of the runtime are never refused for want of room, nor while the agent is closing.
    notice: bool,
    /// It is no reason for a step or a turn.
    passive: bool,
}

impl Accept {
    fn new(message: Message, target: Target, wake: bool) -> Self {
        Self {
            facts: Vec::new(),
            message: message.into(),
            target,
            wake,
            notice: false,
            passive: false,
        }
    }

    /// For a turn of its own; wakes.
    #[must_use]
    pub fn followup(message: Message) -> Self {
        Self::new(message, Target::NextTurn, true)
    }

    /// For the next step; wakes.
    #[must_use]
    pub fn steer(message: Message) -> Self {
        Self::new(message, Target::NextStep, true)
    }

    /// For the next step; quiet.
    #[must_use]
    pub fn inject(message: Message) -> Self {
        Self::new(message, Target::NextStep, false)
    }

    /// For whatever step there is next; quiet, and no reason for one.
    #[must_use]
    pub fn inject_passively(message: Message) -> Self {
        Self {
            passive: true,
            ..Self::inject(message)
        }
    }

    /// A notice of the runtime for the next step, after events of a crate above.
    #[must_use]
    pub fn notice(facts: Vec<Extension>, message: Message, wake: bool) -> Self {
        Self {
            facts,
            notice: true,
            ..Self::new(message, Target::NextStep, wake)
        }
    }

    /// Whether it may wake an idle agent.
    pub(crate) fn wakes(&self) -> bool {
        self.wake
    }

    /// The same, waking nobody: what a notice of the runtime may become, and no other message.
    pub(crate) fn quietly(self) -> Option<Self> {
        self.notice.then_some(Self {
            wake: false,
            ..self
        })
    }

    fn refusal(&self, machine: &Machine) -> Option<SendError> {
        if machine.closed {
            return Some(SendError::Closed);
        }
        if machine.closing.is_some() && !self.notice {
            return Some(SendError::Closing);
        }
        if machine.projection.knows_message(&self.message.id) {
            return Some(SendError::Duplicate(self.message.id.clone()));
        }
        let waiting = machine.projection.inbox().len();
        let full = waiting >= machine.limits.inbox_capacity && !self.notice;
        (full && !self.finds_room(machine)).then_some(SendError::Full(waiting))
    }

    /// Whether the message opens a turn, which takes at least one message out of the inbox, this one or
    /// one before it: what waits cannot keep an agent asleep. Before the agent starts that holds for the
    /// first one that asks, since its start is one turn.
    fn finds_room(&self, machine: &Machine) -> bool {
        self.wake
            && match &machine.phase {
                Phase::Idle => true,
                Phase::Preparing(preparing) => !machine.any_waits(&preparing.asked),
                Phase::Running(_) => false,
            }
    }
}

impl Command for Accept {
    type Reply = Result<Delivered, SendError>;

    fn apply(self, machine: &mut Machine) -> (Self::Reply, Effects) {
        if let Some(refusal) = self.refusal(machine) {
            return (Err(refusal), Effects::none());
        }
        let Self {
            facts,
            message,
            target,
            wake,
            notice,
            passive,
        } = self;
        let generation = message.source.generation;
        let too_long = generation > machine.limits.max_wake_chain;
        let stopped = machine.projection.stopped_by_user();
        let quiet = notice && (machine.closing.is_some() || too_long || stopped);
        let wake = wake && !quiet;
        let placement = match passive {
            true => Placement::Parked,
            false => machine.placement(target, wake),
        };
        let message_id = message.id.clone();
        // Room for the turn that the message may open: its start and one claim.
        let mut events = Vec::with_capacity(facts.len() + 3);
        events.extend(facts.into_iter().map(Event::from));
        events.extend(machine.untold_stop(&message));
        events.push(Event::InboxInserted {
            target,
            wake,
            message,
            before: None,
            passive,
        });
        let inbox = machine.projection.inbox();
        let ahead = match placement {
            Placement::TurnStarted => 0,
            // The turn takes what waits for the next step, and the first followup.
            Placement::Queued => inbox.followups() - 1,
            _ => inbox.ahead(target, None),
        };
        let effects = if matches!(placement, Placement::TurnStarted | Placement::Queued) {
            let arriving = Claim {
                id: message_id.clone(),
                target,
                generation,
                wake,
            };
            machine.open_turn(events, Some(arriving))
        } else {
            let mut effects = Effects::append(events);
            // Between a cancel and the end of its turn a wake is for a turn of its own. Before the start a
            // notice is what the agent is told, and asks for nothing.
            let early = !notice && matches!(machine.phase, Phase::Preparing(_));
            if wake && (machine.is_cut() || early) {
                effects.then = Then(Change::Latch(message_id.clone()));
            }
            effects
        };
        let delivered = Delivered {
            message_id,
            placement,
            ahead,
        };
        (Ok(delivered), effects)
    }
}

/// A message that a turn claims at its beginning; it may be accepted with the turn that it opens.
pub(super) struct Claim {
    id: MessageId,
    target: Target,
    generation: u64,
    wake: bool,
}

impl Claim {
    fn of(entry: &Entry) -> Self {
        Self {
            id: entry.message.id.clone(),
            target: entry.target,
            generation: entry.message.source.generation,
            wake: entry.wake,
        }
    }
}

impl Machine {
    /// Where a message for `target` goes now.
    pub(super) fn placement(&self, target: Target, wake: bool) -> Placement {
        let waits = self.projection.inbox();
        match &self.phase {
            Phase::Running(running) if running.cut.is_some() && wake => Placement::NextTurn,
            Phase::Running(running) if running.cut.is_some() => Placement::Parked,
            Phase::Running(_) if target == Target::NextStep => Placement::NextStep,
            Phase::Running(_) => Placement::NextTurn,
            Phase::Idle if wake && target == Target::NextTurn && waits.has_next_turn() => {
                Placement::Queued
            }
            Phase::Idle if wake => Placement::TurnStarted,
            Phase::Idle | Phase::Preparing(_) => Placement::Parked,
        }
    }

    /// Appends `first`, whose last event may insert `arriving`, and with it opens a turn on an idle
    /// agent.
    pub(super) fn open_turn(&self, first: Vec<Event>, arriving: Option<Claim>) -> Effects {
        Effects {
            status_after: Some(first.len()),
            events: self.opening(first, arriving),
            drive: true,
            then: Then(Change::Open),
            cut: false,
        }
    }

    /// `events`, and those that open a turn and claim its first batch: all of the next step's list,
    /// then one message of the next turn's. `arriving` is the last of its list, and wakes.
    pub(super) fn opening(&self, mut events: Vec<Event>, arriving: Option<Claim>) -> Vec<Event> {
        let turn = self.projection.turn() + 1;
        let batch = self.projection.inbox().batch(Target::NextTurn);
        let start = events.len();
        events.reserve_exact(batch.len() + 2);
        events.push(Event::TurnStart {
            turn,
            generation: 0,
        });
        let followups = batch.partition_point(|entry| entry.target == Target::NextStep);
        let (steers, followup) = batch.split_at(followups);
        let (steer, new_followup) = match arriving {
            Some(new) if new.target == Target::NextStep => (Some(new), None),
            new => (None, new),
        };
        let followup = followup.first().copied().map(Claim::of).or(new_followup);
        let steers = steers.iter().copied().map(Claim::of).chain(steer);
        let mut opened = Opened::default();
        for claim in steers.chain(followup) {
            opened.by(claim.generation, claim.wake);
            events.push(Event::InboxClaimed {
                message_id: claim.id,
                turn,
                step: 1,
            });
        }
        if let Some(Event::TurnStart { generation, .. }) = events.get_mut(start) {
            *generation = opened.generation();
        }
        events
    }
}
