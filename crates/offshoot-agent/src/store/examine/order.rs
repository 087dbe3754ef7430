//! What an event needs to have come before it. A log in which something comes out of order was not written
//! by an agent: going on with it would tell things twice, or count on from numbers that nobody counted.

use crate::projection::OpenTurn;
use crate::{AgentId, Event, MessageId, Origin, Projection, SessionStart, StoredEvent, Target};

/// Says why an event cannot follow what was folded so far. Events of crates above are not judged.
pub(crate) fn fault(before: &Projection, stored: &StoredEvent) -> Option<String> {
    check(before, stored).err()
}

fn check(before: &Projection, stored: &StoredEvent) -> Result<(), String> {
    let event = &stored.event;
    if let Event::SessionStart(start) = event {
        return start_of(before, start, stored.seq);
    }
    if before.start().is_none() {
        return Err("expected session/start, the beginning of a session".to_owned());
    }
    let inbox = before.inbox();
    match event {
        Event::InboxInserted {
            message,
            target,
            before: place,
            ..
        } => {
            if before.knows_message(&message.id) {
                return Err(format!("the message {} was accepted before", message.id));
            }
            waits_in(before, place.as_ref(), *target)
        }
        Event::InboxMoved {
            message_id,
            target,
            before: place,
        } => {
            waits(before, message_id)?;
            waits_in(before, place.as_ref(), *target)
        }
        Event::InboxClaimed {
            message_id,
            turn,
            step,
        } => {
            waits(before, message_id)?;
            let open = between_steps(before, *turn)?;
            next(*step, open.step, "step")
        }
        Event::InboxDiscarded { message_id, .. } => {
            let mut claimed = inbox.claimed();
            match claimed.any(|entry| entry.message.id == *message_id) {
                true => Ok(()),
                false => waits(before, message_id),
            }
        }
        Event::TurnStart { turn, .. } => match before.open_turn() {
            Some(open) => Err(format!("the turn {} has not ended", open.turn)),
            None => next(*turn, before.turn(), "turn"),
        },
        Event::TurnEnd { turn, .. } => between_steps(before, *turn).map(drop),
        Event::StepStart { turn, step } => {
            let open = between_steps(before, *turn)?;
            next(*step, open.step, "step")
        }
        Event::StepEnd { turn, step } => {
            let open = in_step(before, *turn, *step)?;
            match open.unanswered.first() {
                Some((call, _)) => Err(format!("the call {} has no result", call.id)),
                None => Ok(()),
            }
        }
        Event::MessageUser {
            turn,
            step,
            message,
        } => {
            in_step(before, *turn, *step)?;
            let mut claimed = inbox.claimed();
            match claimed.any(|entry| entry.message.id == message.id) {
                true => Ok(()),
                false => Err(format!("the message {} was not claimed", message.id)),
            }
        }
        Event::MessageAssistant { turn, step, .. } => in_step(before, *turn, *step).map(drop),
        Event::ToolCall {
            turn,
            step,
            call_id,
            ..
        } => {
            let open = in_step(before, *turn, *step)?;
            let asked = open.position(call_id, false);
            asked
                .map(drop)
                .ok_or_else(|| format!("no reply asked for the call {call_id}"))
        }
        Event::ToolResult { turn, step, result } => {
            let open = in_step(before, *turn, *step)?;
            let called = open.position(&result.call_id, true);
            called
                .map(drop)
                .ok_or_else(|| format!("no call {} is open", result.call_id))
        }
        Event::AgentStatus { .. } => Err("the status of an agent is in no log".to_owned()),
        Event::SessionStart(_) | Event::AgentStopped { .. } | Event::Extension(_) => Ok(()),
    }
}

