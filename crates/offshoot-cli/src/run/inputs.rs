//! What an input of a script does when its moment has come.
//!
//! Whatever can happen on the spot does: a resident agent is acted on before the thread that brought
//! the moment goes on. Only a child that has to be resumed, or that is just ending, takes longer; the
//! run does not rest before that is done.

use std::sync::Arc;
use std::time::Duration;

use offshoot::agent::{Agent, AgentId, CancelCause, Message, Pending, SendError, Status};
use offshoot::driver::Facts;
use offshoot::driver::script::{InputMode, Target, placeholders};
use offshoot::subagent::{Authority, StopReply, Verb};
use offshoot::task::{StoppedBy, TaskId};

use super::host::{Child, Host};

/// The exit code of a process that a script crashed.
const CRASHED: i32 = 86;

/// How long a crash waits for a reader of stdout to take what was printed before it.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Whom an input concerns.
enum Recipient {
    Root(Agent),
    /// A child, and its agent while it is resident.
    Child(Child, Option<Agent>),
}

impl Recipient {
    fn agent(&self) -> Option<&Agent> {
        match self {
            Self::Root(agent) => Some(agent),
            Self::Child(_, agent) => agent.as_ref(),
        }
    }
}

impl Host {
    /// Does what input `index` says, or says on the record why not.
    pub(super) fn perform(self: &Arc<Self>, index: usize) {
        if self.is_behind(self.addressed(index).as_ref(), index) {
            return;
        }
        tracing::debug!(index, mode = self.input(index).mode.name(), "input");
        if let Err(reason) = self.attempt(index) {
            self.refused(index, &reason);
        }
    }

    fn attempt(self: &Arc<Self>, index: usize) -> Result<(), String> {
        let input = self.input(index);
        match &input.mode {
            InputMode::Open { gate } => {
                self.gates().open(gate);
                return Ok(());
            }
            InputMode::Crash => self.crash(),
            _ => {}
        }
        let recipient = self.recipient(&input.to)?;
        match &input.mode {
            InputMode::Followup { text } => self.message(index, recipient, text, Verb::Followup),
            InputMode::Steer { text } => self.message(index, recipient, text, Verb::Steer),
            InputMode::Inject { text } => self.message(index, recipient, text, Verb::Inject),
            InputMode::Cancel => cancel(&recipient, Pending::Discard),
            InputMode::CancelKeepInbox => cancel(&recipient, Pending::Keep),
            InputMode::Interrupt => self.interrupt(&recipient),
            InputMode::Dispose => self.dispose(&recipient),
            InputMode::KillTask { task } => self.kill_task(&recipient, task),
            other => Err(format!("this build does not know `{}`", other.name())),
        }
    }

    fn recipient(&self, target: &Target) -> Result<Recipient, String> {
        if *target == Target::Root {
            let root = self.root().ok_or("there is no root agent yet")?;
            return Ok(Recipient::Root(root.clone()));
        }
        let child = self.newest(target).ok_or_else(|| match target {
            Target::Child(label) => format!("no child `{label}` was started"),
            _ => "no child was started".to_owned(),
        })?;
        let agent = self.runtime().host().agents.get(&child.id);
        Ok(Recipient::Child(child, agent))
    }

    /// The placeholders of `text`, as the recipient sees them; as the root does when the recipient is
    /// not resident.
    fn filled_in(&self, text: &str, recipient: &Recipient) -> Result<String, String> {
        let facts = match recipient.agent().or(self.root()) {
            Some(agent) => Facts::of(agent),
            None => Facts::default(),
        };
        placeholders::expand(text, &facts).map_err(|error| error.to_string())
    }

