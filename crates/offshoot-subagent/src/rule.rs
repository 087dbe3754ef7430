//! What a stored session may say of its children.

use std::collections::HashMap;

use offshoot_agent::{AgentId, EventCheck, EventRule, Extension, Fold, RunId};

use crate::event::{EVENT_TYPES, RunEvent};
use crate::past::{Recent, RunPast};

/// What a session may say of its children: runs that are whole, each begun once, each ended once, and none
/// of the session itself.
///
/// An end without a beginning is taken: the log may have refused the beginning.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunRule;

impl EventRule for RunRule {
    fn check(&self, session: &AgentId) -> EventCheck {
        let session = session.clone();
        let mut runs = Runs::default();
        Box::new(
            move |event| match EVENT_TYPES.contains(&event.kind.as_str()) {
                true => judge(&session, &mut runs, event),
                false => Ok(()),
            },
        )
    }

    fn fold(&self) -> Option<Fold> {
        Some(Fold::of::<RunPast>())
    }
}

/// The runs so far. Of those that ended long ago nothing is known any more: a log may tell of many.
#[derive(Default)]
struct Runs {
    open: HashMap<RunId, AgentId>,
    ended: Recent,
}

fn judge(session: &AgentId, runs: &mut Runs, event: &Extension) -> Result<(), String> {
    let Some(said) = RunEvent::read(event) else {
        return Err(format!("a {} event without its fields", event.kind));
    };
    let RunEvent { child, run_id, .. } = said;
    if child == session.as_str() {
        return Err(format!("the session is its own child in the run {run_id}"));
    }
    let of = runs.open.get(run_id);
    if let Some(of) = of.filter(|of| of.as_str() != child) {
        return Err(format!(
            "the run {run_id} is one of {of}, and here of {child}"
        ));
    }
    let has_ended = runs.ended.has(run_id);
    let (child_id, id) = (child.parse(), run_id.parse());
    let (Ok(child_id), Ok(id)) = (child_id, id) else {
        return Err(format!("impossible ids {child:?} and {run_id:?}"));
    };
    match said.end.is_none() {
        true if of.is_some() || has_ended => Err(format!("the run {run_id} was started before")),
        true => {
            runs.open.insert(id, child_id);
            Ok(())
        }
        false if has_ended => Err(format!("the run {run_id} ended before")),
        false => {
            runs.open.remove(run_id);
            runs.ended.push(id);
            Ok(())
        }
    }
}
