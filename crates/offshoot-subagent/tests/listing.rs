//! Listings after a restart, and over sessions that are damaged.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use offshoot_agent::{
    Agent, AgentId, Event, Extension, JsonlStore, MemoryStore, Origin, RunId, SessionStart,
    StoredEvent,
};
use offshoot_subagent::{ChildRequest, ChildStatus, Descriptor, Mode, SubagentSettings};
use support::{Act, Watched, World, request, soon};
use tokio_util::sync::CancellationToken;

fn world(folder: &Path) -> World {
    let store = Arc::new(JsonlStore::open_folder(folder).unwrap());
    World::over(store, SubagentSettings::default())
}

fn rows(world: &World, of: &Agent) -> Vec<(String, ChildStatus, u32)> {
    let listed = world.subagents.list(of, true);
    let row = |row: offshoot_subagent::Listed| (row.label, row.status, row.depth);
    listed.into_iter().map(row).collect()
}

/// An act that starts a child of this label, continuable, and waits until it has settled.
fn starting(world: &World, label: &'static str) -> Act {
    let service = world.subagents.clone();
    let work = move |agent: Agent| async move {
        service.start(request(&agent, label)).await.unwrap();
        agent.scope().unheld().await;
    };
    Act::work(work, Act::Say("done"))
}

/// A root with the children a, b with c below it, and d; everybody has settled.
async fn family(world: &World) -> Agent {
    let root = world.root();
    world.cast.plays("b", [starting(world, "c")]);
    for label in ["a", "b", "d"] {
        let run = world.subagents.start(request(&root, label)).await.unwrap();
        world.settled(&root, &run).await;
    }
    soon("rest", root.rest()).await;
    root
}

fn ready(rows: &[(&str, u32)]) -> Vec<(String, ChildStatus, u32)> {
    let row = |(label, depth): &(&str, u32)| ((*label).to_owned(), ChildStatus::Ready, *depth);
    rows.iter().map(row).collect()
}

#[tokio::test(start_paused = true)]
async fn s237_after_a_restart_the_listing_is_the_same_in_the_same_order() {
    let folder = tempfile::tempdir().unwrap();
    let before = world(folder.path());
    let root = family(&before).await;
    let id = root.id().clone();
    let listed = before.subagents.list(&root, true);
    before.close(&root).await;
    drop((root, before));
    let after = world(folder.path());
    let root = after.resume_root(&id);
    assert_eq!(after.subagents.list(&root, true), listed);
    let expected = ready(&[("a", 1), ("b", 1), ("c", 2), ("d", 1)]);
    assert_eq!(rows(&after, &root), expected);
    // A message brings one back without moving it.
    let sent = after.subagents.send(&root, listed[1].id.as_str(), "x", 0);
    sent.await.unwrap();
    soon("rest", root.rest()).await;
    assert_eq!(rows(&after, &root), expected);
    after.close(&root).await;
}

