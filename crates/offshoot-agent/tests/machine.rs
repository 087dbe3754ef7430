//! The pure state machine in a host of a few lines, whose log refuses whenever the test wants it to.

mod support;

use std::collections::HashMap;
use std::sync::Arc;

use offshoot_agent::machine::{
    Accept, After, BeginStep, Cancel, Close, CloseIfSettled, Closed, Command, EndTurn, Machine,
    NextTurn, Reorder, Repair, Replace, Rest, ResumeParked, Settle, Start, StepEnded, TurnEnded,
    Withdraw,
};
use offshoot_agent::{
    AgentSettings, CancelCause, Event, MessageId, Origin, Pending, Projection, Resumed, SendError,
    SessionStart, StepOutcome, StoredEvent, Target, TurnEndReason,
};
use proptest::collection::vec;
use proptest::prelude::*;
use support::{Fate, from_agent, notice, user};

#[derive(Clone, Debug)]
enum Op {
    Followup,
    Steer,
    Inject,
    Notify(bool),
    Cancel(CancelCause, Pending),
    Withdraw(usize),
    Replace(usize),
    Reorder(usize, Target, Option<usize>),
    Resume,
    Drive(StepOutcome),
    Fail,
    Close(Pending),
    CloseIfSettled(bool),
}

fn op() -> impl Strategy<Value = Op> {
    let pending = || prop_oneof![3 => Just(Pending::Keep), 1 => Just(Pending::Discard)];
    let cause = prop_oneof![Just(CancelCause::User), Just(CancelCause::Interrupt)];
    let target = prop_oneof![Just(Target::NextStep), Just(Target::NextTurn)];
    let outcome = prop_oneof![
        1 => Just(StepOutcome::Continue),
        3 => Just(StepOutcome::Completed),
        1 => Just(StepOutcome::MaxTokens),
        1 => Just(StepOutcome::Refusal),
        1 => Just(StepOutcome::Final),
    ];
    let some = || 0..12_usize;
    prop_oneof![
        3 => Just(Op::Followup),
        3 => Just(Op::Steer),
        2 => Just(Op::Inject),
        2 => any::<bool>().prop_map(Op::Notify),
        2 => (cause, pending()).prop_map(|(cause, pending)| Op::Cancel(cause, pending)),
        1 => some().prop_map(Op::Withdraw),
        1 => some().prop_map(Op::Replace),
        1 => (some(), target, proptest::option::of(some()))
            .prop_map(|(which, target, before)| Op::Reorder(which, target, before)),
        1 => Just(Op::Resume),
        10 => outcome.prop_map(Op::Drive),
        1 => Just(Op::Fail),
        1 => pending().prop_map(Op::Close),
        1 => any::<bool>().prop_map(Op::CloseIfSettled),
    ]
}

fn id(n: usize) -> MessageId {
    format!("m{n}").parse().expect("an id")
}

/// A host: a log, and whether somebody drives turns.
struct Host {
    machine: Machine,
    log: Vec<StoredEvent>,
    /// The log refuses what comes next.
    refuses: bool,
    driven: bool,
    /// The step that runs has been begun, and was told to stop.
    step: Option<bool>,
    accepted: Vec<MessageId>,
    sent: usize,
}

impl Host {
    fn new() -> Self {
        let settings = AgentSettings {
            max_steps_per_turn: 4,
            max_steered_steps: 1,
            inbox_capacity: 5,
            ..AgentSettings::default()
        };
        let mut host = Self {
            machine: Machine::new(Projection::default(), Arc::new(settings)),
            log: Vec::new(),
            refuses: false,
            driven: false,
            step: None,
            accepted: Vec::new(),
            sent: 0,
        };
        let start = SessionStart {
            parent: None,
            label: None,
            origin: Origin::Root,
            depth: 0,
            resumed: false,
            inherited: None,
            extra: Default::default(),
        };
        let stored = host.store(vec![start.into()]);
        host.machine.commit(Default::default(), &stored);
        host.run(Start);
        host
    }

    fn store(&mut self, events: Vec<Event>) -> Vec<StoredEvent> {
        let stored: Vec<_> = (self.log.len() as u64..)
            .zip(events)
            .map(|(seq, event)| {
                let time = offshoot_core::Timestamp::default();
                StoredEvent { seq, time, event }
            })
            .collect();
        self.log.extend(stored.iter().cloned());
        stored
    }

    /// The reply, and whether it holds.
    fn run<C: Command>(&mut self, command: C) -> (C::Reply, bool) {
        let (reply, effects) = self.machine.apply(command);
        if effects.cut
            && let Some(told) = &mut self.step
        {
            *told = true;
        }
        if self.refuses && !effects.events.is_empty() {
            return (reply, false);
        }
        if effects.then.opens_turn() {
            assert!(self.machine.closing().is_none(), "a turn starts at the end");
        }
        let stored = self.store(effects.events);
        self.machine.commit(effects.then, &stored);
        if effects.drive {
            assert!(!self.driven, "two drives");
            self.driven = true;
        }
        (reply, true)
    }

    fn send(&mut self, command: impl FnOnce(usize) -> Accept) {
        if self.machine.needs_repair() && !self.run(Repair).1 {
            return;
        }
        let n = self.sent;
        let waiting = self.machine.projection().inbox().len();
        match self.run(command(n)) {
            (Ok(delivered), true) => {
                assert_eq!(delivered.message_id, id(n));
                self.accepted.push(delivered.message_id);
                self.sent += 1;
            }
            (Ok(_), false) => {}
            (Err(SendError::Full(found)), _) => {
                assert_eq!((found, found >= 5), (waiting, true));
            }
            (Err(refusal), _) => {
                assert!(matches!(refusal, SendError::Closing | SendError::Closed));
                assert!(self.machine.closing().is_some(), "{refusal}");
            }
        }
    }

