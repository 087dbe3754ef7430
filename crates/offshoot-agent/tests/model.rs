//! Random lives of an agent beside a plain sequential model of one, and what a crash leaves of them.

mod support;

use std::sync::Arc;
use std::time::Duration;

use offshoot_agent::{
    Agent, AgentHost, AgentSettings, AgentSpec, CancelCause, DriverError, MemoryStore, Pending,
    Placement, Projection, Resumed, SessionStore, Status, StepOutcome, StoredEvent, Target,
};
use proptest::collection::vec;
use proptest::prelude::*;
use support::model::{MAX_CHAIN, MAX_STEERED, MAX_STEPS, Model, Next, Note, Outcome, Phase};
use support::{Fate, Manner, Step, World, from_agent, notice, user};

#[derive(Clone, Copy, Debug)]
enum Op {
    Followup {
        user: bool,
    },
    Steer {
        user: bool,
    },
    Inject {
        user: bool,
        passive: bool,
    },
    Notify {
        wake: bool,
        generation: u64,
    },
    Cancel(CancelCause, Pending),
    Withdraw(usize),
    Replace {
        old: usize,
        user: bool,
    },
    Reorder {
        which: usize,
        target: Target,
        before: Option<usize>,
    },
    Resume,
    Settle,
    Finish(Outcome),
}

fn op() -> impl Strategy<Value = Op> {
    let cause = prop_oneof![
        Just(CancelCause::User),
        Just(CancelCause::Parent),
        Just(CancelCause::Interrupt),
    ];
    let pending = prop_oneof![3 => Just(Pending::Keep), 1 => Just(Pending::Discard)];
    let outcome = prop_oneof![
        3 => Just(Outcome::Continue),
        4 => Just(Outcome::Completed),
        1 => Just(Outcome::MaxTokens),
        1 => Just(Outcome::Refusal),
        1 => Just(Outcome::Error),
        1 => Just(Outcome::Panic),
    ];
    prop_oneof![
        3 => any::<bool>().prop_map(|user| Op::Followup { user }),
        3 => any::<bool>().prop_map(|user| Op::Steer { user }),
        3 => any::<(bool, bool)>().prop_map(|(user, passive)| Op::Inject { user, passive }),
        3 => (any::<bool>(), 0..=MAX_CHAIN + 1)
            .prop_map(|(wake, generation)| Op::Notify { wake, generation }),
        2 => (cause, pending).prop_map(|(cause, pending)| Op::Cancel(cause, pending)),
        1 => (0..20_usize).prop_map(Op::Withdraw),
        2 => (0..20_usize, any::<bool>()).prop_map(|(old, user)| Op::Replace { old, user }),
        2 => (0..20_usize, any::<bool>(), proptest::option::of(0..20_usize))
            .prop_map(|(which, step, before)| Op::Reorder {
                which,
                target: if step { Target::NextStep } else { Target::NextTurn },
                before,
            }),
        1 => Just(Op::Resume),
        4 => Just(Op::Settle),
        6 => outcome.prop_map(Op::Finish),
    ]
}

struct Pair {
    world: World,
    agent: Agent,
    model: Model,
    step: Option<Step>,
    sent: usize,
}

impl Pair {
    fn new() -> Self {
        let settings = AgentSettings {
            max_steps_per_turn: MAX_STEPS,
            max_steered_steps: MAX_STEERED,
            max_wake_chain: MAX_CHAIN,
            cancel_grace: Duration::from_secs(30),
            ..AgentSettings::default()
        };
        let world = World::with(Manner::Deaf, settings);
        let agent = world.agent();
        Self {
            world,
            agent,
            model: Model::default(),
            step: None,
            sent: 0,
        }
    }

    fn send(&mut self, target: Target, wake: bool, by_user: bool, passive: bool) {
        let name = format!("m{}", self.sent);
        self.sent += 1;
        let message = if by_user {
            user(&name)
        } else {
            from_agent(&name)
        };
        let delivered = match (target, wake) {
            (Target::NextTurn, _) => self.agent.followup(message),
            (Target::NextStep, true) => self.agent.steer(message),
            (Target::NextStep, false) if passive => self.agent.inject_passively(message),
            (Target::NextStep, false) => self.agent.inject(message),
        };
        let placement = self.model.accept(Note {
            name: name.clone(),
            target,
            wake,
            user: by_user,
            generation: 0,
            passive,
        });
        let delivered = delivered.expect("accepted");
        self.placed(placement, delivered.placement);
        let at = self.model.waiting().iter().position(|n| *n == name);
        assert_eq!(delivered.ahead, at.unwrap_or(0), "how many are before it");
    }

