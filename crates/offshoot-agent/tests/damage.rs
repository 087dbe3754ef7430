//! Damaged files: whatever a file of the store holds, opening it destroys no event of it.

mod support;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use offshoot_agent::{
    Agent, AgentId, AgentSpec, AppendError, Event, Extension, JsonlStore, OpenError, SessionLog,
    SessionStore, StoreError, StoredEvent,
};
use offshoot_core::Timestamp;
use proptest::prelude::*;
use support::{World, user};

fn id(name: &str) -> AgentId {
    name.parse().expect("an id")
}

fn file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.jsonl"))
}

/// The logs of a root, of a fork of it, and of a fork of the fork: `root`, `fork`, `deep`.
async fn logs(folder: &Path) -> [String; 3] {
    let mut world = World::in_folder(folder);
    let mut seed = None;
    for name in ["root", "fork", "deep"] {
        let spec = AgentSpec {
            id: Some(id(name)),
            depth: u32::from(name != "root"),
            seed,
            ..world.spec()
        };
        let agent = Agent::create(&world.host, None, spec).expect("an agent");
        agent.start();
        agent
            .record(Extension::new("later/chunk").ignorable())
            .expect("recorded");
        agent
            .followup(user(&format!("of-{name}")))
            .expect("accepted");
        let step = world.stage.next().await;
        step.say("calls", &["c"]);
        step.call("c");
        step.answer("c");
        step.complete();
        agent.idle().await;
        seed = Some(world.log(&agent));
        world.finish(agent.into_agent()).await;
    }
    ["root", "fork", "deep"].map(|name| {
        let text = std::fs::read_to_string(file(folder, name));
        text.expect("a log")
    })
}

/// The whole lines that are events, as they stand.
fn events(text: &[u8]) -> BTreeSet<Vec<u8>> {
    let whole = text.split_inclusive(|byte| *byte == b'\n');
    let whole = whole.filter_map(|line| line.strip_suffix(b"\n"));
    let is_event = |line: &&[u8]| StoredEvent::from_json(line, String::new).is_ok();
    whole.filter(is_event).map(<[u8]>::to_vec).collect()
}

/// Everything that the files of a folder hold.
fn everything(folder: &Path) -> Vec<Vec<u8>> {
    let files = std::fs::read_dir(folder).expect("the folder");
    let files = files.map(|file| file.expect("a file").path());
    files
        .map(|path| std::fs::read(path).expect("a file"))
        .collect()
}

fn header(text: &str, field: &str, value: &str) -> String {
    let (first, rest) = text.split_once('\n').expect("lines");
    let mut header: serde_json::Value = serde_json::from_str(first).expect("a header");
    header[field] = serde_json::from_str(value).expect("a value");
    format!("{header}\n{rest}")
}

/// As logs were written before headers had a check.
fn unchecked(text: &str) -> String {
    let (first, rest) = text.split_once('\n').expect("lines");
    let mut header: serde_json::Value = serde_json::from_str(first).expect("a header");
    header.as_object_mut().expect("an object").remove("check");
    format!("{header}\n{rest}")
}

/// The fault that opening a session of this content ends with; every event is still there.
fn refused(name: &str, text: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = file(folder.path(), name);
    std::fs::write(&path, text).expect("a log");
    let store = JsonlStore::existing(folder.path()).expect("the store");
    let world = World::in_folder(folder.path());
    let opened = store.open(&id(name), &mut |_| {}).map(drop);
    assert_eq!(
        std::fs::read_to_string(&path).expect("the log"),
        text,
        "the file is as it was"
    );
    let opened = opened.expect_err("it is damaged");
    assert!(matches!(opened, StoreError::Corrupt { .. }), "{opened}");
    let examined = world.host.examine(&id(name), &mut |_| {});
    let examined = examined.expect_err("it is shown as damaged").to_string();
    assert_eq!(examined, opened.to_string());
    examined
}

