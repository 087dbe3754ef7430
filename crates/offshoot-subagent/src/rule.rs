//! What a stored session may say of its children.

use std::collections::HashMap;

use offshoot_agent::{AgentId, EventCheck, EventRule, Extension, RunId};

use crate::event::{EVENT_TYPES, RunRecord};

/// What a session may say of its children: runs that are whole, each begun once, each ended once, and none
/// of the session itself.
///
/// An end without a beginning is taken: the log may have refused the beginning.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunRule;

impl EventRule for RunRule {
    fn check(&self, session: &AgentId) -> EventCheck {
        let session = session.clone();
        let mut runs = HashMap::new();
        Box::new(
            move |event| match EVENT_TYPES.contains(&event.kind.as_str()) {
                true => judge(&session, &mut runs, event),
                false => Ok(()),
            },
        )
    }
}

/// The child of a run, and whether its beginning and its end were seen.
struct Seen {
    child: AgentId,
    started: bool,
    settled: bool,
}

fn judge(
    session: &AgentId,
    runs: &mut HashMap<RunId, Seen>,
    event: &Extension,
) -> Result<(), String> {
    let started = RunRecord::read_started(event);
    let is_start = started.is_some();
    let run = started.or_else(|| RunRecord::read_settled(event).map(|(run, ..)| run));
    let Some(run) = run else {
        return Err(format!("a {} event without its fields", event.kind));
    };
    let RunRecord { child, run_id, .. } = run;
    if child == *session {
        return Err(format!("the session is its own child in the run {run_id}"));
    }
    let seen = runs.entry(run_id.clone()).or_insert_with(|| Seen {
        child: child.clone(),
        started: false,
        settled: false,
    });
    if seen.child != child {
        let of = &seen.child;
        return Err(format!(
            "the run {run_id} is one of {of}, and here of {child}"
        ));
    }
    if is_start && (seen.started || seen.settled) {
        return Err(format!("the run {run_id} was started before"));
    }
    if !is_start && seen.settled {
        return Err(format!("the run {run_id} ended before"));
    }
    seen.started |= is_start;
    seen.settled |= !is_start;
    Ok(())
}
