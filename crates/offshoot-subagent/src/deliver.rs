//! Messages between adjacent agents, and from a host to any of them.

use offshoot_agent::{
    Agent, AgentId, Delivered, Message, MessageId, Pending, Placement, RunId, SendError,
    SessionStart,
};

use crate::event::RunRecord;
use crate::host::{HostError, Session};
use crate::open::{self, OpenFault, Opening};
use crate::resident::With;
use crate::state::activation::{Command, Reply};
use crate::stop::StopReply;
use crate::{DeliverError, Descriptor, Interrupter, Mode, Subagents, notice};

/// The longest message of one agent to another, in bytes: it goes whole into the conversation of its
/// receiver, who has not asked for it.
const MAX_MESSAGE_BYTES: usize = 256 * 1024;

/// On whose authority something is done.
#[derive(Clone, Copy, Debug)]
pub enum Authority<'a> {
    /// An agent's: it reaches its parent and its children.
    Agent(&'a Agent),
    /// The host's, or a human's: it reaches every child.
    Host,
}

/// How a host's message is put into the inbox. Agents always steer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// For a turn of its own.
    Followup,
    /// For the next step.
    Steer,
    /// For the next step, without waking; never resumes.
    Inject,
}

/// Where an accepted message went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The receiver runs: it reads the message at its next step.
    Running,
    /// The receiver was idle: a turn starts with the message.
    Idle,
    /// A later turn of the receiver reads it: a followup to one that runs, or that was idle and begins
    /// with one that had waited longer. Never of an agent's message.
    Queued,
    /// The receiver was idle and the message does not wake: its next turn reads it. Never of an agent's
    /// message.
    Parked,
    /// The receiver was not resident and was resumed: a turn starts.
    Resumed,
}

impl Destination {
    /// The name in values.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Idle => "idle",
            Self::Queued => "queued",
            Self::Parked => "parked",
            Self::Resumed => "resumed",
        }
    }
}

/// A message was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its id.
    pub message_id: MessageId,
    /// Where it went.
    pub destination: Destination,
}

impl Sent {
    fn to_resident(delivered: Delivered, verb: Verb) -> Self {
        let destination = match (delivered.placement, verb) {
            (Placement::TurnStarted, _) => Destination::Idle,
            (Placement::Parked, _) => Destination::Parked,
            (Placement::Queued, _) | (Placement::NextTurn, Verb::Followup) => Destination::Queued,
            // After a stop a steer has the next turn, and with it the next step.
            (Placement::NextTurn | Placement::NextStep, _) => Destination::Running,
        };
        Self {
            message_id: delivered.message_id,
            destination,
        }
    }
}

impl Subagents {
    /// Sends a message from an agent to its parent or to one of its continuable children, which is
    /// resumed when it has settled. Resolves when the message is in the receiver's inbox; it is read
    /// at the receiver's next step.
    ///
    /// `generation` is that of the turn that sends. Dropping the future before it resolves leaves the
    /// message either accepted or not sent.
    ///
    /// # Errors
    ///
    /// [`DeliverError`]; the message was then not appended anywhere.
    pub async fn send(
        &self,
        sender: &Agent,
        target: &str,
        message: &str,
        generation: u64,
    ) -> Result<Sent, DeliverError> {
        self.pay(sender);
        let unknown = || DeliverError::Unknown(target.to_owned());
        let id: AgentId = target.parse().map_err(|_| unknown())?;
        if message.len() > MAX_MESSAGE_BYTES {
            let (bytes, limit) = (message.len(), MAX_MESSAGE_BYTES);
            return Err(DeliverError::TooLong { bytes, limit });
        }
        let message = notice::framed(sender.id(), generation, message);
        if sender.parent_id() == Some(&id) {
            return self.send_up(sender, &id, message);
        }
        self.deliver(Authority::Agent(sender), &id, message, Verb::Steer)
            .await
    }

    fn send_up(
        &self,
        sender: &Agent,
        parent: &AgentId,
        message: Message,
    ) -> Result<Sent, DeliverError> {
        let Some(resident) = self.resident(sender.id()) else {
            return Err(DeliverError::OneShotSender);
        };
        let present = self.0.host.agents.get(sender.id());
        if present.as_ref() != Some(sender) || resident.parent.id() != parent {
            return Err(DeliverError::ParentUnavailable);
        }
        match resident.parent.steer(message) {
            Ok(delivered) => Ok(Sent::to_resident(delivered, Verb::Steer)),
            Err(SendError::Closed | SendError::Closing) => Err(DeliverError::ParentUnavailable),
            Err(error) => Err(DeliverError::Refused(parent.clone(), error)),
        }
    }

    /// Delivers a message to a continuable child, resuming it when it has settled.
    ///
    /// # Errors
    ///
    /// [`DeliverError`]; the message was then not appended anywhere.
    pub async fn deliver(
        &self,
        authority: Authority<'_>,
        target: &AgentId,
        message: Message,
        verb: Verb,
    ) -> Result<Sent, DeliverError> {
        loop {
            let Some(resident) = self.resident(target) else {
                let (message, verb) = (message.clone(), verb);
                match self.resume(authority, target, message, verb).await? {
                    Some(sent) => return Ok(sent),
                    // Somebody else resumes it.
                    None => continue,
                }
            };
            if let Authority::Agent(sender) = authority
                && resident.parent != *sender
            {
                return Err(DeliverError::Unknown(target.to_string()));
            }
            if self.tell(&resident, Command::Deliver, &With::Nothing) == Reply::Later {
                resident.passed().await;
                continue;
            }
            let (message, children) = (message.clone(), self.children());
            let put = open::contain(|| children.deliver(&resident.residency, message, verb));
            match put.await {
                Ok(delivered) => return Ok(Sent::to_resident(delivered, verb)),
                // It is settling: what comes now is for its next residency.
                Err(error) if error.is_over() => resident.settled().await,
                Err(error) => return Err(refused(target, error)),
            }
        }
    }