#[tokio::test(start_paused = true)]
async fn a_header_whose_numbers_were_damaged_is_refused_and_nothing_is_cut_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let [root, fork, deep] = logs(folder.path()).await;
    for (name, text) in [("root", root), ("fork", fork), ("deep", deep)] {
        let lines = text.lines().count() as u64;
        for inherited in [0, 1, 2, 9, lines - 1, lines, lines + 7, 1 << 40, u64::MAX] {
            let damaged = header(&text, "inherited", &inherited.to_string());
            if damaged != text {
                let fault = refused(name, &damaged);
                assert!(fault.contains(".jsonl:1: "), "{fault}");
                // A log of an earlier version says so in another way, and says what is wrong.
                let fault = refused(name, &unchecked(&damaged));
                assert!(fault.contains("header"), "{fault}");
            }
        }
        for (field, value) in [
            ("session", "\"other\""),
            ("format", "\"x\""),
            ("version", "2"),
            ("check", "\"0\""),
        ] {
            refused(name, &header(&text, field, value));
        }
        // As it is, it is whole; so is one of an earlier version.
        for text in [text.clone(), unchecked(&text)] {
            let path = file(folder.path(), name);
            std::fs::write(&path, &text).expect("a log");
            let store = JsonlStore::existing(folder.path()).expect("the store");
            let opened = store.open(&id(name), &mut |_| {}).expect("whole");
            assert_eq!(opened.next_seq, lines - 1);
        }
    }
}

/// The number of each event in turn is that of another: who looks at the log and who would go on with it
/// are told the same of it, whether or not they read what nothing depends on.
#[tokio::test(start_paused = true)]
async fn an_event_with_the_number_of_another_is_the_same_fault_for_whoever_looks() {
    let folder = tempfile::tempdir().expect("a folder");
    let [_, fork, _] = logs(folder.path()).await;
    let lines: Vec<_> = fork.lines().collect();
    let events = lines.len() - 1;
    for at in 0..events {
        for other in (0..=events).filter(|other| *other != at) {
            let wrong = format!("{{\"seq\":{other},");
            let line = lines[at + 1].replacen(&format!("{{\"seq\":{at},"), &wrong, 1);
            let mut damaged = lines.clone();
            damaged[at + 1] = &line;
            assert_ne!(damaged, lines, "event {at}");
            let folder = tempfile::tempdir().expect("a folder");
            let text = damaged.join("\n") + "\n";
            std::fs::write(file(folder.path(), "fork"), text).expect("a log");
            let store = JsonlStore::existing(folder.path()).expect("the store");
            let told =
                |result: Result<(), StoreError>| result.expect_err("it is damaged").to_string();
            let looked = told(store.scan(&id("fork"), &mut |_| {}));
            let opened = told(store.open(&id("fork"), &mut |_| {}).map(drop));
            assert_eq!(looked, opened);
            let expected = format!("expected seq {at}, found {other}");
            assert!(looked.ends_with(&expected), "{looked}");
        }
    }
}

