//! The program is killed at a hundred different points, and its log cut at every byte of its tail; each
//! time the session goes on, and what was accepted is entered or discarded exactly once, and everything
//! that had been started is told of exactly once.

mod audit;

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

use audit::Audit;
use offshoot_tests::{Scripted, command, scenario};
use serde_json::Value;

/// A folder with a store in it.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { folder }
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    fn run(&self, script: &str, arguments: &[&str]) -> Scripted {
        let store = self.store();
        let store = ["--store", store.to_str().expect("a path")];
        let arguments = [&store, arguments].concat();
        Scripted::run(&scenario(script), self.folder.path(), &arguments)
    }

    /// Goes on with the session; everything that waits is read, and what was cut is asked to go on.
    fn resume(&self, root: &str) -> Scripted {
        let run = self.run("killed.resume", &["--resume", root, "GO ON"]);
        assert_eq!(run.exit, Some(0), "{}\n{:?}", run.stderr, run.result);
        run
    }

    /// Kills the program when it has printed `lines` lines. What it printed, the lines that were in
    /// the pipe already included; `None` when it was through before.
    fn killed_after(&self, lines: usize) -> Option<Vec<Value>> {
        let mut program = command(&scenario("killed"), self.folder.path());
        let mut program = program
            .arg("--store")
            .arg(self.store())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let mut stdout = BufReader::new(program.stdout.take().expect("its output"));
        let mut text = String::new();
        for _ in 0..lines {
            stdout.read_line(&mut text).expect("a line");
        }
        // SIGKILL: nothing of the program runs any more.
        program.kill().expect("a kill");
        stdout.read_to_string(&mut text).expect("the rest");
        let was_killed = program.wait().expect("its end").code().is_none();
        let whole = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        let printed = whole.map(|line| serde_json::from_str(line).expect("a JSON line"));
        was_killed.then(|| printed.collect())
    }
}

/// Calls `check` with each of `0..count`, on as many threads as there are processors.
fn each(count: usize, check: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        break;
                    }
                    check(at);
                }
            });
        }
    });
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
    }
}

#[test]
fn killed_at_a_hundred_points_it_loses_and_doubles_nothing() {
    const POINTS: usize = 100;
    let whole = Place::new();
    let uninterrupted = whole.run("killed", &[]);
    assert_eq!(uninterrupted.exit, Some(0), "{}", uninterrupted.stderr);
    let audit = Audit::of(&whole.store());
    audit.check("uninterrupted");
    let lines = uninterrupted.events.len();
    assert!(lines > 2 * POINTS, "{lines} lines");
    let asked = audit.asked();

    let killed = AtomicUsize::new(0);
    each(POINTS, |point| {
        let after = 1 + point * (lines - 20) / POINTS;
        let place = Place::new();
        let at = format!("killed after line {after} of {lines}");
        let Some(printed) = place.killed_after(after) else {
            return;
        };
        killed.fetch_add(1, Ordering::Relaxed);
        let before = Audit::of(&place.store());
        before.has(&printed, &at);
        for text in before.asked() {
            assert!(asked.contains(&text), "{at}: {text} was never asked");
        }
        let root = printed[0]["session"].as_str().expect("an id");
        let times: &[_] = if point % 4 == 0 {
            &["resumed", "resumed twice"]
        } else {
            &["resumed"]
        };
        for time in times {
            let resumed = place.resume(root);
            let after = Audit::of(&place.store());
            after.has(&printed, &at);
            after.has(&resumed.events, &at);
            after.check(&format!("{at}, {time}"));
            after.goes_on_from(&before, &at);
        }
    });
    // The last ones may find the program at its end.
    let killed = killed.into_inner();
    assert!(killed >= POINTS - 10, "only {killed} were killed");
}

#[test]
fn cut_after_every_line_and_at_every_byte_of_the_tail_it_loses_and_doubles_nothing() {
    let whole = Place::new();
    let uninterrupted = whole.run("killed", &[]);
    assert_eq!(uninterrupted.exit, Some(0), "{}", uninterrupted.stderr);
    let root = uninterrupted.root();
    let name = format!("{root}.jsonl");
    let log = std::fs::read(whole.store().join(&name)).expect("the log");
    let ends: Vec<usize> = (1..=log.len()).filter(|at| log[at - 1] == b'\n').collect();
    let tail = ends[ends.len() - 2];
    // The header and the session's beginning are what a session needs to be one.
    let cuts: Vec<usize> = ends[1..].iter().copied().chain(tail..=log.len()).collect();
    each(cuts.len(), |cut| {
        let cut = cuts[cut];
        let at = format!("cut at byte {cut} of {}", log.len());
        let place = Place::new();
        copy(&whole.store(), &place.store());
        std::fs::write(place.store().join(&name), &log[..cut]).expect("a shorter log");
        let before = Audit::of(&place.store());
        let resumed = place.resume(root);
        let torn = log[..cut]
            .iter()
            .rev()
            .take_while(|byte| **byte != b'\n')
            .count();
        assert_eq!(
            resumed.stderr.contains("was torn"),
            torn > 0,
            "{at}: {}",
            resumed.stderr
        );
        let after = Audit::of(&place.store());
        after.check(&at);
        after.goes_on_from(&before, &at);
    });
}
