//! Producers: closures, types, their progress and their promises; and the change feed.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::time::Duration;

use common::*;
use offshoot_core::Scope;
use offshoot_task::*;

const SECOND: Duration = Duration::from_secs(1);

struct Countdown {
    from: u64,
    begin: Result<(), &'static str>,
}

impl Producer for Countdown {
    fn spec(&self) -> TaskSpec {
        TaskSpec::new("countdown", format!("from {}", self.from)).streaming()
    }

    fn begin(&mut self, context: &TaskContext) -> Result<(), StarterError> {
        assert_eq!(context.id(), None, "it is not registered yet");
        self.begin.map_err(StarterError::from)
    }

    async fn run(self, context: TaskContext) -> TaskOutcome {
        let output = context.output().unwrap();
        for n in (1..=self.from).rev() {
            output.write(&format!("{n}\n"));
        }
        TaskOutcome::completed().with_detail(context.id().unwrap().to_string())
    }
}

#[tokio::test]
async fn a_producer_that_is_a_type_is_begun_and_run() {
    let (registry, owner) = fixture();
    let begin = Ok(());
    let id = registry
        .launch(&owner, Countdown { from: 3, begin })
        .unwrap();
    let task = wait(&registry, &owner, &id).await;
    assert_eq!((&*task.label, &*task.kind), ("from 3", "countdown"));
    assert_eq!(task.detail.as_deref(), Some("countdown-1"));
    assert_eq!(registry.read(owner.id(), &id).unwrap().text(), "3\n2\n1\n");
}

#[tokio::test]
async fn a_producer_that_cannot_begin_leaves_no_task() {
    let (registry, owner) = fixture();
    let begin = Err("no numbers left");
    let error = registry.launch(&owner, Countdown { from: 3, begin });
    let error = error.unwrap_err();
    assert_eq!(
        (error.code(), error.to_string().as_str()),
        ("STARTER_FAILED", "no numbers left")
    );
    assert_eq!((registry.list(owner.id()).len(), owner.holds()), (0, 0));
}

#[tokio::test]
async fn a_spawned_closure_is_called_with_its_registered_task() {
    let (registry, owner) = fixture();
    let log = Log::attach(&registry);
    let spec = TaskSpec::new("bash", "a label");
    let id = registry.spawn(&owner, spec, async |context: TaskContext| {
        TaskOutcome::completed().with_output(context.id().unwrap().to_string())
    });
    let id = id.unwrap();
    assert_eq!(log.take(), ["bash-1 Started running"]);
    wait(&registry, &owner, &id).await;
    assert_eq!(registry.read(owner.id(), &id).unwrap().text(), "bash-1");
}

#[tokio::test]
async fn a_spawned_closure_that_panics_is_a_failed_task() {
    let (registry, owner) = fixture();
    let spec = TaskSpec::new("bash", "a label");
    let work = |_| -> std::future::Pending<TaskOutcome> { panic!("at once") };
    let id = registry.spawn(&owner, spec, work).unwrap();
    let task = wait(&registry, &owner, &id).await;
    assert_eq!(task.status, TaskStatus::Failed);
    assert_eq!(task.detail.as_deref(), Some("panicked: at once"));
}

#[tokio::test]
async fn a_spawn_that_is_refused_calls_nothing() {
    let (registry, owner) = fixture_with(|config| config.max_live_per_owner = 0);
    let work = |_| -> std::future::Pending<TaskOutcome> { panic!("it was called") };
    let spec = TaskSpec::new("bash", "a label");
    let error = registry.spawn(&owner, spec.clone(), work).unwrap_err();
    assert_eq!(error.code(), "LIMIT_REACHED");
    owner.close().await;
    let error = registry.spawn(&owner, spec, work).unwrap_err();
    assert_eq!(error.code(), "OWNER_CLOSING");
}