/// What one event says of itself in odd ways is read in one way, whoever reads it.
#[tokio::test(start_paused = true)]
async fn who_opens_a_log_passes_over_what_is_ignorable_for_who_looks_at_it_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let [root, ..] = logs(folder.path()).await;
    let turn = 1 + root.matches("\"turn/start\"").count();
    let started = format!("\"turn\":{turn},\"generation\":0,\"ignorable\":true");
    let a = b"\"type\":\"a/b\",\"ignorable\":true".as_slice();
    for (before, event) in [
        (&b""[..], a),
        (b"", format!("\"type\":\"turn/start\",{started}").as_bytes()),
        (
            b"",
            format!("\"type\":\"turn\\/start\",{started}").as_bytes(),
        ),
        (
            b"",
            format!("\"type\":\"tur\\u006e/start\",{started}").as_bytes(),
        ),
        (
            b"\"x\":{\"event\":{\"type\":\"a/b\"}},",
            format!("\"type\":\"turn/start\",{started}").as_bytes(),
        ),
        (b"", b"\"type\":\"turn\\/start\",\"ignorable\":true"),
        (b"", b"\"type\":\"turn\\/later\",\"ignorable\":true"),
        (b"\"x\":\"\xff\",", a),
        (b"", b"\"type\":\"a/b\",\"ignorable\":true,\"x\":\"\xff\""),
        (b"", b"\"type\":\"a/b\",\"ignor\\u0061ble\":true"),
        (b"", b"\"type\":\"a/b\",\"ignorable\":true,\"ignorable\":1"),
    ] {
        let seq = root.lines().count() - 1;
        let mut text = root.clone().into_bytes();
        text.extend_from_slice(b"{");
        text.extend_from_slice(before);
        text.extend_from_slice(format!("\"seq\":{seq},").as_bytes());
        text.extend_from_slice(b"\"time\":\"2026-01-01T00:00:00.000Z\",\"event\":{");
        text.extend_from_slice(event);
        text.extend_from_slice(b"}}\n");
        std::fs::write(file(folder.path(), "root"), &text).expect("a log");
        let store = JsonlStore::existing(folder.path()).expect("the store");
        let (mut looked, mut shown) = (Vec::new(), Vec::new());
        let scanned = store.scan(&id("root"), &mut |event| looked.push(event.clone()));
        let opened = store.open(&id("root"), &mut |event| shown.push(event.clone()));
        let said = |result: Result<(), StoreError>| result.map_err(|error| error.to_string());
        let event = String::from_utf8_lossy(event);
        assert_eq!(said(scanned), said(opened.map(drop)), "{event}");
        let is_needed = |stored: &StoredEvent| !matches!(&stored.event, Event::Extension(extension) if extension.is_ignorable());
        looked.retain(is_needed);
        shown.retain(is_needed);
        assert_eq!(looked, shown, "{event}");
    }
}

/// An agent writes its beginning first.
#[tokio::test(start_paused = true)]
async fn a_log_in_which_something_ignorable_comes_before_the_beginning_is_refused_by_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let [root, ..] = logs(folder.path()).await;
    let mut lines: Vec<_> = root.lines().map(str::to_owned).collect();
    let first = stored(0);
    lines.insert(1, serde_json::to_string(&first).expect("a line"));
    for (seq, line) in lines[2..].iter_mut().enumerate() {
        *line = line.replacen(
            &format!("\"seq\":{seq},"),
            &format!("\"seq\":{},", seq + 1),
            1,
        );
    }
    let text = lines.join("\n") + "\n";
    std::fs::write(file(folder.path(), "root"), &text).expect("a log");
    let world = World::in_folder(folder.path());
    let examined = world.host.examine(&id("root"), &mut |_| {});
    let examined = examined.expect_err("it is shown as damaged").to_string();
    let resumed = Agent::resume(
        &world.host,
        None,
        &id("root"),
        Default::default(),
        world.kit(),
    );
    let resumed = resumed.map(drop).expect_err("it is not gone on with");
    assert_eq!(resumed.to_string(), examined);
    assert!(
        examined.ends_with("event 1: expected session/start as event 0, found it as 1"),
        "{examined}"
    );
    let after = std::fs::read_to_string(file(folder.path(), "root")).expect("the log");
    assert_eq!(after, text);
}

#[test]
fn a_file_without_line_ends_is_no_torn_header() {
    for text in [
        "x",
        "{}",
        "{\"format\":\"offshoot-session\",\"version\":1,\"session\":\"other\"",
        "\0\0\0\0",
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = file(folder.path(), "s");
        std::fs::write(&path, text).expect("a file");
        let store = JsonlStore::existing(folder.path()).expect("the store");
        let refusal = store.open(&id("s"), &mut |_| {}).map(drop);
        assert!(
            matches!(refusal, Err(StoreError::Corrupt { .. })),
            "{text}: {refusal:?}"
        );
        assert_eq!(std::fs::read_to_string(&path).expect("it"), text);
    }
}

