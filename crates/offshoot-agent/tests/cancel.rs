//! Cancelling: what becomes of the turn, of what was claimed, of what waits, and of what comes
//! while the turn unwinds.

mod support;

use std::time::Duration;

use offshoot_agent::{
    AgentSettings, CancelCause, Pending, Placement, Status, StepOutcome, TurnEndReason,
};
use support::{Fate, Manner, World, from_agent, notice, soon, user};
use tokio::time::Instant;

fn deaf() -> World {
    World::with(Manner::Deaf, AgentSettings::default())
}

#[tokio::test(start_paused = true)]
async fn a_cancel_of_an_idle_agent_arms_nothing() {
    let mut world = World::new();
    let agent = world.agent();
    assert!(!agent.cancel(CancelCause::Parent, Pending::Discard));
    agent.followup(user("a")).expect("accepted");
    world.stage.next().await.complete();
    support::soon("idle", agent.idle()).await;
    assert_eq!(
        world.trace(&agent).last().map(String::as_str),
        Some("end turn 1 completed")
    );
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_of_an_idle_agent_discards_what_is_parked() {
    let world = World::new();
    let agent = world.agent();
    agent.inject(user("a")).expect("accepted");
    agent.inject(user("b")).expect("accepted");
    assert!(!agent.cancel(CancelCause::Parent, Pending::Keep));
    assert!(!agent.cancel(CancelCause::User, Pending::Discard));
    assert!(!agent.cancel(CancelCause::User, Pending::Discard));
    assert_eq!(
        world.trace(&agent)[2..],
        ["discard a user", "discard b user", "stopped by user"],
        "a second stop says nothing new"
    );
    world.finish(agent).await;
}

/// Decision 28, keep: a claimed message that has not entered is put back to the front.
#[tokio::test(start_paused = true)]
async fn a_claimed_message_is_put_back_when_what_waits_is_kept() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    agent.followup(user("b")).expect("accepted");
    assert!(agent.cancel(CancelCause::Interrupt, Pending::Keep));
    support::soon("idle", agent.idle()).await;
    assert_eq!(
        world.trace(&agent)[1..],
        [
            "turn 1 g0",
            "claim a 1/1",
            "insert b next_turn",
            "end turn 1 aborted interrupt",
        ]
    );
    agent.followup(user("c")).expect("accepted");
    for name in ["a", "b", "c"] {
        let step = world.stage.next().await;
        assert_eq!(step.read(), [name]);
        step.complete();
    }
    support::soon("idle", agent.idle()).await;
    world.finish(agent).await;
}

