//! A notice that no session takes. Alone in its program: it looks at the log.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use offshoot_agent::{
    Agent, AgentId, AppendError, Flushed, MemoryStore, OpenedSession, SessionLog, SessionStore,
    StoreError, StoredEvent, Visit,
};
use offshoot_task::TaskId;
use serde_json::json;
use support::{Setup, World, soon};

/// A store whose logs are full once they are told to be.
#[derive(Default)]
struct Full {
    inner: MemoryStore,
    full: Arc<AtomicBool>,
}

struct FullLog(Box<dyn SessionLog>, Arc<AtomicBool>);

impl SessionLog for FullLog {
    fn append(&mut self, expected: u64, events: &[StoredEvent]) -> Result<(), AppendError> {
        if self.1.load(Ordering::SeqCst) {
            let (place, error) = ("a log".to_owned(), io::Error::other("the disk is full"));
            return Err(StoreError::Io { place, error }.into());
        }
        self.0.append(expected, events)
    }

    fn flush(&mut self) -> Result<Flushed, StoreError> {
        self.0.flush()
    }
}

impl SessionStore for Full {
    fn create(&self, id: &AgentId, inherited: u64) -> Result<Box<dyn SessionLog>, StoreError> {
        let inner = self.inner.create(id, inherited)?;
        Ok(Box::new(FullLog(inner, Arc::clone(&self.full))))
    }

    fn open(&self, id: &AgentId, visit: Visit<'_>) -> Result<OpenedSession, StoreError> {
        self.inner.open(id, visit)
    }

    fn scan(&self, id: &AgentId, visit: Visit<'_>) -> Result<(), StoreError> {
        self.inner.scan(id, visit)
    }

    fn first(&self, id: &AgentId) -> Result<Option<StoredEvent>, StoreError> {
        self.inner.first(id)
    }

    fn sessions(&self) -> Result<Vec<AgentId>, StoreError> {
        self.inner.sessions()
    }
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn t172_a_notice_that_cannot_be_delivered_is_logged_and_the_task_has_ended() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let store = Full::default();
    let full = Arc::clone(&store.full);
    let agents = json!({"root": [{"text": "ok", "repeat": "forever"}]});
    let world = World::over(Arc::new(store), agents, Setup::default());
    let root = world.root();
    let (id, end) = world.task(&root, "frame");
    full.store(true, Ordering::SeqCst);
    let logging = tracing::subscriber::set_default(subscriber);
    end.output("done");
    root.scope().unheld().await;
    drop(logging);
    let log = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let told: Vec<_> = log
        .lines()
        .filter(|line| line.contains("a notice was dropped"))
        .collect();
    assert_eq!(told.len(), 1, "{log}");
    for part in [
        "WARN",
        &id.to_string(),
        root.id().as_str(),
        "the disk is full",
    ] {
        assert!(told[0].contains(part), "{log}");
    }
    let task = world.tasks.get(root.scope().id(), &id).unwrap();
    assert!(task.status.is_terminal());
    assert_eq!((task.reported, task.unread), (false, 4));
    full.store(false, Ordering::SeqCst);
}

/// A task whose end came while the log was full; it is not any more.
async fn an_end_that_was_not_taken() -> (World, Agent, TaskId) {
    let store = Full::default();
    let full = Arc::clone(&store.full);
    let agents = json!({"root": [{"text": "ok", "repeat": "forever"}]});
    let world = World::over(Arc::new(store), agents, Setup::default());
    let root = world.root();
    let (id, end) = world.task(&root, "frame");
    full.store(true, Ordering::SeqCst);
    end.output("done");
    root.scope().unheld().await;
    full.store(false, Ordering::SeqCst);
    (world, root, id)
}

/// The ends in the session, and whether they say that they were reported.
fn ends(world: &World) -> Vec<Option<bool>> {
    let ends = world.extensions("task/settled");
    ends.iter()
        .map(|end| end.fields.get("reported")?.as_bool())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn t172_an_end_whose_notice_was_not_taken_is_still_read_in_full() {
    let (world, root, id) = an_end_that_was_not_taken().await;
    let args = json!({"task_id": id.to_string()});
    let output = world.call(&root, "task_output", args).await;
    assert!(output.text.contains("done"), "{}", output.text);
    let task = world.tasks.get(root.scope().id(), &id).unwrap();
    assert_eq!((task.reported, task.unread), (true, 0));
    assert_eq!(ends(&world), [Some(true)], "the session says so, too");
    let (_, end) = world.task(&root, "another");
    end.output("more");
    soon("rest", root.rest()).await;
    let notices = world.accepted(&root, "task");
    assert_eq!(notices.len(), 1);
    assert!(notices[0].to_text().contains("> more"));
    assert_eq!(ends(&world), [Some(true), Some(false)]);
}

#[tokio::test(start_paused = true)]
async fn t172_a_notice_that_was_not_taken_is_given_at_the_next_chance_once() {
    let (world, root, id) = an_end_that_was_not_taken().await;
    let (other, end) = world.task(&root, "another");
    let notices = world.accepted(&root, "task");
    assert_eq!(notices.len(), 1, "the start of another task was a chance");
    let notice = notices[0].to_text();
    assert!(notice.contains(&id.to_string()), "{notice}");
    assert!(notice.ends_with("> done"), "{notice}");
    let task = world.tasks.get(root.scope().id(), &id).unwrap();
    assert_eq!((task.reported, task.unread), (true, 0));
    end.output("more");
    soon("rest", root.rest()).await;
    let notices = world.accepted(&root, "task");
    assert_eq!(notices.len(), 2);
    assert!(notices[1].to_text().contains(&other.to_string()));
    assert_eq!(ends(&world), [Some(false), Some(false)]);
}

/// A result that has the output is not committed yet when the notice has its chance.
#[tokio::test(start_paused = true)]
async fn t22_a_text_is_in_the_notice_or_in_a_result_and_not_in_both() {
    for committed in [true, false] {
        let (world, root, id) = an_end_that_was_not_taken().await;
        let args = json!({"task_id": id.to_string()});
        let mut output = world.answer(&root, "task_output", args).await;
        assert!(output.text.contains("done"), "{}", output.text);
        world.task(&root, "another");
        let notices = world.accepted(&root, "task");
        assert_eq!(notices.len(), 1);
        let notice = notices[0].to_text();
        assert!(notice.contains("4 bytes of output wait"), "{notice}");
        if committed {
            output.take_commit().unwrap()();
        }
        drop(output);
        let task = world.tasks.get(root.scope().id(), &id).unwrap();
        assert_eq!(task.unread, if committed { 0 } else { 4 });
        world.close(&root).await;
    }
}
