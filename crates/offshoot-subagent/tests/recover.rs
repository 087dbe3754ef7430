//! What a later process finds: told once, nothing runs by itself. And the past that a fork begins with.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::path::Path;
use std::sync::Arc;

use offshoot_agent::{AgentId, Event, HistoryItem, JsonlStore, Message, SessionStore};
use offshoot_subagent::{ChildRequest, SubagentSettings};
use support::{Act, Gate, Watched, World, request, soon};

fn store(folder: &Path) -> Arc<dyn SessionStore> {
    Arc::new(JsonlStore::open_folder(folder).unwrap())
}

fn world(folder: &Path) -> World {
    World::over(store(folder), SubagentSettings::default())
}

/// The folder as a process that is killed now would leave it.
fn killed(folder: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

#[tokio::test(start_paused = true)]
async fn t12_a_child_that_was_cut_is_told_once_and_runs_only_when_it_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let before = world(folder.path());
    let root = before.root();
    let arrived = Gate::default();
    let (_, child) = before
        .child(
            &root,
            "child",
            [
                Act::GoOn("so far"),
                Act::at(&arrived, &Gate::default(), Act::Hang),
            ],
        )
        .await;
    arrived.opened().await;
    let copy = killed(folder.path());
    let after = world(copy.path());
    let resumed = after.resume_root(root.id());
    soon("rest", resumed.rest()).await;
    assert_eq!(after.count("root subagent/settled child lost"), 1);
    let notices = after.accepted(root.id(), "settled");
    assert_eq!(notices.len(), 1);
    assert!(
        notices[0].to_text().contains("so far"),
        "{}",
        notices[0].to_text()
    );
    assert!(notices[0].to_text().contains("was lost"));
    assert_eq!(after.count("child session/start resumed"), 0, "b158");
    assert_eq!(after.work.recovered.lock().unwrap().len(), 1);
    // The second time there is nothing to tell.
    after.close(&resumed).await;
    let third = world(copy.path());
    let again = third.resume_root(root.id());
    soon("rest", again.rest()).await;
    assert!(third.accepted(root.id(), "settled").is_empty());
    // It can be sent another message, and its own cut turn is closed on the record.
    let sent = third
        .subagents
        .send(&again, child.id().as_str(), "go on", 0)
        .await
        .unwrap();
    assert_eq!(sent.destination.as_str(), "resumed");
    soon("rest", again.rest()).await;
    assert_eq!(third.count("child turn/end 1 Interrupted"), 1);
    assert_eq!(third.count("root subagent/settled child completed"), 1);
    third.close(&again).await;
    before.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn t12_a_child_that_settled_unannounced_is_told_with_its_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let before = world(folder.path());
    let root = before.root();
    let copy = Arc::new(std::sync::Mutex::new(None));
    let (kept, from) = (Arc::clone(&copy), folder.path().to_owned());
    // The moment at which the child has closed and its parent was not told.
    let guard = before
        .host
        .hub
        .observe(Arc::new(move |record: &offshoot_agent::EventRecord| {
            if let Event::AgentStatus {
                status: offshoot_agent::Status::Closed,
            } = record.event
            {
                kept.lock().unwrap().get_or_insert_with(|| killed(&from));
            }
        }));
    let (run, _) = before.child(&root, "child", [Act::Say("the answer")]).await;
    before.settled(&root, &run).await;
    drop(guard);
    before.close(&root).await;
    let copy = copy.lock().unwrap().take().unwrap();
    let after = world(copy.path());
    let resumed = after.resume_root(root.id());
    soon("rest", resumed.rest()).await;
    let settled = after.extensions(root.id(), "subagent/settled");
    assert_eq!(settled.len(), 1);
    assert_eq!(settled[0].field("outcome"), Some("completed"));
    let notices = after.accepted(root.id(), "settled");
    assert_eq!(notices.len(), 1);
    assert!(notices[0].to_text().contains("the answer"));
    assert_eq!(after.count("root turn/start 1"), 1);
    after.close(&resumed).await;
}

/// Cuts a session off behind the last line that has `text`.
fn cut_behind(folder: &Path, session: &AgentId, text: &str) {
    let path = folder.join(format!("{session}.jsonl"));
    let log = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    let last = lines.iter().rposition(|line| line.contains(text)).unwrap();
    std::fs::write(&path, lines[..=last].join("\n") + "\n").unwrap();
}

