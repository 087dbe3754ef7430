//! Turns and steps: how they continue, how they end, and what is parked then.

mod support;

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use offshoot_agent::{
    Agent, AgentSettings, DriverError, Event, Finish, HistoryItem, SendError, Status, StepContext,
    StepOutcome, TurnDriver,
};
use support::{Fate, Manner, World, kit, notice, user};

#[tokio::test(start_paused = true)]
async fn a_tool_round_trip_is_two_steps_of_one_turn() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    step.say("let me see", &["c1"]);
    step.call("c1");
    step.answer("c1");
    step.go_on();
    let step = world.stage.next().await;
    let history = step.context.history();
    assert!(matches!(
        &history[..],
        [HistoryItem::User(_), HistoryItem::Assistant(_), HistoryItem::ToolResult(result)]
            if result.call_id.0 == "c1"
    ));
    step.say("done", &[]);
    step.complete();
    support::soon("idle", agent.idle()).await;
    assert_eq!(
        world.trace(&agent)[3..],
        [
            "step 1/1",
            "read a",
            "say let me see",
            "call c1",
            "result c1",
            "end step 1/1",
            "step 1/2",
            "say done",
            "end step 1/2",
            "end turn 1 completed",
        ]
    );
    assert_eq!(agent.usage().0.input, 20);
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn a_steer_during_a_concluding_step_gets_one_more_step_of_the_turn() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    for n in 0..3 {
        let step = world.stage.next().await;
        assert_eq!(step.at(), format!("1/{}", n + 1));
        if n < 2 {
            agent.steer(user(&format!("s{n}"))).expect("accepted");
        }
        step.complete();
    }
    support::soon("idle", agent.idle()).await;
    assert_eq!(agent.with_projection(|p| p.turn()), 1);
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn running_out_of_tokens_marks_the_turn_and_not_the_next_one() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    agent.followup(user("b")).expect("accepted");
    let step = world.stage.next().await;
    agent.steer(user("more")).expect("accepted");
    step.end(Ok(StepOutcome::MaxTokens));
    let step = world.stage.next().await;
    assert_eq!(step.at(), "1/2");
    step.complete();
    let step = world.stage.next().await;
    assert_eq!(step.at(), "2/1", "what waits runs after an ordinary end");
    step.complete();
    support::soon("idle", agent.idle()).await;
    let ends: Vec<_> = world
        .trace(&agent)
        .into_iter()
        .filter(|line| line.starts_with("end turn"))
        .collect();
    assert_eq!(ends, ["end turn 1 max_tokens", "end turn 2 completed"]);
    world.finish(agent).await;
}

/// Decision 26: what waits is parked, and the next message that wakes lets it run.
#[tokio::test(start_paused = true)]
async fn after_a_turn_that_did_not_complete_what_waits_is_parked() {
    let endings = [
        ("error", Err(DriverError::new("no"))),
        ("refusal", Ok(StepOutcome::Refusal)),
    ];
    for (name, ending) in endings {
        let mut world = World::new();
        let agent = world.agent();
        agent.followup(user("a")).expect("accepted");
        let step = world.stage.next().await;
        agent.followup(user("b")).expect("accepted");
        agent.steer(user("c")).expect("accepted");
        step.end(ending);
        support::soon("idle", agent.idle()).await;
        assert!(agent.is_at_rest(), "parked messages keep nothing");
        assert!(world.trace(&agent).contains(&format!("end turn 1 {name}")));
        agent.followup(user("d")).expect("accepted");
        let step = world.stage.next().await;
        assert_eq!(step.read(), ["c", "b"], "{name}");
        step.complete();
        let step = world.stage.next().await;
        assert_eq!(step.read(), ["d"], "{name}");
        step.complete();
        support::soon("idle", agent.idle()).await;
        assert_eq!(
            world.statuses(agent.id()),
            ["running", "idle", "running", "idle"]
        );
        world.finish(agent).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_turn_says_why_and_the_next_one_is_well() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    world.stage.next().await.fail();
    support::soon("idle", agent.idle()).await;
    let last = world.log(&agent).pop().expect("an event");
    assert!(matches!(
        &last.event,
        Event::TurnEnd { error: Some(error), cause: None, .. } if error == "the model is away"
    ));
    agent.followup(user("b")).expect("accepted");
    world.stage.next().await.complete();
    support::soon("idle", agent.idle()).await;
    assert!(agent.with_projection(|p| p.facts().error.is_none()));
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_step_ends_its_turn_with_an_error() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    step.say("half", &["c1"]);
    step.panic();
    support::soon("idle", agent.idle()).await;
    let facts = agent.with_projection(|p| p.facts().clone());
    assert_eq!(
        facts.error.as_deref(),
        Some("the driver panicked: the script says so")
    );
    agent.followup(user("b")).expect("accepted");
    world.stage.next().await.complete();
    support::soon("idle", agent.idle()).await;
    world.finish(agent).await;
}

/// Panics where no future is there to be polled: before it is made, or when it is dropped.
struct Treacherous(Place);

#[derive(Clone, Copy, Debug)]
enum Place {
    Making,
    Dropping,
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "dropped");
    }
}

