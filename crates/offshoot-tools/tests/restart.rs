//! What a resumed agent is told of one-shot runs: each end exactly once, by whichever of a call and a
//! task it was to be told, with what the run said.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::path::Path;
use std::sync::{Arc, Mutex};

use offshoot_agent::{Event, EventRecord, JsonlStore, Message, Status};
use offshoot_subagent::{ChildRequest, Mode, OutputSchema};
use offshoot_tools::SubagentToolSettings;
use serde_json::{Value, json};
use support::{Recorded, Setup, World, soon};

fn setup(schema: Option<Value>) -> Setup {
    let mut setup = Setup::default();
    setup.tools.subagents = vec![SubagentToolSettings {
        mode: Mode::OneShot,
        output_schema: schema.map(|schema| OutputSchema::new(schema).unwrap()),
        ..SubagentToolSettings::default()
    }];
    setup
}

fn world(folder: &Path, agents: Value, setup: Setup) -> World {
    let store = JsonlStore::open_folder(folder).unwrap();
    World::over(Arc::new(store), agents, setup)
}

/// What a process finds that goes on after another one was killed.
struct After {
    folder: tempfile::TempDir,
    root: offshoot_agent::AgentId,
    setup: Setup,
}

impl After {
    /// Plays a root that delegates, up to the first event that is `now`, and kills it there.
    async fn killed(
        agents: Value,
        setup: Setup,
        now: impl Fn(&EventRecord) -> bool + Send + Sync + 'static,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let copy: Arc<Mutex<Option<tempfile::TempDir>>> = Arc::default();
        let (kept, from) = (Arc::clone(&copy), folder.path().to_owned());
        let before = world(folder.path(), agents, setup.clone());
        let guard = before
            .host
            .hub
            .observe(Arc::new(move |record: &EventRecord| {
                if now(record) {
                    kept.lock().unwrap().get_or_insert_with(|| copied(&from));
                }
            }));
        let root = before.root();
        root.followup(Message::user("go")).unwrap();
        soon("the moment", async {
            loop {
                let epoch = root.epoch();
                if copy.lock().unwrap().is_some() {
                    return;
                }
                tokio::select! {
                    () = root.changed_since(epoch) => {}
                    () = tokio::time::sleep(std::time::Duration::from_millis(10)) => {}
                }
            }
        })
        .await;
        drop(guard);
        before.close(&root).await;
        let folder = copy.lock().unwrap().take().unwrap();
        let root = root.id().clone();
        Self {
            folder,
            root,
            setup,
        }
    }

    /// Goes on, until nothing happens any more.
    async fn resumed(&self) -> (World, offshoot_agent::Agent) {
        let agents = json!({"root": [{"text": "ok", "repeat": "forever"}]});
        let after = world(self.folder.path(), agents, self.setup.clone());
        let root = after.resume(&self.root);
        soon("rest", root.rest()).await;
        (after, root)
    }
}