    fn placed(&self, expected: Placement, found: Placement) {
        assert_eq!(found, expected, "the placement");
    }

    async fn apply(&mut self, op: Op) {
        match op {
            Op::Followup { user } => self.send(Target::NextTurn, true, user, false),
            Op::Steer { user } => self.send(Target::NextStep, true, user, false),
            Op::Inject { user, passive } => self.send(Target::NextStep, false, user, passive),
            Op::Notify { wake, generation } => {
                let name = format!("m{}", self.sent);
                self.sent += 1;
                let delivered = self.agent.notify(notice(&name, generation), wake);
                let quiet = generation > MAX_CHAIN || self.model.stopped;
                let placement = self.model.accept(Note {
                    name,
                    target: Target::NextStep,
                    wake: wake && !quiet,
                    user: false,
                    generation,
                    passive: false,
                });
                self.placed(placement, delivered.expect("accepted").placement);
            }
            Op::Cancel(cause, pending) => {
                let ran = self.agent.cancel(cause, pending);
                assert_eq!(ran, self.model.cancel(cause, pending));
            }
            Op::Withdraw(n) => {
                let name = format!("m{n}");
                let found = self.agent.withdraw(&name.parse().expect("an id"), "test");
                assert_eq!(found, self.model.withdraw(&name), "{name}");
            }
            Op::Replace { old, user: by_user } => {
                let (old, new) = (format!("m{old}"), format!("m{}", self.sent));
                let message = if by_user {
                    user(&new)
                } else {
                    from_agent(&new)
                };
                let found = self.agent.replace(&old.parse().expect("an id"), message);
                let expected = self.model.replace(&old, &new, by_user);
                match found {
                    Ok(delivered) => {
                        assert!(expected, "{old}");
                        self.sent += 1;
                        let at = self.model.waiting().iter().position(|name| *name == new);
                        assert_eq!(Some(delivered.ahead), at);
                    }
                    Err(error) => {
                        assert!(!expected, "{error}");
                        assert_eq!(error.code(), "NOT_WAITING");
                    }
                }
            }
            Op::Reorder {
                which,
                target,
                before,
            } => {
                let (which, before) = (format!("m{which}"), before.map(|n| format!("m{n}")));
                let id = |name: &str| name.parse().expect("an id");
                let front = before.as_deref().map(id);
                let moved = self.agent.reorder(&id(&which), target, front.as_ref());
                let expected = self.model.reorder(&which, target, before.as_deref());
                assert_eq!(moved.is_ok(), expected, "{which} before {before:?}");
            }
            Op::Resume => {
                let resumed = self.agent.resume_parked().expect("not closing");
                assert_eq!(resumed == Resumed::TurnStarted, self.model.resume());
            }
            Op::Settle => {
                let next = self.model.settle();
                self.follow(next).await;
            }
            Op::Finish(outcome) => {
                if let Some(step) = self.step.take() {
                    match outcome {
                        Outcome::Continue => step.go_on(),
                        Outcome::Completed => step.complete(),
                        Outcome::MaxTokens => step.end(Ok(StepOutcome::MaxTokens)),
                        Outcome::Refusal => step.end(Ok(StepOutcome::Refusal)),
                        Outcome::Error => step.end(Err(DriverError::new("no"))),
                        Outcome::Panic => step.panic(),
                    }
                    let next = self.model.finish(outcome);
                    self.follow(next).await;
                }
            }
        }
        self.compare();
    }

    async fn follow(&mut self, next: Next) {
        match next {
            Next::Step { at, read } => {
                let step = self.world.stage.next().await;
                assert_eq!(step.at(), format!("{}/{}", at.0, at.1));
                assert_eq!(step.read(), read, "what entered step {}", step.at());
                self.step = Some(step);
            }
            Next::Idle => {
                support::soon("idle", self.agent.idle()).await;
            }
            Next::Nothing => {}
        }
    }