#[tokio::test(start_paused = true)]
async fn progress_is_one_bounded_line_in_every_snapshot_to_the_end() {
    let (registry, owner) = fixture();
    let spec = TaskSpec::new("bash", "a label");
    let id = registry.spawn(&owner, spec, async |context: TaskContext| {
        context.progress(1, 4, "one\nof four");
        tokio::time::sleep(SECOND).await;
        context.progress(4, None, "x".repeat(500));
        TaskOutcome::completed()
    });
    let id = id.unwrap();
    assert_eq!(registry.get(owner.id(), &id).unwrap().progress, None);
    tokio::task::yield_now().await;
    let progress = registry.get(owner.id(), &id).unwrap().progress.unwrap();
    assert_eq!(
        (progress.done, progress.total, &*progress.line),
        (1, Some(4), "one of four")
    );
    let progress = wait(&registry, &owner, &id).await.progress.unwrap();
    assert_eq!((progress.done, progress.total), (4, None));
    assert!(progress.line.len() <= 200);
}

#[tokio::test(start_paused = true)]
async fn a_broken_promise_of_progress_is_marked_until_it_is_kept_again() {
    let (registry, owner) = fixture();
    let (report, mut reports) = tokio::sync::mpsc::channel::<()>(1);
    let spec = TaskSpec::new("bash", "a label").promises_progress(10 * SECOND);
    let id = registry.spawn(&owner, spec, async move |context: TaskContext| {
        while reports.recv().await.is_some() {
            context.progress(1, None, "");
        }
        TaskOutcome::completed()
    });
    let id = id.unwrap();
    let stalled = || registry.get(owner.id(), &id).unwrap().stalled;
    tokio::time::advance(9 * SECOND).await;
    assert!(!stalled());
    tokio::time::advance(SECOND).await;
    assert!(stalled());
    let mut changes = registry.changes(owner.id());
    report.send(()).await.unwrap();
    changes.changed().await;
    assert!(!stalled());
    tokio::time::advance(10 * SECOND).await;
    assert!(stalled());
    drop(report);
    assert!(!wait(&registry, &owner, &id).await.stalled, "it has ended");
    let spec = TaskSpec::new("bash", "a label").promises_progress(Duration::ZERO);
    assert_eq!(
        registry.start(&owner, spec, never).unwrap_err().code(),
        "INVALID_PROMISE"
    );
}

#[tokio::test(start_paused = true)]
async fn the_feed_wakes_its_owner_once_for_many_changes() {
    let (registry, owner) = fixture();
    let stranger = Scope::root("stranger");
    let (mut changes, mut others) = (
        registry.changes(owner.id()),
        registry.changes(stranger.id()),
    );
    let before = changes.version();
    let ids: Vec<_> = (0..3)
        .map(|_| start(&registry, &owner, pending()))
        .collect();
    let after = changes.changed().await;
    assert!(after > before);
    assert_eq!(changes.version(), after);
    assert!(futures::poll!(Box::pin(changes.changed())).is_pending());
    let _ = registry.kill(owner.id(), &ids[0], StoppedBy::Human, None);
    assert!(changes.changed().await > after);
    assert!(futures::poll!(Box::pin(others.changed())).is_pending());
    owner.close().await;
    let last = changes.changed().await;
    assert_eq!(registry.list(owner.id()), []);
    // Versions go on where they were, though nobody watched meanwhile.
    drop(changes);
    assert!(registry.changes(owner.id()).version() >= last);
}

#[tokio::test]
async fn a_feed_tells_of_a_report_and_of_a_task_without_an_owner() {
    let (registry, owner) = fixture_with(|config| config.allow_unowned = true);
    let id = start(&registry, &owner, async { TaskOutcome::completed() });
    owner.unheld().await;
    let mut changes = registry.changes(owner.id());
    registry.read(owner.id(), &id).unwrap().commit();
    changes.changed().await;
    let spec = TaskSpec::new("bash", "unowned");
    registry.start_unowned(spec, |_| Ok(pending())).unwrap();
    changes.changed().await;
}
