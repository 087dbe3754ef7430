//! The state machine of an agent: what is accepted, what runs, what ends. Pure: no clock, no lock, no
//! runtime, no log.
//!
//! A host applies one command at a time and carries out the effects: it appends the events, all or
//! none, then calls [`Machine::commit`] with what was appended. When the append fails it drops the
//! effects instead, and the machine is as if the command had been refused; what a command does in
//! spite of the log (a stop, the beginning of the end) is done when [`Machine::apply`] returns.
//!
//! ```
//! use std::sync::Arc;
//! use offshoot_agent::machine::{Accept, Machine, Start};
//! use offshoot_agent::{AgentSettings, Message, Placement, Projection, StoredEvent};
//!
//! let mut machine = Machine::new(Projection::default(), Arc::new(AgentSettings::default()));
//! let (_, effects) = machine.apply(Start);
//! assert!(effects.events.is_empty() && !effects.drive);
//!
//! let (delivered, effects) = machine.apply(Accept::followup(Message::user("hello")));
//! assert_eq!(delivered?.placement, Placement::TurnStarted);
//! assert_eq!(effects.events.len(), 3, "the message, its turn, its claim");
//! assert!(effects.drive, "somebody must now run the turn");
//!
//! // A host would write them to a log here.
//! let stored: Vec<_> = (0..)
//!     .zip(effects.events.iter().cloned())
//!     .map(|(seq, event)| StoredEvent { seq, time: Default::default(), event })
//!     .collect();
//! machine.commit(effects.then, &stored);
//! assert_eq!(machine.projection().turn(), 1);
//! # Ok::<(), offshoot_agent::SendError>(())
//! ```

mod accept;
mod chain;
mod close;
mod edit;
mod record;
mod turn;

use std::sync::Arc;

use crate::{
    AgentSettings, CancelCause, Event, MessageId, Pending, Projection, Status, StoredEvent,
};

pub use accept::Accept;
pub use close::{Cancel, Close, CloseIfSettled, Closed, Settle};
pub use edit::{Reorder, Replace, Withdraw};
pub use record::Record;
pub use turn::{
    After, BeginStep, Begun, EndTurn, NextTurn, Repair, Rest, ResumeParked, Start, StepEnded,
    TurnEnded,
};

/// Something that happens to an agent.
pub trait Command {
    /// What its sender is told. It holds once the effects are carried out.
    type Reply;

    /// Decides. See [`Machine::apply`].
    fn apply(self, machine: &mut Machine) -> (Self::Reply, Effects);
}

/// What a host does for a command, in this order.
#[must_use = "effects are carried out by the host"]
#[derive(Debug, Default)]
pub struct Effects {
    /// The step that runs is told to stop. Done whatever becomes of the append.
    pub cut: bool,
    /// Events to append, all or none.
    pub events: Vec<Event>,
    /// Once appended: the status changed, and this many of the events come before the news of it.
    pub status_after: Option<usize>,
    /// Once appended: nobody runs turns yet, so a driver of turns is started.
    pub drive: bool,
    /// What [`Machine::commit`] is called with, appended or nothing to append.
    pub then: Then,
}

impl Effects {
    fn none() -> Self {
        Self::default()
    }

    fn append(events: Vec<Event>) -> Self {
        Self {
            events,
            ..Self::default()
        }
    }
}

/// What becomes true of a machine when the events of a command were appended.
#[derive(Debug, Default)]
pub struct Then(Change);

impl Then {
    /// Whether a turn opens: it gets a signal of its own to be told to stop with.
    #[must_use]
    pub fn opens_turn(&self) -> bool {
        matches!(self.0, Change::Open)
    }
}

#[derive(Debug, Default)]
enum Change {
    #[default]
    Nothing,
    /// A turn is open.
    Open,
    /// This asks for a turn that cannot begin yet: before the start, or between a cancel and the end of its
    /// turn.
    Latch(MessageId),
    /// Somebody asks for it who has these all in mind, whoever asked before among them.
    LatchAll(Vec<MessageId>),
    /// Another message took the place of one that may be latched.
    Relatch { from: MessageId, to: MessageId },
}

/// The turn that runs.
#[derive(Debug, Default)]
struct Running {
    /// What it was cancelled with.
    cut: Option<CancelCause>,
    /// Claimed messages that have not entered their step when the turn is cut are discarded with
    /// this cause; without one they are put back. The first cause wins.
    discard: Option<CancelCause>,
    /// Waking messages that were accepted after the cancel: they start a turn of their own.
    latched: Vec<MessageId>,
    /// A reply ran out of tokens: that marks the whole turn, whatever later steps do.
    out_of_tokens: bool,
    /// Steps that only messages for the next step kept the turn open for, while a followup waited.
    steered: u64,
}

