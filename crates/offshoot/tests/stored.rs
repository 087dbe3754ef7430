//! Logs that were changed by hand: who looks and who goes on give the same verdict, and what is accepted can
//! be gone on with, as often as one likes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use offshoot::agent::{AgentHandle, AgentId, Event, Message, OpenError, SessionStore};
use offshoot::config::Config;
use offshoot::driver::ScriptedModel;
use offshoot::driver::script::{Gates, Script};
use offshoot::{Runtime, agent::JsonlStore};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

const FIRST: &str = r#"{"prompt": "one", "agents": {
    "root": [
        {"calls": [
            {"name": "subagent", "args": {"description": "c", "prompt": "p"}},
            {"name": "bash", "args": {"command": "echo a", "run_in_background": true}},
            {"name": "task_output", "args": {"task_id": "bash-1", "wait": true}}]},
        {"calls": [{"name": "bash", "args": {"command": "echo b", "run_in_background": true}}]},
        {"text": "root", "repeat": "forever"}],
    "c": [{"text": "child"}]}}"#;

const NEXT: &str = r#"{"prompt": "two", "agents": {
    "root": [
        {"calls": [{"name": "bash", "args": {"command": "echo c", "run_in_background": true}}]},
        {"text": "went on", "repeat": "forever"}]}}"#;

const NEXT_OF_CHILD: &str = r#"{"prompt": "two", "agents": {
    "root": [
        {"calls": [{"name": "send_message", "args": {"agent_id": "CHILD", "message": "again"}}]},
        {"text": "went on", "repeat": "forever"}],
    "c": [{"text": "child again", "repeat": "forever"}]}}"#;

fn runtime(folder: &Path, script: &str) -> Runtime {
    let script = Script::parse(script, "test").expect("a script");
    let model = ScriptedModel::new(&script, Gates::new());
    let builder = Runtime::builder(Config::default()).cwd(folder.to_owned());
    let builder = builder.sessions_in(folder.join("store")).expect("a store");
    builder.model(Arc::new(model))
}

async fn say(runtime: &Runtime, root: &AgentHandle, text: &str) {
    root.followup(Message::user(text)).expect("acceptance");
    let rest = tokio::time::timeout(Duration::from_secs(60), root.rest()).await;
    rest.expect("it comes to rest");
    runtime.close(root).await;
}

fn on_a_runtime<R>(work: impl Future<Output = R>) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(work)
}

/// A store with a root that has had a child and tasks: its id and its files.
struct Stored {
    root: AgentId,
    files: Vec<(String, String)>,
}

impl Stored {
    fn child(&self) -> AgentId {
        let mut names = self
            .files
            .iter()
            .map(|(name, _)| name.trim_end_matches(".jsonl"));
        let child = names.find(|name| *name != self.root.as_str());
        child.expect("a child").parse().expect("an id")
    }
}

fn stored() -> Stored {
    let folder = tempfile::tempdir().expect("a folder");
    let root = on_a_runtime(async {
        let runtime = runtime(folder.path(), FIRST);
        let root = runtime.create_root().expect("a root");
        say(&runtime, &root, "one").await;
        root.id().clone()
    });
    let files = std::fs::read_dir(folder.path().join("store")).expect("the store");
    let files = files.map(|file| {
        let path = file.expect("a file").path();
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        (name, std::fs::read_to_string(path).expect("a log"))
    });
    Stored {
        root,
        files: files.collect(),
    }
}

#[derive(Clone, Debug)]
enum Change {
    Drop(Index),
    Double(Index, Index),
    Swap(Index, Index),
    Cut(Index),
    /// Puts a number in the place of one.
    Number(Index, Index, u8),
    /// Puts a text of the log, or another one, in the place of one.
    Text(Index, Index, Index),
    Flip(Index, Index),
    Remove(Index, Index),
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    prop_oneof![
        1 => at().prop_map(Change::Drop),
        1 => (at(), at()).prop_map(|(a, b)| Change::Double(a, b)),
        1 => (at(), at()).prop_map(|(a, b)| Change::Swap(a, b)),
        3 => at().prop_map(Change::Cut),
        4 => (at(), at(), 0..9_u8).prop_map(|(a, b, n)| Change::Number(a, b, n)),
        4 => (at(), at(), at()).prop_map(|(a, b, c)| Change::Text(a, b, c)),
        2 => (at(), at()).prop_map(|(a, b)| Change::Flip(a, b)),
        2 => (at(), at()).prop_map(|(a, b)| Change::Remove(a, b)),
    ]
}