impl TurnDriver for Treacherous {
    fn step<'a>(&'a self, _: &'a StepContext) -> BoxFuture<'a, Result<StepOutcome, DriverError>> {
        match self.0 {
            Place::Making => panic!("made"),
            Place::Dropping => {
                let bomb = Bomb;
                async move {
                    std::future::pending::<()>().await;
                    drop(bomb);
                    Ok(StepOutcome::Completed)
                }
                .boxed()
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_around_a_step_ends_its_turn_on_the_record() {
    for (place, ending) in [
        (Place::Making, "end turn 1 error"),
        (Place::Dropping, "end turn 1 aborted interrupt"),
    ] {
        let world = World::new();
        let mut spec = world.spec();
        spec.kit = kit(Arc::new(Treacherous(place)));
        let agent = Agent::create(&world.host, None, spec)
            .expect("an agent")
            .into_agent();
        agent.start();
        agent.followup(user("a")).expect("accepted");
        tokio::task::yield_now().await;
        if matches!(place, Place::Dropping) {
            agent.cancel(
                offshoot_agent::CancelCause::Interrupt,
                offshoot_agent::Pending::Keep,
            );
        }
        support::soon("idle", agent.idle()).await;
        let trace = world.trace(&agent);
        assert_eq!(trace.last().map(String::as_str), Some(ending), "{place:?}");
        world.finish(agent).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_takes_no_more_steps_than_it_may() {
    let settings = AgentSettings {
        max_steps_per_turn: 3,
        ..AgentSettings::default()
    };
    let mut world = World::with(Manner::Polite, settings);
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    agent.followup(user("next")).expect("accepted");
    for n in 1..=3 {
        let step = world.stage.next().await;
        assert_eq!(step.at(), format!("1/{n}"));
        if n == 3 {
            agent.steer(user("late")).expect("accepted");
            agent.notify(notice("quiet", 1), false).expect("accepted");
        }
        step.go_on();
    }
    // Decision 26: the limit is no failure, and who asked for a turn has it.
    let step = world.stage.next().await;
    assert_eq!(step.at(), "2/1");
    assert_eq!(step.read(), ["late", "quiet", "next"]);
    step.go_on();
    world.stage.next().await.go_on();
    let step = world.stage.next().await;
    agent.notify(notice("parked", 1), false).expect("accepted");
    step.go_on();
    support::soon("idle", agent.idle()).await;
    assert!(world.stage.ready().is_none(), "nothing that wakes waits");
    let trace = world.trace(&agent);
    let ends = trace.iter().filter(|line| line.starts_with("end turn"));
    let ends: Vec<_> = ends.collect();
    assert_eq!(ends, ["end turn 1 step_limit", "end turn 2 step_limit"]);
    let ledger = world.finish(agent).await;
    assert_eq!(ledger.all(Fate::Waits), ["parked"]);
}

/// A turn that owes nothing is no failure when its budget is used up: what waits has the next one.
#[tokio::test(start_paused = true)]
async fn a_turn_that_is_done_at_its_limit_is_completed() {
    let settings = AgentSettings {
        max_steps_per_turn: 2,
        ..AgentSettings::default()
    };
    let mut world = World::with(Manner::Polite, settings);
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    for n in 0..4 {
        let step = world.stage.next().await;
        assert_eq!(step.at(), format!("{}/{}", n / 2 + 1, n % 2 + 1));
        if n < 3 {
            agent.steer(user(&format!("s{n}"))).expect("accepted");
        }
        step.complete();
    }
    support::soon("idle", agent.idle()).await;
    let ends: Vec<_> = world
        .trace(&agent)
        .into_iter()
        .filter(|line| line.starts_with("end turn"))
        .collect();
    assert_eq!(ends, ["end turn 1 completed", "end turn 2 completed"]);
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn steers_do_not_starve_a_followup() {
    let settings = AgentSettings {
        max_steered_steps: 3,
        ..AgentSettings::default()
    };
    let mut world = World::with(Manner::Polite, settings);
    let agent = world.agent();
    agent.followup(user("first")).expect("accepted");
    // Steers alone may keep a turn open as long as its steps last.
    for n in 0..5 {
        let step = world.stage.next().await;
        assert_eq!(step.at(), format!("1/{}", n + 1));
        agent.steer(user(&format!("alone{n}"))).expect("accepted");
        step.complete();
    }
    agent.followup(user("patient")).expect("accepted");
    let mut steps = 0;
    let read = loop {
        let step = world.stage.next().await;
        let read = step.read();
        if read.contains(&"patient".to_owned()) {
            step.complete();
            break read;
        }
        agent
            .steer(user(&format!("loud{steps}")))
            .expect("accepted");
        steps += 1;
        step.complete();
    };
    assert_eq!(steps, 3, "three steps more, and no fourth");
    assert_eq!(read, ["loud2", "patient"], "the next turn reads both");
    support::soon("idle", agent.idle()).await;
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn every_call_gets_one_result_whatever_the_driver_left() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    step.say("", &["c1", "c2", "c3"]);
    step.call("c1");
    step.answer("c1");
    step.call("c2");
    step.go_on();
    let step = world.stage.next().await;
    step.say("", &["c4"]);
    step.fail();
    support::soon("idle", agent.idle()).await;
    let trace = world.trace(&agent);
    for line in [
        "result c1",
        "result c2 NOT_ANSWERED",
        "call c3",
        "result c3 NOT_ANSWERED",
        "result c4 NOT_ANSWERED",
    ] {
        assert_eq!(trace.iter().filter(|l| *l == line).count(), 1, "{line}");
    }
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn two_calls_of_one_id_get_a_result_each() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    step.say("", &["same", "same"]);
    step.call("same");
    step.answer("same");
    step.complete();
    support::soon("idle", agent.idle()).await;
    let results = world
        .trace(&agent)
        .into_iter()
        .filter(|line| line.starts_with("result same"))
        .collect::<Vec<_>>();
    assert_eq!(results, ["result same", "result same NOT_ANSWERED"]);
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn the_calls_of_an_earlier_reply_of_a_step_are_answered_too() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    step.say("first", &["c1"]);
    step.say("second", &["c2"]);
    step.complete();
    support::soon("idle", agent.idle()).await;
    let trace = world.trace(&agent);
    assert!(
        trace.contains(&"result c1 NOT_ANSWERED".to_owned()),
        "{trace:?}"
    );
    assert!(
        trace.contains(&"result c2 NOT_ANSWERED".to_owned()),
        "{trace:?}"
    );
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn a_result_that_answers_no_open_call_is_refused() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    step.say("", &["c1"]);
    let early = step.context.record_result(support::result_of("c1"));
    assert!(matches!(early, Err(SendError::Unpaired(_))), "{early:?}");
    step.call("c1");
    let again = step.context.record_call(&support::call_of("c1"));
    assert!(matches!(again, Err(SendError::Unpaired(_))), "{again:?}");
    step.answer("c1");
    for id in ["c1", "unknown"] {
        let refused = step.context.record_result(support::result_of(id));
        assert!(
            matches!(refused, Err(SendError::Unpaired(_))),
            "{refused:?}"
        );
    }
    step.complete();
    support::soon("idle", agent.idle()).await;
    world.finish(agent).await;
}

/// A context that outlives its step records nothing into a later one.
#[tokio::test(start_paused = true)]
async fn a_context_of_an_ended_step_records_nothing() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    agent.followup(user("b")).expect("accepted");
    let step = world.stage.next().await;
    let old = step.context.clone();
    step.go_on();
    let step = world.stage.next().await;
    assert_eq!(step.at(), "1/2");
    let reply = || support::reply_of("late", Finish::Stop);
    assert!(matches!(old.record_reply(reply()), Err(SendError::Closed)));
    step.complete();
    let step = world.stage.next().await;
    assert_eq!(step.at(), "2/1");
    assert!(matches!(old.record_reply(reply()), Err(SendError::Closed)));
    step.complete();
    support::soon("idle", agent.idle()).await;
    assert!(matches!(old.record_reply(reply()), Err(SendError::Closed)));
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn facts_tell_the_last_words_of_a_residency() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    step.context
        .record_reply(support::reply_of("cut in ", Finish::MaxTokens))
        .expect("a reply");
    agent.steer(user("go")).expect("accepted");
    step.end(Ok(StepOutcome::MaxTokens));
    let step = world.stage.next().await;
    step.say("two", &[]);
    step.complete();
    support::soon("idle", agent.idle()).await;
    let facts = agent.with_projection(|p| p.facts().clone());
    assert_eq!((facts.text.as_str(), facts.cut), ("cut in two", false));
    assert_eq!(facts.turns, 1);
    assert_eq!(agent.status(), Status::Idle);
    world.finish(agent).await;
}

/// A79, A80: a tool concludes the turn; what has arrived for it meanwhile is read in it all the same.
#[tokio::test(start_paused = true)]
async fn a_final_step_ends_its_turn_after_what_waits_for_the_next_step() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    agent.steer(user("meanwhile")).expect("accepted");
    agent.followup(user("later")).expect("accepted");
    step.end(Ok(StepOutcome::Final));
    for (at, read) in [("1/2", "meanwhile"), ("2/1", "later")] {
        let step = world.stage.next().await;
        assert_eq!((step.at().as_str(), step.read()), (at, vec![read.into()]));
        step.end(Ok(StepOutcome::Final));
    }
    support::soon("idle", agent.idle()).await;
    let ends: Vec<_> = world
        .trace(&agent)
        .into_iter()
        .filter(|line| line.starts_with("end turn"))
        .collect();
    assert_eq!(ends, ["end turn 1 completed", "end turn 2 completed"]);
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn a_final_step_of_a_cancelled_turn_is_an_aborted_turn() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    agent.cancel(
        offshoot_agent::CancelCause::User,
        offshoot_agent::Pending::Keep,
    );
    step.end(Ok(StepOutcome::Final));
    support::soon("idle", agent.idle()).await;
    assert_eq!(
        world.trace(&agent).last().map(String::as_str),
        Some("end turn 1 aborted user")
    );
    world.finish(agent).await;
}