fn start_of(before: &Projection, start: &SessionStart, seq: u64) -> Result<(), String> {
    let is_root = start.origin == Origin::Root;
    if is_root && start.depth > 0 {
        return Err(format!("a root at the depth {}", start.depth));
    }
    if let Some(parent) = start.parent.as_ref().filter(|_| is_root) {
        return Err(format!("a root with the parent {parent}"));
    }
    match (before.start(), start.inherited, start.resumed) {
        (None, None, false) if seq == 0 => Ok(()),
        // Also what is ignorable: who asks for the beginning reads the first event.
        (None, None, false) => Err(format!(
            "expected session/start as event 0, found it as {seq}"
        )),
        (None, ..) => Err("expected the beginning of a session, found a resumption".to_owned()),
        (Some(first), None, true) => {
            let is_same = (&first.parent, first.origin, first.depth)
                == (&start.parent, start.origin, start.depth);
            match is_same {
                true => Ok(()),
                false => Err("the resumption of another session".to_owned()),
            }
        }
        (Some(_), None, false) => Err("a second beginning".to_owned()),
        (Some(_), Some(_), true) => Err("a resumption that inherits".to_owned()),
        (Some(_), Some(inherited), false) => {
            if let Some(open) = before.open_turn() {
                return Err(format!("the inherited turn {} has not ended", open.turn));
            }
            let said = (inherited.events, inherited.turns);
            let found = (seq, before.turn());
            match said == found {
                true => Ok(()),
                false => Err(format!(
                    "expected {} inherited events and {} turns, found {} and {}",
                    said.0, said.1, found.0, found.1
                )),
            }
        }
    }
}

fn waits(before: &Projection, id: &MessageId) -> Result<(), String> {
    match before.inbox().contains(id) {
        true => Ok(()),
        false => Err(format!("the message {id} does not wait")),
    }
}

/// Whether a place in a list is there.
fn waits_in(before: &Projection, id: Option<&MessageId>, target: Target) -> Result<(), String> {
    let Some(id) = id else {
        return Ok(());
    };
    let entry = before.inbox().get(id);
    match entry.is_some_and(|entry| entry.target == target) {
        true => Ok(()),
        false => Err(format!("the message {id} does not wait in that list")),
    }
}

fn next(found: u64, last: u64, what: &str) -> Result<(), String> {
    match last.checked_add(1) == Some(found) {
        true => Ok(()),
        false => Err(format!(
            "impossible number {found} of a {what} after {last}"
        )),
    }
}

fn in_turn(before: &Projection, turn: u64) -> Result<&OpenTurn, String> {
    match before.open_turn() {
        Some(open) if open.turn == turn => Ok(open),
        Some(open) => Err(format!("the turn {turn} while the turn {} runs", open.turn)),
        None => Err(format!("the turn {turn} does not run")),
    }
}

fn between_steps(before: &Projection, turn: u64) -> Result<&OpenTurn, String> {
    let open = in_turn(before, turn)?;
    match open.step_open {
        true => Err(format!("the step {} has not ended", open.step)),
        false => Ok(open),
    }
}

fn in_step(before: &Projection, turn: u64, step: u64) -> Result<&OpenTurn, String> {
    let open = in_turn(before, turn)?;
    match open.step_open && open.step == step {
        true => Ok(open),
        false => Err(format!("the step {step} does not run")),
    }
}

/// No tree is as deep, and no ring as long.
const MOST_ABOVE: usize = 64;

/// The sessions above one, from its parent up to a root, or to one that cannot be read. A ring of them is
/// a fault.
pub(super) fn lineage(
    id: &AgentId,
    start: &SessionStart,
    parent_of: impl Fn(&AgentId) -> Option<AgentId>,
) -> Option<String> {
    let mut seen = vec![id.clone()];
    let mut above = start.parent.clone();
    while let Some(parent) = above.filter(|_| seen.len() <= MOST_ABOVE) {
        if parent == *id && seen.len() == 1 {
            return Some("a session that is its own parent".to_owned());
        }
        if seen.contains(&parent) {
            let ring: Vec<_> = seen.iter().map(AgentId::as_str).collect();
            let (shown, more) = ring.split_at(ring.len().min(8));
            let more = if more.is_empty() { "" } else { ", …" };
            return Some(format!(
                "the sessions above it are a ring: {}{more}, {parent}",
                shown.join(", ")
            ));
        }
        above = parent_of(&parent);
        seen.push(parent);
    }
    None
}