/// What is not the beginning of one line is kept aside when the session goes on.
#[tokio::test(start_paused = true)]
async fn a_last_line_that_may_be_an_event_is_kept_aside() {
    let folder = tempfile::tempdir().expect("a folder");
    let [text, ..] = logs(folder.path()).await;
    let (whole, last) = text.trim_end().rsplit_once('\n').expect("lines");
    let path = file(folder.path(), "root");
    let store = JsonlStore::existing(folder.path()).expect("the store");
    let torn = |tail: &str| {
        std::fs::write(&path, format!("{whole}\n{tail}")).expect("a log");
        let mut opened = store.open(&id("root"), &mut |_| {}).expect("torn");
        assert_eq!(opened.torn_bytes, tail.len() as u64);
        let next = opened.next_seq;
        // Looking is not going on: the file is as it was.
        assert_eq!(
            std::fs::read_to_string(&path).expect("it"),
            format!("{whole}\n{tail}")
        );
        let event = StoredEvent {
            seq: next,
            time: Default::default(),
            event: Extension::new("a/b").into(),
        };
        opened.log.append(next, &[event]).expect("an append");
        drop(opened);
        let now = std::fs::read_to_string(&path).expect("it");
        assert!(now.starts_with(whole) && now.lines().count() == whole.lines().count() + 1);
        let kept = store.kept_aside(&id("root")).expect("the folder");
        let texts: Vec<_> = kept
            .iter()
            .map(|path| std::fs::read_to_string(path).expect("it"))
            .collect();
        for path in &kept {
            let mode = std::os::unix::fs::PermissionsExt::mode(
                &std::fs::metadata(path).expect("it").permissions(),
            );
            assert_eq!(mode & 0o777, 0o600);
            std::fs::remove_file(path).expect("removed");
        }
        assert_eq!(store.sessions().expect("ids").len(), 3, "it is no session");
        texts
    };
    // A write that was cut leaves the beginning of a line: nothing of it was accepted.
    assert_eq!(torn(&last[..last.len() - 1]), [""; 0]);
    assert_eq!(torn("{"), [""; 0]);
    for tail in [
        last,
        &format!("{last}x"),
        "\0\0\0\0",
        &format!("{last}\r{last}\r"),
    ] {
        assert_eq!(torn(tail), [tail], "{tail:?}");
    }
}

/// A fork of which only the past was written is begun anew, and what was there is kept aside.
#[tokio::test(start_paused = true)]
async fn what_a_fork_had_copied_before_its_birth_is_kept_aside() {
    let folder = tempfile::tempdir().expect("a folder");
    let [_, fork, _] = logs(folder.path()).await;
    let birth = fork.find("\n{\"seq\":").expect("events");
    let unborn = fork
        .lines()
        .take_while(|line| !line.contains("\"inherited\":{"));
    let unborn = unborn.map(|line| format!("{line}\n")).collect::<String>();
    assert!(unborn.len() > birth);
    let path = file(folder.path(), "fork");
    std::fs::write(&path, &unborn).expect("a log");
    let world = World::in_folder(folder.path());
    let resumed = Agent::resume(
        &world.host,
        None,
        &id("fork"),
        Default::default(),
        world.kit(),
    );
    assert!(matches!(resumed, Err(OpenError::Empty(_))), "{resumed:?}");
    assert_eq!(std::fs::read_to_string(&path).expect("it"), unborn);
    let store = JsonlStore::existing(folder.path()).expect("the store");
    let mut opened = store
        .open(&id("fork"), &mut |_| panic!("shown"))
        .expect("empty");
    assert_eq!(opened.next_seq, 0);
    let event = StoredEvent {
        seq: 0,
        time: Default::default(),
        event: Extension::new("a/b").into(),
    };
    opened
        .log
        .append(0, std::slice::from_ref(&event))
        .expect("an append");
    drop(opened);
    assert_eq!(store.read(&id("fork")).expect("it"), [event]);
    let kept = store.kept_aside(&id("fork")).expect("the folder");
    assert_eq!(kept.len(), 1);
    assert_eq!(std::fs::read_to_string(&kept[0]).expect("it"), unborn);
}

