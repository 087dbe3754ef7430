//! Reading output, and how long records are kept.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use common::*;
use offshoot_core::Scope;
use offshoot_task::*;
use tokio::sync::oneshot;

/// A streaming task with a handle on what it writes.
fn start_stream(
    registry: &TaskRegistry,
    owner: &Scope,
) -> (OutputWriter, oneshot::Sender<()>, TaskId) {
    let mut writer = None;
    let (end, ended) = oneshot::channel();
    let id = registry.start(
        owner,
        TaskSpec::new("bash", "stream").streaming(),
        |context| {
            writer = context.output();
            Ok(async move {
                let _ = ended.await;
                TaskOutcome::completed()
                    .with_detail("exit code: 0")
                    .with_output("ignored")
            })
        },
    );
    (writer.unwrap(), end, id.unwrap())
}

#[tokio::test]
async fn a_stream_is_read_piece_by_piece_and_to_its_end() {
    let (registry, owner) = fixture();
    let (writer, end, id) = start_stream(&registry, &owner);
    let read = || registry.read(owner.id(), &id).unwrap();
    writer.write("one\n");
    let first = read();
    assert_eq!(
        (
            first.text(),
            first.snapshot().status,
            first.snapshot().unread
        ),
        ("one\n", TaskStatus::Running, 4)
    );
    first.commit();
    assert_eq!(read().text(), "");
    assert!(
        !registry.get(owner.id(), &id).unwrap().reported,
        "a live read reports nothing"
    );
    writer.write("two\n");
    end.send(()).unwrap();
    owner.unheld().await;
    let last = read();
    assert_eq!(
        (last.text(), last.snapshot().status),
        ("two\n", TaskStatus::Completed)
    );
    assert_eq!(last.snapshot().detail.as_deref(), Some("exit code: 0"));
    assert!(last.snapshot().finished_at >= Some(last.snapshot().started_at));
    last.commit();
    let task = registry.get(owner.id(), &id).unwrap();
    assert_eq!(
        (task.reported, task.unread, task.output_len, task.streams),
        (true, 0, 8, true)
    );
}

#[tokio::test]
async fn a_reading_that_is_dropped_consumes_and_reports_nothing() {
    let (registry, owner) = fixture();
    let (writer, end, id) = start_stream(&registry, &owner);
    let log = Log::attach(&registry);
    writer.write("text");
    end.send(()).unwrap();
    owner.unheld().await;
    for _ in 0..2 {
        let reading = registry.read(owner.id(), &id).unwrap();
        assert_eq!(reading.text(), "text");
        assert!(reading.snapshot().reported, "it is being shown");
        drop(reading);
        assert!(!registry.get(owner.id(), &id).unwrap().reported);
    }
    assert_eq!(log.notices(&id), 1);
    assert_eq!(log.take(), ["bash-1 Settled completed"]);
    registry.read(owner.id(), &id).unwrap().commit();
    assert_eq!(log.take(), ["bash-1 Collected completed reported"]);
}

#[tokio::test]
async fn two_readings_at_once_count_the_output_as_read_once() {
    let (registry, owner) = fixture();
    let (writer, _end, id) = start_stream(&registry, &owner);
    writer.write("a");
    let early = registry.read(owner.id(), &id).unwrap();
    writer.write("b");
    let late = registry.read(owner.id(), &id).unwrap();
    late.commit();
    early.commit();
    assert_eq!(registry.read(owner.id(), &id).unwrap().text(), "");
}

#[tokio::test]
async fn a_reader_that_looks_on_takes_nothing_from_the_owner() {
    let (registry, owner) = fixture();
    let (writer, _end, id) = start_stream(&registry, &owner);
    writer.write("abc");
    let slice = registry.read_at(owner.id(), &id, 1).unwrap();
    assert_eq!(
        (slice.text.as_str(), slice.offset, slice.next),
        ("bc", 1, 3)
    );
    assert_eq!(registry.read(owner.id(), &id).unwrap().text(), "abc");
}

