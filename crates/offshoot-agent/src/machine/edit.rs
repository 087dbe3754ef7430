//! What may be done to a message that waits.

use super::{Change, Command, Effects, Machine, Then};
use crate::projection::REPLACED;
use crate::{Delivered, Event, Message, MessageId, Placement, SendError, Target};

/// Takes back a message that waits. False when it does not: unknown, claimed or read.
#[derive(Debug)]
pub struct Withdraw {
    /// Which one.
    pub id: MessageId,
    /// Why, for the record.
    pub cause: String,
}

impl Command for Withdraw {
    type Reply = bool;

    fn apply(self, machine: &mut Machine) -> (bool, Effects) {
        if machine.closed || !machine.projection.inbox().contains(&self.id) {
            return (false, Effects::none());
        }
        let event = Event::InboxDiscarded {
            message_id: self.id,
            cause: self.cause,
        };
        (true, Effects::append(vec![event]))
    }
}

/// Puts a message in the place of one that waits.
#[derive(Debug)]
pub struct Replace {
    /// The one that waits.
    pub id: MessageId,
    /// The one that takes its place.
    pub message: Message,
}

impl Command for Replace {
    type Reply = Result<Delivered, SendError>;

    fn apply(self, machine: &mut Machine) -> (Self::Reply, Effects) {
        let Self { id, message } = self;
        if let Some(refusal) = machine.edit_refusal() {
            return (Err(refusal), Effects::none());
        }
        let inbox = machine.projection.inbox();
        let Some(entry) = inbox.get(&id) else {
            return (Err(SendError::NotWaiting(id)), Effects::none());
        };
        let (target, wake, passive) = (entry.target, entry.wake, entry.passive);
        if machine.projection.knows_message(&message.id) {
            return (Err(SendError::Duplicate(message.id)), Effects::none());
        }
        let delivered = Delivered {
            message_id: message.id.clone(),
            placement: match passive {
                true => Placement::Parked,
                false => machine.placement(target, false),
            },
            ahead: inbox.ahead(target, Some(&id)),
        };
        let mut events: Vec<_> = machine.untold_stop(&message).into_iter().collect();
        events.push(Event::InboxInserted {
            target,
            wake,
            message: message.into(),
            before: Some(id.clone()),
            passive,
        });
        events.push(Event::InboxDiscarded {
            message_id: id.clone(),
            cause: REPLACED.to_owned(),
        });
        let mut effects = Effects::append(events);
        // The old one may be what is to start a turn when the cancelled one has ended.
        effects.then = Then(Change::Relatch {
            from: id,
            to: delivered.message_id.clone(),
        });
        (Ok(delivered), effects)
    }
}

/// Gives a message that waits another place.
#[derive(Debug)]
pub struct Reorder {
    /// Which one.
    pub id: MessageId,
    /// The list that it goes to.
    pub target: Target,
    /// The one in that list that it is put in front of; absent: at the end.
    pub before: Option<MessageId>,
}

impl Command for Reorder {
    type Reply = Result<(), SendError>;

    fn apply(self, machine: &mut Machine) -> (Self::Reply, Effects) {
        let Self { id, target, before } = self;
        if let Some(refusal) = machine.edit_refusal() {
            return (Err(refusal), Effects::none());
        }
        let inbox = machine.projection.inbox();
        if !inbox.contains(&id) {
            return (Err(SendError::NotWaiting(id)), Effects::none());
        }
        let there = |before: &MessageId| {
            let found = inbox.get(before);
            found.is_some_and(|entry| entry.target == target)
        };
        match before {
            Some(before) if !there(&before) => {
                (Err(SendError::NotWaiting(before)), Effects::none())
            }
            Some(before) if before == id => (Ok(()), Effects::none()),
            before => {
                let event = Event::InboxMoved {
                    message_id: id,
                    target,
                    before,
                };
                (Ok(()), Effects::append(vec![event]))
            }
        }
    }
}

impl Machine {
    pub(super) fn edit_refusal(&self) -> Option<SendError> {
        match (self.closed, self.closing) {
            (true, _) => Some(SendError::Closed),
            (false, Some(_)) => Some(SendError::Closing),
            (false, None) => None,
        }
    }
}