/// One change of a file, as a disk or an editor makes it.
/// A writer that asks for no lock: what it wrote stays, and whoever comes too late is told.
#[test]
fn an_append_after_a_writer_without_the_lock_is_a_conflict() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = JsonlStore::open_folder(folder.path()).expect("a store");
    let path = file(folder.path(), "a");
    let line = |seq| {
        let mut line = Vec::new();
        stored(seq).to_json(&mut line);
        line.push(b'\n');
        line
    };
    let other = |bytes: &[u8]| {
        let file = std::fs::File::options().append(true).open(&path);
        file.and_then(|mut file| file.write_all(bytes))
            .expect("a write");
    };
    let lost = |log: &mut dyn SessionLog, seq: u64, end: u64| {
        let before = std::fs::read(&path).expect("the log");
        for _ in 0..2 {
            let refused = log.append(seq, &[stored(seq)]).expect_err("a conflict");
            let AppendError::Conflict { expected, found } = refused else {
                panic!("{refused}");
            };
            assert_eq!((expected, found), (seq, end));
        }
        assert_eq!(std::fs::read(&path).expect("the log"), before);
    };

    let mut log = store.create(&id("a"), 0).expect("a session");
    log.append(0, &[stored(0), stored(1)]).expect("an append");
    other(&line(2));
    lost(&mut *log, 2, 3);
    // The first goes on, and what is there can be gone on with.
    other(&line(3));
    drop(log);
    let mut log = store.open(&id("a"), &mut |_| {}).expect("the session").log;
    log.append(4, &[stored(4)]).expect("an append");

    // Also when the file became shorter, and before a torn end was cut off.
    let whole = std::fs::read(&path).expect("the log");
    std::fs::write(&path, &whole[..whole.len() - line(4).len()]).expect("a write");
    lost(&mut *log, 5, 4);
    drop(log);
    other(&line(4)[..9]);
    let mut log = store.open(&id("a"), &mut |_| {}).expect("the session").log;
    other(&line(4)[9..]);
    lost(&mut *log, 4, 5);
    drop(log);
    let read = store.read(&id("a")).expect("a whole log");
    assert_eq!(read, (0..5).map(stored).collect::<Vec<_>>());
}

fn stored(seq: u64) -> StoredEvent {
    StoredEvent {
        seq,
        time: Timestamp::from_millis(seq),
        event: Extension::new("later/chunk").ignorable().into(),
    }
}

#[derive(Clone, Debug)]
enum Damage {
    Flip(prop::sample::Index, u8),
    Remove(prop::sample::Index, usize),
    Double(prop::sample::Index),
    Drop(prop::sample::Index),
    Swap(prop::sample::Index, prop::sample::Index),
    Blank(prop::sample::Index, usize),
    Digit(prop::sample::Index, u8),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        (at(), 0..8_u8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        (at(), 1..20_usize).prop_map(|(at, count)| Damage::Remove(at, count)),
        at().prop_map(Damage::Double),
        at().prop_map(Damage::Drop),
        (at(), at()).prop_map(|(a, b)| Damage::Swap(a, b)),
        (at(), 1..600_usize).prop_map(|(at, count)| Damage::Blank(at, count)),
        (at(), b'0'..=b'9').prop_map(|(at, digit)| Damage::Digit(at, digit)),
    ]
}

