//! How the end of an owner reaches the agents in it, and how long it takes.

mod support;

use std::sync::Arc;
use std::time::Duration;

use offshoot_agent::{
    Agent, AgentId, AgentSettings, AgentSpec, Pending, Placement, SendError, Status,
};
use offshoot_core::{CloseReport, Scope};
use support::{Manner, World, notice, soon, user};
use tokio::time::{Instant, sleep};

fn id(text: &str) -> AgentId {
    text.parse().expect("an id")
}

/// A started agent inside `owner`.
fn agent_in(world: &World, owner: &Scope, name: &str) -> Agent {
    let spec = AgentSpec {
        id: Some(id(name)),
        ..world.spec()
    };
    let agent = Agent::create(&world.host, Some(owner), spec).expect("an agent");
    agent.start();
    agent.into_agent()
}

fn slow(scope: &Scope, seconds: u64) {
    let cleanup = async move || {
        sleep(Duration::from_secs(seconds)).await;
        Ok(())
    };
    scope.on_close("slow", cleanup).expect("open");
}

fn is_closing(agent: &Agent) {
    assert_eq!(agent.status(), Status::Closing, "{agent:?}");
    for refused in [
        agent.followup(user("late")),
        agent.steer(user("late")),
        agent.inject(user("late")),
    ] {
        assert!(matches!(refused, Err(SendError::Closing)), "{refused:?}");
    }
    assert!(!agent.close_if_settled(), "it closes already");
    let refused = agent.scope().child("late");
    assert!(refused.is_err(), "nothing begins in it");
}

