//! Fan-out: N scripted continuable children of one parent, each with a durable JSONL log.
//!
//! `cargo bench -p offshoot-subagent` prints two tables: the cost of a child, and how long it takes from
//! a child's last step to the turn that its notice starts, beside one `Notify` wake.
//!
//! A live child has one open file. Children are therefore started in waves of at most half of what the
//! process may open; a wave is held at a gate until all of it is resident (that is when memory is
//! measured) and has settled before the next one begins. With the usual limit of 1024 files 10 000
//! children are 20 waves; with 20 000 they are one.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints what it found"
)]

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use offshoot_agent::{
    Agent, AgentHost, AgentKit, AgentSettings, AgentSpec, AssistantMessage, DriverError, Finish,
    JsonlStore, MemoryStore, Pending, Prompt, SessionStore, StepContext, StepOutcome, ToolSet,
    TurnDriver, Usage,
};
use offshoot_inprocess::Spawn;
use offshoot_subagent::{ChildRequest, RunRule, SubagentSettings, Subagents};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Children wait at the gate and say one thing; the root answers every notice with one word.
#[derive(Clone, Default)]
struct Cast {
    gate: Arc<Mutex<CancellationToken>>,
    /// When the last child's step ended, and when the root's step began.
    times: Arc<Mutex<(Option<Instant>, Option<Instant>)>>,
}

impl TurnDriver for Cast {
    fn step<'a>(
        &'a self,
        context: &'a StepContext,
    ) -> BoxFuture<'a, Result<StepOutcome, DriverError>> {
        Box::pin(async move {
            let child = context.agent().depth() > 0;
            if child {
                let gate = self.gate.lock().unwrap().clone();
                gate.cancelled().await;
            } else {
                self.times.lock().unwrap().1 = Some(Instant::now());
            }
            context.record_reply(AssistantMessage {
                text: "done".to_owned(),
                calls: Vec::new(),
                finish: Finish::Stop,
                usage: Usage {
                    input: 10,
                    output: 4,
                },
            })?;
            if child {
                self.times.lock().unwrap().0 = Some(Instant::now());
            }
            Ok(StepOutcome::Completed)
        })
    }
}

struct World {
    cast: Cast,
    subagents: Subagents,
    root: Agent,
}

impl World {
    fn over(store: Arc<dyn SessionStore>) -> Self {
        let mut host = AgentHost::new(store, AgentSettings::default());
        host.event_rules = Arc::new([Arc::new(RunRule)]);
        let settings = SubagentSettings {
            max_live_children: usize::MAX,
            ..SubagentSettings::default()
        };
        let subagents = Subagents::new(host.clone(), settings);
        subagents.register(Arc::new(Spawn)).unwrap();
        let cast = Cast::default();
        let kit = AgentKit {
            driver: Arc::new(cast.clone()),
            tools: ToolSet::default(),
            prompt: Prompt::default(),
        };
        let root = Agent::create(&host, None, AgentSpec::root(kit))
            .unwrap()
            .into_agent();
        root.start();
        Self {
            cast,
            subagents,
            root,
        }
    }

    async fn start(&self) {
        let prompt = "Measure this part of the folder and say how large it is.";
        let request = ChildRequest::new(self.root.clone(), "spawn", "child", prompt);
        self.subagents.start(request).await.unwrap();
    }

    /// Closes the gate for the children that come now.
    fn shut(&self) {
        *self.cast.gate.lock().unwrap() = CancellationToken::new();
    }

    fn open(&self) {
        self.cast.gate.lock().unwrap().cancel();
    }
}

/// Resident bytes of this process.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<usize>().ok());
    kib.unwrap_or(0) * 1024
}

fn open_files() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    line.and_then(|line| line.split_whitespace().nth(3)?.parse().ok())
        .unwrap_or(1024)
}

struct Cost {
    start: Duration,
    settle: Duration,
    live: usize,
    kept: usize,
    waves: usize,
}

/// Time and memory of `count` children, with all of their turns and the root's.
async fn fan_out(folder: &Path, count: usize) -> Cost {
    let world = World::over(Arc::new(JsonlStore::open_folder(folder).unwrap()));
    let wave = (open_files() / 2).max(1);
    let (mut start, mut settle) = (Duration::ZERO, Duration::ZERO);
    let (before, mut most, mut waves) = (resident(), 0, 0);
    let mut left = count;
    while left > 0 {
        let now = left.min(wave);
        left -= now;
        waves += 1;
        world.shut();
        let (begun, base) = (Instant::now(), resident());
        for _ in 0..now {
            world.start().await;
        }
        start += begun.elapsed();
        most = most.max(resident().saturating_sub(base) / now);
        let begun = Instant::now();
        world.open();
        world.root.rest().await;
        settle += begun.elapsed();
    }
    let kept = resident().saturating_sub(before) / count;
    world.root.close(Pending::Keep).await;
    Cost {
        start,
        settle,
        live: most,
        kept,
        waves,
    }
}

/// From the end of a child's step, over its settlement and its notice, to the root's step.
async fn notice_round(world: &World) -> Duration {
    *world.cast.times.lock().unwrap() = (None, None);
    world.shut();
    world.start().await;
    world.open();
    world.root.rest().await;
    let times = *world.cast.times.lock().unwrap();
    times.1.unwrap().saturating_duration_since(times.0.unwrap())
}

/// One task wakes another one.
async fn notify_round() -> Duration {
    let (wake, back) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (waiter, ready) = (Arc::clone(&wake), Arc::clone(&back));
    let woken = tokio::spawn(async move {
        let notified = waiter.notified();
        ready.notify_one();
        notified.await;
        Instant::now()
    });
    back.notified().await;
    let begun = Instant::now();
    wake.notify_one();
    woken.await.unwrap().saturating_duration_since(begun)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    println!(
        "children   waves   start/child   settle/child   total/child   live KiB/child   kept KiB/child"
    );
    for count in [100, 1000, 10_000] {
        let folder = tempfile::tempdir().unwrap();
        let cost = fan_out(folder.path(), count).await;
        let each = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;
        println!(
            "{count:>8} {:>7} {:>10.0} µs {:>11.0} µs {:>10.0} µs {:>16.1} {:>16.1}",
            cost.waves,
            each(cost.start),
            each(cost.settle),
            each(cost.start + cost.settle),
            cost.live as f64 / 1024.0,
            cost.kept as f64 / 1024.0,
        );
    }
    println!("reach: linear in the number, at most 300 µs and 64 KiB a child");

    let world = World::over(Arc::new(MemoryStore::default()));
    let (mut notices, mut wakes, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..301 {
        let notice = notice_round(&world).await.as_secs_f64() * 1e6;
        let wake = notify_round().await.as_secs_f64() * 1e6;
        notices.push(notice);
        wakes.push(wake);
        ratios.push(notice / wake.max(0.01));
    }
    world.root.close(Pending::Keep).await;
    println!(
        "\nsettle, notice, the idle owner's step begins: {:.1} µs; one Notify wake: {:.1} µs; ratio {:.1} (reach: 10)",
        median(notices),
        median(wakes),
        median(ratios)
    );
}
