//! What crates above keep in place of their events: the same for a live agent, for its resumption and for
//! who makes it from the events.

mod support;

use std::sync::Arc;

use offshoot_agent::{
    Agent, AgentId, AgentSpec, Event, EventCheck, EventFold, EventRule, Extension, Fold,
    MemoryStore, Origin, SessionStart, SessionStore as _, StoredEvent,
};
use offshoot_core::Timestamp;
use proptest::prelude::*;
use support::World;

/// What came since the last step and since the residency began, and how much there ever was.
#[derive(Clone, Debug, Default, PartialEq)]
struct Tails {
    count: usize,
    of_step: Vec<String>,
    of_residency: Vec<String>,
    /// How much there was when the last step ended.
    ended_at: usize,
}

impl EventFold for Tails {
    const CLAIMS: &'static [&'static str] = &["x/claimed", "x/boom"];

    fn apply(&mut self, event: &Extension) {
        assert_ne!(event.kind, "x/boom", "as asked");
        self.count += 1;
        self.of_step.push(event.kind.clone());
        self.of_residency.push(event.kind.clone());
    }

    fn step_begins(&mut self) {
        self.of_step.clear();
    }

    fn step_ends(&mut self) {
        self.ended_at = self.count;
    }

    fn residency_begins(&mut self) {
        self.of_residency.clear();
    }
}

struct TailRule;

impl EventRule for TailRule {
    fn check(&self, _: &AgentId) -> EventCheck {
        Box::new(|_| Ok(()))
    }

    fn fold(&self) -> Option<Fold> {
        Some(Fold::of::<Tails>())
    }
}

fn world() -> World {
    let mut world = World::new();
    world.host.event_rules = Arc::new([Arc::new(TailRule)]);
    world
}

fn tails(agent: &Agent) -> Tails {
    agent.with_projection(|p| p.fold::<Tails>().into_owned())
}

fn record(agent: &Agent, kind: &str) {
    agent.record(Extension::new(kind)).expect("recorded");
}

#[tokio::test(start_paused = true)]
async fn what_a_fold_claims_is_not_kept_and_its_resumption_has_the_same() {
    let world = world();
    let spec = AgentSpec {
        id: Some("s".parse().expect("an id")),
        ..world.spec()
    };
    let agent = Agent::create(&world.host, None, spec).expect("an agent");
    for kind in ["x/claimed", "x/other", "x/claimed"] {
        record(&agent, kind);
    }
    let ignorable = Extension::new("x/claimed").ignorable();
    agent.record(ignorable).expect("recorded");
    let kept = |agent: &Agent| -> Vec<_> {
        agent.with_projection(|p| p.extensions().map(|it| it.kind.clone()).collect())
    };
    assert_eq!(kept(&agent), ["x/other"]);
    let live = tails(&agent);
    assert_eq!((live.count, live.of_residency.len()), (3, 3));
    let id = agent.id().clone();
    world.finish(agent.into_agent()).await;

    let resumed = Agent::resume(&world.host, None, &id, Default::default(), world.kit());
    let resumed = resumed.expect("the session").into_agent();
    let after = tails(&resumed);
    assert_eq!((after.count, after.of_residency.len()), (3, 0));
    assert_eq!(kept(&resumed), ["x/other"]);
    world.finish(resumed).await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_begins_with_another_ones_past_has_folded_nothing_of_it() {
    let world = world();
    let agent = world.agent();
    record(&agent, "x/claimed");
    record(&agent, "x/other");
    let seed = world.log(&agent);
    let spec = AgentSpec {
        seed: Some(seed),
        ..world.spec()
    };
    let fork = Agent::create(&world.host, None, spec).expect("a fork");
    assert_eq!(tails(&fork), Tails::default());
    record(&fork, "x/claimed");
    assert_eq!(tails(&fork).count, 1);
    world.finish(fork.into_agent()).await;
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_a_fold_is_contained() {
    let world = world();
    let agent = world.agent();
    record(&agent, "x/claimed");
    record(&agent, "x/boom");
    record(&agent, "x/claimed");
    assert_eq!(tails(&agent).count, 2);
    assert_eq!(world.log(&agent).len(), 4, "all of it is on record");
    world.finish(agent).await;
}

#[derive(Clone, Copy, Debug)]
enum Line {
    Claimed,
    Other,
    Step,
    StepEnd,
    Residency,
}

fn lines() -> impl Strategy<Value = Vec<Line>> {
    let line = prop_oneof![
        4 => Just(Line::Claimed),
        4 => Just(Line::Other),
        2 => Just(Line::Step),
        1 => Just(Line::StepEnd),
        1 => Just(Line::Residency),
    ];
    proptest::collection::vec(line, 0..40)
}

fn event(line: Line) -> Event {
    match line {
        Line::Claimed => Extension::new("x/claimed").into(),
        Line::Other => Extension::new("x/other").into(),
        Line::Step => Event::StepStart { turn: 1, step: 1 },
        Line::StepEnd => Event::StepEnd { turn: 1, step: 1 },
        Line::Residency => Event::SessionStart(Arc::new(SessionStart {
            parent: None,
            label: None,
            origin: Origin::Root,
            depth: 0,
            resumed: true,
            inherited: None,
            extra: Default::default(),
        })),
    }
}

proptest! {
    /// With the rule, without it, and by hand.
    #[test]
    fn a_fold_is_the_same_as_its_replay(lines in lines()) {
        let mut by_hand = Tails::default();
        for line in &lines {
            match line {
                Line::Claimed => by_hand.apply(&Extension::new("x/claimed")),
                Line::Other => by_hand.apply(&Extension::new("x/other")),
                Line::Step => by_hand.step_begins(),
                Line::StepEnd => by_hand.step_ends(),
                Line::Residency => by_hand.residency_begins(),
            }
        }
        let store = Arc::new(MemoryStore::default());
        let id: AgentId = "s".parse().expect("an id");
        let mut log = store.create(&id, 0).expect("a session");
        let time = Timestamp::from_millis(0);
        let first = std::iter::once(Line::Residency).chain(lines);
        let events: Vec<_> = (0..)
            .zip(first)
            .map(|(seq, line)| StoredEvent { seq, time, event: event(line) })
            .collect();
        log.append(0, &events).expect("appended");
        let mut host = offshoot_agent::AgentHost::new(store, Default::default());
        let replayed = host.project(&id).expect("the session");
        host.event_rules = Arc::new([Arc::new(TailRule)]);
        let folded = host.project(&id).expect("the session");
        prop_assert_eq!(&*folded.fold::<Tails>(), &by_hand);
        prop_assert_eq!(&*replayed.fold::<Tails>(), &by_hand);
    }
}
