//! Measures an agent against what it is built on, in one run: medians of the ratios of interleaved
//! rounds. `cargo bench -p offshoot-agent` prints them; nothing is gated here.

#![allow(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use offshoot_agent::{
    Agent, AgentHost, AgentId, AgentKit, AgentSettings, AgentSpec, DriverError, Event, JsonlStore,
    MemoryStore, Message, Pending, Prompt, SessionStore, StepContext, StepOutcome, StoredEvent,
    Target, ToolSet, TurnDriver,
};
use offshoot_core::Timestamp;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};

const ROUNDS: usize = 41;
const MESSAGES: usize = 1_000;
const APPENDS: usize = 2_000;
const AGENTS: usize = 10_000;

struct Noop;

impl TurnDriver for Noop {
    fn step<'a>(&'a self, _: &'a StepContext) -> BoxFuture<'a, Result<StepOutcome, DriverError>> {
        std::future::ready(Ok(StepOutcome::Completed)).boxed()
    }
}

fn spec() -> AgentSpec {
    AgentSpec::root(AgentKit {
        driver: Arc::new(Noop),
        tools: ToolSet::default(),
        prompt: Prompt::default(),
    })
}

fn in_memory() -> AgentHost {
    AgentHost::new(Arc::new(MemoryStore::default()), AgentSettings::default())
}

fn started(host: &AgentHost) -> Agent {
    let agent = Agent::create(host, None, spec())
        .expect("an agent")
        .into_agent();
    agent.start();
    agent
}

fn messages() -> Vec<Message> {
    (0..MESSAGES).map(|_| Message::user("hello")).collect()
}

/// One message, and the end of the turn that it opened, each at a time.
async fn ask_agent(host: &AgentHost) -> Duration {
    let agent = started(host);
    let messages = messages();
    let begun = Instant::now();
    for message in messages {
        agent.followup(message).expect("accepted");
        agent.idle().await;
    }
    let took = begun.elapsed();
    agent.close(Pending::Keep).await;
    took
}

/// The same with an actor of one bounded channel and an answer channel a message.
async fn ask_actor() -> Duration {
    let (inbox, mut asked) = mpsc::channel::<(Message, oneshot::Sender<()>)>(64);
    let actor = tokio::spawn(async move {
        let mut history = Vec::new();
        while let Some((message, answer)) = asked.recv().await {
            history.push(message);
            let _ = answer.send(());
        }
    });
    let messages = messages();
    let begun = Instant::now();
    for message in messages {
        let (answer, answered) = oneshot::channel();
        inbox
            .send((message, answer))
            .await
            .expect("the actor lives");
        answered.await.expect("the actor answers");
    }
    let took = begun.elapsed();
    drop(inbox);
    actor.await.expect("the actor ends");
    took
}

fn round_trip(name: &str, runtime: &Runtime, observed: bool) {
    let mut pairs = Vec::new();
    for _ in 0..ROUNDS {
        let host = in_memory();
        let _guard = observed.then(|| {
            host.hub
                .observe(Arc::new(|_: &offshoot_agent::EventRecord| {}))
        });
        // Spawned, so that both sides run on a worker.
        let ours = runtime.block_on(async {
            tokio::spawn(async move { ask_agent(&host).await })
                .await
                .expect("no panic")
        });
        let theirs = runtime.block_on(async { tokio::spawn(ask_actor()).await.expect("no panic") });
        pairs.push((ours, theirs));
    }
    report(name, &pairs, MESSAGES);
}

fn report(name: &str, pairs: &[(Duration, Duration)], each: usize) {
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let per = |took: &Duration| took.as_secs_f64() * 1e9 / each as f64;
    let ratio = median(pairs.iter().map(|(a, b)| per(a) / per(b)).collect());
    let ours = median(pairs.iter().map(|(a, _)| per(a)).collect());
    let theirs = median(pairs.iter().map(|(_, b)| per(b)).collect());
    println!("{name}: {ratio:.2} x ({ours:.0} ns against {theirs:.0} ns)");
}