/// Decision 28, discard: a claimed message that has not entered is discarded with the cause.
#[tokio::test(start_paused = true)]
async fn a_claimed_message_is_discarded_when_what_waits_is_discarded() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    agent.followup(user("b")).expect("accepted");
    agent.cancel(CancelCause::User, Pending::Discard);
    agent.followup(user("c")).expect("accepted");
    let step = world.stage.next().await;
    assert_eq!(step.read(), ["c"], "only what came after the cancel runs");
    assert_eq!(step.at(), "2/1");
    step.complete();
    support::soon("idle", agent.idle()).await;
    assert_eq!(
        world.trace(&agent)[1..8],
        [
            "turn 1 g0",
            "claim a 1/1",
            "insert b next_turn",
            "discard b user",
            "stopped by user",
            "insert c next_turn",
            "discard a user",
        ]
    );
    let ledger = world.finish(agent).await;
    assert_eq!(ledger.all(Fate::Discarded), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_promise_to_discard_is_not_taken_back_by_a_gentler_stop() {
    let world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    agent.cancel(CancelCause::Interrupt, Pending::Discard);
    agent.cancel(CancelCause::Interrupt, Pending::Keep);
    agent.begin_close(Pending::Keep);
    let ledger = world.finish(agent).await;
    assert_eq!(ledger.of("a"), Some(Fate::Discarded));
}

#[tokio::test(start_paused = true)]
async fn a_message_in_the_abort_window_runs_after_the_aborted_turn() {
    for pending in [Pending::Keep, Pending::Discard] {
        let mut world = deaf();
        let agent = world.agent();
        agent.followup(user("a")).expect("accepted");
        let step = world.stage.next().await;
        agent.followup(user("queued")).expect("accepted");
        agent.cancel(CancelCause::User, pending);
        let delivered = agent.followup(user("after")).expect("accepted");
        assert_eq!(delivered.placement, Placement::NextTurn);
        step.complete();
        let expected: &[&str] = match pending {
            Pending::Keep => &["queued", "after"],
            Pending::Discard => &["after"],
        };
        for name in expected {
            let step = world.stage.next().await;
            assert_eq!(step.read(), [*name]);
            step.complete();
        }
        support::soon("idle", agent.idle()).await;
        assert_eq!(world.statuses(agent.id()), ["running", "idle"]);
        world.finish(agent).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_waited_before_a_cancel_stays_parked() {
    let mut world = deaf();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    agent.followup(user("queued")).expect("accepted");
    agent.cancel(CancelCause::Parent, Pending::Keep);
    let quiet = agent.inject(user("quiet")).expect("accepted");
    assert_eq!(
        quiet.placement,
        Placement::Parked,
        "nothing will read it soon"
    );
    step.complete();
    support::soon("idle", agent.idle()).await;
    assert!(world.stage.ready().is_none());
    let ledger = world.finish(agent).await;
    assert_eq!(ledger.all(Fate::Waits), ["queued", "quiet"]);
}

#[tokio::test(start_paused = true)]
async fn a_latched_message_that_is_gone_starts_nothing() {
    for how in ["withdrawn", "cancelled"] {
        let mut world = deaf();
        let agent = world.agent();
        agent.followup(user("a")).expect("accepted");
        let step = world.stage.next().await;
        agent.inject(user("quiet")).expect("accepted");
        agent.cancel(CancelCause::Interrupt, Pending::Keep);
        let latched = agent.steer(user("latched")).expect("accepted").message_id;
        match how {
            "withdrawn" => assert!(agent.withdraw(&latched, "changed")),
            _ => assert!(agent.cancel(CancelCause::Interrupt, Pending::Discard)),
        }
        step.complete();
        support::soon("idle", agent.idle()).await;
        assert_eq!(agent.with_projection(|p| p.turn()), 1, "{how}");
        world.finish(agent).await;
    }
}

/// Decision 4 and B089: a child's message accepted before its settlement is read before it, also
/// when both arrive while a cancelled turn unwinds, or one then and one later.
#[tokio::test(start_paused = true)]
async fn b089_a_steer_in_the_abort_window_is_not_overtaken_by_a_later_one() {
    for settles_in_the_window in [true, false] {
        let mut world = deaf();
        let agent = world.agent();
        agent.followup(user("a")).expect("accepted");
        let step = world.stage.next().await;
        agent.cancel(CancelCause::Interrupt, Pending::Keep);
        agent.followup(user("human")).expect("accepted");
        let steered = agent.steer(from_agent("finding")).expect("accepted");
        assert_eq!(
            (steered.placement, steered.ahead),
            (Placement::NextTurn, 0),
            "A281: the sender is told that this turn does not read it"
        );
        if settles_in_the_window {
            agent.notify(notice("settled", 1), true).expect("accepted");
        }
        step.complete();
        let step = world.stage.next().await;
        if !settles_in_the_window {
            agent.notify(notice("settled", 1), true).expect("accepted");
        }
        step.complete();
        while let Some(step) = next_or_idle(&mut world, &agent).await {
            step.complete();
        }
        let read: Vec<_> = world
            .trace(&agent)
            .into_iter()
            .filter(|line| line.starts_with("read"))
            .collect();
        let at = |name: &str| read.iter().position(|line| line == name);
        assert!(at("read finding") < at("read settled"), "{read:?}");
        assert!(at("read settled").is_some(), "{read:?}");
        world.finish(agent).await;
    }
}

async fn next_or_idle(world: &mut World, agent: &offshoot_agent::Agent) -> Option<support::Step> {
    tokio::select! {
        biased;
        _ = agent.idle() => None,
        step = world.stage.next() => Some(step),
    }
}

/// Notices that wait together cost one step, also in the abort window.
#[tokio::test(start_paused = true)]
async fn notices_in_the_abort_window_cost_one_step() {
    let mut world = deaf();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    agent.cancel(CancelCause::Interrupt, Pending::Keep);
    for n in 1..=5 {
        agent
            .notify(notice(&format!("n{n}"), 1), true)
            .expect("accepted");
    }
    step.complete();
    let step = world.stage.next().await;
    assert_eq!(step.read(), ["n1", "n2", "n3", "n4", "n5"]);
    step.complete();
    support::soon("idle", agent.idle()).await;
    world.finish(agent).await;
}

/// B017: a notice after a user's stop is queued, and the user's next message reads it.
#[tokio::test(start_paused = true)]
async fn b017_after_a_users_stop_notices_are_quiet_until_the_users_next_message() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    world.stage.next().await;
    agent.cancel(CancelCause::User, Pending::Keep);
    agent.notify(notice("n1", 1), true).expect("accepted");
    support::soon("idle", agent.idle()).await;
    let delivered = agent.notify(notice("n2", 1), true).expect("accepted");
    assert_eq!(delivered.placement, Placement::Parked);
    assert_eq!(agent.status(), Status::Idle);
    agent.followup(user("b")).expect("accepted");
    let step = world.stage.next().await;
    assert_eq!(step.read(), ["n1", "n2", "b"]);
    step.complete();
    support::soon("idle", agent.idle()).await;
    let delivered = agent.notify(notice("n3", 1), true).expect("accepted");
    assert_eq!(delivered.placement, Placement::TurnStarted);
    world.stage.next().await.complete();
    support::soon("idle", agent.idle()).await;
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn another_agents_message_wakes_after_a_users_stop_and_leaves_notices_quiet() {
    let mut world = World::new();
    let agent = world.agent();
    agent.cancel(CancelCause::User, Pending::Keep);
    agent.steer(from_agent("work")).expect("accepted");
    world.stage.next().await.complete();
    support::soon("idle", agent.idle()).await;
    let delivered = agent.notify(notice("n", 1), true).expect("accepted");
    assert_eq!(delivered.placement, Placement::Parked);
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_leaves_notices_awake() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    world.stage.next().await;
    agent.cancel(CancelCause::Interrupt, Pending::Keep);
    support::soon("idle", agent.idle()).await;
    let delivered = agent.notify(notice("n", 1), true).expect("accepted");
    assert_eq!(delivered.placement, Placement::TurnStarted);
    world.stage.next().await.complete();
    support::soon("idle", agent.idle()).await;
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn a_deaf_step_is_dropped_at_the_end_of_the_grace() {
    let mut world = deaf();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    step.say("half", &["c1", "c2"]);
    step.call("c1");
    let begun = Instant::now();
    agent.cancel(CancelCause::User, Pending::Keep);
    support::soon("idle", agent.idle()).await;
    assert_eq!(begun.elapsed().as_secs(), 5, "the grace, and not more");
    assert_eq!(world.driver.dropped(), 1);
    let late = step.context.record_result(support::result_of("c1"));
    assert!(late.is_err(), "a dropped step records nothing");
    assert_eq!(
        world.trace(&agent)[5..],
        [
            "say half",
            "call c1",
            "result c1 ABORTED",
            "call c2",
            "result c2 ABORTED_BEFORE_DISPATCH",
            "end step 1/1",
            "end turn 1 aborted user",
        ]
    );
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn a_step_that_returns_within_the_grace_is_not_dropped() {
    let mut world = deaf();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    agent.cancel(CancelCause::User, Pending::Keep);
    tokio::time::advance(Duration::from_millis(4_900)).await;
    step.say("in time", &[]);
    step.complete();
    support::soon("idle", agent.idle()).await;
    assert_eq!(world.driver.dropped(), 0);
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn the_first_cause_of_a_turn_wins() {
    let mut world = deaf();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    agent.cancel(CancelCause::Parent, Pending::Keep);
    agent.cancel(CancelCause::User, Pending::Keep);
    agent.begin_close(Pending::Keep);
    step.complete();
    soon("the end of the turn", agent.idle()).await;
    assert_eq!(
        world.trace(&agent).last().map(String::as_str),
        Some("end turn 1 aborted parent")
    );
    world.finish(agent).await;
}

/// Whatever a cancelled step comes to, its turn was aborted.
#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_is_aborted_whatever_its_step_returns() {
    for outcome in [
        StepOutcome::Completed,
        StepOutcome::Continue,
        StepOutcome::MaxTokens,
        StepOutcome::Refusal,
    ] {
        let mut world = deaf();
        let agent = world.agent();
        agent.followup(user("a")).expect("accepted");
        let step = world.stage.next().await;
        agent.cancel(CancelCause::Parent, Pending::Keep);
        step.end(Ok(outcome));
        support::soon("idle", agent.idle()).await;
        let facts = agent.with_projection(|p| p.facts().clone());
        assert_eq!(facts.end, Some(TurnEndReason::Aborted), "{outcome:?}");
        assert_eq!(
            (facts.cause.as_deref(), facts.error),
            (Some("parent"), None)
        );
        world.finish(agent).await;
    }
}

#[tokio::test(start_paused = true)]
async fn prompt_cancel_prompt_in_one_tick_runs_the_second() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    agent.cancel(CancelCause::User, Pending::Discard);
    agent.followup(user("b")).expect("accepted");
    let step = world.stage.next().await;
    assert_eq!(step.read(), ["b"]);
    step.complete();
    support::soon("idle", agent.idle()).await;
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_after_a_turn_does_not_touch_the_next_one() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    let token = step.context.cancellation().clone();
    step.complete();
    support::soon("idle", agent.idle()).await;
    agent.cancel(CancelCause::User, Pending::Keep);
    assert!(!token.is_cancelled());
    agent.followup(user("b")).expect("accepted");
    let step = world.stage.next().await;
    assert!(!step.context.cancellation().is_cancelled());
    step.complete();
    support::soon("idle", agent.idle()).await;
    assert_eq!(
        world.trace(&agent).last().map(String::as_str),
        Some("end turn 2 completed")
    );
    world.finish(agent).await;
}

/// A status observer that cancels or closes at `running` meets a turn that it can cancel.
#[tokio::test(start_paused = true)]
async fn a_cancel_from_the_running_announcement_leaves_no_step() {
    let world = World::new();
    let agent = world.agent();
    let target = agent.clone();
    let guard = world.host.hub.observe(std::sync::Arc::new(
        move |record: &offshoot_agent::EventRecord| {
            if let offshoot_agent::Event::AgentStatus {
                status: Status::Running,
            } = record.event
            {
                target.cancel(CancelCause::User, Pending::Discard);
            }
        },
    ));
    agent.followup(user("a")).expect("accepted");
    support::soon("idle", agent.idle()).await;
    drop(guard);
    assert!(
        !world
            .trace(&agent)
            .iter()
            .any(|line| line.starts_with("step")),
        "no step began"
    );
    let ledger = world.finish(agent).await;
    assert_eq!(ledger.of("a"), Some(Fate::Discarded));
}