#[tokio::test]
async fn a_cut_reading_counts_what_was_cut_off_as_missing() {
    let (registry, owner) = fixture_with(|config| config.output_window = 8);
    let (writer, _end, id) = start_stream(&registry, &owner);
    writer.write("0123456789");
    let mut reading = registry.read(owner.id(), &id).unwrap();
    assert_eq!((reading.text(), reading.gap()), ("23456789", 2));
    reading.keep_tail(3);
    assert_eq!((reading.text(), reading.gap()), ("789", 7));
    reading.commit();
    assert_eq!(registry.get(owner.id(), &id).unwrap().unread, 0);
}

#[tokio::test]
async fn a_final_output_that_must_be_shown_once_has_one_reading() {
    let (registry, owner) = fixture();
    let (end, id) = start_gated(&registry, &owner);
    end.send(TaskOutcome::completed().with_output("text"))
        .unwrap();
    owner.unheld().await;
    let read = || registry.read(owner.id(), &id).unwrap();
    let alone = || registry.read_alone(owner.id(), &id).unwrap();
    let seen = |reading: &offshoot_task::Reading| (reading.text().to_owned(), reading.elsewhere());
    let (whole, nothing) = (("text".to_owned(), 0), (String::new(), 4));
    let (first, second) = (read(), read());
    assert_eq!(
        [seen(&first), seen(&second)],
        [whole.clone(), whole.clone()]
    );
    assert_eq!(seen(&alone()), nothing);
    drop(first);
    assert_eq!(seen(&alone()), nothing, "the second one is open");
    drop(second);
    let notice = alone();
    assert_eq!(seen(&notice), whole);
    assert_eq!([seen(&read()), seen(&alone())], [nothing.clone(), nothing]);
    drop(notice);
    let notice = alone();
    assert_eq!(seen(&notice), whole, "it came to nothing");
    notice.commit();
    assert_eq!(registry.get(owner.id(), &id).unwrap().unread, 0);
    assert_eq!(seen(&read()), whole, "whoever asks has it again");
}

#[tokio::test]
async fn a_final_output_is_empty_while_live_and_the_same_ever_after() {
    let (registry, owner) = fixture();
    let (end, id) = start_gated(&registry, &owner);
    let reading = registry.read(owner.id(), &id).unwrap();
    assert_eq!((reading.text(), reading.snapshot().streams), ("", false));
    reading.commit();
    end.send(TaskOutcome::completed().with_output("answer"))
        .unwrap();
    owner.unheld().await;
    assert_eq!(registry.get(owner.id(), &id).unwrap().unread, 6);
    for _ in 0..2 {
        let reading = registry.read(owner.id(), &id).unwrap();
        assert_eq!((reading.text(), reading.gap()), ("answer", 0));
        reading.commit();
    }
    assert_eq!(registry.read_at(owner.id(), &id, 3).unwrap().text, "wer");
}

#[tokio::test]
async fn a_final_output_and_a_detail_are_bounded() {
    let (registry, owner) = fixture_with(|config| config.output_window = 10);
    let id = start(&registry, &owner, async {
        TaskOutcome::failed("a\nb".repeat(1000)).with_output(format!("{}界", "x".repeat(100)))
    });
    owner.unheld().await;
    let reading = registry.read(owner.id(), &id).unwrap();
    assert_eq!((reading.text(), reading.gap()), ("xxxxxxx界", 93));
    let detail = reading.snapshot().detail.clone().unwrap();
    assert!(
        detail.len() <= 500 && detail.starts_with("a ba b"),
        "{detail}"
    );
}

#[tokio::test]
async fn settled_without_output_reads_empty_and_keeps_its_detail() {
    let (registry, owner) = fixture();
    let id = start(&registry, &owner, async { TaskOutcome::failed("why") });
    owner.unheld().await;
    let reading = registry.read(owner.id(), &id).unwrap();
    assert_eq!(
        (reading.text(), reading.snapshot().detail.as_deref()),
        ("", Some("why"))
    );
}

