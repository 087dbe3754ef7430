//! A log that is far larger than what it comes to. Alone in its process, whose memory it measures.

mod support;

use std::io::{BufWriter, Write as _};

use offshoot_agent::{Agent, AgentSpec, Extension, JsonlStore, SessionStore as _};
use support::{World, user};

/// The most memory that this process ever had, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the status of this process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let size = line.and_then(|line| line.split_whitespace().next());
    size.and_then(|size| size.parse().ok()).expect("a size")
}

#[tokio::test(start_paused = true)]
async fn a_resume_takes_memory_for_what_is_visible_and_not_for_the_log() {
    const CHUNKS: u64 = 12_000;
    let folder = tempfile::tempdir().expect("a folder");
    let id = "s".parse().expect("an id");
    let mut world = World::in_folder(folder.path());
    let spec = AgentSpec {
        id: Some(id),
        ..world.spec()
    };
    let agent = Agent::create(&world.host, None, spec)
        .expect("an agent")
        .into_agent();
    agent.start();
    agent.followup(user("a")).expect("accepted");
    world.stage.next().await.complete();
    agent.idle().await;
    let id = agent.id().clone();
    let chunk = Extension::new("later/chunk")
        .with("text", "x".repeat(4096))
        .ignorable();
    agent.record(chunk).expect("recorded");
    world.finish(agent).await;

    // The last line, again and again with the next number: as large a log as a long life has.
    let path = folder.path().join("s.jsonl");
    let log = std::fs::read_to_string(&path).expect("the log");
    let last = log.lines().last().expect("a line");
    let (_, rest) = last.split_once(',').expect("fields");
    let first = log.lines().count() as u64 - 1;
    let file = std::fs::File::options().append(true).open(&path);
    let mut file = BufWriter::new(file.expect("the log"));
    for seq in first..first + CHUNKS {
        writeln!(file, "{{\"seq\":{seq},{rest}").expect("a line");
    }
    file.into_inner().expect("the log");
    let size = std::fs::metadata(&path).expect("the log").len();
    assert!(size > 48 << 20, "{size} bytes");

    let before = peak();
    let world = World::in_folder(folder.path());
    let agent = Agent::resume(&world.host, None, &id, Default::default(), world.kit());
    let agent = agent.expect("the session").into_agent();
    let (history, next) = agent.with_projection(|p| (p.history().len(), p.next_seq()));
    assert_eq!((history, next), (1, first + CHUNKS + 1));
    let grown = peak() - before;
    assert!(grown < 8 << 10, "{grown} KiB for a log of {size} bytes");
    world.finish(agent).await;

    // Nothing of it is gone: who reads all of it gets it.
    let store = JsonlStore::existing(folder.path()).expect("a store");
    let mut count = 0;
    store.scan(&id, &mut |_| count += 1).expect("readable");
    assert_eq!(count, first + CHUNKS + 1);
}
