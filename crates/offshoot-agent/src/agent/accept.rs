//! How a message is accepted: appended to the log, and, if it may wake an idle agent, the turn that
//! it opens is appended with it.

use super::state::{Arriving, Phase, State};
use super::{Agent, CancelCause, Pending};
use crate::{AppendError, CallId, Event, Message, MessageId, Target};

/// A message was refused: nothing was appended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The agent is ending.
    #[error("the agent is closing")]
    Closing,
    /// The agent has ended, or the step that wanted to record something has.
    #[error("the agent is closed")]
    Closed,
    /// A message of this id was accepted before.
    #[error("message {0} was accepted before")]
    Duplicate(MessageId),
    /// Too much waits already.
    #[error("the inbox is full: {0} messages wait")]
    Full(usize),
    /// No open call of the step is answered or begun by it.
    #[error("the step has no open call {0}")]
    Unpaired(CallId),
    /// The log could not be written.
    #[error("the session log could not be written: {0}")]
    Log(#[from] AppendError),
}

impl SendError {
    /// A stable name of the kind of error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Closing => "AGENT_CLOSING",
            Self::Closed => "AGENT_CLOSED",
            Self::Duplicate(_) => "DUPLICATE_MESSAGE",
            Self::Full(_) => "INBOX_FULL",
            Self::Unpaired(_) => "UNPAIRED_CALL",
            Self::Log(AppendError::Unstorable(_)) => "UNSTORABLE",
            Self::Log(_) => "LOG_FAILED",
        }
    }
}

/// Where an accepted message went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The agent was idle: the message opened a turn.
    TurnStarted,
    /// The agent is running: it reads the message at its next step.
    NextStep,
    /// The agent is running: it reads the message in a later turn. So it does with a message for the
    /// next step of a turn that was cancelled and has not ended.
    NextTurn,
    /// Nothing runs and the message does not wake: it waits for the next turn.
    Parked,
}

/// A message was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Its id.
    pub message_id: MessageId,
    /// Where it went.
    pub placement: Placement,
}

/// How a message is put into the inbox.
struct Mode {
    target: Target,
    wake: bool,
    /// Notices of the runtime are never refused for want of room, nor while the agent is closing.
    notice: bool,
}

impl State {
    /// Where a message for `target` goes now.
    fn placement(&self, target: Target, wake: bool) -> Placement {
        match &self.phase {
            Phase::Running(running) if running.cancel.is_cancelled() && wake => Placement::NextTurn,
            Phase::Running(running) if running.cancel.is_cancelled() => Placement::Parked,
            Phase::Running(_) if target == Target::NextStep => Placement::NextStep,
            Phase::Running(_) => Placement::NextTurn,
            Phase::Idle if wake => Placement::TurnStarted,
            Phase::Idle | Phase::Preparing => Placement::Parked,
        }
    }
}

impl Agent {
    /// Accepts a message for a turn of its own; an idle agent begins it at once.
    ///
    /// # Errors
    ///
    /// [`SendError`]; the message was then not appended.
    pub fn followup(&self, message: Message) -> Result<Delivered, SendError> {
        self.accept(
            message,
            &Mode {
                target: Target::NextTurn,
                wake: true,
                notice: false,
            },
        )
    }

    /// Accepts a message for the next step; an idle agent begins a turn at once.
    ///
    /// # Errors
    ///
    /// [`SendError`]; the message was then not appended.
    pub fn steer(&self, message: Message) -> Result<Delivered, SendError> {
        self.accept(
            message,
            &Mode {
                target: Target::NextStep,
                wake: true,
                notice: false,
            },
        )
    }

    /// Accepts a message for the next step without waking an idle agent.
    ///
    /// # Errors
    ///
    /// [`SendError`]; the message was then not appended.
    pub fn inject(&self, message: Message) -> Result<Delivered, SendError> {
        self.accept(
            message,
            &Mode {
                target: Target::NextStep,
                wake: false,
                notice: false,
            },
        )
    }