#[tokio::test]
async fn b032_every_finished_task_can_be_read_oldest_first() {
    let (registry, owner) = fixture();
    let mut ids = Vec::new();
    for (kind, text) in [
        ("bash", "1"),
        ("subagent", "2"),
        ("bash", "3"),
        ("render", "4"),
    ] {
        let id = registry.start(&owner, TaskSpec::new(kind, "x"), move |_| {
            Ok(async move { TaskOutcome::completed().with_output(text) })
        });
        ids.push((id.unwrap(), text));
    }
    owner.unheld().await;
    for (id, text) in ids {
        let reading = registry.read(owner.id(), &id).unwrap();
        assert_eq!(reading.text(), text);
        reading.commit();
    }
}

#[tokio::test]
async fn b073_reported_records_are_bounded_unread_ones_are_kept_and_expired_ids_say_so() {
    let (registry, owner) = fixture();
    let log = Log::attach(&registry);
    let unread = start(&registry, &owner, async { TaskOutcome::completed() });
    owner.unheld().await;
    for _ in 0..10_000 {
        let id = start(&registry, &owner, async { TaskOutcome::completed() });
        wait(&registry, &owner, &id).await;
    }
    owner.unheld().await;
    assert_eq!(registry.list(owner.id()).len(), 101);
    assert!(format!("{registry:?}").contains("records: 101"));
    assert_eq!(
        registry.get(owner.id(), &unread).unwrap().status,
        TaskStatus::Completed
    );
    for n in [2, 5000, 9901] {
        let id: TaskId = format!("bash-{n}").parse().unwrap();
        assert_eq!(
            registry.get(owner.id(), &id).unwrap_err().code(),
            "EXPIRED_TASK"
        );
        let stranger = Scope::root("stranger");
        assert_eq!(
            registry.get(stranger.id(), &id).unwrap_err().code(),
            "UNKNOWN_TASK"
        );
    }
    let removed = log
        .take()
        .into_iter()
        .filter(|line| line.contains("Removed"));
    assert_eq!(removed.count(), 9900);
}

#[tokio::test]
async fn a_record_that_is_evicted_under_a_reading_is_still_committed() {
    let (registry, owner) = fixture_with(|config| config.retain_finished = 0);
    let id = start(&registry, &owner, async {
        TaskOutcome::completed().with_output("x")
    });
    owner.unheld().await;
    let (first, second) = (
        registry.read(owner.id(), &id).unwrap(),
        registry.read(owner.id(), &id).unwrap(),
    );
    first.commit();
    assert_eq!(
        registry.get(owner.id(), &id).unwrap_err().code(),
        "EXPIRED_TASK"
    );
    assert_eq!(second.text(), "x");
    second.commit();
    assert!(format!("{registry:?}").contains("records: 0"));
}

/// Says when it is dropped, and that the registry may be used then.
struct Guard(
    TaskRegistry,
    offshoot_core::ScopeId,
    std::sync::mpsc::Sender<usize>,
);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.2.send(self.0.list(self.1).len());
    }
}

#[tokio::test]
async fn what_a_producer_gave_its_buffer_is_dropped_with_the_record_and_outside_the_lock() {
    let (registry, owner) = fixture_with(|config| config.retain_finished = 0);
    let (sender, dropped) = std::sync::mpsc::channel();
    let guard = Guard(registry.clone(), owner.id(), sender);
    let path = std::path::Path::new("overflow");
    let spec = TaskSpec::new("bash", "a label").streaming();
    let id = registry.spawn(&owner, spec, async move |context: TaskContext| {
        let output = context.output().unwrap();
        assert!(output.buffer().overflow_to(path, guard));
        TaskOutcome::completed()
    });
    let id = id.unwrap();
    owner.unheld().await;
    let reading = registry.read(owner.id(), &id).unwrap();
    assert_eq!(reading.overflow(), Some(path));
    assert_eq!(
        registry.get(owner.id(), &id).unwrap().overflow.as_deref(),
        Some(path)
    );
    assert!(dropped.try_recv().is_err());
    reading.commit();
    assert_eq!(dropped.try_recv(), Ok(0));
}