/// Before the start.
#[derive(Debug, Default)]
struct Preparing {
    /// Waking messages of users and agents that were accepted here: as long as one of them waits, somebody
    /// has asked for a turn.
    asked: Vec<MessageId>,
}

#[derive(Debug)]
enum Phase {
    /// Made, but not started: messages are accepted and nothing runs.
    Preparing(Preparing),
    Idle,
    Running(Running),
}

// Invariants
// 1. `projection` changes by `commit` alone (a user's stop excepted, which no log may delay).
// 2. `phase` is Running exactly while somebody drives turns: it becomes so with the commit that opens
//    a turn, and is left by the command that finds nothing runnable. A message is therefore either
//    claimed by the turns that run or starts new ones; no wake falls into a gap.
// 3. `closing` never goes back. Once it is set no turn starts.
/// The state of one residency of an agent.
#[derive(Debug)]
pub struct Machine {
    projection: Projection,
    limits: Arc<AgentSettings>,
    phase: Phase,
    closing: Option<Pending>,
    cut_short: bool,
    closed: bool,
}

impl Machine {
    /// An agent of which the log says `projection`. It accepts messages; nothing runs before
    /// [`Start`].
    #[must_use]
    pub fn new(projection: Projection, limits: Arc<AgentSettings>) -> Self {
        Self {
            projection,
            limits,
            phase: Phase::Preparing(Preparing::default()),
            closing: None,
            cut_short: false,
            closed: false,
        }
    }

    /// Decides what a command does. The reply holds once the effects are carried out, and no other
    /// command is applied before.
    pub fn apply<C: Command>(&mut self, command: C) -> (C::Reply, Effects) {
        command.apply(self)
    }

    /// Folds one event that was appended for a command, before [`commit`](Self::commit) is called with
    /// those that were not folded so.
    pub fn fold(&mut self, stored: &StoredEvent) {
        self.projection.apply(stored);
    }

    /// Folds what was appended for a command, and makes true what follows from it.
    pub fn commit(&mut self, then: Then, stored: &[StoredEvent]) {
        for event in stored {
            self.fold(event);
        }
        match then.0 {
            Change::Nothing => {}
            Change::Open => self.phase = Phase::Running(Running::default()),
            Change::Latch(id) => {
                if let Some(asking) = self.asking() {
                    asking.push(id);
                }
            }
            Change::LatchAll(ids) => {
                if let Some(asking) = self.asking() {
                    *asking = ids;
                }
            }
            Change::Relatch { from, to } => {
                let asking = self.asking().into_iter().flatten();
                for id in asking.filter(|id| **id == from) {
                    id.clone_from(&to);
                }
            }
        }
    }

    /// What the log says.
    #[must_use]
    pub fn projection(&self) -> &Projection {
        &self.projection
    }

    /// What the agent is doing.
    #[must_use]
    pub fn status(&self) -> Status {
        match (&self.phase, self.closed, self.closing.is_some()) {
            (_, true, _) => Status::Closed,
            (_, _, true) => Status::Closing,
            (Phase::Running(_), ..) => Status::Running,
            (Phase::Idle | Phase::Preparing(_), ..) => Status::Idle,
        }
    }

    /// Whether a turn runs, also while closing.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running(_))
    }

    /// Whether a turn that does not run has no end in the log, because the log refused it. A host
    /// applies [`Repair`] before a command that may open a turn.
    #[must_use]
    pub fn needs_repair(&self) -> bool {
        let rests = self.closing.is_none() && !self.is_running();
        rests && self.projection.open_turn().is_some()
    }

    /// Whether the turn that runs was told to stop.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        matches!(&self.phase, Phase::Running(running) if running.cut.is_some())
    }

    /// Whether the agent is ending, and what becomes of what waits.
    #[must_use]
    pub fn closing(&self) -> Option<Pending> {
        self.closing
    }

    /// Whether closing began while there was something left to do.
    #[must_use]
    pub fn was_cut_short(&self) -> bool {
        self.cut_short
    }

    /// Whether the agent has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    fn running(&mut self) -> Option<&mut Running> {
        match &mut self.phase {
            Phase::Running(running) => Some(running),
            Phase::Idle | Phase::Preparing(_) => None,
        }
    }

    /// The messages that ask for the turn after this one, or for the first one: those of them that wait.
    fn asking(&mut self) -> Option<&mut Vec<MessageId>> {
        match &mut self.phase {
            Phase::Running(running) => Some(&mut running.latched),
            Phase::Preparing(preparing) => Some(&mut preparing.asked),
            Phase::Idle => None,
        }
    }

    /// Whether one of these messages waits.
    fn any_waits(&self, ids: &[MessageId]) -> bool {
        let inbox = self.projection.inbox();
        ids.iter().any(|id| inbox.contains(id))
    }
}