#[tokio::test(start_paused = true)]
async fn t12_an_owed_notice_outlives_a_second_death_at_the_beginning_of_the_resumption() {
    let folder = tempfile::tempdir().unwrap();
    let before = world(folder.path());
    let root = before.root();
    let (run, _) = before.child(&root, "child", [Act::Say("the answer")]).await;
    before.settled(&root, &run).await;
    before.close(&root).await;
    // The first death: the settlement is on the record, its notice is not.
    let copy = killed(folder.path());
    cut_behind(copy.path(), root.id(), "subagent/settled");
    let second = world(copy.path());
    let resumed = second.resume_root(root.id());
    soon("rest", resumed.rest()).await;
    second.close(&resumed).await;
    for _ in 0..2 {
        // And further ones, before the resumption came to tell it.
        cut_behind(copy.path(), root.id(), "\"session/start\"");
        let third = world(copy.path());
        let resumed = third.resume_root(root.id());
        soon("rest", resumed.rest()).await;
        let notices = third.accepted(root.id(), "settled");
        assert_eq!(notices.len(), 1);
        assert!(notices[0].to_text().contains("the answer"));
        third.close(&resumed).await;
    }
    // Told once: a resumption that was not cut finds nothing.
    let last = world(copy.path());
    let resumed = last.resume_root(root.id());
    soon("rest", resumed.rest()).await;
    assert!(last.accepted(root.id(), "settled").is_empty());
    last.close(&resumed).await;
}

