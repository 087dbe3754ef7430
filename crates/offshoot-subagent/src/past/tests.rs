//! The fold against what the events themselves say.

use std::sync::Arc;

use offshoot_agent::{AgentId, EventFold, Extension, RunId, Usage};
use proptest::prelude::*;

use super::{End, Known, RECENT, RunPast};
use crate::event::{RunEvent, RunRecord};
use crate::{Mode, Outcome, TreeUsage};

fn run_id(n: usize) -> RunId {
    format!("run{n:010}").parse().expect("an id")
}

/// One run of one of a few children; those of an odd number are one-shot.
fn run(n: usize, child: usize, call: bool) -> RunRecord {
    let child: AgentId = format!("child{child}").parse().expect("an id");
    let is_one_shot = child.as_str().ends_with(['1', '3']);
    RunRecord {
        child,
        run_id: run_id(n),
        provider: "spawn".to_owned(),
        mode: if is_one_shot {
            Mode::OneShot
        } else {
            Mode::Continuable
        },
        label: "l".to_owned(),
        task_id: None,
        call_id: call.then(|| offshoot_agent::CallId(format!("call{n}"))),
    }
}

fn cost(n: u64) -> TreeUsage {
    let usage = Usage {
        input: n,
        output: 0,
    };
    TreeUsage::new(usage, usage)
}

#[derive(Clone, Debug)]
enum Line {
    /// The next run of this child begins.
    Begin(usize, bool),
    /// The open run of this place among the open ones ends.
    End(prop::sample::Index, bool),
    /// A run ends whose beginning the log refused.
    EndUnheard(usize),
    Step,
    StepEnd,
    Residency,
}

fn line() -> impl Strategy<Value = Line> {
    prop_oneof![
        6 => (0..4_usize, any::<bool>()).prop_map(|(child, call)| Line::Begin(child, call)),
        5 => (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(at, below)| Line::End(at, below)),
        1 => (0..4_usize).prop_map(Line::EndUnheard),
        2 => Just(Line::Step),
        2 => Just(Line::StepEnd),
        1 => Just(Line::Residency),
    ]
}

/// All there was, and nothing else.
#[derive(Default)]
struct Everything {
    begun: Vec<(RunRecord, bool)>,
    ended: Vec<(End, bool)>,
    call_ends: Vec<End>,
    in_step: bool,
    below: TreeUsage,
}

impl Everything {
    fn is_over(&self, run: &RunId) -> bool {
        self.ended.iter().any(|((end, ..), _)| end.run_id == *run)
    }

    fn open(&self) -> Vec<(RunRecord, bool)> {
        let open = self
            .begun
            .iter()
            .filter(|(run, _)| !self.is_over(&run.run_id));
        open.cloned().collect()
    }

    fn end(&mut self, run: RunRecord, below: bool) {
        let end = (
            Arc::new(run),
            Outcome::Completed,
            cost(self.ended.len() as u64 + 1),
        );
        let open = self.open();
        let mut open = open.iter().filter(|(it, _)| it.run_id == end.0.run_id);
        let present = open.next().map(|(_, present)| *present);
        if present == Some(true) {
            self.below.add_below(end.2);
        }
        // A run of a dead process ends when it is found, outside of steps.
        if (self.in_step || present == Some(false)) && end.0.call_id.is_some() {
            self.call_ends.push(end.clone());
        }
        self.ended.push((end, below));
    }

    /// Each child's last run, and what its ended ones cost since it was last listed anew: a one-shot child
    /// without children is forgotten with its end.
    fn children(&self, history: &[Extension]) -> Vec<(RunRecord, TreeUsage)> {
        let mut kept: Vec<(RunRecord, TreeUsage)> = Vec::new();
        for event in history {
            let said = RunEvent::read(event).expect("a run");
            let run = said.record().expect("a run");
            match said.end {
                None => match kept.iter_mut().find(|(it, _)| it.child == run.child) {
                    Some((last, _)) => *last = run,
                    None => kept.push((run, TreeUsage::default())),
                },
                Some((_, usage)) => {
                    if let Some((_, cost)) = kept.iter_mut().find(|(it, _)| it.child == run.child) {
                        *cost += usage;
                    }
                    let below = event.fields.get("has_children") != Some(&false.into());
                    kept.retain(|(it, _)| {
                        it.child != run.child || it.mode == Mode::Continuable || below
                    });
                }
            }
        }
        kept
    }
}