impl Damage {
    /// `head` bytes at the beginning, or the whole text, are what is damaged.
    fn apply(&self, text: &mut Vec<u8>, head: usize) {
        let range = head.min(text.len());
        if range == 0 {
            return;
        }
        let lines = |text: &[u8]| -> Vec<Vec<u8>> {
            let lines = text.split_inclusive(|byte| *byte == b'\n');
            lines.map(<[u8]>::to_vec).collect()
        };
        match self {
            Self::Flip(at, bit) => text[at.index(range)] ^= 1 << bit,
            Self::Digit(at, digit) => {
                let digits: Vec<_> = (0..range).filter(|at| text[*at].is_ascii_digit()).collect();
                if !digits.is_empty() {
                    text[digits[at.index(digits.len())]] = *digit;
                }
            }
            Self::Remove(at, count) => {
                let at = at.index(range);
                text.drain(at..(at + count).min(text.len()));
            }
            Self::Blank(at, count) => {
                let at = at.index(range);
                let end = (at + count).min(text.len());
                text[at..end].fill(0);
            }
            Self::Double(at) => {
                let mut all = lines(text);
                let at = at.index(all.len());
                all.insert(at, all[at].clone());
                *text = all.concat();
            }
            Self::Drop(at) => {
                let mut all = lines(text);
                all.remove(at.index(all.len()));
                *text = all.concat();
            }
            Self::Swap(a, b) => {
                let mut all = lines(text);
                let (a, b) = (a.index(all.len()), b.index(all.len()));
                all.swap(a, b);
                *text = all.concat();
            }
        }
    }
}

thread_local! {
    static LOGS: [String; 3] = {
        let folder = tempfile::tempdir().expect("a folder");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(logs(folder.path()))
    };
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_damage_makes_opening_destroy_an_event(
        log in 0..3_usize,
        checked in any::<bool>(),
        in_header in any::<bool>(),
        damages in prop::collection::vec(damage(), 1..3),
    ) {
        let name = ["root", "fork", "deep"][log];
        let text = LOGS.with(|logs| logs[log].clone());
        let text = if checked { text } else { unchecked(&text) };
        let head = if in_header { text.find('\n').map_or(0, |end| end + 1) } else { text.len() };
        let mut text = text.into_bytes();
        for damage in damages {
            damage.apply(&mut text, head);
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = file(folder.path(), name);
        std::fs::write(&path, &text).expect("a log");
        let before = events(&text);
        let store = JsonlStore::existing(folder.path()).expect("the store");
        // Whoever looks at it says the same.
        let (mut looked, mut shown) = (Vec::new(), Vec::new());
        let scanned = store.scan(&id(name), &mut |event| looked.push(event.clone()));
        let opened = store.open(&id(name), &mut |event| shown.push(event.clone()));
        let said = |result: Result<(), StoreError>| result.map_err(|error| error.to_string());
        prop_assert_eq!(said(scanned), said(opened.map(drop)));
        let is_needed = |stored: &StoredEvent| {
            !matches!(&stored.event, Event::Extension(extension) if extension.is_ignorable())
        };
        looked.retain(is_needed);
        shown.retain(is_needed);
        prop_assert_eq!(looked, shown);
        let store = JsonlStore::existing(folder.path()).expect("the store");
        let opened = store.open(&id(name), &mut |_| {});
        prop_assert_eq!(&std::fs::read(&path).expect("the log"), &text, "opening writes nothing");
        // What goes on with it destroys nothing either.
        if let Ok(mut opened) = opened {
            let next = opened.next_seq;
            let event = StoredEvent {
                seq: next,
                time: Default::default(),
                event: Extension::new("a/b").into(),
            };
            opened.log.append(next, &[event]).expect("an append");
            drop(opened);
            store.open(&id(name), &mut |_| {}).expect("what was written can be read");
        }
        let mut after = BTreeSet::new();
        for content in everything(folder.path()) {
            after.extend(events(&content));
        }
        let lost: Vec<_> = before.difference(&after).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
        prop_assert!(lost.is_empty(), "lost: {lost:?}");
    }
}