    /// Accepts a notice of the runtime for the next step. `wake` is what its sender wants; it is
    /// delivered quietly all the same while the agent is closing, after a user stopped the agent, and
    /// when its chain of automatic wakes is too long.
    ///
    /// # Errors
    ///
    /// [`SendError`] when the agent has closed or the log cannot be written.
    pub fn notify(&self, message: Message, wake: bool) -> Result<Delivered, SendError> {
        self.notify_with(Vec::new(), message, wake)
    }

    /// As [`notify`](Self::notify), after events of a crate above, all in one append: a process that
    /// dies in between cannot leave the fact without its notice.
    ///
    /// # Errors
    ///
    /// As [`notify`](Self::notify); nothing is appended then.
    pub fn notify_with(
        &self,
        facts: Vec<crate::Extension>,
        message: Message,
        wake: bool,
    ) -> Result<Delivered, SendError> {
        let mode = Mode {
            target: Target::NextStep,
            wake,
            notice: true,
        };
        self.accept_after(facts, message, &mode)
    }

    fn accept(&self, message: Message, mode: &Mode) -> Result<Delivered, SendError> {
        self.accept_after(Vec::new(), message, mode)
    }

    fn accept_after(
        &self,
        facts: Vec<crate::Extension>,
        message: Message,
        mode: &Mode,
    ) -> Result<Delivered, SendError> {
        self.commit(|state, inner| {
            state.follow_scope(inner);
            if state.closed {
                return Err(SendError::Closed);
            }
            if state.closing.is_some() && !mode.notice {
                return Err(SendError::Closing);
            }
            if state.projection.knows_message(&message.id) {
                return Err(SendError::Duplicate(message.id));
            }
            let waiting = state.projection.inbox().len();
            if !mode.notice && waiting >= inner.host.settings.inbox_capacity {
                return Err(SendError::Full(waiting));
            }
            let generation = message.source.generation;
            let too_long = generation > inner.host.settings.max_wake_chain;
            let stopped = state.projection.stopped_by_user();
            let quiet = mode.notice && (state.closing.is_some() || too_long || stopped);
            let wake = mode.wake && !quiet;
            let target = mode.target;
            let placement = state.placement(target, wake);
            let message_id = message.id.clone();
            // Room for the turn that the message may open: its start and one claim.
            let mut events = Vec::with_capacity(facts.len() + 3);
            events.extend(facts.into_iter().map(Event::Extension));
            events.push(Event::InboxInserted {
                target,
                wake,
                message: message.into(),
            });
            if placement == Placement::TurnStarted {
                let arriving = Arriving {
                    id: message_id.clone(),
                    target,
                    generation,
                };
                state.open_turn(inner, events, Some(arriving))?;
            } else {
                state.append(inner, events)?;
                if wake && let Some(running) = state.running() {
                    // Between a cancel and the end of its turn a wake is for a turn of its own.
                    if running.cancel.is_cancelled() {
                        running.latched.push(message_id.clone());
                    }
                }
            }
            Ok(Delivered {
                message_id,
                placement,
            })
        })
    }

    /// Cancels the turn that runs, and with [`Pending::Discard`] discards what waits.
    ///
    /// The turn ends `aborted` with the first cause that it was cancelled with. What waits under
    /// [`Pending::Keep`] stays parked until the next message that wakes. Returns whether a turn ran.
    pub fn cancel(&self, cause: CancelCause, pending: Pending) -> bool {
        self.commit(|state, inner| {
            if cause == CancelCause::User {
                state.projection.stop_by_user();
            }
            // Cut under the lock and before the log is written: a message that is accepted after this
            // call finds the turn cancelled, and the stop does not depend on the log.
            let running = state.running().map(|running| running.cut(cause, pending));
            if pending == Pending::Discard && !state.closed {
                let events = state.discarding(cause.as_str(), false);
                if !events.is_empty() {
                    let _ = state.append(inner, events);
                }
            }
            running.is_some()
        })
    }

    /// Discards one waiting message. False when it does not wait: unknown, claimed or read.
    pub fn withdraw(&self, id: &MessageId, cause: &str) -> bool {
        self.commit(|state, inner| {
            if state.closed || !state.projection.inbox().contains(id) {
                return false;
            }
            let event = Event::InboxDiscarded {
                message_id: id.clone(),
                cause: cause.to_owned(),
            };
            state.append(inner, vec![event]).is_ok()
        })
    }
}
