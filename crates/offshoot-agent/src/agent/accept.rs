//! How a message is accepted: appended to the log, and, if it may wake an idle agent, the turn that
//! it opens is appended with it.

use super::{Agent, CancelCause, Pending};
use crate::machine::{Accept, Cancel, Command, Reorder, Replace, ResumeParked, Withdraw};
use crate::{AppendError, CallId, Message, MessageId, Target};

/// A message was refused: nothing was appended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The agent is ending: it takes nothing but notices of the runtime.
    #[error("the agent is closing")]
    Closing,
    /// The agent has ended, or the step that wanted to record something has.
    #[error("the agent is closed")]
    Closed,
    /// The runtime that the agent was made in is gone: nothing would run the turn.
    #[error("the runtime of the agent is gone")]
    RuntimeGone,
    /// A message of this id was accepted before.
    #[error("message {0} was accepted before")]
    Duplicate(MessageId),
    /// Too much waits already, and the message opens no turn that would take some of it.
    #[error("the inbox is full: {0} messages wait")]
    Full(usize),
    /// No message of this id waits, or not in that list: it is unknown, claimed, read or discarded.
    #[error("message {0} does not wait there")]
    NotWaiting(MessageId),
    /// It begins or answers no open call of the step: the call is in none of its replies, has a result, or
    /// was to be answered before it was begun.
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
            Self::RuntimeGone => "AGENT_RUNTIME_GONE",
            Self::Duplicate(_) => "DUPLICATE_MESSAGE",
            Self::Full(_) => "INBOX_FULL",
            Self::NotWaiting(_) => "NOT_WAITING",
            Self::Unpaired(_) => "UNPAIRED_CALL",
            Self::Log(error) => error.code(),
        }
    }
}

/// Where an accepted message went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The agent was idle: the message opened a turn, which has claimed it.
    TurnStarted,
    /// The agent was idle: a turn was started, for a followup that had waited longer. A later turn
    /// reads this one.
    Queued,
    /// The agent is running: it reads the message at its next step.
    NextStep,
    /// The agent is running: it reads the message in a later turn. So it does with one that wakes, for
    /// whatever list, while the turn that runs was cancelled and has not ended.
    NextTurn,
    /// The message does not wake, and no turn runs or the one that does was cancelled: it waits for the
    /// next turn. So does any message to an agent that was not [started](Agent::start); and a passive one
    /// waits for the next step that there is, whatever runs.
    Parked,
}

/// A message was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Its id.
    pub message_id: MessageId,
    /// Where it went.
    pub placement: Placement,
    /// How many messages that wait are read before it; 0 when it opened a turn. What that turn, or the
    /// one that runs, has claimed waits no more.
    pub ahead: usize,
}

/// What became of the wish to go on with parked messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// The agent was idle: a turn was started for them.
    TurnStarted,
    /// A turn runs that was cancelled, or the agent has not been started: a turn begins after that.
    Later,
    /// A turn runs: it reads them, or those after it do.
    Running,
    /// Nothing waits; of an agent that has not been started, nothing that wakes.
    Nothing,
}

impl Agent {
    /// Accepts a message for a turn of its own; an idle agent begins it at once. May be called from any
    /// thread, and from a step of the agent itself. It returns when the log has the message, and waits for
    /// nothing else.
    ///
    /// # Errors
    ///
    /// [`SendError`]; the message was then not appended: the agent is closing or closed, its runtime is
    /// gone, the id was accepted before, too much waits, or the log could not take the message.
    pub fn followup(&self, message: Message) -> Result<Delivered, SendError> {
        self.accept(Accept::followup(message))
    }

    /// Accepts a message for the next step; an idle agent begins a turn at once.
    ///
    /// # Errors
    ///
    /// As [`followup`](Self::followup).
    pub fn steer(&self, message: Message) -> Result<Delivered, SendError> {
        self.accept(Accept::steer(message))
    }

    /// Accepts a message for the next step without waking an idle agent.
    ///
    /// # Errors
    ///
    /// As [`followup`](Self::followup), but that it needs no runtime.
    pub fn inject(&self, message: Message) -> Result<Delivered, SendError> {
        self.accept(Accept::inject(message))
    }

    /// Accepts a message that is read with the next step that there is anyway: it wakes nobody, keeps no turn
    /// open and begins none, and so costs no request. Of an agent that has nothing else to do it waits.
    ///
    /// # Errors
    ///
    /// As [`inject`](Self::inject).
    pub fn inject_passively(&self, message: Message) -> Result<Delivered, SendError> {
        self.accept(Accept::inject_passively(message))
    }

