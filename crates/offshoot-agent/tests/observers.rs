//! Observers that stop, end and send to the agent whose events they see.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use offshoot_agent::{
    Agent, CancelCause, Event, EventRecord, Message, ObserverGuard, Pending, Placement, SendError,
    Status,
};
use support::{Fate, World, soon, user};

/// Calls `act` the first time that an event is one that `wanted` is true of.
fn once(
    world: &World,
    wanted: impl Fn(&Event) -> bool + Send + Sync + 'static,
    act: impl Fn(&EventRecord) + Send + Sync + 'static,
) -> ObserverGuard {
    let seen = AtomicUsize::new(0);
    let observer = move |record: &EventRecord| {
        if wanted(&record.event) && seen.fetch_add(1, Ordering::SeqCst) == 0 {
            act(record);
        }
    };
    world.host.hub.observe(Arc::new(observer))
}

fn becomes(wanted: Status) -> impl Fn(&Event) -> bool {
    move |event| matches!(event, Event::AgentStatus { status } if *status == wanted)
}

#[tokio::test(start_paused = true)]
async fn a11_a_cancel_discards_the_next_steps_list_and_then_the_next_turns() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let _step = world.stage.next().await;
    agent.followup(user("f1")).expect("accepted");
    agent.steer(user("s1")).expect("accepted");
    agent.followup(user("f2")).expect("accepted");
    agent.inject(user("s2")).expect("accepted");
    agent.cancel(CancelCause::User, Pending::Discard);
    soon("idle", agent.idle()).await;
    let discards: Vec<_> = world
        .trace(&agent)
        .into_iter()
        .filter(|line| line.starts_with("discard"))
        .collect();
    let expected = ["s1", "s2", "f1", "f2"].map(|name| format!("discard {name} user"));
    assert_eq!(discards, expected);
    let before = world.log(&agent).len();
    agent.cancel(CancelCause::User, Pending::Discard);
    assert_eq!(
        world.log(&agent).len(),
        before,
        "an empty inbox says nothing"
    );
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn a136_an_end_from_the_running_announcement_leaves_no_step() {
    let world = World::new();
    let agent = world.agent();
    let target = agent.clone();
    let _guard = once(&world, becomes(Status::Running), move |_| {
        assert!(target.begin_close(Pending::Keep));
    });
    agent.followup(user("a")).expect("accepted");
    soon("idle", agent.idle()).await;
    assert_eq!(
        world.trace(&agent)[1..],
        ["turn 1 g0", "claim a 1/1", "end turn 1 aborted disposed"]
    );
    let ledger = world.finish(agent).await;
    assert_eq!(
        ledger.of("a"),
        Some(Fate::Waits),
        "the session goes on with it"
    );
}

#[tokio::test(start_paused = true)]
async fn a138_an_observer_of_idle_that_sends_waits_and_cancels_leaves_no_step() {
    let mut world = World::new();
    let agent = world.agent();
    let target = agent.clone();
    let waits = Arc::new(std::sync::Mutex::new(None));
    let waiter = Arc::clone(&waits);
    let _guard = once(&world, becomes(Status::Idle), move |_| {
        target.followup(user("b")).expect("accepted");
        let idle = target.clone();
        let waiting = tokio::spawn(async move { idle.idle().await });
        *waiter.lock().expect("no panic") = Some(waiting);
        target.cancel(CancelCause::User, Pending::Discard);
    });
    agent.followup(user("a")).expect("accepted");
    world.stage.next().await.complete();
    soon("idle", agent.idle()).await;
    let waiting = waits.lock().expect("no panic").take().expect("it was idle");
    soon("the wait of the observer", waiting)
        .await
        .expect("no panic");
    agent.followup(user("c")).expect("accepted");
    let step = world.stage.next().await;
    assert_eq!((step.at(), step.read()), ("3/1".into(), vec!["c".into()]));
    step.complete();
    soon("idle", agent.idle()).await;
    let ledger = world.finish(agent).await;
    assert_eq!(ledger.of("b"), Some(Fate::Discarded));
}