    /// Makes a settled child resident again, from its session alone. `None` when somebody else does.
    async fn resume(
        &self,
        authority: Authority<'_>,
        target: &AgentId,
        message: Message,
        verb: Verb,
    ) -> Result<Option<Sent>, DeliverError> {
        let unknown = || DeliverError::Unknown(target.to_string());
        let start = self.session_start(target).ok_or_else(unknown)?;
        let parent_id = start.parent.as_ref().ok_or_else(unknown)?;
        let parent = match authority {
            Authority::Agent(sender) if sender.id() == parent_id => sender.clone(),
            Authority::Agent(_) => return Err(unknown()),
            Authority::Host => self
                .0
                .host
                .agents
                .get(parent_id)
                .ok_or(DeliverError::ParentUnavailable)?,
        };
        let not_resumable = |why: String| DeliverError::NotResumable(target.clone(), why);
        if verb == Verb::Inject {
            return Err(not_resumable("a quiet message does not wake it".to_owned()));
        }
        let descriptor = Descriptor::read(&start)
            .ok_or_else(|| not_resumable("its session does not say how it was made".to_owned()))?;
        if descriptor.mode == Mode::OneShot {
            return Err(DeliverError::OneShot(target.clone()));
        }
        let kit = descriptor
            .kit(parent.kit())
            .map_err(|error| not_resumable(error.to_string()))?;
        let run_id = RunId::fresh();
        let extra = descriptor.to_fields(&run_id);
        let run = RunRecord {
            child: target.clone(),
            run_id,
            provider: descriptor.provider,
            mode: Mode::Continuable,
            label: start.label.unwrap_or_default(),
            task_id: None,
            call_id: None,
        };
        let Some(opening) = Opening::enter(self, &parent, run) else {
            return Ok(None);
        };
        opening.tie()?;
        let session = Session::Stored { extra, kit };
        let begun = opening.complete(session, message, verb, Pending::Keep);
        let begun = begun.await;
        self.0.damaged.note(target, &begun);
        match begun {
            Ok(delivered) => Ok(Some(Sent {
                message_id: delivered.message_id,
                destination: Destination::Resumed,
            })),
            Err(OpenFault::Parent(error)) => Err(error.into()),
            Err(OpenFault::Host(error)) => Err(not_resumable(error.to_string())),
            Err(OpenFault::First(error)) => Err(refused(target, error)),
        }
    }

    /// What a stored session says of itself.
    pub(crate) fn session_start(&self, id: &AgentId) -> Option<SessionStart> {
        let first = self.0.host.store.first(id).ok().flatten()?;
        match &first.event {
            offshoot_agent::Event::SessionStart(start) => Some((**start).clone()),
            _ => None,
        }
    }

    /// Stops what a descendant does now: its turn, or, when it only waits, the work that it waits
    /// for. Messages stay parked until the next one that wakes. Work that has ended already is no
    /// error, and the reply says so. A child that is being resumed is stopped as soon as it is there.
    ///
    /// # Errors
    ///
    /// [`DeliverError::Unknown`] when the target is not a descendant of the agent that asks, or nobody's
    /// child.
    pub fn interrupt(
        &self,
        authority: Authority<'_>,
        target: &AgentId,
    ) -> Result<StopReply, DeliverError> {
        if let Authority::Agent(ancestor) = authority
            && !self.descends(target, ancestor.id())
        {
            return Err(DeliverError::Unknown(target.to_string()));
        }
        let by = match authority {
            Authority::Agent(_) => Interrupter::Model,
            Authority::Host => Interrupter::Human,
        };
        self.stop(target, Command::Interrupt(by))
    }

    /// Ends a resident child with everything that it started; its parent is told. A child that is being
    /// resumed ends as soon as it is there.
    ///
    /// # Errors
    ///
    /// [`DeliverError::Unknown`] when the target is nobody's child.
    pub fn dispose(&self, target: &AgentId) -> Result<StopReply, DeliverError> {
        self.stop(target, Command::Close(Pending::Discard))
    }

    fn stop(&self, target: &AgentId, command: Command) -> Result<StopReply, DeliverError> {
        if let Some(resident) = self.resident(target) {
            return Ok(match self.tell(&resident, command, &With::Nothing) {
                Reply::NoOp | Reply::Duplicate => StopReply::Ending,
                Reply::Done | Reply::Later => StopReply::Requested,
            });
        }
        let start = self.session_start(target);
        match start.as_ref().and_then(Descriptor::read) {
            Some(descriptor) if descriptor.mode == Mode::Continuable => Ok(StopReply::Settled),
            Some(_) => Ok(StopReply::OneShot),
            None => Err(DeliverError::Unknown(target.to_string())),
        }
    }

    fn descends(&self, target: &AgentId, ancestor: &AgentId) -> bool {
        let mut at = target.clone();
        // Bounded: a chain of parents in damaged sessions may be a ring.
        for _ in 0..=self.0.settings.max_depth.max(64) {
            let parent = match self.0.host.agents.get(&at) {
                Some(agent) => agent.parent_id().cloned(),
                None => self.session_start(&at).and_then(|start| start.parent),
            };
            match parent {
                Some(parent) if parent == *ancestor => return true,
                Some(parent) => at = parent,
                None => return false,
            }
        }
        false
    }
}

fn refused(target: &AgentId, error: HostError) -> DeliverError {
    match error {
        HostError::Send(error) => DeliverError::Refused(target.clone(), error),
        error => DeliverError::Host(target.clone(), error),
    }
}