/// The pointers to the values in a value of which `is` holds.
fn places(value: &Value, at: &str, is: fn(&Value) -> bool, found: &mut Vec<String>) {
    if is(value) {
        found.push(at.to_owned());
    }
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                places(inner, &format!("{at}/{name}"), is, found);
            }
        }
        Value::Array(items) => {
            for (n, inner) in items.iter().enumerate() {
                places(inner, &format!("{at}/{n}"), is, found);
            }
        }
        _ => {}
    }
}

fn place<'a>(event: &'a mut Value, which: &Index, is: fn(&Value) -> bool) -> Option<&'a mut Value> {
    let mut found = Vec::new();
    places(event, "", is, &mut found);
    let at = (!found.is_empty()).then(|| found[which.index(found.len())].clone())?;
    event.pointer_mut(&at)
}

impl Change {
    fn apply(&self, events: &mut Vec<Value>, root: &AgentId) {
        let len = events.len();
        if len == 0 {
            return;
        }
        match self {
            Self::Drop(at) => drop(events.remove(at.index(len))),
            Self::Double(from, to) => events.insert(to.index(len), events[from.index(len)].clone()),
            Self::Swap(a, b) => events.swap(a.index(len), b.index(len)),
            Self::Cut(at) => events.truncate(1 + at.index(len)),
            Self::Number(at, which, n) => {
                let event = &mut events[at.index(len)]["event"];
                if let Some(place) = place(event, which, Value::is_number) {
                    let old = place.as_u64().unwrap_or_default();
                    let new = [
                        0,
                        1,
                        2,
                        old.wrapping_add(1),
                        old.wrapping_sub(1),
                        1 << 53,
                        (1 << 53) + 1,
                        1 << 63,
                        u64::MAX,
                    ];
                    *place = new[usize::from(*n)].into();
                }
            }
            Self::Text(at, which, other) => {
                let mut texts: Vec<String> = [
                    root.as_str(),
                    "",
                    "\u{1b}[31m\nx",
                    "bash-18446744073709551615",
                    "bash-1",
                    "[status: completed]",
                    "user",
                ]
                .map(str::to_owned)
                .into();
                for event in events.iter() {
                    let mut found = Vec::new();
                    places(event, "", Value::is_string, &mut found);
                    let found = found.iter().filter_map(|at| event.pointer(at)?.as_str());
                    texts.extend(found.map(str::to_owned));
                }
                let event = &mut events[at.index(len)]["event"];
                if let Some(place) = place(event, which, Value::is_string) {
                    *place = texts[other.index(texts.len())].clone().into();
                }
            }
            Self::Flip(at, which) => {
                let event = &mut events[at.index(len)]["event"];
                if let Some(place) = place(event, which, Value::is_boolean) {
                    *place = (!place.as_bool().unwrap_or_default()).into();
                }
            }
            Self::Remove(at, which) => {
                let event = &mut events[at.index(len)]["event"];
                if let Some(place) = place(event, which, Value::is_object) {
                    let fields = place.as_object_mut().expect("an object");
                    if let Some(name) = fields.keys().nth(which.index(fields.len().max(1))).cloned()
                    {
                        fields.remove(&name);
                    }
                }
            }
        }
    }
}

/// The log of a session, changed.
fn text_of(stored: &Stored, id: &AgentId, changes: &[Change]) -> String {
    let name = format!("{id}.jsonl");
    let log = stored.files.iter().find(|(file, _)| *file == name);
    let mut lines = log.expect("the root's log").1.lines();
    let header = lines.next().expect("a header").to_owned();
    let mut events: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).expect("an event"))
        .collect();
    for change in changes {
        change.apply(&mut events, id);
    }
    let mut text = header + "\n";
    for (seq, event) in events.iter_mut().enumerate() {
        event["seq"] = json!(seq);
        text += &format!("{event}\n");
    }
    text
}