#[tokio::test(start_paused = true)]
async fn a139_an_observer_of_idle_that_sends_cancels_and_sends_runs_the_last_alone() {
    let mut world = World::new();
    let agent = world.agent();
    let target = agent.clone();
    let _guard = once(&world, becomes(Status::Idle), move |_| {
        target.followup(user("b")).expect("accepted");
        target.cancel(CancelCause::User, Pending::Discard);
        target.followup(user("c")).expect("accepted");
    });
    agent.followup(user("a")).expect("accepted");
    world.stage.next().await.complete();
    let step = world.stage.next().await;
    assert_eq!((step.at(), step.read()), ("3/1".into(), vec!["c".into()]));
    step.complete();
    soon("idle", agent.idle()).await;
    assert!(world.stage.ready().is_none());
    let ledger = world.finish(agent).await;
    assert_eq!(ledger.of("b"), Some(Fate::Discarded));
}

/// A227, A228: creating is one step, and its first event is the announcement.
#[tokio::test(start_paused = true)]
async fn a227_a228_an_end_at_the_first_event_leaves_an_agent_that_never_runs() {
    for whole in [false, true] {
        let mut world = World::new();
        let host = world.host.clone();
        let later = Arc::new(AtomicUsize::new(0));
        let _guard = once(
            &world,
            |event| matches!(event, Event::SessionStart(_)),
            move |record| {
                let agent = host.agents.get(&record.session).expect("it is listed");
                if whole {
                    drop(agent.close(Pending::Keep));
                } else {
                    agent.begin_close(Pending::Keep);
                }
            },
        );
        let counter = Arc::clone(&later);
        let _other = world.host.hub.observe(Arc::new(move |_: &EventRecord| {
            counter.fetch_add(1, Ordering::SeqCst);
        }));
        let agent = Agent::create(&world.host, None, world.spec())
            .expect("an agent")
            .into_agent();
        agent.start();
        let refused = agent.followup(user("a"));
        assert!(matches!(refused, Err(SendError::Closing)), "{refused:?}");
        world.finish(agent.clone()).await;
        assert_eq!(agent.status(), Status::Closed);
        assert!(world.stage.ready().is_none(), "it never ran");
        assert!(world.host.agents.list().is_empty());
        assert!(
            later.load(Ordering::SeqCst) >= 3,
            "the others see all of it"
        );
        assert_eq!(world.statuses(agent.id()), ["closing", "closed"]);
        assert!(world.trace(&agent).is_empty());
    }
}

/// A263: what is sent on the news of a discard comes after the stop, and is not swept away by it.
#[tokio::test(start_paused = true)]
async fn a263_what_is_sent_on_the_news_of_a_discard_runs_after_the_stop() {
    for running in [true, false] {
        let mut world = World::new();
        let agent = world.agent();
        let mut cancelled = None;
        if running {
            agent.followup(user("a")).expect("accepted");
            cancelled = Some(world.stage.next().await);
            agent.followup(user("queued")).expect("accepted");
        } else {
            agent.inject(user("queued")).expect("accepted");
        }
        let placed = Arc::new(std::sync::Mutex::new(None));
        let (target, told) = (agent.clone(), Arc::clone(&placed));
        let _guard = once(
            &world,
            |event| matches!(event, Event::InboxDiscarded { .. }),
            move |_| {
                let sent = target.followup(user("after")).expect("accepted");
                *told.lock().expect("no panic") = Some(sent.placement);
            },
        );
        assert_eq!(agent.cancel(CancelCause::User, Pending::Discard), running);
        let expected = match running {
            true => Placement::NextTurn,
            false => Placement::TurnStarted,
        };
        assert_eq!(*placed.lock().expect("no panic"), Some(expected));
        let step = world.stage.next().await;
        assert_eq!(step.read(), ["after"], "running: {running}");
        step.complete();
        soon("idle", agent.idle()).await;
        drop(cancelled);
        let ledger = world.finish(agent).await;
        assert_eq!(ledger.of("queued"), Some(Fate::Discarded));
        assert_eq!(ledger.of("after"), Some(Fate::Read));
    }
}

