//! How a run is stopped from outside: a closed stdout, Ctrl-C, SIGTERM. No process is left behind.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Place, read_until, send};

/// A run that hangs with a command in the background and one in the foreground of a child. Each
/// command says in a file that it runs, and holds the file's lock while it does.
fn busy() -> Value {
    json!({"prompt": "hi", "agents": {
        "root": [
            {"calls": [
                {"name": "bash", "args": {"command": "echo $$ > bg; exec sleep 600", "run_in_background": true}},
                {"name": "subagent", "args": {"description": "c", "prompt": "p"}}]},
            {"await": ["child"], "hang": false, "text": "x", "calls": [{"name": "bash", "args": {"command": "echo $$ > fg; echo ready; exec sleep 600"}}]}],
        "c": [{"open": ["child"], "calls": [{"name": "bash", "args": {"command": "echo $$ > ch; exec sleep 600"}}]}]}})
}

fn started(place: &Place, args: &[&str]) -> Child {
    let script = place.script(busy());
    let all = [&["run", "--script", &script, "--json"], args].concat();
    let mut command = place.offshoot(&all);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the program");
    for name in ["bg", "fg", "ch"] {
        let deadline = Instant::now() + Duration::from_secs(30);
        while pid(place, name).is_none() {
            assert!(Instant::now() < deadline, "{name} did not start");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    child
}

fn pid(place: &Place, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(place.path(name)).ok()?;
    text.ends_with('\n').then(|| text.trim().to_owned())
}

fn runs(place: &Place, name: &str) -> bool {
    let pid = pid(place, name).expect("it started");
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    command.starts_with(b"sleep\x00600")
}

fn ends(mut child: Child) -> (Option<i32>, String) {
    let began = Instant::now();
    let mut stderr = String::new();
    let mut pipe = child.stderr.take().expect("a pipe");
    pipe.read_to_string(&mut stderr).expect("text");
    let status = child.wait().expect("an end");
    assert!(began.elapsed() < Duration::from_secs(30));
    (status.code(), stderr)
}

/// A run whose model always answers at once, with calls that end at once: it never waits for anything.
fn restless() -> Value {
    json!({"config": {"limits": {"max_steps_per_turn": 1_000_000_000}}, "prompt": "hi", "agents": {
        "root": [{"calls": [{"name": "task_list", "args": {}}], "repeat": "forever"}]}})
}

#[test]
fn a_turn_that_never_waits_is_stopped_by_its_time_and_by_a_person() {
    let place = Place::new();
    let script = place.script(restless());
    let mut timed = place.offshoot(&["run", "--script", &script, "--timeout", "1"]);
    let timed = timed.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let (code, stderr) = ends(timed.expect("the program"));
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("timeout"), "{stderr}");

    let mut stopped = place.offshoot(&["run", "--script", &script, "--json"]);
    let mut stopped = stopped
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program");
    let mut lines = BufReader::new(stopped.stdout.take().expect("a pipe")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    while !next().contains("tool/result") {}
    send(&stopped, "INT");
    // It is read until it ends: what is not read would hold it up.
    let last = std::thread::spawn(move || lines.map_while(Result::ok).last());
    let (code, stderr) = ends(stopped);
    assert_eq!(code, Some(1), "{stderr}");
    let last = last.join().expect("the reader").expect("a line");
    assert!(last.contains("\"outcome\":\"aborted\""), "{last}");
}

fn nothing_is_left(place: &Place) {
    for name in ["bg", "fg", "ch"] {
        assert!(!runs(place, name), "{name} still runs");
    }
}

#[test]
fn a_closed_stdout_ends_the_run_quietly_with_everything_that_it_started() {
    let place = Place::new();
    let mut child = started(&place, &[]);
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    read_until(&mut lines, &["session/start"]);
    // Nothing more is ever written: that nobody reads is noticed all the same.
    drop(lines);
    assert_eq!(ends(child), (Some(1), String::new()));
    nothing_is_left(&place);
}

#[test]
fn sigterm_and_its_like_close_everything_and_still_give_the_result() {
    for signal in ["TERM", "HUP", "QUIT"] {
        let place = Place::new();
        let mut child = started(&place, &[]);
        send(&child, signal);
        let mut out = String::new();
        child
            .stdout
            .take()
            .expect("a pipe")
            .read_to_string(&mut out)
            .expect("text");
        let (code, stderr) = ends(child);
        assert_eq!(code, Some(1), "{signal}");
        assert_eq!(stderr.lines().count(), 1, "{signal}: {stderr}");
        let last = out.lines().last().expect("a line");
        let result: Value = serde_json::from_str(last).expect("JSON");
        assert_eq!(result["outcome"], "aborted", "{signal}");
        assert_eq!(
            result["stopped"].as_array().map(Vec::len),
            Some(2),
            "{signal}: {result}"
        );
        nothing_is_left(&place);
    }
}

#[test]
fn ctrl_c_once_cancels_the_roots_turn_and_twice_closes_everything() {
    let place = Place::new();
    let mut child = started(&place, &[]);
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    send(&child, "INT");
    read_until(
        &mut lines,
        &[
            "\"turn/end\"",
            "\"reason\":\"aborted\"",
            "\"cause\":\"user\"",
            "\"label\":\"root\"",
        ],
    );
    // The foreground command of the cancelled turn is gone, the rest goes on.
    assert!(!runs(&place, "fg"));
    assert!(runs(&place, "bg") && runs(&place, "ch"));
    send(&child, "INT");
    let rest: Vec<String> = lines.map(|line| line.expect("a line")).collect();
    let result: Value = serde_json::from_str(rest.last().expect("a line")).expect("JSON");
    assert_eq!(result["outcome"], "aborted");
    assert_eq!(ends(child).0, Some(1));
    nothing_is_left(&place);
}

#[test]
fn after_one_ctrl_c_the_run_settles_by_itself() {
    let place = Place::new();
    let script = place.script(json!({"prompt": "hi", "agents": {"root": [{"hang": true}]}}));
    let mut command = place.offshoot(&["run", "--json", "--script", &script]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    read_until(&mut lines, &["step/start"]);
    send(&child, "INT");
    let rest: Vec<String> = lines.map(|line| line.expect("a line")).collect();
    let result: Value = serde_json::from_str(rest.last().expect("a line")).expect("JSON");
    assert_eq!(result["outcome"], "aborted");
    assert_eq!(ends(child).0, Some(1));
}

/// It leaves its session, clears its environment, lowers the limit that is its mark and loses its
/// parent, and only then says its number.
#[cfg(target_os = "linux")]
#[test]
fn what_escapes_from_everything_ends_with_its_command_and_with_the_program() {
    const BEGIN: &str = r#"setsid env -i PATH="$PATH" prlimit --rttime=1000000:1000000 sh -c 'sh escape.sh $1 $$ &' sh "$1""#;
    const ESCAPE: &str = r#"
while read -r _ _ _ parent _ </proc/$$/stat && [ $parent = $2 ]; do :; done
echo $$ >$1.new; mv $1.new $1
exec sleep 600
"#;
    let place = Place::new();
    std::fs::write(place.path("begin.sh"), BEGIN).expect("a file");
    std::fs::write(place.path("escape.sh"), ESCAPE).expect("a file");
    let until = |name: &str| format!("until [ -e {name} ]; do sleep 0.01; done");
    let script = place.script(json!({"prompt": "hi", "agents": {"root": [
        {"calls": [{"name": "bash", "args": {"command": format!("sh begin.sh over; {}", until("over"))}}]},
        {"calls": [{"name": "bash", "args": {
            "command": format!("{}; kill -0 $(cat over) || touch ended; sh begin.sh bg; exec sleep 600", until("over")),
            "run_in_background": true}}]},
        {"hang": true}]}}));
    let mut command = place.offshoot(&["run", "--script", &script, "--json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the program");
    let deadline = Instant::now() + Duration::from_secs(30);
    while pid(&place, "bg").is_none() || !runs(&place, "bg") {
        assert!(Instant::now() < deadline, "nothing has escaped");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The first one ended with its command, while the program went on.
    assert!(place.path("ended").exists() && !runs(&place, "over"));
    send(&child, "TERM");
    assert_eq!(ends(child).0, Some(1));
    assert!(!runs(&place, "bg"));
}
