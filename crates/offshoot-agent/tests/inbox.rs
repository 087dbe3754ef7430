//! How messages are accepted, ordered, coalesced, refused and withdrawn.

mod support;

use std::sync::Arc;

use offshoot_agent::{
    AgentSettings, CancelCause, Event, MemoryStore, Pending, Placement, Resumed, SendError, Source,
    Status, Target,
};
use support::{Fate, Manner, World, from_agent, message, notice, user};

#[tokio::test(start_paused = true)]
async fn a_followup_to_an_idle_agent_opens_its_turn_before_the_send_returns() {
    let mut world = World::new();
    let agent = world.agent();
    let delivered = agent.followup(user("a")).expect("accepted");
    assert_eq!(delivered.placement, Placement::TurnStarted);
    assert_eq!(agent.status(), Status::Running);
    assert!(!agent.withdraw(&delivered.message_id, "late"));
    let step = world.stage.next().await;
    assert_eq!((step.at(), step.read()), ("1/1".into(), vec!["a".into()]));
    step.complete();
    support::soon("idle", agent.idle()).await;
    assert_eq!(
        world.trace(&agent),
        [
            "insert a next_turn",
            "turn 1 g0",
            "claim a 1/1",
            "step 1/1",
            "read a",
            "end step 1/1",
            "end turn 1 completed",
        ]
    );
    assert_eq!(world.statuses(agent.id()), ["running", "idle"]);
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn an_inject_waits_quietly_and_the_next_wake_reads_it_first() {
    let mut world = World::new();
    let agent = world.agent();
    let delivered = agent.inject(user("context")).expect("accepted");
    assert_eq!(delivered.placement, Placement::Parked);
    assert_eq!(agent.status(), Status::Idle);
    agent.followup(user("prompt")).expect("accepted");
    let step = world.stage.next().await;
    assert_eq!(step.read(), ["context", "prompt"]);
    step.complete();
    support::soon("idle", agent.idle()).await;
    assert_eq!(world.statuses(agent.id()), ["running", "idle"]);
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn a_replacement_keeps_the_place_of_what_it_replaces() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    for name in ["b", "c"] {
        agent.followup(user(name)).expect("accepted");
    }
    let steer = agent.steer(user("s")).expect("accepted");
    assert_eq!((steer.placement, steer.ahead), (Placement::NextStep, 0));
    let queued = agent.followup(user("d")).expect("accepted");
    assert_eq!((queued.placement, queued.ahead), (Placement::NextTurn, 3));

    let b = "b".parse().expect("an id");
    let new = agent.replace(&b, user("b2")).expect("replaced");
    assert_eq!((new.placement, new.ahead), (Placement::NextTurn, 1));
    let gone = agent.replace(&b, user("b3")).expect_err("b waits no more");
    assert_eq!(gone.code(), "NOT_WAITING");
    let b2 = "b2".parse().expect("an id");
    let twice = agent.replace(&b2, user("c")).expect_err("c waits already");
    assert!(matches!(twice, SendError::Duplicate(id) if id.as_str() == "c"));
    let same = agent
        .replace(&b2, user("b2"))
        .expect_err("a new text has a new id");
    assert_eq!(same.code(), "DUPLICATE_MESSAGE");
    let late = agent.replace(&"a".parse().expect("an id"), user("a2"));
    assert_eq!(late.expect_err("a was read").code(), "NOT_WAITING");

    assert_eq!(
        world.trace(&agent)[9..],
        ["insert b2 next_turn before b", "discard b replaced"]
    );
    step.complete();
    for read in [vec!["s"], vec!["b2"], vec!["c"], vec!["d"]] {
        let step = world.stage.next().await;
        assert_eq!(step.read(), read);
        step.complete();
    }
    support::soon("idle", agent.idle()).await;
    let dropped = agent.with_projection(|p| p.facts().dropped);
    assert!(!dropped, "a message that another one replaced is not lost");
    let ledger = world.finish(agent).await;
    assert_eq!(ledger.of("b"), Some(Fate::Discarded));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waits_can_be_moved_and_one_that_was_read_cannot() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    for name in ["b", "c", "d", "e"] {
        agent.followup(user(name)).expect("accepted");
    }
    let id = |name: &str| name.parse().expect("an id");
    let moves = [
        ("d", Target::NextTurn, Some("b")),
        ("b", Target::NextTurn, None),
        ("e", Target::NextStep, None),
        ("c", Target::NextTurn, Some("c")),
    ];
    for (name, target, before) in moves {
        let before = before.map(id);
        agent
            .reorder(&id(name), target, before.as_ref())
            .expect("moved");
    }
    for (name, target, before) in [
        ("a", Target::NextTurn, None),
        ("zz", Target::NextTurn, None),
        ("b", Target::NextTurn, Some("e")),
        ("b", Target::NextStep, Some("b")),
    ] {
        let before = before.map(id);
        let refused = agent.reorder(&id(name), target, before.as_ref());
        assert_eq!(refused.expect_err(name).code(), "NOT_WAITING");
    }
    step.complete();
    for read in [["e"], ["d"], ["c"], ["b"]] {
        let step = world.stage.next().await;
        assert_eq!(step.read(), read);
        step.complete();
    }
    support::soon("idle", agent.idle()).await;
    agent.begin_close(offshoot_agent::Pending::Keep);
    let refused = agent.reorder(&id("b"), Target::NextTurn, None);
    assert_eq!(refused.expect_err("closing").code(), "AGENT_CLOSING");
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn two_steers_in_one_tick_are_two_steps_of_one_turn() {
    let mut world = World::new();
    let agent = world.agent();
    agent.steer(user("a")).expect("accepted");
    let second = agent.steer(user("b")).expect("accepted");
    assert_eq!(second.placement, Placement::NextStep);
    let step = world.stage.next().await;
    assert_eq!(step.read(), ["a"]);
    step.complete();
    let step = world.stage.next().await;
    assert_eq!((step.at(), step.read()), ("1/2".into(), vec!["b".into()]));
    step.complete();
    support::soon("idle", agent.idle()).await;
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_followups_takes_a_turn_each_in_order() {
    let mut world = World::new();
    let agent = world.agent();
    let names: Vec<_> = (1..=20).map(|n| format!("m{n}")).collect();
    for name in &names {
        agent.followup(user(name)).expect("accepted");
    }
    for (index, name) in names.iter().enumerate() {
        let step = world.stage.next().await;
        assert_eq!(step.at(), format!("{}/1", index + 1));
        assert_eq!(step.read(), [name.as_str()]);
        step.complete();
    }
    support::soon("idle", agent.idle()).await;
    assert_eq!(world.statuses(agent.id()), ["running", "idle"]);
    assert_eq!(world.finish(agent).await.all(Fate::Read).len(), 20);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_the_next_step_coalesces_in_the_order_of_acceptance() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("start")).expect("accepted");
    let step = world.stage.next().await;
    agent.inject(user("quiet-1")).expect("accepted");
    agent.steer(from_agent("steer-1")).expect("accepted");
    agent.followup(user("later")).expect("accepted");
    agent.notify(notice("notice-1", 1), true).expect("accepted");
    agent.inject(user("quiet-2")).expect("accepted");
    step.go_on();
    let step = world.stage.next().await;
    assert_eq!(step.at(), "1/2");
    assert_eq!(
        step.read(),
        ["quiet-1", "steer-1", "notice-1", "quiet-2"],
        "one batch, followups excluded"
    );
    step.complete();
    let step = world.stage.next().await;
    assert_eq!(
        (step.at(), step.read()),
        ("2/1".into(), vec!["later".into()])
    );
    step.complete();
    support::soon("idle", agent.idle()).await;
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn a_steer_that_wakes_takes_one_parked_followup_along() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("bad")).expect("accepted");
    agent.followup(user("parked-1")).expect("accepted");
    agent.followup(user("parked-2")).expect("accepted");
    world.stage.next().await.fail();
    support::soon("idle", agent.idle()).await;
    agent.steer(user("go")).expect("accepted");
    let step = world.stage.next().await;
    assert_eq!(step.read(), ["go", "parked-1"]);
    step.complete();
    let step = world.stage.next().await;
    assert_eq!(step.read(), ["parked-2"]);
    step.complete();
    support::soon("idle", agent.idle()).await;
    world.finish(agent).await;
}

/// Decision 23: a message that wakes an agent opens a turn, but older ones are read before it.
#[tokio::test(start_paused = true)]
async fn a_followup_that_meets_parked_ones_is_queued_behind_them() {
    let mut world = World::new();
    let agent = world.agent();
    for name in ["m1", "m2", "m3"] {
        agent.followup(user(name)).expect("accepted");
    }
    world.stage.next().await;
    agent.cancel(CancelCause::User, Pending::Keep);
    support::soon("idle", agent.idle()).await;
    let delivered = agent.followup(user("m4")).expect("accepted");
    assert_eq!(
        (delivered.placement, delivered.ahead),
        (Placement::Queued, 1),
        "m2 is read now, m3 before m4"
    );
    assert_eq!(agent.status(), Status::Running);
    for name in ["m2", "m3", "m4"] {
        let step = world.stage.next().await;
        assert_eq!(step.read(), [name]);
        step.complete();
    }
    support::soon("idle", agent.idle()).await;
    world.finish(agent).await;
}

/// What waits cannot keep an idle agent asleep: the turn that a message opens reads it.
#[tokio::test(start_paused = true)]
async fn an_idle_agent_with_a_full_inbox_can_be_woken() {
    let settings = || AgentSettings {
        inbox_capacity: 2,
        ..AgentSettings::default()
    };
    for (by_steer, by_notices) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut world = World::with(Manner::Polite, settings());
        let agent = world.agent();
        for name in ["q1", "q2"] {
            match by_notices {
                true => agent.notify(notice(name, 1), false),
                false => agent.inject(user(name)),
            }
            .expect("accepted");
        }
        let full = agent.inject(user("q3"));
        assert!(matches!(full, Err(SendError::Full(2))), "{full:?}");
        let delivered = match by_steer {
            true => agent.steer(user("wake")),
            false => agent.followup(user("wake")),
        }
        .expect("accepted");
        assert_eq!(
            (delivered.placement, delivered.ahead),
            (Placement::TurnStarted, 0)
        );
        let step = world.stage.next().await;
        assert_eq!(step.read(), ["q1", "q2", "wake"]);
        step.complete();
        support::soon("idle", agent.idle()).await;
        world.finish(agent).await;
    }
    // Of followups a turn reads one: its place is the new one's.
    let mut world = World::with(Manner::Polite, settings());
    let agent = world.agent();
    agent.followup(user("m1")).expect("accepted");
    let step = world.stage.next().await;
    for name in ["m2", "m3"] {
        agent.followup(user(name)).expect("accepted");
    }
    step.fail();
    support::soon("idle", agent.idle()).await;
    let delivered = agent.followup(user("m4")).expect("accepted");
    assert_eq!(
        (delivered.placement, delivered.ahead),
        (Placement::Queued, 1)
    );
    for full in [agent.followup(user("m5")), agent.steer(user("m6"))] {
        assert!(matches!(full, Err(SendError::Full(2))), "{full:?}");
    }
    for name in ["m2", "m3", "m4"] {
        let step = world.stage.next().await;
        assert_eq!(step.read(), [name]);
        step.complete();
    }
    support::soon("idle", agent.idle()).await;
    world.finish(agent).await;
}

