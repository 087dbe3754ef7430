//! What others take to start one piece of work, to know that it has ended, and to be rid of it.
//!
//! The yardstick is a raw Tokio task, as in `lifecycle`. The peers promise less: a `JoinSet` and a
//! `TaskTracker` have no ids, owners, outputs or notices; an actor has a mailbox besides.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program that prints"
)]

#[path = "common/measure.rs"]
mod measure;

use std::future::Future;
use std::time::{Duration, Instant};

use kameo::actor::Spawn;
use measure::compare;
use offshoot_core::Scope;
use offshoot_task::{TaskConfig, TaskOutcome, TaskRegistry, TaskSpec};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

const N: u32 = 500;

async fn raw() {
    tokio::spawn(async {}).await.unwrap();
}

async fn registry(registry: &TaskRegistry, owner: &Scope) {
    let spec = TaskSpec::new("bench", "one task");
    let id = registry.spawn(owner, spec, async |_| TaskOutcome::completed());
    let waited = registry.wait(owner.id(), &id.unwrap(), Duration::MAX).await;
    waited.unwrap().commit();
}

async fn tracked(tracker: &TaskTracker) {
    tracker.spawn(async {}).await.unwrap();
}

#[derive(kameo::Actor)]
struct KameoActor;

async fn kameo_actor() {
    let actor = KameoActor::spawn(KameoActor);
    actor.stop_gracefully().await.unwrap();
    actor.wait_for_shutdown().await;
}

struct RactorActor;

impl ractor::Actor for RactorActor {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ractor::ActorRef<()>,
        _: (),
    ) -> Result<(), ractor::ActorProcessingErr> {
        myself.stop(None);
        Ok(())
    }
}

async fn ractor_actor() {
    let (_actor, end) = ractor::Actor::spawn(None, RactorActor, ()).await.unwrap();
    end.await.unwrap();
}

/// How long `N` of them take, one after the other.
fn time<F: Future<Output = ()>>(runtime: &Runtime, mut one: impl FnMut() -> F) -> Duration {
    runtime.block_on(async {
        let begun = Instant::now();
        for _ in 0..N {
            one().await;
        }
        begun.elapsed()
    })
}

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick" || arg == "--test");
    let rounds = if quick { 3 } else { 31 };
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    println!("{:<52} {:>10} {:>10}  median", "", "raw", "peer");
    let yardstick = || time(&runtime, raw);
    let config = TaskConfig {
        retain_finished: 0,
        ..TaskConfig::default()
    };
    let (tasks, owner) = (TaskRegistry::new(config), Scope::root("bench"));
    compare("this registry", 2.5, rounds, N, yardstick, || {
        time(&runtime, || registry(&tasks, &owner))
    });
    compare("tokio JoinSet", None, rounds, N, yardstick, || {
        runtime.block_on(async {
            let mut set = JoinSet::new();
            let begun = Instant::now();
            for _ in 0..N {
                set.spawn(async {});
                set.join_next().await.unwrap().unwrap();
            }
            begun.elapsed()
        })
    });
    let tracker = TaskTracker::new();
    compare("tokio-util TaskTracker", None, rounds, N, yardstick, || {
        time(&runtime, || tracked(&tracker))
    });
    compare("an actor of kameo", None, rounds, N, yardstick, || {
        time(&runtime, kameo_actor)
    });
    compare("an actor of ractor", None, rounds, N, yardstick, || {
        time(&runtime, ractor_actor)
    });
}
