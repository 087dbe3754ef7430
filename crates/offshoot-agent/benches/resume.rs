//! Measures the cold resume of a 100 MB log whose visible history is small, against reading the file.
//! `cargo bench -p offshoot-agent --bench resume` prints it; nothing is gated here.

#![allow(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::fs::File;
use std::io::{BufWriter, Read as _, Write as _};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use offshoot_agent::{
    Agent, AgentHost, AgentId, AgentKit, AgentSettings, AgentSpec, DriverError, Extension,
    JsonlStore, Message, Pending, Prompt, StepContext, StepOutcome, ToolSet, TurnDriver,
};
use tokio::runtime::Builder;

const SIZE: u64 = 100_000_000;
const ROUNDS: usize = 11;

struct Noop;

impl TurnDriver for Noop {
    fn step<'a>(&'a self, _: &'a StepContext) -> BoxFuture<'a, Result<StepOutcome, DriverError>> {
        std::future::ready(Ok(StepOutcome::Completed)).boxed()
    }
}

fn kit() -> AgentKit {
    AgentKit {
        driver: Arc::new(Noop),
        tools: ToolSet::default(),
        prompt: Prompt::default(),
    }
}

fn host(folder: &Path) -> AgentHost {
    let store = JsonlStore::open_folder(folder).expect("a store");
    AgentHost::new(Arc::new(store), AgentSettings::default())
}

/// A session of a hundred turns, and between them what models sent in pieces.
fn make(folder: &Path, piece: usize) -> AgentId {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let id = runtime.block_on(async {
        let agent = Agent::create(&host(folder), None, AgentSpec::root(kit()));
        let agent = agent.expect("an agent");
        agent.start();
        for _ in 0..100 {
            agent.followup(Message::user("hello")).expect("accepted");
            agent.idle().await;
        }
        let chunk = Extension::new("model/chunk").with("text", "x".repeat(piece));
        agent.record(chunk.ignorable()).expect("recorded");
        agent.close(Pending::Keep).await;
        agent.id().clone()
    });
    let path = folder.join(format!("{id}.jsonl"));
    let log = std::fs::read_to_string(&path).expect("the log");
    let last = log.lines().last().expect("a line");
    let (_, rest) = last.split_once(',').expect("fields");
    let mut size = log.len() as u64;
    let file = File::options().append(true).open(&path).expect("the log");
    let mut file = BufWriter::new(file);
    for seq in log.lines().count() as u64 - 1.. {
        let line = format!("{{\"seq\":{seq},{rest}\n");
        file.write_all(line.as_bytes()).expect("a line");
        size += line.len() as u64;
        if size > SIZE {
            break;
        }
    }
    file.flush().expect("the log");
    id
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let size = line.and_then(|line| line.split_whitespace().next());
    size.and_then(|size| size.parse().ok()).unwrap_or(0)
}

/// Resumes once, in a process of its own, and says how long it took and the most memory it had.
fn resume(folder: &Path, id: &str) {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let host = host(folder);
        let id = id.parse().expect("an id");
        let before = peak_kib();
        let begun = Instant::now();
        let agent = Agent::resume(&host, None, &id, Default::default(), kit());
        let agent = agent.expect("the session");
        let took = begun.elapsed();
        println!("{} {} {before}", took.as_micros(), peak_kib());
        agent.close(Pending::Keep).await;
    });
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, folder, id] = arguments.as_slice()
        && word == "resume-once"
    {
        return resume(Path::new(folder), id);
    }
    let this = std::env::current_exe().expect("this program");
    for piece in [256, 4096] {
        let folder = tempfile::tempdir().expect("a folder");
        let id = make(folder.path(), piece);
        let path = folder.path().join(format!("{id}.jsonl"));
        let (mut ours, mut peaks, mut base, mut raw) = (vec![], vec![], vec![], vec![]);
        for _ in 0..ROUNDS {
            let mut child = Command::new(&this);
            child.arg("resume-once").arg(folder.path()).arg(id.as_str());
            let output = child.output().expect("a process");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let mut figures = text
                .split_whitespace()
                .filter_map(|n| n.parse::<u64>().ok());
            ours.extend(figures.next());
            peaks.extend(figures.next());
            base.extend(figures.next());
            let begun = Instant::now();
            let mut file = File::open(&path).expect("the log");
            let mut chunk = vec![0; 64 * 1024];
            while file.read(&mut chunk).expect("a read") > 0 {}
            raw.push(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
        }
        println!(
            "resume of a 100 MB log, events of {piece} B: {} ms, read(2) of the file: {} ms; \
             most memory {} KiB, before it {} KiB",
            median(ours) / 1000,
            median(raw) / 1000,
            median(peaks),
            median(base)
        );
    }
}