fn copied(folder: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

fn delegate(label: &str, background: bool) -> Value {
    json!({"id": label, "name": "subagent", "args": {
        "description": label, "prompt": "work", "run_in_background": background,
    }})
}

fn is(record: &EventRecord, kind: &str) -> bool {
    matches!(&record.event, Event::Extension(event) if event.kind == kind)
}

fn closed(record: &EventRecord) -> bool {
    let closed = Event::AgentStatus {
        status: Status::Closed,
    };
    record.depth > 0 && record.event == closed
}

#[tokio::test(start_paused = true)]
async fn a_background_run_that_had_ended_is_told_with_its_answer() {
    let moments: [fn(&EventRecord) -> bool; 2] = [closed, |r| is(r, "subagent/settled")];
    for now in moments {
        let agents = json!({
            "root": [{"calls": [delegate("job", true)]}, {"text": "ok", "repeat": "forever"}],
            "job": [{"text": "the answer"}],
        });
        let after = After::killed(agents, setup(None), now).await;
        let (world, root) = after.resumed().await;
        let settled = world.extensions("task/settled");
        assert_eq!(settled.len(), 1);
        assert_eq!(settled[0].field("status"), Some("completed"));
        assert_eq!(settled[0].field("detail"), None);
        let notices = world.accepted(&root, "task");
        assert_eq!(notices.len(), 1);
        let notice = notices[0].to_text();
        assert!(notice.contains("[status: completed]"), "{notice}");
        assert!(notice.ends_with("Output:\n> the answer"), "{notice}");
        assert!(world.accepted(&root, "settled").is_empty());
        let output = json!({"task_id": "subagent-1"});
        let output = world.call(&root, "task_output", output).await;
        assert_eq!(output.text, "the answer\n[status: completed]");
        world.close(&root).await;
        let (again, root) = after.resumed().await;
        assert!(again.accepted(&root, "task").is_empty(), "told once");
        again.close(&root).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_answer_of_an_earlier_process_is_named_and_can_be_read() {
    let long = "x".repeat(10_000);
    let agents = json!({
        "root": [{"calls": [delegate("job", true)]}, {"text": "ok", "repeat": "forever"}],
        "job": [{"text": long}],
    });
    let after = After::killed(agents, setup(None), |r| is(r, "subagent/settled")).await;
    let (world, root) = after.resumed().await;
    let notices = world.accepted(&root, "task");
    assert_eq!(notices.len(), 1);
    let notice = notices[0].to_text();
    assert!(notice.contains("10000 bytes of output wait"), "{notice}");
    let output = json!({"task_id": "subagent-1"});
    let output = world.call(&root, "task_output", output).await;
    assert_eq!(output.text, format!("{long}\n[status: completed]"));
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn a_structured_answer_of_an_earlier_process_is_told() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let agents = json!({
        "root": [{"calls": [delegate("job", true)]}, {"text": "ok", "repeat": "forever"}],
        "job": [{"calls": [{"name": "structured_output", "args": {"n": 42}}]}],
    });
    let setup = setup(Some(schema));
    let after = After::killed(agents, setup, |r| is(r, "subagent/settled")).await;
    let (world, root) = after.resumed().await;
    let notices = world.accepted(&root, "task");
    assert_eq!(notices.len(), 1);
    let notice = notices[0].to_text();
    assert!(notice.ends_with("Output:\n> {\"n\":42}"), "{notice}");
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_background_run_had_said_is_kept_and_marked() {
    let agents = json!({
        "root": [{"calls": [delegate("job", true)]}, {"text": "ok", "repeat": "forever"}],
        "job": [
            {"text": "so far", "calls": [{"name": "list_agents", "args": {}}]},
            {"hang": true},
        ],
    });
    let second =
        |r: &EventRecord| r.depth > 0 && matches!(r.event, Event::StepStart { step: 2, .. });
    let after = After::killed(agents, setup(None), second).await;
    let (world, root) = after.resumed().await;
    let settled = world.extensions("task/settled");
    assert_eq!(settled.len(), 1);
    assert_eq!(settled[0].field("detail"), Some("lost in a restart"));
    let notices = world.accepted(&root, "task");
    assert_eq!(notices.len(), 1);
    let notice = notices[0].to_text();
    assert!(
        notice.contains("[status: failed, lost in a restart]"),
        "{notice}"
    );
    let partial = "[partial output: the run did not complete]\n> so far";
    assert!(notice.ends_with(partial), "{notice}");
    world.close(&root).await;
}

/// The end of a task that was already told needs no second telling, though the log was cut behind it.
#[tokio::test(start_paused = true)]
async fn a_background_run_whose_notice_was_cut_off_is_told_with_its_answer() {
    let agents = json!({
        "root": [{"calls": [delegate("job", true)]}, {"text": "ok", "repeat": "forever"}],
        "job": [{"text": "the answer"}],
    });
    let after = After::killed(agents, setup(None), |r| is(r, "task/settled")).await;
    let path = after.folder.path().join(format!("{}.jsonl", after.root));
    let log = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = log.lines().collect();
    let end = lines.iter().position(|line| line.contains("task/settled"));
    std::fs::write(&path, lines[..=end.unwrap()].join("\n") + "\n").unwrap();
    let (world, root) = after.resumed().await;
    assert!(
        world.extensions("task/settled").is_empty(),
        "it is on the record"
    );
    let notices = world.accepted(&root, "task");
    assert_eq!(notices.len(), 1);
    let notice = notices[0].to_text();
    assert!(notice.ends_with("Output:\n> the answer"), "{notice}");
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn a_waited_run_that_had_ended_and_whose_result_was_cut_off_is_told_once() {
    let agents = json!({
        "root": [
            {"calls": [delegate("known", false), delegate("cut", false)]},
            {"text": "ok", "repeat": "forever"},
        ],
        "known": [{"text": "the first answer"}],
        "cut": [{"delay_ms": 1000, "text": "the second answer"}],
    });
    let settled = |record: &EventRecord| match &record.event {
        Event::Extension(event) => {
            event.kind == "subagent/settled" && event.field("label") == Some("cut")
        }
        _ => false,
    };
    let after = After::killed(agents, setup(None), settled).await;
    let (world, root) = after.resumed().await;
    let notices = world.accepted(&root, "settled");
    assert_eq!(notices.len(), 1, "{notices:?}");
    let notice = notices[0].to_text();
    assert!(notice.contains("(cut) finished"), "{notice}");
    assert!(notice.contains("the second answer"), "{notice}");
    assert!(!notice.contains("another message"), "{notice}");
    assert!(world.extensions("subagent/settled").is_empty());
    world.close(&root).await;
    let (again, root) = after.resumed().await;
    assert!(again.accepted(&root, "settled").is_empty(), "told once");
    again.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn a_waited_run_that_was_cut_is_told_as_lost_and_nobody_is_sent_to_it() {
    let agents = json!({
        "root": [{"calls": [delegate("job", false)]}, {"text": "ok", "repeat": "forever"}],
        "job": [
            {"text": "so far", "calls": [{"name": "list_agents", "args": {}}]},
            {"hang": true},
        ],
    });
    let second =
        |r: &EventRecord| r.depth > 0 && matches!(r.event, Event::StepStart { step: 2, .. });
    let after = After::killed(agents, setup(None), second).await;
    let (world, root) = after.resumed().await;
    let notices = world.accepted(&root, "settled");
    assert_eq!(notices.len(), 1);
    let notice = notices[0].to_text();
    assert!(notice.contains("was lost"), "{notice}");
    assert!(notice.contains("so far"), "{notice}");
    assert!(notice.contains("one-shot run"), "{notice}");
    assert!(!notice.contains("It can be sent"), "{notice}");
    world.close(&root).await;
    let (again, root) = after.resumed().await;
    assert!(again.accepted(&root, "settled").is_empty(), "told once");
    again.close(&root).await;
}

/// The ids of the tasks that a session says were started.
fn ids(world: &World, session: &offshoot_agent::AgentId) -> Vec<String> {
    let stored = world.host.project(session).unwrap();
    let recorded = stored.fold::<Recorded>();
    let started = recorded.0.iter().filter(|e| e.kind == "task/started");
    started
        .map(|e| e.field("task_id").unwrap().to_owned())
        .collect()
}

/// Neither a parent nor a child meets an id of its own again for another task, in whatever order they
/// go on; what one had may be the other's.
#[tokio::test(start_paused = true)]
async fn t2_no_session_of_a_tree_sees_an_id_a_second_time() {
    let folder = tempfile::tempdir().unwrap();
    let agents = || {
        json!({
            "root": [{"text": "ok", "repeat": "forever"}],
            "child": [{"text": "ok", "repeat": "forever"}],
        })
    };
    let before = world(folder.path(), agents(), Setup::default());
    let root = before.root();
    let asked = ChildRequest::new(root.clone(), "spawn", "child", "work");
    let started = before.subagents.start(asked).await.unwrap();
    let child = before.host.agents.get(&started.child).unwrap();
    let owners = [&root, &child, &child, &root, &child];
    let _ends: Vec<_> = owners.map(|owner| before.task(owner, "frame")).into();
    let copy = copied(folder.path());
    before.close(&root).await;
    let after = world(copy.path(), agents(), Setup::default());
    let resumed = after.resume(root.id());
    // Its child is not there yet, and what it had used is not known.
    let early: Vec<_> = (0..3).map(|_| after.task(&resumed, "frame")).collect();
    let sent = after
        .subagents
        .send(&resumed, started.child.as_str(), "go on", 0);
    sent.await.unwrap();
    let child = after.host.agents.get(&started.child).unwrap();
    let late: Vec<_> = [&child, &resumed, &child]
        .map(|owner| after.task(owner, "frame"))
        .into();
    for (session, count) in [(root.id(), 2 + 3 + 1), (&started.child, 3 + 2)] {
        let all = ids(&after, session);
        assert_eq!(all.len(), count, "{all:?}");
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), count, "{all:?}");
    }
    for (_, end) in early.into_iter().chain(late) {
        end.output("done");
    }
    soon("rest", resumed.rest()).await;
    after.close(&resumed).await;
}