    fn message(
        self: &Arc<Self>,
        index: usize,
        recipient: Recipient,
        text: &str,
        verb: Verb,
    ) -> Result<(), String> {
        let message = Message::user(self.filled_in(text, &recipient)?);
        if let Some(agent) = recipient.agent() {
            let put = match verb {
                Verb::Followup => agent.followup(message.clone()),
                Verb::Steer => agent.steer(message.clone()),
                Verb::Inject => agent.inject(message.clone()),
            };
            match (put, &recipient) {
                (Ok(_), _) => return Ok(()),
                // It is settling: what comes now is for its next residency.
                (Err(SendError::Closing | SendError::Closed), Recipient::Child(..)) => {}
                (Err(error), _) => return Err(error.to_string()),
            }
        }
        let Recipient::Child(child, _) = recipient else {
            return Ok(());
        };
        let (host, busy) = (Arc::clone(self), self.busy());
        self.under_way_to(&child.id, index);
        let id = child.id.clone();
        let sent = async move {
            // A quiet message resumes nobody: the service refuses it when the child has settled.
            let subagents = host.runtime().subagents();
            let sent = subagents.deliver(Authority::Host, &id, message, verb);
            if let Err(error) = sent.await {
                host.refused(index, &error.to_string());
            }
        };
        let host = Arc::clone(self);
        tokio::spawn(async move {
            sent.await;
            // What was to happen after it happens before the run can rest.
            host.arrived(index);
            drop(busy);
        });
        Ok(())
    }

    /// The child that an input concerns.
    fn addressed(&self, index: usize) -> Option<AgentId> {
        let input = self.input(index);
        let concerns_nobody = matches!(input.mode, InputMode::Open { .. } | InputMode::Crash);
        if concerns_nobody || input.to == Target::Root {
            return None;
        }
        self.newest(&input.to).map(|child| child.id)
    }

    fn interrupt(&self, recipient: &Recipient) -> Result<(), String> {
        match recipient {
            Recipient::Root(root) => {
                root.cancel(CancelCause::Interrupt, Pending::Keep);
                Ok(())
            }
            Recipient::Child(child, _) => {
                let subagents = self.runtime().subagents();
                let reply = subagents.interrupt(Authority::Host, &child.id);
                stopped(child, reply.map_err(|error| error.to_string())?)
            }
        }
    }

    fn dispose(&self, recipient: &Recipient) -> Result<(), String> {
        match recipient {
            Recipient::Root(root) => drop(root.close(Pending::Discard)),
            Recipient::Child(child, agent) => {
                let reply = self.runtime().subagents().dispose(&child.id);
                match (reply.map_err(|error| error.to_string())?, agent) {
                    // A one-shot run is disposed by its run, which sees that it is closing.
                    (StopReply::OneShot, Some(agent)) => drop(agent.begin_close(Pending::Discard)),
                    (reply, _) => return stopped(child, reply),
                }
            }
        }
        Ok(())
    }

    fn kill_task(&self, recipient: &Recipient, task: &str) -> Result<(), String> {
        let id = self.filled_in(task, recipient)?;
        let owner = recipient
            .agent()
            .ok_or("the agent is not resident: it has no live task")?;
        let id: TaskId = id
            .parse()
            .map_err(|error| format!("`{id}` is not a task id: {error}"))?;
        let killed = self
            .runtime()
            .tasks()
            .kill(owner.scope().id(), &id, StoppedBy::Human, None);
        killed.map(drop).map_err(|error| error.to_string())
    }

    /// Ends the process as a crash would. What was committed and printed before is given to whoever
    /// reads stdout, so that it can be compared with the store; nothing else is tidied up.
    fn crash(&self) -> ! {
        if let Some(lines) = self.lines() {
            lines.flush(LAST_WORDS);
        }
        std::process::exit(CRASHED)
    }
}

/// A stop that came too late says so.
fn stopped(child: &Child, reply: StopReply) -> Result<(), String> {
    let id = &child.id;
    match reply {
        StopReply::Requested => Ok(()),
        StopReply::Ending => Err(format!("agent {id} is ending already")),
        StopReply::Settled => Err(format!("agent {id} has settled already")),
        StopReply::OneShot => Err(format!(
            "agent {id} is a one-shot run, which is not interrupted"
        )),
    }
}

fn cancel(recipient: &Recipient, pending: Pending) -> Result<(), String> {
    match recipient {
        Recipient::Root(root) => {
            root.cancel(CancelCause::User, pending);
            Ok(())
        }
        Recipient::Child(_, Some(agent)) if !is_ending(agent) => {
            agent.cancel(CancelCause::User, pending);
            Ok(())
        }
        Recipient::Child(child, Some(_)) => stopped(child, StopReply::Ending),
        Recipient::Child(child, None) => stopped(child, StopReply::Settled),
    }
}

fn is_ending(agent: &Agent) -> bool {
    matches!(agent.status(), Status::Closing | Status::Closed)
}