#[tokio::test]
async fn of_two_open_readings_each_byte_is_in_one_and_a_dropped_one_leaves_its_own_to_the_next() {
    let (registry, owner) = fixture();
    let (writer, _end, id) = start_stream(&registry, &owner);
    let read = || registry.read(owner.id(), &id).unwrap();
    writer.write("one ");
    let first = read();
    writer.write("two ");
    let second = read();
    assert_eq!((first.text(), first.elsewhere()), ("one ", 0));
    assert_eq!((second.text(), second.elsewhere()), ("two ", 4));
    let third = read();
    assert_eq!((third.text(), third.elsewhere()), ("", 8));
    drop(third);
    second.commit();
    let unread = || registry.get(owner.id(), &id).unwrap().unread;
    assert_eq!(unread(), 4, "what is being read is not read yet");
    drop(first);
    writer.write("three");
    let last = read();
    assert_eq!(
        (last.text(), last.elsewhere(), last.gap()),
        ("one three", 0, 0)
    );
    last.commit();
    assert_eq!((unread(), read().text()), (0, ""));
}

#[tokio::test]
async fn whoever_is_told_that_an_end_was_not_shown_finds_its_output_unread() {
    let (registry, owner) = fixture();
    let (writer, end, id) = start_stream(&registry, &owner);
    writer.write("text");
    let found = std::sync::Arc::new(std::sync::Mutex::new(None));
    let told = std::sync::Arc::clone(&found);
    let (reader, scope) = (registry.clone(), owner.id());
    let observer = move |change: TaskChange, task: &TaskSnapshot| {
        if change == TaskChange::NoticeDue {
            let reading = reader.read(scope, &task.id).unwrap();
            *told.lock().unwrap() = Some(reading.text().to_owned());
            reading.commit();
        }
    };
    let _observer = registry.observe(std::sync::Arc::new(observer));
    let waiter = registry.wait(owner.id(), &id, std::time::Duration::MAX);
    let mut waiter = std::pin::pin!(waiter);
    assert!(futures::poll!(&mut waiter).is_pending());
    end.send(()).unwrap();
    let waited = waiter.await.unwrap();
    let reading = registry.read(owner.id(), &id).unwrap();
    drop(waited);
    assert_eq!(*found.lock().unwrap(), None, "the reading shows the end");
    drop(reading);
    assert_eq!(found.lock().unwrap().as_deref(), Some("text"));
}

#[tokio::test]
async fn what_a_producer_says_of_its_output_is_apart_from_it_and_one_bounded_line() {
    let (registry, owner) = fixture();
    let (end, id) = start_gated(&registry, &owner);
    let outcome = TaskOutcome::failed("it broke")
        .with_output("half\nof it")
        .with_heading("only\na part")
        .with_note("n".repeat(1000));
    assert_eq!(outcome.heading(), Some("only\na part"));
    end.send(outcome).unwrap();
    owner.unheld().await;
    for _ in 0..2 {
        let reading = registry.read(owner.id(), &id).unwrap();
        assert_eq!(reading.text(), "half\nof it");
        assert_eq!(reading.heading(), Some("only a part"));
        let note = reading.note().unwrap();
        assert!(note.len() <= 500 && note.starts_with("nnn"), "{note}");
        reading.commit();
        assert_eq!(registry.get(owner.id(), &id).unwrap().unread, 0);
        assert_eq!(registry.get(owner.id(), &id).unwrap().unread, 0);
    }
    // Without an output too.
    let (end, id) = start_gated(&registry, &owner);
    end.send(TaskOutcome::completed().with_note("nothing to say"))
        .unwrap();
    owner.unheld().await;
    let reading = registry.read(owner.id(), &id).unwrap();
    assert_eq!(
        (reading.text(), reading.note()),
        ("", Some("nothing to say"))
    );
    assert_eq!(reading.heading(), None);
}