/// From the call on, not from their turn in the order of the cleanups.
#[tokio::test(start_paused = true)]
async fn every_agent_of_a_closing_owner_closes_at_once() {
    let mut world = World::new();
    let owner = Scope::root("owner");
    let first = agent_in(&world, &owner, "first");
    let below = agent_in(&world, first.scope(), "below");
    let deep = agent_in(&world, below.scope(), "deep");
    let last = agent_in(&world, &owner, "last");
    slow(last.scope(), 30);
    slow(deep.scope(), 30);
    // A cleanup of the owner's own comes before all of them.
    slow(&owner, 30);
    deep.followup(user("a")).expect("accepted");
    let step = world.stage.next().await;

    let began = Instant::now();
    let closing = owner.close();
    for agent in [&first, &below, &deep, &last] {
        is_closing(agent);
        assert_eq!(
            world.statuses(agent.id()).last().map(String::as_str),
            Some("closing"),
            "who watches is told"
        );
    }
    soon("the cancellation", step.context.cancelled()).await;
    soon("the end of the turn", deep.idle()).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    let delivered = first.notify(notice("n", 1), true).expect("a notice");
    assert_eq!(delivered.placement, Placement::Parked);

    assert!(closing.await.is_clean());
    for agent in [&first, &below, &deep, &last] {
        assert_eq!(agent.status(), Status::Closed, "{agent:?}");
        support::check_closed(&world.log(agent));
        assert_eq!(
            world
                .trace(agent)
                .iter()
                .filter(|line| line.starts_with("turn"))
                .count(),
            usize::from(agent == &deep)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn closing_an_agent_closes_what_is_inside_it_at_once() {
    let world = World::new();
    let parent = world.agent();
    let child = agent_in(&world, parent.scope(), "child");
    slow(parent.scope(), 30);
    let closing = parent.close(Pending::Discard);
    is_closing(&parent);
    is_closing(&child);
    assert!(closing.await.is_clean());
    assert_eq!(child.status(), Status::Closed);
}

/// One may wait for the end of another inside the same owner.
#[tokio::test(start_paused = true)]
async fn an_agent_whose_owner_closes_can_be_closed_before_its_turn() {
    let world = World::new();
    let owner = Scope::root("owner");
    let agent = agent_in(&world, &owner, "a");
    let inside = agent.clone();
    owner
        .on_close("waits for the agent", async move || {
            inside.close(Pending::Keep).await;
            Ok(())
        })
        .expect("open");
    let began = Instant::now();
    assert!(owner.close().await.is_clean());
    assert_eq!(agent.status(), Status::Closed);
    assert_eq!(began.elapsed(), Duration::ZERO);
}

/// Contract 6.18: the bound of the end does not grow with what is inside, and who was above ends last.
#[tokio::test(start_paused = true)]
async fn a_tree_of_deaf_agents_ends_in_one_grace_children_first() {
    for n in [1, 4, 13, 200] {
        let mut world = World::with(Manner::Deaf, AgentSettings::default());
        let top = world.agent();
        let middle = agent_in(&world, top.scope(), "middle");
        let leaves: Vec<_> = (0..n)
            .map(|n| agent_in(&world, middle.scope(), &format!("leaf-{n}")))
            .collect();
        let mut steps = Vec::new();
        for agent in leaves.iter().chain([&middle, &top]) {
            agent.followup(user("a")).expect("accepted");
            steps.push(world.stage.next().await);
        }
        let ends = tokio::spawn({
            let (top, middle, leaves) = (top.clone(), middle.clone(), leaves.clone());
            async move {
                for leaf in &leaves {
                    leaf.closed().await;
                }
                let first = middle.status();
                middle.closed().await;
                (first, top.status())
            }
        });
        let began = Instant::now();
        let report = top.close(Pending::Keep).await;
        assert_eq!(began.elapsed().as_secs(), 5, "{n} leaves: {report:?}");
        assert_eq!(
            soon("the order", ends).await.expect("no panic"),
            (Status::Closing, Status::Closing),
            "{n} leaves"
        );
        assert!(report.failures.is_empty(), "{report:?}");
        assert_eq!(report.dropped.len(), n + 2);
        assert!(world.host.agents.list().is_empty());
        for agent in &leaves {
            support::check_closed(&world.log(agent));
        }
    }
}

/// A cleanup may take a minute; what is inside may take as long as its cleanups may.
#[tokio::test(start_paused = true)]
async fn a_subtree_is_not_cut_by_the_limit_of_one_cleanup() {
    let world = World::new();
    let top = world.agent();
    let middle = agent_in(&world, top.scope(), "middle");
    slow(middle.scope(), 50);
    slow(middle.scope(), 50);
    let leaf = agent_in(&world, middle.scope(), "leaf");
    slow(leaf.scope(), 50);
    slow(leaf.scope(), 50);
    let began = Instant::now();
    let closing = top.close(Pending::Keep);
    sleep(Duration::from_secs(150)).await;
    assert_eq!(leaf.status(), Status::Closed);
    assert_eq!(middle.status(), Status::Closing);
    assert_eq!(top.status(), Status::Closing);
    let report = closing.await;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(began.elapsed().as_secs(), 200);
}

/// A267: who ends the agent, who ends its owner and who ends what is around it wait for one end,
/// whoever is first.
#[tokio::test(start_paused = true)]
async fn a267_an_owner_that_closes_beside_its_agent_awaits_the_same_end() {
    for own_first in [true, false] {
        let world = World::new();
        let (above, owner);
        above = Scope::root("above");
        owner = above.child("owner").expect("open");
        let agent = agent_in(&world, &owner, "one");
        slow(agent.scope(), 30);
        let began = Instant::now();
        let ends = |scope: Scope| {
            let agent = agent.clone();
            tokio::spawn(async move {
                let report = scope.close().await;
                (agent.status(), report.is_clean())
            })
        };
        let order = match own_first {
            true => [agent.scope().clone(), owner.clone(), above.clone()],
            false => [above.clone(), owner.clone(), agent.scope().clone()],
        };
        let mut waits = Vec::new();
        for scope in order {
            waits.push(ends(scope));
            sleep(Duration::from_secs(5)).await;
        }
        let last = agent.close(Pending::Keep).await;
        assert!(last.is_clean());
        for wait in waits {
            let end = wait.await.expect("no panic");
            assert_eq!(end, (Status::Closed, true), "own first: {own_first}");
        }
        assert_eq!(began.elapsed().as_secs(), 30);
    }
}

async fn end_of_one(world: &mut World) -> Arc<CloseReport> {
    let agent = agent_in(world, &Scope::root("owner"), "one");
    agent.followup(user("a")).expect("accepted");
    let _step = world.stage.next().await;
    let report = agent.close(Pending::Keep).await;
    assert_eq!(world.driver.dropped(), 1);
    report
}

/// Contract 6.18: what did not end in time is named.
#[tokio::test(start_paused = true)]
async fn a_step_that_was_dropped_is_in_the_report() {
    let mut world = World::with(Manner::Deaf, AgentSettings::default());
    let report = end_of_one(&mut world).await;
    assert!(!report.is_clean());
    assert!(report.failures.is_empty(), "no cleanup failed: {report:?}");
    assert_eq!(
        report.dropped,
        ["turn 1, step 1 did not end within 5s of its cancellation"]
    );

    // Of a step that was dropped before the end began nothing is said, nor of one that ended.
    let mut world = World::with(Manner::Deaf, AgentSettings::default());
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    let _step = world.stage.next().await;
    agent.cancel(offshoot_agent::CancelCause::User, Pending::Keep);
    soon("idle", agent.idle()).await;
    agent.followup(user("b")).expect("accepted");
    let step = world.stage.next().await;
    agent.begin_close(Pending::Keep);
    step.complete();
    assert!(agent.close(Pending::Keep).await.is_clean());
}

/// It began to close before its scope did.
#[tokio::test(start_paused = true)]
async fn a_step_that_was_dropped_before_the_scope_closed_is_in_the_report() {
    let mut world = World::with(Manner::Deaf, AgentSettings::default());
    let owner = Scope::root("owner");
    let agent = agent_in(&world, &owner, "one");
    agent.followup(user("a")).expect("accepted");
    let _step = world.stage.next().await;
    agent.begin_close(Pending::Keep);
    soon("idle", agent.idle()).await;
    let report = owner.close().await;
    assert_eq!(
        report.dropped,
        ["agent one: turn 1, step 1 did not end within 5s of its cancellation"]
    );
}

/// Whoever waits for the end to begin, or for rest, is told when it does.
#[tokio::test(start_paused = true)]
async fn who_waits_for_an_idle_agent_hears_that_its_owner_closes() {
    let world = World::new();
    let owner = Scope::root("owner");
    let agent = agent_in(&world, &owner, "a");
    slow(agent.scope(), 30);
    let hold = agent.scope().hold().expect("open");
    let waits = tokio::spawn({
        let agent = agent.clone();
        async move { tokio::join!(agent.closing(), agent.rest()) }
    });
    tokio::task::yield_now().await;
    assert!(!waits.is_finished());
    let began = Instant::now();
    let closing = owner.close();
    soon("the news", waits).await.expect("no panic");
    assert_eq!(began.elapsed(), Duration::ZERO);
    drop(hold);
    closing.await;
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime")
}

/// An idle agent and one that runs, on a runtime that is gone.
fn orphans() -> (World, [Agent; 2]) {
    let first = runtime();
    let (world, agents) = first.block_on(async {
        let mut world = World::new();
        let agents = [world.agent(), world.agent()];
        agents[1].followup(user("a")).expect("accepted");
        drop(world.stage.next().await);
        (world, agents)
    });
    drop(first);
    (world, agents)
}

#[test]
fn an_agent_whose_runtime_is_gone_closes_on_the_callers() {
    let (world, agents) = orphans();
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let told = Arc::clone(&done);
    agents[0]
        .scope()
        .on_close("of its own", async move || {
            told.store(true, std::sync::atomic::Ordering::SeqCst);
            Ok(())
        })
        .expect("open");
    runtime().block_on(async {
        for agent in &agents {
            let report = soon("the end", agent.close(Pending::Keep)).await;
            assert!(report.is_clean(), "{report:?}");
            assert_eq!(agent.status(), Status::Closed);
            support::check_closed(&world.log(agent));
        }
    });
    assert!(done.load(std::sync::atomic::Ordering::SeqCst));
    assert!(world.host.agents.list().is_empty());
}

#[test]
fn an_agent_closes_without_any_runtime() {
    let (world, agents) = orphans();
    agents[0]
        .scope()
        .on_close("of its own", async || Ok(()))
        .expect("open");
    for agent in &agents {
        drop(agent.close(Pending::Keep));
        assert_eq!(agent.status(), Status::Closed);
        support::check_closed(&world.log(agent));
    }
    assert!(world.host.agents.list().is_empty());
    let report = runtime().block_on(agents[0].close(Pending::Keep));
    let failed: Vec<_> = report
        .failures
        .iter()
        .map(|failure| {
            let (name, error) = (failure.name.as_str(), failure.error.as_str());
            (name, error)
        })
        .collect();
    assert_eq!(
        failed,
        [
            ("of its own", "the runtime shut down"),
            ("let the session go", "the runtime shut down"),
        ]
    );
}

/// A runtime that ends in the middle of the closing of an agent.
#[test]
fn an_agent_whose_runtime_ends_while_it_closes_has_closed() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = runtime();
    let (world, agent, child) = first.block_on(async {
        let world = World::in_folder(folder.path());
        let agent = world.agent();
        let child = agent_in(&world, agent.scope(), "child");
        child
            .scope()
            .on_close("hangs", async || std::future::pending().await)
            .expect("open");
        drop(agent.close(Pending::Keep));
        sleep(Duration::from_millis(1)).await;
        (world, agent, child)
    });
    assert_eq!(child.status(), Status::Closing);
    drop(first);
    assert_eq!(child.status(), Status::Closed);
    assert_eq!(agent.status(), Status::Closed);
    runtime().block_on(async {
        let report = soon("the end", agent.close(Pending::Keep)).await;
        assert!(!report.is_clean());
        let report = soon("the end", child.close(Pending::Keep)).await;
        assert_eq!(report.failures[0].name, "hangs");
        let again = Agent::resume(
            &world.host,
            None,
            child.id(),
            Default::default(),
            world.kit(),
        );
        again
            .expect("the session was let go")
            .close(Pending::Keep)
            .await;
    });
}

/// Nothing is accepted that nothing will run.
#[test]
fn an_agent_whose_runtime_is_gone_refuses_what_wakes() {
    let (world, agents) = orphans();
    for agent in &agents {
        let before = world.log(agent).len();
        let refused = agent.followup(user("b")).expect_err("a refusal");
        assert_eq!(refused.code(), "AGENT_RUNTIME_GONE");
        let refused = runtime().block_on(async { agent.steer(user("c")) });
        assert_eq!(refused.expect_err("a refusal").code(), "AGENT_RUNTIME_GONE");
        assert_eq!(world.log(agent).len(), before, "nothing was appended");
        let told = agent.notify(notice("n", 1), true).expect("a notice");
        assert_eq!(told.placement, Placement::Parked);
        agent.inject(user("d")).expect("it does not wake");
        let refused = agent.resume_parked().expect_err("a refusal");
        assert_eq!(refused.code(), "AGENT_RUNTIME_GONE");
        assert_eq!(agent.status(), Status::Idle);
    }
}
