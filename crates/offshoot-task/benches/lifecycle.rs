//! The registry against raw Tokio tasks, in one run: medians of the ratios of interleaved rounds.
//!
//! `cargo bench -p offshoot-task` prints one line a comparison. `-- --quick` takes fewer rounds.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program that prints"
)]

#[path = "common/measure.rs"]
mod measure;

use std::hint::black_box;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use measure::compare;
use offshoot_core::Scope;
use offshoot_task::{TaskConfig, TaskId, TaskOutcome, TaskRegistry, TaskSpec};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::task::JoinSet;

fn registry() -> (TaskRegistry, Scope) {
    let config = TaskConfig {
        max_live_per_owner: usize::MAX,
        retain_finished: 0,
        ..TaskConfig::default()
    };
    (TaskRegistry::new(config), Scope::root("bench"))
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn two_workers() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

async fn work(suspend: bool) {
    if suspend {
        tokio::task::yield_now().await;
    }
}

fn start(registry: &TaskRegistry, owner: &Scope, suspend: bool) -> TaskId {
    let spec = TaskSpec::new("bench", "one task");
    let id = registry.start(owner, spec, |_| {
        Ok(async move {
            work(suspend).await;
            TaskOutcome::completed()
        })
    });
    id.unwrap()
}

/// A task that yields gets its turn again long before a thousand others had theirs.
async fn everybody_polled() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

async fn finish(registry: &TaskRegistry, owner: &Scope, id: &TaskId) {
    let waited = registry.wait(owner.id(), id, Duration::MAX).await.unwrap();
    black_box(waited.snapshot().status);
    waited.commit();
}

fn one_by_one(runtime: &Runtime, label: &str, suspend: bool, reach: f64, rounds: usize) {
    const N: u32 = 500;
    let (registry, owner) = registry();
    compare(
        label,
        reach,
        rounds,
        N,
        || {
            runtime.block_on(async {
                let begun = Instant::now();
                for _ in 0..N {
                    tokio::spawn(work(suspend)).await.unwrap();
                }
                begun.elapsed()
            })
        },
        || {
            runtime.block_on(async {
                let begun = Instant::now();
                for _ in 0..N {
                    let id = start(&registry, &owner, suspend);
                    finish(&registry, &owner, &id).await;
                }
                begun.elapsed()
            })
        },
    );
}

/// The same through `spawn`, whose admission and registration are one critical section.
fn spawned_one_by_one(runtime: &Runtime, rounds: usize) {
    const N: u32 = 500;
    let (registry, owner) = registry();
    compare(
        "the same through `spawn`: ready, one thread",
        2.5,
        rounds,
        N,
        || {
            runtime.block_on(async {
                let begun = Instant::now();
                for _ in 0..N {
                    tokio::spawn(work(false)).await.unwrap();
                }
                begun.elapsed()
            })
        },
        || {
            runtime.block_on(async {
                let begun = Instant::now();
                for _ in 0..N {
                    let spec = TaskSpec::new("bench", "one task");
                    let id = registry.spawn(&owner, spec, async |_| TaskOutcome::completed());
                    finish(&registry, &owner, &id.unwrap()).await;
                }
                begun.elapsed()
            })
        },
    );
}

fn batch(rounds: usize) {
    const N: u32 = 10_000;
    let runtime = two_workers();
    let (registry, owner) = registry();
    compare(
        "batch of 10 000, two workers",
        4.0,
        rounds,
        N,
        || {
            runtime.block_on(async {
                let begun = Instant::now();
                let all: Vec<_> = (0..N).map(|_| tokio::spawn(work(false))).collect();
                for one in all {
                    one.await.unwrap();
                }
                begun.elapsed()
            })
        },
        || {
            runtime.block_on(async {
                let begun = Instant::now();
                let all: Vec<_> = (0..N).map(|_| start(&registry, &owner, false)).collect();
                for id in &all {
                    finish(&registry, &owner, id).await;
                }
                begun.elapsed()
            })
        },
    );
}

fn two_clients(rounds: usize) {
    const N: u32 = 5000;
    let runtime = two_workers();
    let (registry, _) = registry();
    compare(
        "two clients at once, two workers",
        3.3,
        rounds,
        2 * N,
        || {
            runtime.block_on(async {
                let begun = Instant::now();
                let client = || {
                    tokio::spawn(async {
                        for _ in 0..N {
                            tokio::spawn(work(false)).await.unwrap();
                        }
                    })
                };
                let (a, b) = (client(), client());
                a.await.unwrap();
                b.await.unwrap();
                begun.elapsed()
            })
        },
        || {
            runtime.block_on(async {
                let begun = Instant::now();
                let client = || {
                    let registry = registry.clone();
                    tokio::spawn(async move {
                        let owner = Scope::root("client");
                        for _ in 0..N {
                            let id = start(&registry, &owner, false);
                            finish(&registry, &owner, &id).await;
                        }
                        owner.close().await;
                    })
                };
                let (a, b) = (client(), client());
                a.await.unwrap();
                b.await.unwrap();
                begun.elapsed()
            })
        },
    );
}

fn close(rounds: usize) {
    const N: u32 = 10_000;
    let runtime = one_thread();
    compare(
        "close an owner of 10 000 live tasks",
        2.5,
        rounds,
        N,
        || {
            runtime.block_on(async {
                let mut all = JoinSet::new();
                for _ in 0..N {
                    all.spawn(std::future::pending::<()>());
                }
                everybody_polled().await;
                let begun = Instant::now();
                all.shutdown().await;
                begun.elapsed()
            })
        },
        || {
            runtime.block_on(async {
                let (registry, owner) = registry();
                for _ in 0..N {
                    let spec = TaskSpec::new("bench", "one task");
                    let started = registry.start(&owner, spec, |context| {
                        Ok(async move {
                            context.cancelled().await;
                            TaskOutcome::killed()
                        })
                    });
                    started.unwrap();
                }
                everybody_polled().await;
                let begun = Instant::now();
                owner.close().await;
                begun.elapsed()
            })
        },
    );
}

fn waiters(rounds: usize) {
    const N: u32 = 1000;
    let runtime = one_thread();
    let config = TaskConfig {
        max_live_per_owner: usize::MAX,
        ..TaskConfig::default()
    };
    let (registry, owner) = (TaskRegistry::new(config), Scope::root("bench"));
    compare(
        "one settlement, 1000 waiters",
        1.0,
        rounds,
        N,
        || {
            runtime.block_on(async {
                let notify = Arc::new(Notify::new());
                let mut all = JoinSet::new();
                for _ in 0..N {
                    let notify = Arc::clone(&notify);
                    all.spawn(async move { notify.notified().await });
                }
                everybody_polled().await;
                let begun = Instant::now();
                notify.notify_waiters();
                while all.join_next().await.is_some() {}
                begun.elapsed()
            })
        },
        || {
            runtime.block_on(async {
                let (end, ended) = tokio::sync::oneshot::channel::<()>();
                let spec = TaskSpec::new("bench", "one task");
                let id = registry.start(&owner, spec, |_| {
                    Ok(async move {
                        let _ = ended.await;
                        TaskOutcome::completed()
                    })
                });
                let id = id.unwrap();
                let mut all = JoinSet::new();
                for _ in 0..N {
                    let (registry, owner, id) = (registry.clone(), owner.clone(), id.clone());
                    all.spawn(async move { finish(&registry, &owner, &id).await });
                }
                everybody_polled().await;
                let begun = Instant::now();
                end.send(()).unwrap();
                while all.join_next().await.is_some() {}
                begun.elapsed()
            })
        },
    );
}

/// The settlement alone: how long until all 1000 are woken. They are polled by hand.
fn wakes(rounds: usize) {
    const N: u32 = 1000;
    let runtime = one_thread();
    let config = TaskConfig {
        max_live_per_owner: usize::MAX,
        retain_finished: 0,
        ..TaskConfig::default()
    };
    let (registry, owner) = (TaskRegistry::new(config), Scope::root("bench"));
    let mut cx = Context::from_waker(Waker::noop());
    compare(
        "one settlement, until 1000 waiters are woken",
        1.0,
        rounds,
        N,
        || {
            let notify = Notify::new();
            let mut all: Vec<_> = (0..N).map(|_| Box::pin(notify.notified())).collect();
            for one in &mut all {
                assert!(one.as_mut().poll(&mut cx).is_pending());
            }
            let begun = Instant::now();
            notify.notify_waiters();
            begun.elapsed()
        },
        || {
            runtime.block_on(async {
                let end = Arc::new(Notify::new());
                let ended = Arc::clone(&end);
                let spec = TaskSpec::new("bench", "one task");
                let id = registry.spawn(&owner, spec, async move |_| {
                    ended.notified().await;
                    TaskOutcome::completed()
                });
                let id = id.unwrap();
                let wait = || Box::pin(registry.wait(owner.id(), &id, Duration::MAX));
                let mut all: Vec<_> = (0..N).map(|_| wait()).collect();
                let mut cx = Context::from_waker(Waker::noop());
                for one in &mut all {
                    assert!(one.as_mut().poll(&mut cx).is_pending());
                }
                tokio::task::yield_now().await;
                let begun = Instant::now();
                end.notify_one();
                // The task runs in this turn of the runtime, and settles.
                tokio::task::yield_now().await;
                let elapsed = begun.elapsed();
                assert_eq!(owner.holds(), 0);
                elapsed
            })
        },
    );
}

fn beside_others(rounds: usize) {
    const N: u32 = 2000;
    let runtime = one_thread();
    let _guard = runtime.enter();
    let (alone, owner) = registry();
    let (shared, neighbour) = registry();
    for _ in 0..100_000 {
        let spec = TaskSpec::new("bench", "foreign");
        shared
            .start(&neighbour, spec, |_| Ok(std::future::pending()))
            .unwrap();
    }
    let own = Scope::root("own");
    for (registry, owner) in [(&alone, &owner), (&shared, &own)] {
        for _ in 0..10 {
            let spec = TaskSpec::new("bench", "own");
            registry
                .start(owner, spec, |_| Ok(std::future::pending()))
                .unwrap();
        }
    }
    let round = |registry: &TaskRegistry, owner: &Scope| {
        let begun = Instant::now();
        for _ in 0..N {
            black_box(registry.list(owner.id()).len());
            black_box(registry.live_count(owner.id()));
            let spec = TaskSpec::new("bench", "refused");
            let refused = registry.start(owner, spec, |_| {
                Err::<std::future::Pending<_>, _>("no".into())
            });
            assert!(refused.is_err());
        }
        begun.elapsed()
    };
    compare(
        "list, count, admit beside 100 000 foreign tasks",
        1.2,
        rounds,
        N,
        || round(&alone, &owner),
        || round(&shared, &own),
    );
}

/// Resident memory of this process, in bytes.
fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = statm
        .split(' ')
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0.0);
    pages * 4096.0
}

