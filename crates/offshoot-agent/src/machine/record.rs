//! What a step and the crates above put on the record.

use super::{Command, Effects, Machine};
use crate::{Event, SendError};

/// An event of a crate above, or of the step that it names.
#[derive(Debug)]
pub struct Record(pub Event);

impl Command for Record {
    type Reply = Result<(), SendError>;

    fn apply(self, machine: &mut Machine) -> (Self::Reply, Effects) {
        match machine.record_refusal(&self.0) {
            Some(refusal) => (Err(refusal), Effects::none()),
            None => (Ok(()), Effects::append(vec![self.0])),
        }
    }
}

impl Machine {
    fn record_refusal(&self, event: &Event) -> Option<SendError> {
        if let Event::Extension(_) = event {
            return self.closed.then_some(SendError::Closed);
        }
        // The step itself, and not only some step: a context may outlive what it names.
        let open = self.projection.open_turn().filter(|open| open.step_open);
        let Some(open) = open.filter(|open| event.step() == Some((open.turn, open.step))) else {
            return Some(SendError::Closed);
        };
        match event {
            Event::ToolCall { call_id, .. } if open.position(call_id, false).is_none() => {
                Some(SendError::Unpaired(call_id.clone()))
            }
            Event::ToolResult { result, .. } if open.position(&result.call_id, true).is_none() => {
                Some(SendError::Unpaired(result.call_id.clone()))
            }
            _ => None,
        }
    }
}