#[tokio::test(start_paused = true)]
async fn t12_the_unread_prompt_of_a_dead_run_is_discarded_as_lost() {
    let folder = tempfile::tempdir().unwrap();
    let before = world(folder.path());
    let root = before.root();
    let copy = Arc::new(std::sync::Mutex::new(None));
    let (kept, from) = (Arc::clone(&copy), folder.path().to_owned());
    let guard = before
        .host
        .hub
        .observe(Arc::new(move |record: &offshoot_agent::EventRecord| {
            if let Event::InboxInserted { .. } = record.event {
                kept.lock().unwrap().get_or_insert_with(|| killed(&from));
            }
        }));
    let run = before
        .subagents
        .run(request(&root, "run"), Default::default())
        .await
        .unwrap();
    drop(guard);
    let copy = copy.lock().unwrap().take().unwrap();
    let after = world(copy.path());
    let resumed = after.resume_root(root.id());
    soon("rest", resumed.rest()).await;
    assert_eq!(after.count("root subagent/settled run lost"), 1);
    assert_eq!(after.count("run inbox/discarded lost"), 1);
    let sent = after
        .subagents
        .send(&resumed, run.child.as_str(), "x", 0)
        .await;
    assert_eq!(sent.unwrap_err().code(), "NOT_RESUMABLE");
    after.close(&resumed).await;
    before.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn a_resumed_child_is_told_of_its_own_lost_child() {
    let folder = tempfile::tempdir().unwrap();
    let before = world(folder.path());
    let root = before.root();
    let arrived = Gate::default();
    let (_, child) = before.child(&root, "child", [Act::Hang]).await;
    before
        .child(
            &child,
            "below",
            [Act::at(&arrived, &Gate::default(), Act::Hang)],
        )
        .await;
    arrived.opened().await;
    let copy = killed(folder.path());
    let watched = Arc::new(Watched::new(store(copy.path())));
    let after = World::over(watched, SubagentSettings::default());
    let resumed = after.resume_root(root.id());
    soon("rest", resumed.rest()).await;
    assert_eq!(after.subagents.list(&resumed, true).len(), 2);
    assert_eq!(
        after.count("child subagent/settled below lost"),
        0,
        "not resident"
    );
    after
        .subagents
        .send(&resumed, child.id().as_str(), "go on", 0)
        .await
        .unwrap();
    soon("rest", resumed.rest()).await;
    assert_eq!(after.count("child subagent/settled below lost"), 1);
    let order = [
        "child subagent/settled below lost",
        "child inbox/inserted agent",
    ];
    assert!(order.map(|line| after.position(line)).is_sorted());
    assert_eq!(after.count("child message/user settled"), 1);
    after.close(&resumed).await;
    before.close(&root).await;
}

fn fork(parent: &offshoot_agent::Agent, label: &str) -> ChildRequest {
    ChildRequest {
        provider: "fork".to_owned(),
        ..request(parent, label)
    }
}

fn words(agent: &offshoot_agent::Agent) -> Vec<String> {
    agent.with_projection(|p| {
        let words = p.history().iter().map(|item| match item {
            HistoryItem::User(message) => format!("< {}", message.to_text()),
            HistoryItem::Assistant(message) => format!("> {}", message.text),
            _ => String::new(),
        });
        words.collect()
    })
}

#[tokio::test(start_paused = true)]
async fn s114_s118_a_fork_without_a_past_begins_with_nothing_and_one_with_a_past_has_its_own_output()
 {
    let world = World::new();
    let root = world.root();
    let run = world.subagents.start(fork(&root, "early")).await.unwrap();
    let early = world.born(&run.child);
    world.settled(&root, &run).await;
    assert_eq!(words(&early), ["< the task of early", "> done"]);
    soon("rest", root.rest()).await;
    world.cast.plays("root", [Act::Say("a secret")]);
    root.followup(Message::user("remember it")).unwrap();
    soon("idle", root.idle()).await;
    let turns = root.with_projection(|p| p.turn());
    world.cast.plays("mute", [Act::Say("")]);
    let run = world.subagents.start(fork(&root, "mute")).await.unwrap();
    let mute = world.born(&run.child);
    world.settled(&root, &run).await;
    assert!(words(&mute).contains(&"> a secret".to_owned()));
    assert_eq!(mute.with_projection(|p| p.turn()), turns + 1, "turns go on");
    let notice = world.accepted(root.id(), "settled").pop().unwrap();
    assert!(
        !notice.to_text().contains("a secret"),
        "{}",
        notice.to_text()
    );
    assert_eq!(mute.usage().0.input, 10, "only its own");
    soon("rest", root.rest()).await;
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn s116_a_fork_in_the_middle_of_a_turn_has_the_finished_ones_only() {
    let world = World::new();
    let root = world.root();
    root.followup(Message::user("first")).unwrap();
    soon("idle", root.idle()).await;
    let (arrived, gate) = (Gate::default(), Gate::default());
    world.cast.plays(
        "root",
        [Act::GoOn("half"), Act::at(&arrived, &gate, Act::Say("ok"))],
    );
    root.followup(Message::user("second")).unwrap();
    arrived.opened().await;
    let run = world.subagents.start(fork(&root, "child")).await.unwrap();
    let child = world.born(&run.child);
    world.settled(&root, &run).await;
    assert_eq!(
        words(&child),
        ["< first", "> done", "< the task of child", "> done"]
    );
    gate.open();
    soon("rest", root.rest()).await;
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn b109_a_fork_forks_again_and_a_resumed_one_keeps_its_past() {
    let folder = tempfile::tempdir().unwrap();
    let world = world(folder.path());
    let root = world.root();
    root.followup(Message::user("the beginning")).unwrap();
    soon("idle", root.idle()).await;
    let run = world.subagents.start(fork(&root, "child")).await.unwrap();
    let child = world.born(&run.child);
    let gate = Gate::default();
    world.settled(&root, &run).await;
    soon("rest", root.rest()).await;
    let (arrived, id) = (Gate::default(), child.id().to_string());
    world
        .cast
        .plays("child", [Act::at(&arrived, &gate, Act::Say("kept"))]);
    world.subagents.send(&root, &id, "again", 0).await.unwrap();
    arrived.opened().await;
    let again = world.born(child.id());
    assert!(words(&again).starts_with(&["< the beginning".to_owned(), "> done".to_owned()]));
    let nested = world.subagents.start(fork(&again, "nested")).await.unwrap();
    let nested_agent = world.born(&nested.child);
    world.settled(&again, &nested).await;
    let past = words(&nested_agent);
    assert_eq!(
        past[..4],
        ["< the beginning", "> done", "< the task of child", "> done"]
    );
    assert_eq!(past[4..], ["< the task of nested", "> done"]);
    gate.open();
    soon("rest", root.rest()).await;
    // The nested fork is the child's: the root does not list it as its own, and it stays cold.
    let listed = world.subagents.list(&root, true);
    let rows: Vec<_> = listed
        .iter()
        .map(|row| (row.label.as_str(), row.depth))
        .collect();
    assert_eq!(rows, [("child", 1), ("nested", 2)]);
    world.close(&root).await;
}