    /// What a drive does between two waits.
    fn drive(&mut self, ended: StepEnded) {
        if !self.driven {
            return;
        }
        let after = match self.step.take() {
            Some(_) => self.run(ended).0,
            None => After::Step,
        };
        let end = match after {
            After::End(end) => end,
            After::Step => match self.run(BeginStep) {
                (Some(_), true) => {
                    self.step = Some(false);
                    return;
                }
                (Some(_), false) => TurnEnded::error("the log"),
                (None, _) => TurnEnded::new(TurnEndReason::Aborted),
            },
        };
        let reason = end.reason;
        self.run(EndTurn(end));
        match self.run(NextTurn(reason)) {
            (true, true) => return,
            (true, false) => {
                self.run(Rest);
            }
            (false, _) => {}
        }
        self.driven = false;
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Followup => self.send(|n| Accept::followup(user(&format!("m{n}")))),
            Op::Steer => self.send(|n| Accept::steer(from_agent(&format!("m{n}")))),
            Op::Inject => self.send(|n| Accept::inject(user(&format!("m{n}")))),
            Op::Notify(wake) => {
                self.send(|n| Accept::notice(Vec::new(), notice(&format!("m{n}"), 1), wake));
            }
            Op::Cancel(cause, pending) => {
                let running = self.machine.is_running();
                assert_eq!(self.run(Cancel { cause, pending }).0, running);
                assert_eq!(self.machine.is_cut(), running, "a stop needs no log");
            }
            Op::Withdraw(n) => {
                self.run(Withdraw {
                    id: id(n),
                    cause: "test".to_owned(),
                });
            }
            Op::Replace(n) => {
                let new = self.sent;
                let message = user(&format!("m{new}"));
                if let (Ok(delivered), true) = self.run(Replace { id: id(n), message }) {
                    self.accepted.push(delivered.message_id);
                    self.sent += 1;
                }
            }
            Op::Reorder(n, target, before) => {
                let (id, before) = (id(n), before.map(id));
                let _ = self.run(Reorder { id, target, before });
            }
            Op::Resume => {
                if self.machine.needs_repair() && !self.run(Repair).1 {
                    return;
                }
                let (waits, idle) = (
                    !self.machine.projection().inbox().is_empty(),
                    !self.machine.is_running() && self.machine.closing().is_none(),
                );
                let (resumed, holds) = self.run(ResumeParked);
                let started = matches!(resumed, Ok(Resumed::TurnStarted));
                assert_eq!(started, waits && idle);
                assert!(
                    self.driven || !(started && holds),
                    "a turn that nobody runs"
                );
            }
            Op::Drive(outcome) => self.drive(StepEnded::Came(outcome)),
            Op::Fail => self.drive(StepEnded::Failed("no".to_owned())),
            Op::Close(pending) => {
                let before = self.machine.closing();
                let began = self.run(Close {
                    pending,
                    held: false,
                });
                assert_eq!(began.0, before.is_none());
                assert_eq!(self.machine.closing(), before.or(Some(pending)));
            }
            Op::CloseIfSettled(held) => {
                let quiet = !self.machine.is_running() && !held;
                let before = self.machine.closing().is_some();
                let began = self.run(CloseIfSettled { held }).0;
                assert!(!began || (quiet && !before));
            }
        }
    }

    fn check(&self) {
        assert_eq!(self.driven, self.machine.is_running(), "who drives");
        let (live, folded) = (self.machine.projection(), Projection::of(&self.log));
        assert_eq!(live.inbox(), folded.inbox(), "accepted means appended");
        assert_eq!(live.history(), folded.history());
        assert_eq!(live.open_turn(), folded.open_turn());
        assert_eq!(live.facts(), folded.facts());
    }

    /// The agent ends; each accepted message has had one fate, or waits for the next residency.
    fn end(mut self) {
        self.refuses = false;
        self.run(Close {
            pending: Pending::Keep,
            held: false,
        });
        while self.driven {
            self.drive(StepEnded::Dropped);
        }
        let discards = self.machine.closing() == Some(Pending::Discard);
        self.run(Settle);
        self.run(Closed);
        self.check();
        let ledger = support::check_closed(&self.log);
        let mut fates: HashMap<_, _> = ledger.0.into_iter().collect();
        for id in &self.accepted {
            let fate = fates.remove(id.as_str());
            assert!(
                matches!(fate, Some(Fate::Read | Fate::Discarded | Fate::Waits)),
                "{id}: {fate:?}"
            );
            assert!(!discards || fate != Some(Fate::Waits), "{id} is left");
        }
        assert!(fates.is_empty(), "appended and not accepted: {fates:?}");
        let late = self.machine.apply(Accept::followup(user("late"))).0;
        assert!(matches!(late, Err(SendError::Closed)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_host_whose_log_refuses_now_and_then_loses_and_doubles_nothing(
        ops in vec((op(), prop::bool::weighted(0.1)), 1..80),
    ) {
        let mut host = Host::new();
        for (op, refuses) in ops {
            host.refuses = refuses;
            host.apply(op);
            host.check();
        }
        host.end();
    }
}