    fn compare(&self) {
        let waiting: Vec<String> = self.agent.with_projection(|p| {
            let entries = p.inbox().entries();
            entries.map(|entry| entry.message.id.to_string()).collect()
        });
        assert_eq!(waiting, self.model.waiting(), "what waits");
        let running = self.agent.status() == Status::Running;
        assert_eq!(running, self.model.is_running(), "whether a turn runs");
        let (turn, stopped) = self
            .agent
            .with_projection(|p| (p.turn(), p.stopped_by_user()));
        assert_eq!((turn, stopped), (self.model.turn, self.model.stopped));
        if let Some((_, generation)) = self.agent.current_turn() {
            assert_eq!(generation, self.model.generation, "the generation");
        }
        let log = self.world.log(&self.agent);
        let folded = Projection::of(&log);
        self.agent.with_projection(|live| {
            assert_eq!(folded.inbox(), live.inbox(), "the fold of the log");
            assert_eq!(folded.history(), live.history());
            assert_eq!(folded.facts(), live.facts());
            assert_eq!(folded.open_turn(), live.open_turn());
            if live.open_turn().is_none() {
                // Until then a stop may be told with the end of the turn.
                assert_eq!(folded.stopped_by_user(), live.stopped_by_user());
            }
        });
        support::check(&log);
    }

    /// Closes the agent; gives its log.
    async fn end(mut self) -> Vec<StoredEvent> {
        let agent = self.agent.clone();
        let ledger = self.world.finish(self.agent).await;
        self.model.cancel(CancelCause::Disposed, Pending::Keep);
        if let Phase::Opened { .. } = self.model.phase {
            // What was latched before waits like the rest: an agent that ends opens no turn.
            self.model.drop_latch();
            self.model.settle();
        }
        let mut expected = Vec::new();
        expected.extend(self.model.read.iter().map(|name| (name, Fate::Read)));
        expected.extend(
            self.model
                .discarded
                .iter()
                .map(|name| (name, Fate::Discarded)),
        );
        let waiting = self.model.waiting();
        expected.extend(waiting.iter().map(|name| (name, Fate::Waits)));
        expected.sort();
        let found: Vec<_> = ledger.0.iter().map(|(name, fate)| (name, *fate)).collect();
        assert_eq!(found, expected);
        self.world.log(&agent)
    }
}

/// A process that dies after `kept` events of `log`; the next one runs what waits to the end.
async fn crash(log: &[StoredEvent], kept: usize) {
    let store = MemoryStore::default();
    let id = "s".parse().expect("an id");
    let mut writer = store.create(&id, 0).expect("a session");
    writer.append(0, &log[..kept]).expect("an append");
    drop(writer);
    let host = AgentHost::new(Arc::new(store), AgentSettings::default());
    let (driver, stage) = support::stage(Manner::Polite);
    drop(stage);
    let kit = AgentSpec::root(support::kit(Arc::new(driver))).kit;
    let agent = Agent::resume(&host, None, &id, Default::default(), kit)
        .expect("the session")
        .into_agent();
    agent.start();
    support::soon("idle", agent.idle()).await;
    agent.steer(user("last")).expect("accepted");
    support::soon("idle", agent.idle()).await;
    agent.close(Pending::Keep).await;
    let before = support::check(&log[..kept]);
    let after = support::check_closed(&host.store.read(&id).expect("the log"));
    for (name, fate) in &before.0 {
        let expected = match fate {
            Fate::Discarded => Fate::Discarded,
            Fate::Read | Fate::Waits | Fate::Claimed => Fate::Read,
        };
        assert_eq!(after.of(name), Some(expected), "{name} after {kept} events");
    }
}

fn run(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime")
        .block_on(future);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn an_agent_lives_as_the_model_does(
        ops in vec(op(), 1..60),
        cuts in vec(any::<proptest::sample::Index>(), 3),
    ) {
        run(async {
            let mut pair = Pair::new();
            for op in ops {
                pair.apply(op).await;
            }
            let log = pair.end().await;
            for cut in cuts {
                crash(&log, 1 + cut.index(log.len())).await;
            }
        });
    }
}
