use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;

use offshoot_agent::Pending;

use crate::Interrupter;

use super::{Activation, Command, Effect, Phase, Reply};

const COMMANDS: [Command; 11] = [
    Command::Failed,
    Command::Recorded,
    Command::Refused(Pending::Discard),
    Command::Begun,
    Command::Deliver,
    Command::Interrupt(Interrupter::Model),
    Command::Close(Pending::Keep),
    Command::Close(Pending::Discard),
    Command::Waiting { turn: 1 },
    Command::Waiting { turn: 2 },
    Command::Settled,
];

/// Every state that the commands lead to; interrupts are counted up to one.
fn reachable() -> Vec<Activation> {
    let (mut seen, mut next) = (Vec::new(), VecDeque::from([Activation::default()]));
    while let Some(state) = next.pop_front() {
        if seen.contains(&state) || state.interrupts > 1 {
            continue;
        }
        for command in COMMANDS {
            let mut after = state.clone();
            after.apply(command);
            next.push_back(after);
        }
        seen.push(state);
    }
    seen
}

/// The states without what only counts: which interrupts and which waits were.
#[test]
fn the_table_of_transitions() {
    let mut lines = BTreeSet::new();
    for state in reachable() {
        for command in COMMANDS {
            let mut after = state.clone();
            let (reply, effects) = after.apply(command);
            let close = |state: &Activation| match (state.close, state.interrupt) {
                (Some(pending), _) => format!(", then {pending:?}"),
                (None, Some(_)) => ", then interrupt".to_owned(),
                (None, None) => String::new(),
            };
            let mut line = String::new();
            let (from, to) = (close(&state), close(&after));
            let effects: Vec<_> = effects.iter().map(ToString::to_string).collect();
            let effects = effects.join(", ");
            write!(
                line,
                "{:?}/{:?}{from} + {command:?} = {reply:?}: {:?}/{:?}{to} [{effects}]",
                state.phase, state.known, after.phase, after.known
            )
            .unwrap();
            lines.insert(line);
        }
    }
    let table: Vec<_> = lines.into_iter().collect();
    insta::assert_snapshot!(table.join("\n"));
}

/// Whatever comes in whatever order: a residency is settled and released once, and what comes again
/// has no effect.
#[test]
fn what_comes_twice_has_one_effect() {
    for state in reachable() {
        for command in COMMANDS {
            let mut once = state.clone();
            let (first, _) = once.apply(command);
            if matches!(command, Command::Interrupt(_) | Command::Deliver) || first == Reply::Later
            {
                continue;
            }
            let mut twice = once.clone();
            let (reply, effects) = twice.apply(command);
            assert!(
                matches!(reply, Reply::NoOp | Reply::Duplicate | Reply::Later),
                "{state:?} {command:?}: {reply:?}"
            );
            assert_eq!(effects, []);
            assert_eq!(twice, once);
        }
        if state.phase() == Phase::Settled {
            for command in COMMANDS {
                let (_, effects) = state.clone().apply(command);
                assert!(!effects.contains(&Effect::Release), "{command:?}");
            }
        }
    }
}
