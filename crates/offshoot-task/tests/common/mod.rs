//! What the tests share: a registry with one owner, scripted work, a log of changes.
#![allow(dead_code, reason = "no test file uses everything")]
#![allow(clippy::unwrap_used, reason = "test code")]

use std::future::Pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use offshoot_core::Scope;
use offshoot_task::*;
use tokio::sync::oneshot;

pub(crate) fn fixture() -> (TaskRegistry, Scope) {
    fixture_with(|_| {})
}

pub(crate) fn fixture_with(change: impl FnOnce(&mut TaskConfig)) -> (TaskRegistry, Scope) {
    let mut config = TaskConfig::default();
    change(&mut config);
    (TaskRegistry::new(config), Scope::root("owner"))
}

pub(crate) fn pending() -> Pending<TaskOutcome> {
    std::future::pending()
}

/// A starter that must not be called.
pub(crate) fn never(_: TaskContext) -> Result<Pending<TaskOutcome>, StarterError> {
    panic!("the starter was called")
}

pub(crate) fn failing(message: &str) -> Result<Pending<TaskOutcome>, StarterError> {
    Err(message.into())
}

pub(crate) fn panicking(message: &str) -> Result<Pending<TaskOutcome>, StarterError> {
    panic!("{message}")
}

pub(crate) fn start(
    registry: &TaskRegistry,
    owner: &Scope,
    work: impl Future<Output = TaskOutcome> + Send + 'static,
) -> TaskId {
    let spec = TaskSpec::new("bash", "a label");
    registry.start(owner, spec, |_| Ok(work)).unwrap()
}

/// A task that ends as it is told, and not before.
pub(crate) fn start_gated(
    registry: &TaskRegistry,
    owner: &Scope,
) -> (oneshot::Sender<TaskOutcome>, TaskId) {
    let (end, ended) = oneshot::channel();
    let id = start(registry, owner, async move {
        ended
            .await
            .unwrap_or_else(|_| TaskOutcome::failed("the producer was lost"))
    });
    (end, id)
}

/// A task that ends as `killed` when it is asked to stop.
pub(crate) fn start_obedient(registry: &TaskRegistry, owner: &Scope) -> TaskId {
    let spec = TaskSpec::new("bash", "obedient");
    let id = registry.start(owner, spec, |context| {
        Ok(async move {
            context.cancelled().await;
            TaskOutcome::killed()
        })
    });
    id.unwrap()
}

/// Waits for the end and commits it.
pub(crate) async fn wait(registry: &TaskRegistry, owner: &Scope, id: &TaskId) -> TaskSnapshot {
    let waited = registry.wait(owner.id(), id, Duration::MAX).await.unwrap();
    let snapshot = waited.snapshot().clone();
    waited.commit();
    snapshot
}

/// What observers were told, as `<id> <change> <status>[ reported]`.
pub(crate) struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    _handle: ObserverHandle,
}

impl Log {
    pub(crate) fn attach(registry: &TaskRegistry) -> Self {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        let handle = registry.observe(Arc::new(move |change: TaskChange, task: &TaskSnapshot| {
            let reported = if task.reported { " reported" } else { "" };
            let line = format!("{} {change:?} {}{reported}", task.id, task.status);
            kept.lock().unwrap().push(line);
        }));
        Self {
            lines,
            _handle: handle,
        }
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }

    /// How many notices are due for `id`: announced, and not taken back.
    pub(crate) fn notices(&self, id: &TaskId) -> usize {
        let lines = self.lines.lock().unwrap();
        let of = |line: &&String| line.starts_with(&format!("{id} "));
        let due = lines.iter().filter(of).filter(|line| {
            line.contains("NoticeDue") || (line.contains("Settled") && !line.ends_with("reported"))
        });
        let withdrawn = lines
            .iter()
            .filter(of)
            .filter(|line| line.contains("Collected"));
        due.count() - withdrawn.count()
    }
}