    /// Accepts a notice of the runtime for the next step. `wake` is what its sender wants; it is
    /// delivered quietly all the same while the agent is closing, after a user stopped the agent, when
    /// its chain of automatic wakes is too long, and when the agent's runtime is gone. The inbox is never
    /// too full for it: who sends notices bounds their number.
    ///
    /// # Errors
    ///
    /// [`SendError`] when the agent has closed, the id was accepted before or the log cannot be written.
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
        self.accept(Accept::notice(facts, message, wake))
    }

    /// Goes on with what is parked, as after a turn that failed, without a message: an idle agent begins
    /// a turn at once, which reads what the turn of a message would, and has the least generation of it.
    ///
    /// # Errors
    ///
    /// [`SendError`] when the agent is closing, its runtime is gone or the log cannot be written; nothing is
    /// begun then.
    pub fn resume_parked(&self) -> Result<Resumed, SendError> {
        self.commit(|state, inner| {
            state.follow_scope(inner);
            if state.is_stranded(inner) {
                return Err(SendError::RuntimeGone);
            }
            state.repair(inner)?;
            let (resumed, appended) = state.run(inner, ResumeParked);
            let resumed = resumed?;
            appended?;
            Ok(resumed)
        })
    }

    fn accept(&self, message: Accept) -> Result<Delivered, SendError> {
        self.commit(|state, inner| {
            state.follow_scope(inner);
            let message = match message.wakes() && state.is_stranded(inner) {
                true => message.quietly().ok_or(SendError::RuntimeGone)?,
                false => message,
            };
            state.repair(inner)?;
            let (delivered, appended) = state.run(inner, message);
            let delivered = delivered?;
            appended?;
            Ok(delivered)
        })
    }

    /// Cancels the turn that runs, and with [`Pending::Discard`] discards what waits.
    ///
    /// The turn ends `aborted` with the first cause that it was cancelled with. What waits under
    /// [`Pending::Keep`] stays parked until the next message that wakes, or until
    /// [`resume_parked`](Self::resume_parked). Returns whether a turn ran, one that was cancelled before
    /// included; it does not wait for its end: [`idle`](Self::idle) does, which takes at most
    /// [`cancel_grace`](crate::AgentSettings::cancel_grace) if nothing starts another turn. The stop is a
    /// stop also when the log cannot be written; what waits is not discarded then.
    pub fn cancel(&self, cause: CancelCause, pending: Pending) -> bool {
        // What waits is not discarded when the log refuses; the stop is a stop all the same.
        self.commit(|state, inner| state.run(inner, Cancel { cause, pending }).0)
    }

    /// Puts `message` in the place of one that waits: the same list, the same place, as much a wake as
    /// the old one was, and as passive. The old one is discarded with the cause `replaced`. Nothing is woken.
    ///
    /// # Errors
    ///
    /// [`SendError::NotWaiting`] when `id` does not wait any more, [`SendError::Duplicate`] when the new
    /// message's id was accepted before (the old one's was), otherwise as for a new message.
    pub fn replace(&self, id: &MessageId, message: Message) -> Result<Delivered, SendError> {
        let id = id.clone();
        self.edit(Replace { id, message })
    }

    /// Gives a message that waits another place: at the end of the list `target`, or in it in front of
    /// `before`. So a followup becomes a steer, or is done earlier, and a passive message becomes one that is
    /// only quiet when it goes to the next turn's list. Nothing is woken.
    ///
    /// # Errors
    ///
    /// [`SendError::NotWaiting`] when `id` does not wait any more, or `before` not in that list.
    pub fn reorder(
        &self,
        id: &MessageId,
        target: Target,
        before: Option<&MessageId>,
    ) -> Result<(), SendError> {
        let (id, before) = (id.clone(), before.cloned());
        self.edit(Reorder { id, target, before })
    }

    fn edit<R, C: Command<Reply = Result<R, SendError>>>(&self, edit: C) -> Result<R, SendError> {
        self.commit(|state, inner| {
            state.follow_scope(inner);
            let (reply, appended) = state.run(inner, edit);
            let reply = reply?;
            appended?;
            Ok(reply)
        })
    }

    /// Discards one waiting message, on the record with `cause`. False when it does not wait (unknown,
    /// claimed or read), and when the log cannot be written: then it still waits.
    pub fn withdraw(&self, id: &MessageId, cause: &str) -> bool {
        let withdraw = Withdraw {
            id: id.clone(),
            cause: cause.to_owned(),
        };
        self.commit(|state, inner| {
            let (found, appended) = state.run(inner, withdraw);
            found && appended.is_ok()
        })
    }
}
