//! What a store may hold that is no session of its own: `offshoot sessions` says what a resumption says.

use std::os::unix::net::UnixListener;
use std::process::{Command, Output};

use offshoot::agent::AgentId;
use serde_json::{Value, json};

use crate::support::Place;

/// Runs the program, which must not wait for anything.
pub(crate) fn bounded(place: &Place, args: &[&str]) -> Output {
    let program = place.offshoot(args);
    let output = Command::new("timeout")
        .args(["-k", "2", "20"])
        .arg(program.get_program())
        .args(program.get_args())
        .current_dir(place.path(""))
        .env_remove("OFFSHOOT_LOG")
        .output()
        .expect("the program");
    assert_ne!(output.status.code(), Some(124), "{args:?} hangs");
    output
}

/// A store with one session, and its id.
pub(crate) fn store() -> (Place, String) {
    let place = Place::new();
    let script = json!({"prompt": "one", "agents": {"root": [{"text": "a", "repeat": "forever"}]}});
    let run = place.events(script, &["--store", "store"]);
    let root = run.result["session"].as_str().expect("an id").to_owned();
    (place, root)
}

pub(crate) fn log_of(place: &Place, id: &str) -> std::path::PathBuf {
    place.path(&format!("store/{id}.jsonl"))
}

pub(crate) fn listed(place: &Place, id: &str) -> Value {
    let output = bounded(place, &["sessions", "--store", "store", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let sessions: Vec<Value> = serde_json::from_slice(&output.stdout).expect("an array");
    let mut own = sessions.into_iter().filter(|session| session["id"] == id);
    let session = own.next().expect("the session");
    assert!(own.next().is_none(), "listed once");
    session
}

/// What a resumption is refused with.
pub(crate) fn refused(place: &Place, id: &str) -> String {
    let script = place.path("script.json").display().to_string();
    let args = [
        "run", "--script", &script, "--store", "store", "--resume", id,
    ];
    let output = bounded(place, &args);
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    stderr
}

/// Both say it, and the file is as it was.
pub(crate) fn both_say(place: &Place, id: &str, what: &str) {
    let path = log_of(place, id);
    let before = std::fs::read(&path).ok();
    let session = listed(place, id);
    assert_eq!(session["status"], "damaged", "{session}");
    let error = session["error"].as_str().unwrap_or_default();
    assert!(error.contains(what), "{session}");
    let stderr = refused(place, id);
    assert!(stderr.contains(what), "{stderr}");
    assert_eq!(std::fs::read(&path).ok(), before, "{what}");
}

#[test]
fn a_pipe_a_socket_and_a_folder_are_no_sessions_and_are_not_waited_for() {
    let (place, root) = store();
    let ids = [AgentId::fresh(), AgentId::fresh(), AgentId::fresh()].map(|id| id.to_string());
    let [pipe, socket, folder] = ids.clone();
    let made = Command::new("mkfifo").arg(log_of(&place, &pipe)).status();
    assert!(made.expect("mkfifo").success());
    // The path of a socket must be short.
    let short = tempfile::tempdir().expect("a folder");
    let bound = short.path().join("s");
    let _listening = UnixListener::bind(&bound).expect("a socket");
    std::fs::rename(&bound, log_of(&place, &socket))
        .or_else(|_| std::os::unix::fs::symlink(&bound, log_of(&place, &socket)))
        .expect("a socket in the store");
    std::fs::create_dir(log_of(&place, &folder)).expect("a folder");
    for (id, found) in ids
        .iter()
        .zip(["a pipe, a socket", "a pipe, a socket", "a folder"])
    {
        let what = format!("expected a file, found {found}");
        let session = listed(&place, id);
        assert_eq!(session["status"], "damaged", "{session}");
        assert!(session["error"].as_str().is_some_and(|e| e.contains(&what)));
        assert!(refused(&place, id).contains(&what));
    }
    assert_eq!(listed(&place, &root)["status"], "completed");
}

#[test]
fn a_copied_or_renamed_log_is_another_sessions() {
    let (place, root) = store();
    let copy = AgentId::fresh().to_string();
    std::fs::copy(log_of(&place, &root), log_of(&place, &copy)).expect("a copy");
    both_say(
        &place,
        &copy,
        &format!("expected the session {copy}, found {root}"),
    );
    assert_eq!(listed(&place, &root)["status"], "completed");
}

#[test]
fn what_a_resumption_refuses_is_not_shown_as_whole() {
    const MAX: u64 = u64::MAX;
    let event = |seq: u64, event: Value| {
        json!({"seq": seq, "time": "2026-01-01T00:00:00.000Z", "event": event}).to_string()
    };
    type Change = Box<dyn Fn(&mut Vec<String>)>;
    let appended = |of: fn(u64) -> Value, seq: Option<u64>| -> Change {
        Box::new(move |lines| {
            let next = lines.len() as u64 - 1;
            lines.push(event(seq.unwrap_or(next), of(next)));
        })
    };
    let inherits = |events: u64| -> Change {
        Box::new(move |lines| {
            let mut header: Value = serde_json::from_str(&lines[0]).expect("JSON");
            header["inherited"] = events.into();
            // As an earlier version wrote it.
            header.as_object_mut().expect("an object").remove("check");
            lines[0] = header.to_string();
        })
    };
    let turn = |_| json!({"type": "turn/start", "turn": MAX, "generation": 0});
    let unknown = |_| json!({"type": "novel/thing", "x": 1});
    let step = |_| json!({"type": "step/start", "turn": 9, "step": 1});
    let rows: Vec<(Change, &str)> = vec![
        (appended(unknown, None), "unknown type novel/thing"),
        (
            appended(turn, None),
            "impossible number 18446744073709551615",
        ),
        (appended(step, Some(MAX)), "found 18446744073709551615"),
        (appended(step, Some(3)), "expected seq"),
        (inherits(2), "its header says, found 0"),
        (Box::new(|lines| lines.truncate(1)), "has no beginning"),
    ];
    for (change, what) in rows {
        let (place, root) = store();
        let path = log_of(&place, &root);
        let log = std::fs::read_to_string(&path).expect("a log");
        let mut lines: Vec<String> = log.lines().map(str::to_owned).collect();
        change(&mut lines);
        std::fs::write(&path, lines.join("\n") + "\n").expect("a log");
        both_say(&place, &root, what);
    }
    let (place, root) = store();
    let path = log_of(&place, &root);
    let log = std::fs::read_to_string(&path).expect("a log");
    let absurd = log.replacen("\"inherited\":0", &format!("\"inherited\":{MAX}"), 1);
    std::fs::write(&path, absurd).expect("a log");
    both_say(&place, &root, "the header is damaged");
    let (place, root) = store();
    let path = log_of(&place, &root);
    let log = std::fs::read_to_string(&path).expect("a log");
    std::fs::write(&path, log.replace('\n', "\r")).expect("a log");
    both_say(&place, &root, "without a line end");
}

#[test]
fn what_is_cut_off_and_may_be_an_event_is_kept_and_listed() {
    let (place, root) = store();
    let path = log_of(&place, &root);
    let log = std::fs::read_to_string(&path).expect("a log");
    let whole = log.trim_end_matches('\n');
    std::fs::write(&path, whole).expect("a log");
    let session = listed(&place, &root);
    let last = whole.lines().last().expect("an event");
    assert_eq!(session["torn_bytes"], last.len());
    assert_eq!(session.get("kept"), None);
    let run = place.events(
        json!({"agents": {"root": [{"text": "b", "repeat": "forever"}]}}),
        &["two", "--store", "store", "--resume", &root],
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let session = listed(&place, &root);
    let kept = session["kept"][0].as_str().expect("a file");
    let kept =
        std::fs::read_to_string(place.path(&format!("store/{kept}"))).expect("what was kept");
    assert_eq!(kept, last);
    let text = bounded(&place, &["sessions", "--store", "store"]).stdout;
    let text = String::from_utf8(text).expect("text");
    assert!(text.contains("  (cut off and kept: "), "{text}");
}

/// What cannot be kept is not cut off.
#[test]
fn what_is_to_be_kept_and_does_not_fit_on_the_disk_stays_where_it_is() {
    let (place, root) = store();
    let path = log_of(&place, &root);
    let log = std::fs::read_to_string(&path).expect("a log");
    let before = format!("{log}{{\"text\":\"{}\"}}", "x".repeat(100_000));
    std::fs::write(&path, &before).expect("a log");
    let script = place.path("script.json").display().to_string();
    // As on a full disk, a write fails; a file may have 16 or 32 KiB.
    let limited = format!(
        "ulimit -f 32; exec timeout -k 2 20 {} run --script {script} --store store --resume {root}",
        env!("CARGO_BIN_EXE_offshoot")
    );
    for _ in 0..2 {
        let output = Command::new("sh")
            .args(["-c", &limited])
            .current_dir(place.path(""))
            .output()
            .expect("sh");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && stderr.contains("File too large"),
            "{stderr}"
        );
        assert_eq!(std::fs::read_to_string(&path).expect("the log"), before);
        assert_eq!(listed(&place, &root).get("kept"), None);
    }
}