proptest! {
    #[test]
    fn the_fold_says_what_the_events_say(lines in proptest::collection::vec(line(), 0..80)) {
        let (mut past, mut all) = (RunPast::default(), Everything::default());
        let mut history = Vec::new();
        for (n, line) in lines.into_iter().enumerate() {
            let event = match line {
                Line::Begin(child, call) => {
                    let run = run(n, child, call);
                    let event = run.started();
                    all.begun.push((run, true));
                    Some(event)
                }
                Line::End(at, below) => {
                    let open = all.open();
                    (!open.is_empty()).then(|| {
                        let (run, _) = at.get(&open).clone();
                        all.end(run.clone(), below);
                        run.settled(Outcome::Completed, cost(all.ended.len() as u64), below)
                    })
                }
                Line::EndUnheard(child) => {
                    let run = run(n, child, true);
                    all.end(run.clone(), false);
                    Some(run.settled(Outcome::Completed, cost(all.ended.len() as u64), false))
                }
                Line::Step => {
                    past.step_begins();
                    all.call_ends.clear();
                    all.in_step = true;
                    None
                }
                Line::StepEnd => {
                    past.step_ends();
                    all.in_step = false;
                    None
                }
                Line::Residency => {
                    past.residency_begins();
                    all.below = TreeUsage::default();
                    all.begun.iter_mut().for_each(|(_, present)| *present = false);
                    None
                }
            };
            if let Some(event) = event {
                past.apply(&event);
                history.push(event);
            }
        }
        let open = all.open();
        let runs = |open: &[(RunRecord, bool)]| -> Vec<_> {
            open.iter().map(|(run, _)| run.clone()).collect()
        };
        prop_assert_eq!(past.open_runs(), runs(&open));
        prop_assert_eq!(past.has_open_runs(), !open.is_empty());
        let present: Vec<_> = open.into_iter().filter(|(_, present)| *present).collect();
        prop_assert_eq!(past.present_open_runs(), runs(&present));
        prop_assert_eq!(past.present_cost(), all.below);
        prop_assert_eq!(past.call_ends(), &all.call_ends[..]);
        prop_assert_eq!(past.children(), all.children(&history));
        let last = all.ended.last().map(|(end, _)| end);
        let last = last.filter(|(run, ..)| all.begun.iter().any(|(it, _)| it.run_id == run.run_id));
        prop_assert_eq!(past.last_end(), last);
        for (run, _) in &all.begun {
            let known = if all.is_over(&run.run_id) { Known::Ended } else { Known::Open };
            prop_assert_eq!(past.knows(&run.run_id), Some(known));
        }
    }
}

#[test]
fn a_run_of_long_ago_is_left_to_the_log_and_a_new_one_is_not() {
    let mut past = RunPast::default();
    let runs = RECENT + 3;
    for n in 0..runs {
        let run = run(n, 1, false);
        past.apply(&run.started());
        past.apply(&run.settled(Outcome::Completed, cost(1), false));
    }
    assert_eq!(past.knows(&run_id(0)), None);
    assert_eq!(past.knows(&run_id(2)), None);
    assert_eq!(past.knows(&run_id(3)), Some(Known::Ended));
    assert_eq!(past.knows(&run_id(runs - 1)), Some(Known::Ended));
    assert_eq!(past.knows(&run_id(runs)), Some(Known::Never));
    assert!(past.children().is_empty() && !past.has_open_runs());
}