/// Each way in which a stored session can be damaged.
type Damage = (&'static str, Box<dyn Fn()>);

fn damages(folder: &Path, id: &AgentId, other: &AgentId) -> Vec<Damage> {
    let file = |id: &AgentId| {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut paths = entries.map(|entry| entry.unwrap().path());
        let named = |path: &std::path::PathBuf| {
            path.extension().is_some_and(|ext| ext == "jsonl")
                && path.to_string_lossy().contains(id.as_str())
        };
        paths.find(named).unwrap()
    };
    let (mine, theirs) = (file(id), std::fs::read(file(other)).unwrap());
    let (gone, empty, noise, foreign) = (mine.clone(), mine.clone(), mine.clone(), mine);
    vec![
        (
            "gone",
            Box::new(move || std::fs::remove_file(&gone).unwrap()),
        ),
        (
            "empty",
            Box::new(move || std::fs::write(&empty, "").unwrap()),
        ),
        (
            "noise",
            Box::new(move || std::fs::write(&noise, "[1, 2]\n{\"seq\"\n").unwrap()),
        ),
        (
            "another's",
            Box::new(move || std::fs::write(&foreign, &theirs).unwrap()),
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn s243_s253_a_damaged_session_is_listed_as_broken_and_the_walk_goes_on() {
    for n in 0..4 {
        let folder = tempfile::tempdir().unwrap();
        let before = world(folder.path());
        let root = family(&before).await;
        let (id, listed) = (root.id().clone(), before.subagents.list(&root, true));
        before.close(&root).await;
        drop((root, before));
        // The one in the middle; what is below it cannot be found any more.
        let (what, damage) = damages(folder.path(), &listed[1].id, &id).remove(n);
        damage();
        let after = world(folder.path());
        let root = after.resume_root(&id);
        let mut expected = ready(&[("a", 1), ("b", 1), ("d", 1)]);
        expected[1].1 = ChildStatus::Broken;
        assert_eq!(rows(&after, &root), expected, "{what}");
        let sent = after.subagents.send(&root, listed[1].id.as_str(), "x", 0);
        let code = sent.await.unwrap_err().code();
        assert!(
            ["UNKNOWN_AGENT", "NOT_RESUMABLE"].contains(&code),
            "{what}: {code}"
        );
        soon("rest", root.rest()).await;
        after.close(&root).await;
    }
}

/// The listing reads only the beginning of a session, and goes by what a resumption has found.
#[tokio::test(start_paused = true)]
async fn s243_a_child_that_could_not_be_resumed_is_broken_until_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let before = world(folder.path());
    let root = family(&before).await;
    let (id, listed) = (root.id().clone(), before.subagents.list(&root, true));
    before.close(&root).await;
    drop((root, before));
    let child = &listed[1].id;
    let path = folder.path().join(format!("{child}.jsonl"));
    let whole = std::fs::read_to_string(&path).unwrap();
    let mut lines: Vec<_> = whole.lines().collect();
    lines.remove(4);
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();

    let after = world(folder.path());
    let root = after.resume_root(&id);
    let mut expected = ready(&[("a", 1), ("b", 1), ("d", 1)]);
    let status = |rows: &[(String, ChildStatus, u32)]| rows[1].1;
    assert_eq!(status(&rows(&after, &root)), ChildStatus::Ready);
    let sent = after.subagents.send(&root, child.as_str(), "x", 0).await;
    assert_eq!(sent.unwrap_err().code(), "NOT_RESUMABLE");
    expected[1].1 = ChildStatus::Broken;
    assert_eq!(rows(&after, &root), expected);

    std::fs::write(&path, whole).unwrap();
    let sent = after.subagents.send(&root, child.as_str(), "x", 0).await;
    sent.unwrap();
    soon("rest", root.rest()).await;
    assert_eq!(status(&rows(&after, &root)), ChildStatus::Ready);
    after.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn s252_a_ring_of_sessions_and_a_deep_chain_are_contained() {
    let world = World::new();
    let root = family(&world).await;
    let listed = world.subagents.list(&root, true);
    let of = |label: &str| {
        let row = listed.iter().find(|row| row.label == label).unwrap();
        row.id.clone()
    };
    let says = |of: &AgentId, child: &AgentId, label: &str| {
        let event = Extension::new("subagent/started")
            .with("child", child.as_str())
            .with("run_id", RunId::fresh().as_str())
            .with("provider", "spawn")
            .with("mode", "continuable")
            .with("label", label);
        // No rule would let it pass.
        let mut host = world.host.clone();
        host.event_rules = Arc::default();
        let added = host.amend(of, |_| vec![Event::Extension(event.into())]);
        assert_eq!(added.unwrap(), 1);
    };
    // c says that its parent, itself, its grandparent and its uncle are its children.
    for (child, label) in [("b", "b"), ("c", "c"), ("d", "d")] {
        says(&of("c"), &of(child), label);
    }
    says(&of("c"), root.id(), "root");
    // And far more levels than there can be.
    let deep = 5_000;
    let mut above = of("a");
    for n in 0..deep {
        let (child, label) = (AgentId::fresh(), format!("level{n}"));
        says(&above, &child, &label);
        let mut log = world.host.store.create(&child, 0).unwrap();
        let described = Descriptor {
            mode: Mode::Continuable,
            provider: "spawn".to_owned(),
            persona: None,
            tool_filter: None,
        };
        let start = Event::from(SessionStart {
            parent: Some(above.clone()),
            label: Some(label),
            origin: Origin::Subagent,
            depth: n + 2,
            resumed: false,
            inherited: None,
            extra: described.to_fields(&RunId::fresh()),
        });
        let stored = StoredEvent {
            seq: 0,
            time: world.host.clock.now(),
            event: start,
        };
        log.append(0, &[stored]).unwrap();
        above = child;
    }
    let listed = world.subagents.list(&root, true);
    let labels: Vec<_> = listed.iter().map(|row| row.label.as_str()).collect();
    let last = usize::try_from(deep).unwrap();
    assert_eq!(
        [labels[0], labels[1], labels[last]],
        ["a", "level0", "level4999"]
    );
    // Whom c claims is shown as a fault of c; each of them is where it belongs, and nowhere else.
    let rest = &listed[last + 1..];
    let rest: Vec<_> = rest
        .iter()
        .map(|row| (row.label.as_str(), row.status))
        .collect();
    let (ready, broken) = (ChildStatus::Ready, ChildStatus::Broken);
    let mut expected = vec![("b", ready), ("c", ready)];
    expected.extend(["b", "c", "d", "root"].map(|claimed| (claimed, broken)));
    expected.push(("d", ready));
    assert_eq!(rest, expected);
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn s252_a_continuable_child_below_a_one_shot_one_is_found() {
    let world = World::new();
    let root = world.root();
    world.cast.plays("run", [starting(&world, "below")]);
    let asked = ChildRequest {
        label: "run".to_owned(),
        ..request(&root, "run")
    };
    let run = world.subagents.run(asked, CancellationToken::new());
    run.await.unwrap();
    assert_eq!(rows(&world, &root), ready(&[("below", 2)]));
    assert!(world.subagents.list(&root, false).is_empty());
    soon("rest", root.rest()).await;
    world.close(&root).await;
}

/// Logs of earlier versions do not say of a run whether somebody is left below it.
#[tokio::test(start_paused = true)]
async fn a_child_below_a_one_shot_one_of_an_earlier_version_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let before = world(folder.path());
    let root = before.root();
    before.cast.plays("run", [starting(&before, "below")]);
    for label in ["run", "alone"] {
        let asked = request(&root, label);
        let run = before.subagents.run(asked, CancellationToken::new());
        run.await.unwrap();
    }
    let id = root.id().clone();
    before.close(&root).await;
    drop((root, before));
    let path = folder.path().join(format!("{id}.jsonl"));
    let log = std::fs::read_to_string(&path).unwrap();
    let says = |value| log.matches(&format!(",\"has_children\":{value}")).count();
    assert_eq!((says("true"), says("false")), (1, 1));
    let earlier = log.replace(",\"has_children\":true", "");
    let earlier = earlier.replace(",\"has_children\":false", "");
    std::fs::write(&path, earlier).unwrap();
    let after = world(folder.path());
    let root = after.resume_root(&id);
    assert_eq!(rows(&after, &root), ready(&[("below", 2)]));
    after.close(&root).await;
}

/// Identity is at the beginning of a log: who lists its children reads no more of theirs, and with the
/// descendants each log once.
#[tokio::test(start_paused = true)]
async fn s315_children_are_listed_without_reading_their_logs() {
    let watched = Watched::new(Arc::new(MemoryStore::default()));
    let scans = watched.scans();
    let world = World::over(Arc::new(watched), SubagentSettings::default());
    let root = family(&world).await;
    for (descendants, listed, read) in [(false, 3, 0), (true, 4, 4)] {
        scans.store(0, Ordering::Relaxed);
        assert_eq!(world.subagents.list(&root, descendants).len(), listed);
        assert_eq!(scans.load(Ordering::Relaxed), read, "{descendants}");
    }
    world.close(&root).await;
}