fn event(seq: u64) -> StoredEvent {
    StoredEvent {
        seq,
        time: Timestamp::from_millis(1_767_225_600_000 + seq),
        event: Event::InboxInserted {
            target: Target::NextStep,
            wake: true,
            message: Message::user("a line of text as people write them, not long, not short")
                .into(),
            before: None,
            passive: false,
        },
    }
}

fn append() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = JsonlStore::open_folder(folder.path()).expect("a store");
    let events: Vec<_> = (0..APPENDS as u64).map(event).collect();
    let lines: Vec<_> = events
        .iter()
        .map(|event| {
            let mut line = serde_json::to_vec(event).expect("a line");
            line.push(b'\n');
            line
        })
        .collect();
    let mut pairs = Vec::new();
    for round in 0..ROUNDS {
        let id = AgentId::fresh();
        let mut log = store.create(&id, 0).expect("a session");
        let begun = Instant::now();
        for (seq, event) in (0..).zip(&events) {
            log.append(seq, std::slice::from_ref(event))
                .expect("an append");
        }
        let ours = begun.elapsed();
        let path = folder.path().join(format!("raw-{round}"));
        let mut file = File::create(&path).expect("a file");
        let begun = Instant::now();
        for line in &lines {
            file.write_all(line).expect("a write");
        }
        pairs.push((ours, begun.elapsed()));
        log.abandon();
        drop(file);
        std::fs::remove_file(path).expect("the file is there");
    }
    report(
        "append one event to a durable log / write(2)",
        &pairs,
        APPENDS,
    );
}

fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1);
    pages.and_then(|n| n.parse::<usize>().ok()).unwrap_or(0) * 4096
}

fn memory(runtime: &Runtime) {
    runtime.block_on(async {
        let host = in_memory();
        let spec = spec();
        let before = resident();
        let agents: Vec<_> = (0..AGENTS)
            .map(|_| {
                let agent = Agent::create(&host, None, spec.clone())
                    .expect("an agent")
                    .into_agent();
                agent.start();
                agent
            })
            .collect();
        let idle = resident();
        for agent in &agents {
            agent.followup(Message::user("hello")).expect("accepted");
        }
        for agent in &agents {
            agent.idle().await;
        }
        let asked = resident();
        let each = |bytes: usize| bytes / AGENTS;
        println!(
            "an idle agent, its log in memory included: {} B; after one turn {} B",
            each(idle.saturating_sub(before)),
            each(asked.saturating_sub(before))
        );
        for agent in &agents {
            agent.close(Pending::Keep).await;
        }
    });
}

fn create_and_close(runtime: &Runtime) {
    let begun = Instant::now();
    runtime.block_on(async {
        let host = in_memory();
        for _ in 0..AGENTS {
            started(&host).close(Pending::Keep).await;
        }
    });
    let each = begun.elapsed().as_secs_f64() * 1e9 / AGENTS as f64;
    println!("create, start and close one agent in memory: {each:.0} ns");

    const DURABLE: usize = 300;
    let folder = tempfile::tempdir().expect("a folder");
    let store = JsonlStore::open_folder(folder.path()).expect("a store");
    let host = AgentHost::new(Arc::new(store), AgentSettings::default());
    let begun = Instant::now();
    runtime.block_on(async {
        for _ in 0..DURABLE {
            let agent = started(&host);
            agent.followup(Message::user("hello")).expect("accepted");
            agent.idle().await;
            agent.close(Pending::Keep).await;
        }
    });
    let each = begun.elapsed().as_secs_f64() * 1e6 / DURABLE as f64;
    println!("create, ask and close one agent with a durable log: {each:.0} us");
}

fn main() {
    let one = Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let two = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime");
    // `cargo bench -p offshoot-agent -- memory` measures only that.
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let wanted = |name: &str| filter.as_ref().is_none_or(|filter| name.contains(filter));
    if wanted("memory") {
        memory(&one);
    }
    if wanted("round-trip") {
        round_trip("round trip to an idle agent / ask, one thread", &one, false);
        round_trip(
            "round trip to an idle agent / ask, two workers",
            &two,
            false,
        );
    }
    if wanted("observed") {
        round_trip("the same with an observer, one thread", &one, true);
    }
    if wanted("append") {
        append();
    }
    if wanted("close") {
        create_and_close(&one);
    }
}
