//! One-shot runs: every path disposes the run, frees the place and pairs started with settled.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use offshoot_agent::{Pending, Status};
use offshoot_subagent::{ChildRequest, Outcome, SubagentSettings};
use support::{Act, Fault, Gate, Odd, World, request, soon};
use tokio_util::sync::CancellationToken;

fn one() -> SubagentSettings {
    SubagentSettings {
        max_live_children: 1,
        ..SubagentSettings::default()
    }
}

fn odd(root: &offshoot_agent::Agent) -> ChildRequest {
    ChildRequest {
        provider: "odd".to_owned(),
        ..request(root, "run")
    }
}

/// Nothing is left of the run: its place, its hold, its open record.
async fn nothing_is_left(world: &World, root: &offshoot_agent::Agent, what: &str) {
    soon("the release", root.scope().unheld()).await;
    let started = world.extensions(root.id(), "subagent/started");
    let settled = world.extensions(root.id(), "subagent/settled");
    let runs = |events: &[offshoot_agent::Extension]| -> Vec<String> {
        events
            .iter()
            .map(|e| e.field("run_id").unwrap().to_owned())
            .collect()
    };
    assert_eq!(runs(&started), runs(&settled), "{what}");
    assert!(
        world.accepted(root.id(), "settled").is_empty(),
        "{what}: a run has no notice"
    );
    let next = world
        .subagents
        .run(request(root, "next"), CancellationToken::new())
        .await;
    assert_eq!(
        next.unwrap().outcome,
        Outcome::Completed,
        "{what}: the place is free"
    );
    world.close(root).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_gives_its_answer_after_its_disposal() {
    let world = World::with(one());
    let root = world.root();
    world.cast.plays(
        "run",
        [Act::GoOn("INTERMEDIATE-7"), Act::Say("42 files match")],
    );
    let result = world
        .subagents
        .run(request(&root, "run"), CancellationToken::new());
    let result = result.await.unwrap();
    assert_eq!(result.outcome, Outcome::Completed);
    assert_eq!(result.text, "42 files match", "b037");
    assert_eq!((result.usage.input, result.usage.output), (20, 28));
    assert!(
        world.host.agents.get(&result.child).is_none(),
        "b074: disposed"
    );
    let order = [
        "run session/start",
        "root subagent/started run",
        "run inbox/inserted user",
        "run agent/status Closed",
        "root subagent/settled run completed",
    ];
    assert!(order.map(|line| world.position(line)).is_sorted());
    assert_eq!(root.usage().1.input, 20, "rolled up");
    nothing_is_left(&world, &root, "completed").await;
}

#[tokio::test(start_paused = true)]
async fn every_ending_of_the_child_is_a_result() {
    let rows = [
        (
            Outcome::Error,
            Some("429 slow down"),
            "",
            Act::Fail("429 slow down"),
        ),
        (
            Outcome::Error,
            Some("the driver panicked: boom"),
            "",
            Act::Panic("boom"),
        ),
        (Outcome::Refusal, None, "", Act::Refuse),
        (Outcome::MaxTokens, None, "half", Act::MaxTokens("half")),
    ];
    for (outcome, diagnostic, text, act) in rows {
        let world = World::with(one());
        let root = world.root();
        world.cast.plays("run", [act]);
        let result = world
            .subagents
            .run(request(&root, "run"), CancellationToken::new());
        let result = result.await.unwrap();
        assert_eq!(result.outcome, outcome);
        assert_eq!(result.diagnostic.as_deref(), diagnostic);
        assert_eq!(result.text, text);
        nothing_is_left(&world, &root, outcome.as_str()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn b154_a_provider_that_fails_or_panics_anywhere_frees_its_place() {
    for fault in [
        Fault::StartFails,
        Fault::StartPanics,
        Fault::StartPanicsAtOnce,
        Fault::StartFailsAfterPublishing,
    ] {
        let world = World::with(one());
        world.odd(&Odd::new(fault));
        let root = world.root();
        let error = world
            .subagents
            .run(odd(&root), CancellationToken::new())
            .await
            .unwrap_err();
        assert_eq!(error.code(), "PROVIDER_FAILED", "{fault:?}: {error}");
        nothing_is_left(&world, &root, &format!("{fault:?}")).await;
    }
    for (fault, outcome, dispose) in [
        (Fault::NeverPublishes, Outcome::Completed, None),
        (Fault::ResultFails, Outcome::Error, None),
        (Fault::ResultPanics, Outcome::Error, None),
        (Fault::ResultPanicsAtOnce, Outcome::Error, None),
        (
            Fault::DisposeFails,
            Outcome::Completed,
            Some("it would not go"),
        ),
        (
            Fault::DisposePanics,
            Outcome::Completed,
            Some("panicked in dispose"),
        ),
        (
            Fault::DisposePanicsAtOnce,
            Outcome::Completed,
            Some("panicked in dispose"),
        ),
    ] {
        let world = World::with(one());
        let provider = Odd::new(fault);
        world.odd(&provider);
        let root = world.root();
        let result = world
            .subagents
            .run(odd(&root), CancellationToken::new())
            .await;
        let result = result.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert_eq!(result.outcome, outcome, "{fault:?}");
        let said = result.dispose_error.as_deref();
        assert_eq!(said.is_some(), dispose.is_some(), "{fault:?}: {said:?}");
        assert!(
            said.unwrap_or_default()
                .contains(dispose.unwrap_or_default()),
            "{said:?}"
        );
        assert_eq!(
            provider.live.load(Ordering::SeqCst),
            0,
            "{fault:?}: disposed"
        );
        nothing_is_left(&world, &root, &format!("{fault:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_before_the_start_starts_nothing() {
    let world = World::with(one());
    let provider = Odd::new(Fault::None);
    world.odd(&provider);
    let root = world.root();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let error = world.subagents.run(odd(&root), cancel).await.unwrap_err();
    assert_eq!(error.code(), "CANCELLED");
    assert_eq!(provider.starts.load(Ordering::SeqCst), 0);
    nothing_is_left(&world, &root, "cancelled before").await;
}

#[tokio::test(start_paused = true)]
async fn b115_a_cancel_between_publication_and_prompt_asks_no_model() {
    let world = World::with(one());
    let root = world.root();
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let guard = world.host.hub.observe(std::sync::Arc::new(
        move |record: &offshoot_agent::EventRecord| {
            if let offshoot_agent::Event::Extension(event) = &record.event
                && event.kind == "subagent/started"
            {
                stop.cancel();
            }
        },
    ));
    let result = world
        .subagents
        .run(request(&root, "run"), cancel)
        .await
        .unwrap();
    drop(guard);
    assert_eq!(
        (result.outcome, result.text.as_str()),
        (Outcome::Aborted, "")
    );
    assert_eq!(world.count("run step/start 1/1"), 0, "no model was asked");
    assert_eq!(world.count("run inbox/discarded parent"), 1);
    nothing_is_left(&world, &root, "cancelled at publication").await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_ends_though_its_step_is_deaf() {
    let world = World::with(one());
    let root = world.root();
    world.cast.plays("run", [Act::GoOn("so far"), Act::Deaf]);
    let cancel = CancellationToken::new();
    let (service, asked, stop) = (
        world.subagents.clone(),
        request(&root, "run"),
        cancel.clone(),
    );
    let run = tokio::spawn(async move { service.run(asked, stop).await });
    tokio::time::sleep(Duration::from_millis(1)).await;
    let before = tokio::time::Instant::now();
    cancel.cancel();
    let result = run.await.unwrap().unwrap();
    assert!(
        before.elapsed() < Duration::from_secs(6),
        "{:?}",
        before.elapsed()
    );
    assert_eq!(result.outcome, Outcome::Aborted);
    assert_eq!(result.text, "so far", "partial text is kept");
    nothing_is_left(&world, &root, "deaf").await;
}

/// A notice that comes between the cancel and the end of the turn would start another turn, which
/// nobody cancels.
#[tokio::test(start_paused = true)]
async fn a_message_during_the_cancel_does_not_keep_a_run_alive() {
    let world = World::with(one());
    let root = world.root();
    world.cast.plays("run", [Act::Deaf, Act::Hang]);
    let cancel = CancellationToken::new();
    let (service, asked, stop) = (
        world.subagents.clone(),
        request(&root, "run"),
        cancel.clone(),
    );
    let run = tokio::spawn(async move { service.run(asked, stop).await });
    tokio::time::sleep(Duration::from_millis(1)).await;
    let child = world
        .host
        .agents
        .list()
        .into_iter()
        .find(|a| a.label() == "run")
        .unwrap();
    cancel.cancel();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let notice = offshoot_agent::Message::text(offshoot_agent::Source::new("task", 1), "over");
    child.notify(notice, true).unwrap();
    let result = soon("the end of the run", run).await.unwrap().unwrap();
    assert_eq!(result.outcome, Outcome::Aborted);
    assert_eq!(world.count("run turn/start 2"), 0);
    nothing_is_left(&world, &root, "a late notice").await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_run_settles_all_the_same() {
    for (first, what) in [
        (Act::Hang, "while it runs"),
        (Act::Deaf, "though it is deaf"),
    ] {
        let world = World::with(one());
        let root = world.root();
        world.cast.plays("run", [first]);
        let run = world
            .subagents
            .run(request(&root, "run"), CancellationToken::new());
        assert!(
            tokio::time::timeout(Duration::from_secs(1), run)
                .await
                .is_err()
        );
        soon("the release", root.scope().unheld()).await;
        assert_eq!(
            world.count("root subagent/settled run aborted"),
            1,
            "{what}"
        );
        nothing_is_left(&world, &root, what).await;
    }
    let world = World::with(one());
    let gate = Gate::default();
    world.odd(&Odd {
        slow_start: Some(gate.clone()),
        ..Odd::new(Fault::None)
    });
    let root = world.root();
    let run = world.subagents.run(odd(&root), CancellationToken::new());
    assert!(
        tokio::time::timeout(Duration::from_secs(1), run)
            .await
            .is_err()
    );
    nothing_is_left(&world, &root, "while it starts").await;
}

#[tokio::test(start_paused = true)]
async fn b118_a_slow_start_sees_the_cancel() {
    let world = World::with(one());
    let provider = Odd {
        slow_start: Some(Gate::default()),
        ..Odd::new(Fault::None)
    };
    world.odd(&provider);
    let root = world.root();
    let cancel = CancellationToken::new();
    let (service, asked, stop) = (world.subagents.clone(), odd(&root), cancel.clone());
    let run = tokio::spawn(async move { service.run(asked, stop).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    cancel.cancel();
    let error = soon("the refusal", run).await.unwrap().unwrap_err();
    assert_eq!(error.code(), "CANCELLED", "{error}");
    nothing_is_left(&world, &root, "slow start").await;
}

#[tokio::test(start_paused = true)]
async fn the_place_is_taken_until_a_slow_disposal_has_ended() {
    let world = World::with(one());
    let gate = Gate::default();
    world.odd(&Odd {
        slow_dispose: Some(gate.clone()),
        ..Odd::new(Fault::None)
    });
    let root = world.root();
    let (service, asked) = (world.subagents.clone(), odd(&root));
    let run = tokio::spawn(async move { service.run(asked, CancellationToken::new()).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let error = world
        .subagents
        .start(request(&root, "late"))
        .await
        .unwrap_err();
    assert_eq!(error.code(), "CAPACITY_EXCEEDED");
    assert!(
        world.extensions(root.id(), "subagent/settled").is_empty(),
        "not yet"
    );
    gate.open();
    run.await.unwrap().unwrap();
    nothing_is_left(&world, &root, "slow dispose").await;
}

#[tokio::test(start_paused = true)]
async fn b026_the_work_of_a_run_is_named_and_gone_before_its_result() {
    let world = World::with(SubagentSettings {
        max_live_children: 2,
        ..SubagentSettings::default()
    });
    let root = world.root();
    let (work, service) = (std::sync::Arc::clone(&world.work), world.subagents.clone());
    world.cast.plays("below", [Act::Hang]);
    let begin = move |child: offshoot_agent::Agent| async move {
        work.begin(&child, "task bash-1 (a server)");
        service.start(request(&child, "below")).await.unwrap();
    };
    world
        .cast
        .plays("run", [Act::work(begin, Act::Say("done"))]);
    let result = world
        .subagents
        .run(request(&root, "run"), CancellationToken::new());
    let result = result.await.unwrap();
    assert_eq!(result.outcome, Outcome::Completed);
    assert_eq!(result.stopped.len(), 2, "{:?}", result.stopped);
    assert_eq!(result.stopped[0], "task bash-1 (a server)");
    assert!(result.stopped[1].starts_with("subagent "));
    let order = [
        "below agent/status Closed",
        "run agent/status Closed",
        "root subagent/settled run completed",
    ];
    assert!(order.map(|line| world.position(line)).is_sorted(), "b025");
    assert!(
        world
            .host
            .agents
            .list()
            .iter()
            .all(|agent| agent.status() != Status::Running)
    );
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn t8_a_parent_that_closes_ends_all_its_runs_in_one_grace() {
    let world = World::new();
    let root = world.root();
    let mut runs = Vec::new();
    for n in 0..10 {
        let label = format!("deaf{n}");
        world.cast.plays(&label, [Act::Deaf]);
        let (service, asked) = (world.subagents.clone(), request(&root, &label));
        runs.push(tokio::spawn(async move {
            service.run(asked, CancellationToken::new()).await
        }));
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    let before = tokio::time::Instant::now();
    soon("the end", root.close(Pending::Keep)).await;
    let took = before.elapsed();
    assert!(took < Duration::from_secs(7), "{took:?}");
    for run in runs {
        assert_eq!(run.await.unwrap().unwrap().outcome, Outcome::Aborted);
    }
    assert_eq!(world.extensions(root.id(), "subagent/settled").len(), 10);
    world.close(&root).await;
}