/// What both say; `None` when it can be gone on with.
async fn verdict(folder: &Path, root: &AgentId) -> Option<String> {
    let said = |error: OpenError| error.to_string();
    let runtime = runtime(folder, NEXT);
    let looked = runtime
        .host()
        .examine(root, &mut |_| {})
        .map(drop)
        .map_err(said);
    let path = folder.join(format!("store/{root}.jsonl"));
    let before = std::fs::read(&path).expect("the log");
    let opened = runtime.resume_root(root).map_err(said);
    match (looked, opened) {
        (Err(looked), Err(opened)) => {
            assert_eq!(looked, opened);
            assert_eq!(
                std::fs::read(&path).expect("the log"),
                before,
                "it is not touched"
            );
            Some(looked)
        }
        (Ok(()), Ok(agent)) => {
            say(&runtime, &agent, "two").await;
            let facts = agent.with_projection(|p| p.facts().clone());
            assert_eq!(facts.text, "went on");
            let log = runtime.host().store.read(agent.id()).expect("the log");
            let present = log.iter().rev().map(|stored| &stored.event);
            let present = present.take_while(|event| !matches!(event, Event::SessionStart(_)));
            let tasks = present
                .filter(|event| matches!(event, Event::Extension(it) if it.kind == "task/started"));
            assert_eq!(tasks.count(), 1, "it can start a task");
            None
        }
        (looked, opened) => panic!("it is shown as {looked:?}, and resumed as {opened:?}"),
    }
}

thread_local! {
    static STORED: Stored = stored();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whoever_looks_and_whoever_goes_on_agree(changes in prop::collection::vec(change(), 0..4)) {
        STORED.with(|stored| {
            let folder = tempfile::tempdir().expect("a folder");
            let store = folder.path().join("store");
            std::fs::create_dir(&store).expect("a folder");
            for (name, text) in &stored.files {
                std::fs::write(store.join(name), text).expect("a file");
            }
            let text = text_of(stored, &stored.root, &changes);
            let path = store.join(format!("{}.jsonl", stored.root));
            std::fs::write(&path, &text).expect("a log");
            let first = on_a_runtime(verdict(folder.path(), &stored.root));
            if first.is_none() {
                // What it wrote itself it takes.
                let again = on_a_runtime(verdict(folder.path(), &stored.root));
                assert_eq!(again, None, "after it was gone on with");
                let read = JsonlStore::existing(&store).expect("the store").read(&stored.root);
                assert!(read.is_ok(), "{read:?}");
            }
        });
    }

    /// A child whose log was changed is resumed when it is messaged, or refused, and then not touched; its
    /// parent goes on in any case.
    #[test]
    fn a_child_whose_log_was_changed_is_refused_or_goes_on(
        changes in prop::collection::vec(change(), 0..4),
        cut in any::<Index>(),
        is_cut in any::<bool>(),
    ) {
        STORED.with(|stored| {
            let folder = tempfile::tempdir().expect("a folder");
            let store = folder.path().join("store");
            std::fs::create_dir(&store).expect("a folder");
            for (name, text) in &stored.files {
                std::fs::write(store.join(name), text).expect("a file");
            }
            let child = stored.child();
            let path = store.join(format!("{child}.jsonl"));
            let before = text_of(stored, &child, &changes);
            std::fs::write(&path, &before).expect("a log");
            if is_cut {
                let text = text_of(stored, &stored.root, &[Change::Cut(cut)]);
                std::fs::write(store.join(format!("{}.jsonl", stored.root)), text).expect("a log");
            }
            on_a_runtime(async {
                let runtime = runtime(folder.path(), &NEXT_OF_CHILD.replace("CHILD", child.as_str()));
                let looked = runtime.host().examine(&child, &mut |_| {}).map(drop);
                let root = runtime.resume_root(&stored.root).expect("the root is whole");
                say(&runtime, &root, "two").await;
                let facts = root.with_projection(|p| p.facts().clone());
                assert_eq!(facts.text, "went on");
                let after = std::fs::read_to_string(&path).expect("the log");
                match looked {
                    Ok(()) => {
                        let now = runtime.host().examine(&child, &mut |_| {});
                        assert!(now.is_ok(), "{now:?}");
                        if changes.is_empty() && !is_cut {
                            assert_ne!(after, before, "it goes on");
                        }
                    }
                    Err(refused) => assert_eq!(after, before, "{refused}"),
                }
            });
        });
    }
}