fn memory() {
    const N: usize = 200_000;
    let runtime = one_thread();
    let _guard = runtime.enter();
    let before = resident();
    let all: Vec<_> = (0..N)
        .map(|_| tokio::spawn(std::future::pending::<()>()))
        .collect();
    let raw = (resident() - before) / N as f64;
    let (registry, owner) = registry();
    let before = resident();
    for _ in 0..N {
        let spec = TaskSpec::new("bench", "one task");
        registry
            .start(&owner, spec, |_| Ok(std::future::pending()))
            .unwrap();
    }
    let ours = (resident() - before) / N as f64;
    println!("resident bytes of a live idle task: raw {raw:.0}, registry {ours:.0} (reach 600)");
    drop(all);
}

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick" || arg == "--test");
    let rounds = if quick { 5 } else { 41 };
    if std::env::args().any(|arg| arg == "--one") {
        // For a profiler: the first comparison alone, long enough to be sampled.
        one_by_one(&one_thread(), "ready, one thread", false, 2.5, 2000);
        return;
    }
    if std::env::args().any(|arg| arg == "--two") {
        two_clients(200);
        return;
    }
    memory();
    println!("{:<52} {:>10} {:>10}  median", "", "raw", "registry");
    let (one, two) = (one_thread(), two_workers());
    one_by_one(
        &one,
        "start, settle, wait, remove: ready, one thread",
        false,
        2.5,
        rounds,
    );
    one_by_one(
        &one,
        "start, settle, wait, remove: suspends, one thread",
        true,
        1.8,
        rounds,
    );
    one_by_one(
        &two,
        "start, settle, wait, remove: ready, two workers",
        false,
        2.5,
        rounds,
    );
    one_by_one(
        &two,
        "start, settle, wait, remove: suspends, two workers",
        true,
        1.8,
        rounds,
    );
    spawned_one_by_one(&one, rounds);
    batch(rounds);
    two_clients(rounds);
    close(rounds);
    waiters(rounds);
    wakes(rounds);
    beside_others(rounds);
}
