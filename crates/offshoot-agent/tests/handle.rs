//! The handle that its maker has: an agent does not outlive it unseen.

mod support;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use offshoot_agent::{Agent, AgentSpec, Pending, Status};
use offshoot_core::Scope;
use support::{World, user};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// The warnings of the thread, each as its message.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl<S: Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() <= Level::WARN {
            let mut text = Text(String::new());
            event.record(&mut text);
            let mut warnings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            warnings.push(text.0);
        }
    }
}

impl Warnings {
    /// Collects on this thread until the guard is dropped.
    fn collect() -> (Self, tracing::subscriber::DefaultGuard) {
        let warnings = Self::default();
        let subscriber = tracing_subscriber::registry().with(warnings.clone());
        let guard = tracing::subscriber::set_default(subscriber);
        (warnings, guard)
    }

    fn of_handles(&self) -> usize {
        let warnings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_handles = warnings.iter().filter(|text| {
            text.starts_with("the handle of an agent was dropped before the agent was closed")
        });
        of_handles.count()
    }
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_is_dropped_closes_its_agent_and_says_so_once() {
    let (warnings, _guard) = Warnings::collect();
    let world = World::new();
    let handle = Agent::create(&world.host, None, world.spec()).expect("an agent");
    handle.start();
    let agent: Agent = handle.clone();
    let found = world.host.agents.get(agent.id()).expect("it is listed");
    drop(found);
    assert_eq!(agent.status(), Status::Idle, "plain agents come and go");
    agent.followup(user("stay")).expect("accepted");

    drop(handle);
    assert_eq!(
        agent.status(),
        Status::Closing,
        "begun before the drop returns"
    );
    agent
        .followup(user("late"))
        .expect_err("nothing more is accepted");
    agent.closed().await;
    assert!(world.host.agents.get(agent.id()).is_none());
    assert_eq!(warnings.of_handles(), 1);

    // What it had accepted is kept, and the session is free for the next residency.
    let next = Agent::resume(
        &world.host,
        None,
        agent.id(),
        Default::default(),
        world.kit(),
    );
    let next = next.expect("the session was let go");
    next.close(Pending::Keep).await;
    drop(next);
    assert_eq!(warnings.of_handles(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_handle_of_an_agent_that_ends_is_dropped_without_a_word() {
    let (warnings, _guard) = Warnings::collect();
    let world = World::new();
    let make = |owner: Option<&Scope>| {
        let spec: AgentSpec = world.spec();
        Agent::create(&world.host, owner, spec).expect("an agent")
    };
    let closed = make(None);
    closed.close(Pending::Keep).await;
    drop(closed);

    let closing = make(None);
    let end = closing.close(Pending::Keep);
    drop(closing);
    end.await;

    let settled = make(None);
    settled.start();
    assert!(settled.close_if_settled());
    drop(settled);

    let owner = Scope::root("owner");
    let owned = make(Some(&owner));
    owner.close().await;
    assert_eq!(owned.status(), Status::Closed);
    drop(owned);

    let scope = Scope::root("owner");
    let given = make(Some(&scope)).into_agent();
    given.start();
    assert_eq!(
        given.status(),
        Status::Idle,
        "who gave it away let go of it"
    );
    given.followup(user("hello")).expect("accepted");
    assert!(scope.close().await.is_clean());
    assert_eq!(given.status(), Status::Closed);
    assert_eq!(warnings.of_handles(), 0);
}

#[test]
fn a_handle_may_be_dropped_outside_of_a_runtime() {
    let (warnings, _guard) = Warnings::collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .expect("a runtime");
    let world = World::new();
    let make = || Agent::create(&world.host, None, world.spec()).expect("an agent");
    let (first, second) = runtime.block_on(async { (make(), make()) });
    let agent: Agent = first.clone();
    drop(first);
    runtime.block_on(agent.closed());
    assert_eq!(warnings.of_handles(), 1);

    // The runtime is gone: nothing can run, and nothing panics.
    drop(runtime);
    drop(second);
    assert_eq!(warnings.of_handles(), 2);
}
