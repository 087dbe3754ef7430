//! What who waits for an agent to be idle is told: whether it has done everything.

mod support;

use offshoot_agent::{Agent, AgentSettings, CancelCause, Pending, TurnEndReason};
use support::{Manner, World, soon, user};

type Told = (Option<TurnEndReason>, usize, usize);

async fn told(agent: &Agent) -> Told {
    let idle = soon("idle", agent.idle()).await;
    assert_eq!(
        idle.is_drained(),
        idle.next_step + idle.next_turn == 0,
        "drained is that nothing waits"
    );
    (idle.end, idle.next_step, idle.next_turn)
}

/// A280: drained, parked and failed are not the same.
#[tokio::test(start_paused = true)]
async fn a280_who_waits_for_idle_is_told_how_it_ended_and_what_waits() {
    let mut world = World::with(Manner::Deaf, AgentSettings::default());
    let agent = world.agent();
    assert_eq!(told(&agent).await, (None, 0, 0), "it never ran");
    agent.inject(user("quiet")).expect("accepted");
    assert_eq!(told(&agent).await, (None, 1, 0));

    agent.followup(user("a")).expect("accepted");
    let waiting = tokio::spawn({
        let agent = agent.clone();
        async move { agent.idle().await }
    });
    world.stage.next().await.complete();
    let idle = soon("idle", waiting).await.expect("no panic");
    assert_eq!(idle.end, Some(TurnEndReason::Completed));
    assert!(idle.is_drained());

    agent.followup(user("b")).expect("accepted");
    let step = world.stage.next().await;
    for name in ["c", "d"] {
        agent.followup(user(name)).expect("accepted");
    }
    agent.steer(user("s")).expect("accepted");
    step.fail();
    assert_eq!(told(&agent).await, (Some(TurnEndReason::Error), 1, 2));

    agent.followup(user("e")).expect("accepted");
    let step = world.stage.next().await;
    agent.cancel(CancelCause::User, Pending::Discard);
    step.complete();
    assert_eq!(told(&agent).await, (Some(TurnEndReason::Aborted), 0, 0));
    world.finish(agent).await;
}
