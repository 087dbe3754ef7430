//! The fold against what the events themselves say.

use offshoot_agent::{EventFold, Extension};
use offshoot_subagent::Outcome;
use proptest::prelude::*;
use serde_json::json;

use super::{SETTLED, STARTED, STOPPING, TaskPast};

fn id(n: usize) -> String {
    let kind = if n.is_multiple_of(3) { "agent" } else { "bash" };
    format!("{kind}-{}", n + 1)
}

fn started(n: usize) -> Extension {
    let (kind, _) = id(n)
        .split_once('-')
        .map(|(kind, n)| (kind.to_owned(), n.to_owned()))
        .expect("an id");
    Extension::new(STARTED)
        .with("task_id", id(n))
        .with("kind", kind)
        .with("label", format!("l{n}"))
        .with("generation", 2)
}

fn settled(n: usize, reported: bool) -> Extension {
    Extension::new(SETTLED)
        .with("task_id", id(n))
        .with("status", "completed")
        .with("reported", reported)
}

fn run_ended(n: usize) -> Extension {
    Extension::new("subagent/settled")
        .with("child", format!("c{n}"))
        .with("run_id", format!("r{n}"))
        .with("provider", "spawn")
        .with("mode", "one-shot")
        .with("label", "l")
        .with("task_id", id(n))
        .with("outcome", "completed")
        .with("usage", json!({}))
}

#[derive(Clone, Debug)]
enum Line {
    Begin,
    Stopping(prop::sample::Index),
    RunEnd(prop::sample::Index),
    End(prop::sample::Index, bool),
    EndUnheard(bool),
    Step,
    StepEnd,
}

fn line() -> impl Strategy<Value = Line> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        6 => Just(Line::Begin),
        1 => at().prop_map(Line::Stopping),
        2 => at().prop_map(Line::RunEnd),
        5 => (at(), any::<bool>()).prop_map(|(at, reported)| Line::End(at, reported)),
        1 => any::<bool>().prop_map(Line::EndUnheard),
        2 => Just(Line::Step),
        2 => Just(Line::StepEnd),
    ]
}

/// A task that began, and what became of it.
#[derive(Clone, Debug)]
struct One {
    n: usize,
    run_ended: bool,
    is_open: bool,
    told_in_step: bool,
}

proptest! {
    #[test]
    fn the_fold_says_what_the_events_say(lines in proptest::collection::vec(line(), 0..80)) {
        let mut past = TaskPast::default();
        let mut all: Vec<One> = Vec::new();
        let mut met: Vec<usize> = Vec::new();
        let (mut in_step, mut last) = (false, None);
        for (n, line) in lines.into_iter().enumerate() {
            let open: Vec<usize> = (0..all.len()).filter(|at| all[*at].is_open).collect();
            match line {
                Line::Begin => {
                    past.apply(&started(n));
                    met.push(n);
                    all.push(One { n, run_ended: false, is_open: true, told_in_step: false });
                }
                Line::Stopping(at) if !open.is_empty() => {
                    let stopping = Extension::new(STOPPING).with("task_id", id(all[*at.get(&open)].n));
                    past.apply(&stopping);
                }
                Line::RunEnd(at) if !open.is_empty() => {
                    let one = &mut all[*at.get(&open)];
                    one.run_ended = true;
                    past.apply(&run_ended(one.n));
                }
                Line::End(at, reported) if !open.is_empty() => {
                    let one = &mut all[*at.get(&open)];
                    one.is_open = false;
                    one.told_in_step = in_step && reported;
                    past.apply(&settled(one.n, reported));
                    last = Some(one.n);
                }
                Line::EndUnheard(reported) => {
                    past.apply(&settled(n, reported));
                    met.push(n);
                    last = None;
                }
                Line::Step => {
                    past.step_begins();
                    in_step = true;
                    all.iter_mut().for_each(|one| one.told_in_step = false);
                }
                Line::StepEnd => {
                    past.step_ends();
                    in_step = false;
                }
                Line::Stopping(_) | Line::RunEnd(_) | Line::End(..) => {}
            }
        }
        let open: Vec<_> = all.iter().filter(|one| one.is_open).collect();
        let ids: Vec<_> = open.iter().map(|one| (id(one.n), format!("l{}", one.n), one.run_ended)).collect();
        let found = past.open_tasks();
        for task in &found {
            prop_assert_eq!(task.run.as_ref().is_none_or(|(_, outcome)| *outcome == Outcome::Completed), true);
        }
        let found: Vec<_> = found
            .into_iter()
            .map(|task| (task.id.to_string(), task.label, task.run.is_some()))
            .collect();
        prop_assert_eq!(found, ids);
        prop_assert_eq!(past.has_open(), !open.is_empty());
        let mut told: Vec<_> = all.iter().filter(|one| one.told_in_step).map(|one| id(one.n)).collect();
        let mut found: Vec<_> = past.reported.iter().map(|end| end.task.id.to_string()).collect();
        told.sort();
        found.sort();
        prop_assert_eq!(found, told);
        let found = past.last_end.as_ref().map(|end| end.task.id.to_string());
        prop_assert_eq!(found, last.map(id));
        for kind in ["agent", "bash"] {
            let of_kind = met.iter().map(|n| id(*n)).filter(|id| id.starts_with(kind));
            let numbers = of_kind.filter_map(|id| id.rsplit_once('-')?.1.parse::<u64>().ok());
            let found = past.greatest().find(|(found, _)| *found == kind);
            prop_assert_eq!(found.map(|(_, greatest)| greatest), numbers.max());
        }
    }
}

#[test]
fn the_run_of_a_task_may_end_after_the_task() {
    let mut past = TaskPast::default();
    past.step_begins();
    past.apply(&started(0));
    past.apply(&settled(0, true));
    past.apply(&run_ended(0));
    assert!(
        past.last_end
            .as_ref()
            .is_some_and(|end| end.task.run.is_some())
    );
    assert!(past.reported[0].task.run.is_some());
}