/// A264: an observer of the log stops the agent while messages wait: the stop is one.
#[tokio::test(start_paused = true)]
async fn a264_a_stop_by_an_observer_stops_although_messages_wait() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let _step = world.stage.next().await;
    agent.followup(user("f")).expect("accepted");
    let target = agent.clone();
    let _guard = once(
        &world,
        |event| matches!(event, Event::InboxInserted { .. }),
        move |_| {
            target.cancel(CancelCause::Parent, Pending::Discard);
        },
    );
    agent.steer(user("s")).expect("accepted");
    soon("idle", agent.idle()).await;
    assert_eq!(
        world.trace(&agent)[5..],
        [
            "insert f next_turn",
            "insert s next_step",
            "discard s parent",
            "discard f parent",
            "end step 1/1",
            "end turn 1 aborted parent",
        ]
    );
    world.finish(agent).await;
}

/// A266: the end is the end: whoever sends at any news of it is refused, and no turn begins.
#[tokio::test(start_paused = true)]
async fn a266_whoever_sends_at_the_news_of_the_end_is_refused_and_nothing_runs() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    let refusals: Arc<std::sync::Mutex<Vec<&str>>> = Arc::default();
    let (target, told) = (agent.clone(), Arc::clone(&refusals));
    let _guard = world.host.hub.observe(Arc::new(move |_: &EventRecord| {
        for sent in [
            target.followup(Message::user("again")),
            target.steer(Message::user("again")),
        ] {
            let refused = sent.expect_err("a refusal");
            told.lock().expect("no panic").push(refused.code());
        }
    }));
    world.finish(agent.clone()).await;
    drop(step);
    // At the news of closing, the end of the step and of the turn; and at that of its end.
    let expected = [["AGENT_CLOSING"; 6].as_slice(), &["AGENT_CLOSED"; 2]].concat();
    assert_eq!(*refusals.lock().expect("no panic"), expected);
    assert!(world.stage.ready().is_none(), "no turn began");
    assert_eq!(
        world.trace(&agent)[5..],
        ["end step 1/1", "end turn 1 aborted disposed"]
    );
    assert_eq!(world.statuses(agent.id()), ["running", "closing", "closed"]);
}

/// A278: each of those who object to the end of a turn, by a steer, is heard in it.
#[tokio::test(start_paused = true)]
async fn a278_all_who_steer_at_the_last_reply_of_a_turn_are_heard_in_it() {
    let mut world = World::new();
    let agent = world.agent();
    let _guards = ["one", "two", "three"].map(|name| {
        let target = agent.clone();
        once(
            &world,
            |event| matches!(event, Event::MessageAssistant { .. }),
            move |_| drop(target.steer(user(name)).expect("accepted")),
        )
    });
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    step.say("done", &[]);
    step.complete();
    let step = world.stage.next().await;
    assert_eq!(step.at(), "1/2");
    assert_eq!(step.read(), ["one", "two", "three"]);
    step.complete();
    soon("idle", agent.idle()).await;
    world.finish(agent).await;
}

/// A283: one stream for all: who is told after one that reacts sees what it reacted to first.
#[tokio::test(start_paused = true)]
async fn a283_who_is_told_after_one_that_withdraws_sees_the_message_come_and_go() {
    let world = World::new();
    let agent = world.agent();
    let target = agent.clone();
    let _withdraws = once(
        &world,
        |event| matches!(event, Event::InboxInserted { .. }),
        move |_| {
            target.withdraw(&"a".parse().expect("an id"), "changed");
        },
    );
    let seen: Arc<std::sync::Mutex<Vec<_>>> = Arc::default();
    let sink = Arc::clone(&seen);
    let _later = world
        .host
        .hub
        .observe(Arc::new(move |record: &EventRecord| {
            let line = (record.seq, support::line(&record.event));
            sink.lock().expect("no panic").push(line);
        }));
    agent.inject(user("a")).expect("accepted");
    assert_eq!(
        *seen.lock().expect("no panic"),
        [
            (Some(1), "insert a next_step quiet".to_owned()),
            (Some(2), "discard a changed".to_owned()),
        ]
    );
    world.finish(agent).await;
}