/// As one that is resumed with a full inbox: it can be asked once before it starts, and no more.
#[tokio::test(start_paused = true)]
async fn an_agent_with_a_full_inbox_can_be_asked_before_it_starts() {
    let settings = AgentSettings {
        inbox_capacity: 1,
        ..AgentSettings::default()
    };
    let mut world = World::with(Manner::Polite, settings);
    let agent = offshoot_agent::Agent::create(&world.host, None, world.spec())
        .expect("an agent")
        .into_agent();
    agent.inject(user("q1")).expect("accepted");
    agent.steer(user("wake")).expect("accepted");
    let full = agent.steer(user("again"));
    assert!(matches!(full, Err(SendError::Full(2))), "{full:?}");
    agent.start();
    let step = world.stage.next().await;
    assert_eq!(step.read(), ["q1", "wake"]);
    step.complete();
    support::soon("idle", agent.idle()).await;
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn parked_work_can_be_resumed_without_a_message() {
    let mut world = World::with(Manner::Deaf, AgentSettings::default());
    let agent = world.agent();
    let resume = || agent.resume_parked().expect("not closing");
    assert_eq!(resume(), Resumed::Nothing);
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    for name in ["b", "c"] {
        agent.followup(user(name)).expect("accepted");
    }
    agent.inject(user("quiet")).expect("accepted");
    assert_eq!(resume(), Resumed::Running);
    step.fail();
    support::soon("idle", agent.idle()).await;
    assert_eq!(resume(), Resumed::TurnStarted);
    assert_eq!(agent.status(), Status::Running);
    let step = world.stage.next().await;
    assert_eq!(step.read(), ["quiet", "b"]);
    // Between a cancel and the end of its turn it is for the time after.
    agent.cancel(CancelCause::User, Pending::Keep);
    assert_eq!(resume(), Resumed::Later);
    step.complete();
    let step = world.stage.next().await;
    assert_eq!(step.read(), ["c"]);
    step.complete();
    support::soon("idle", agent.idle()).await;
    assert_eq!(resume(), Resumed::Nothing);
    // Quiet messages are read, too.
    agent.notify(notice("n", 3), false).expect("accepted");
    assert_eq!(resume(), Resumed::TurnStarted);
    let step = world.stage.next().await;
    assert_eq!(
        (step.read(), step.context.generation()),
        (vec!["n".into()], 3)
    );
    step.complete();
    support::soon("idle", agent.idle()).await;
    agent.begin_close(Pending::Keep);
    assert!(matches!(agent.resume_parked(), Err(SendError::Closing)));
    world.finish(agent).await;
}

/// B083: per sender the order of delivery is the order of acceptance.
#[tokio::test(start_paused = true)]
async fn b083_per_sender_the_order_of_delivery_is_the_order_of_acceptance() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("start")).expect("accepted");
    let step = world.stage.next().await;
    let sent: Vec<_> = (1..=10)
        .flat_map(|n| [format!("a{n}"), format!("b{n}")])
        .collect();
    for name in &sent {
        agent.steer(from_agent(name)).expect("accepted");
    }
    step.complete();
    let step = world.stage.next().await;
    assert_eq!(step.read(), sent);
    step.complete();
    support::soon("idle", agent.idle()).await;
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_message_is_discarded_once_and_never_read() {
    let mut world = World::new();
    let agent = world.agent();
    let quiet = agent.inject(user("quiet")).expect("accepted").message_id;
    assert!(agent.withdraw(&quiet, "edited"));
    assert!(!agent.withdraw(&quiet, "edited"), "it waits no more");
    assert!(!agent.withdraw(&"nobody".parse().expect("an id"), "edited"));
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    assert_eq!(step.read(), ["a"]);
    let later = agent.followup(user("later")).expect("accepted").message_id;
    assert!(agent.withdraw(&later, "edited"));
    step.complete();
    support::soon("idle", agent.idle()).await;
    assert!(
        !agent.withdraw(&"a".parse().expect("an id"), "late"),
        "it was read"
    );
    assert!(
        world
            .trace(&agent)
            .contains(&"discard quiet edited".to_owned())
    );
    let ledger = world.finish(agent).await;
    assert_eq!(ledger.all(Fate::Discarded), ["later", "quiet"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_id_is_accepted_once_in_a_session() {
    let mut world = World::new();
    let agent = world.agent();
    agent.inject(user("a")).expect("accepted");
    for again in [agent.followup(user("a")), agent.notify(user("a"), true)] {
        assert!(matches!(again, Err(SendError::Duplicate(id)) if id.as_str() == "a"));
    }
    agent.steer(user("b")).expect("accepted");
    world.stage.next().await.complete();
    support::soon("idle", agent.idle()).await;
    let again = agent.steer(user("a"));
    assert!(
        matches!(again, Err(SendError::Duplicate(_))),
        "after it was read"
    );
    assert_eq!(agent.status(), Status::Idle);
    world.finish(agent).await;
}

/// B094: a notice is not evicted by a flood, and the flood is refused visibly.
#[tokio::test(start_paused = true)]
async fn b094_a_full_inbox_refuses_senders_and_takes_notices() {
    let settings = AgentSettings {
        inbox_capacity: 1_000,
        ..AgentSettings::default()
    };
    let mut world = World::with(Manner::Polite, settings);
    let agent = world.agent();
    agent.followup(user("start")).expect("accepted");
    let step = world.stage.next().await;
    let mut refused = 0;
    for n in 0..5_000 {
        match agent.steer(from_agent(&format!("flood-{n}"))) {
            Ok(_) => assert!(n < 1_000),
            Err(SendError::Full(waiting)) => {
                assert_eq!(waiting, 1_000);
                refused += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(refused, 4_000);
    agent.notify(notice("settled", 1), true).expect("a notice");
    step.complete();
    let step = world.stage.next().await;
    let read = step.read();
    assert_eq!(read.len(), 1_001);
    assert_eq!(read.last().map(String::as_str), Some("settled"));
    agent.inject(user("room-again")).expect("room again");
    step.complete();
    world.stage.next().await.complete();
    support::soon("idle", agent.idle()).await;
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn content_and_source_are_kept_as_they_were() {
    let mut world = World::new();
    let agent = world.agent();
    let odd = message(
        Source::new("", 7).with("form", serde_json::json!({"a": [1, null]})),
        "odd",
    )
    .and_text("second [block] \u{202e}\n");
    agent.steer(odd.clone()).expect("accepted");
    let step = world.stage.next().await;
    assert_eq!(step.context.generation(), 7);
    step.complete();
    support::soon("idle", agent.idle()).await;
    let log = world.log(&agent);
    let stored: Vec<_> = log
        .iter()
        .filter_map(|stored| match &stored.event {
            Event::InboxInserted { message, .. } | Event::MessageUser { message, .. } => {
                Some(message.clone())
            }
            _ => None,
        })
        .collect();
    assert_eq!(stored, [odd.clone().into(), odd.into()]);
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn messages_to_an_agent_that_was_not_started_wait_for_its_start() {
    let mut world = World::new();
    let agent = offshoot_agent::Agent::create(&world.host, None, world.spec())
        .expect("an agent")
        .into_agent();
    let delivered = agent.followup(user("early")).expect("accepted");
    assert_eq!(delivered.placement, Placement::Parked);
    tokio::task::yield_now().await;
    assert!(world.stage.ready().is_none());
    agent.start();
    agent.start();
    let step = world.stage.next().await;
    assert_eq!(step.read(), ["early"]);
    step.complete();
    support::soon("idle", agent.idle()).await;
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_waiting_for_the_next_step_can_be_awaited() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;
    let arrival = tokio::spawn({
        let agent = agent.clone();
        async move { agent.next_step_arrival().await }
    });
    agent.followup(user("later")).expect("accepted");
    tokio::task::yield_now().await;
    assert!(!arrival.is_finished());
    agent.inject(user("b")).expect("accepted");
    support::soon("the arrival", arrival)
        .await
        .expect("no panic");
    step.complete();
    world.stage.next().await.complete();
    world.stage.next().await.complete();
    support::soon("idle", agent.idle()).await;
    world.finish(agent).await;
}

/// What a log cannot give back is refused when it is sent, and not found out when it is read.
#[tokio::test(start_paused = true)]
async fn a_message_that_a_log_could_not_give_back_is_refused() {
    let world = World::over(
        Arc::new(MemoryStore::default()),
        Manner::Polite,
        AgentSettings::default(),
    );
    let agent = world.agent();
    let mut deep = serde_json::Value::Null;
    for _ in 0..500 {
        deep = serde_json::Value::Array(vec![deep]);
    }
    let sources = [
        Source::user().with("kind", "agent"),
        Source::user().with("generation", 9),
        Source::new("plugin", 0).with("state", deep),
    ];
    for (index, source) in sources.into_iter().enumerate() {
        let refused = agent.followup(message(source, &format!("m{index}")));
        assert!(matches!(refused, Err(SendError::Log(_))), "{refused:?}");
    }
    assert_eq!(agent.status(), Status::Idle);
    assert!(world.trace(&agent).is_empty());
    assert_eq!(agent.failure(), None, "the log is well");
    world.finish(agent).await;
}
