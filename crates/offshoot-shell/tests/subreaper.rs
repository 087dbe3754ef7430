//! With a subreaper nothing gets away from its command, and nobody else's process is touched.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "test code")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use offshoot_shell::*;
use tokio::sync::{Mutex, MutexGuard};

/// A claim is of the whole process, and so are its children: one test at a time.
async fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::const_new(());
    ALONE.lock().await
}

fn config() -> ShellConfig {
    ShellConfig {
        stop_grace: Duration::from_millis(300),
        ..ShellConfig::default()
    }
}

/// What the system says of a process: its state and its parent.
fn stat(pid: &str) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn runs(pid: &str) -> bool {
    stat(pid).is_some_and(|(state, _)| state != 'Z')
}

fn is_ours(pid: &str) -> bool {
    stat(pid).is_some_and(|(_, parent)| parent == std::process::id())
}

/// Looks again until `done`, at most for a minute.
async fn until(mut done: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        if done() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

/// Waits until what starts now counts as younger than what has started, by the clock of the system's
/// list of processes.
async fn ticks_pass() {
    let now = || {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        uptime.split(' ').next().unwrap().parse::<f64>().unwrap()
    };
    let begun = now();
    assert!(until(|| now() > begun + 0.025).await);
}

/// Leaves its session, clears its environment, lowers the limit that is its mark, and loses its parent;
/// then it writes its number into the file `$1`.
const ESCAPE: &str = r#"
here=$PWD
setsid env -i PATH="$PATH" prlimit --rttime=1000000:1000000 sh -c 'sh "$0/escape.sh" "$0" $1 $$ &' "$here" "$1"
"#;
const ESCAPED: &str = r#"
while read -r _ _ _ parent _ </proc/$$/stat && [ $parent = $3 ]; do :; done
echo $$ >"$1/$2.new"; mv "$1/$2.new" "$1/$2"
exec sleep 600
"#;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("begin.sh"), ESCAPE).unwrap();
        std::fs::write(place.path().join("escape.sh"), ESCAPED).unwrap();
        Self(place)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn command(&self, line: &str) -> ShellCommand {
        ShellCommand::new(line).cwd(self.path())
    }

    fn run(&self, line: &str) -> ShellRun {
        ShellRun::spawn(&self.command(line), &config()).unwrap()
    }

    /// The number of the escaped process of this name.
    async fn escaped(&self, name: &str) -> String {
        let file = self.path().join(name);
        assert!(until(|| file.exists()).await);
        let pid = std::fs::read_to_string(file).unwrap().trim().to_owned();
        assert!(runs(&pid));
        pid
    }
}

const STAY: &str = "while :; do sleep 0.05; done";

#[tokio::test]
async fn what_has_escaped_from_everything_ends_with_a_stop_and_with_the_exit_of_its_command() {
    let _alone = alone().await;
    let _adopting = Subreaper::claim().unwrap();
    let place = Place::new();
    let mut run = place.run(&format!("sh begin.sh stopped; {STAY}"));
    let pid = place.escaped("stopped").await;
    assert!(is_ours(&pid));
    let outcome = run.stop().await;
    assert!(outcome.group_gone && !runs(&pid));

    let mut run = place.run("sh begin.sh left; until [ -e left ]; do sleep 0.01; done");
    assert_eq!(run.wait().await.to_string(), "exit code: 0");
    let left = std::fs::read_to_string(place.path().join("left")).unwrap();
    assert!(!runs(left.trim()));
}

#[tokio::test]
async fn an_orphan_that_can_be_from_two_commands_ends_with_the_last_of_them() {
    let _alone = alone().await;
    let _adopting = Subreaper::claim().unwrap();
    let place = Place::new();
    let mut first = place.run(&format!(
        "until [ -e go ]; do sleep 0.01; done; sh begin.sh a; {STAY}"
    ));
    let mut second = place.run(STAY);
    ticks_pass().await;
    std::fs::write(place.path().join("go"), "").unwrap();
    let pid = place.escaped("a").await;
    assert!(first.stop().await.group_gone);
    assert!(runs(&pid), "it can be from the second");
    assert!(second.stop().await.group_gone);
    assert!(!runs(&pid));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphans_of_commands_that_end_together_end_with_them() {
    let _alone = alone().await;
    let _adopting = Subreaper::claim().unwrap();
    for _ in 0..20 {
        let place = Place::new();
        let line = |name| format!("sh begin.sh {name}; {STAY}");
        let (mut a, mut b) = (place.run(&line("a")), place.run(&line("b")));
        let c = place.run(&line("c"));
        let mut pids = Vec::new();
        for name in ["a", "b", "c"] {
            pids.push(place.escaped(name).await);
        }
        // As the closing of an owner stops its tasks; one is given up meanwhile.
        let stop = tokio::spawn(async move { a.stop().await.group_gone });
        let other = tokio::spawn(async move { b.stop().await.group_gone });
        drop(c);
        assert!(stop.await.unwrap() && other.await.unwrap());
        assert!(until(|| !pids.iter().any(|pid| runs(pid))).await);
    }
}

#[tokio::test]
async fn an_orphan_that_is_older_than_another_command_ends_with_its_own() {
    let _alone = alone().await;
    let _adopting = Subreaper::claim().unwrap();
    let place = Place::new();
    let mut first = place.run(&format!("sh begin.sh a; {STAY}"));
    let pid = place.escaped("a").await;
    ticks_pass().await;
    let mut second = place.run(STAY);
    let mut third = place.run("true");
    third.wait().await;
    assert!(runs(&pid), "the third is none of its");
    assert!(first.stop().await.group_gone);
    assert!(!runs(&pid));
    second.stop().await;
}

#[tokio::test]
async fn a_command_that_may_let_processes_go_keeps_them() {
    let _alone = alone().await;
    let _adopting = Subreaper::claim().unwrap();
    let place = Place::new();
    let free = ShellConfig {
        reach: Reach::Group,
        ..config()
    };
    let mut other = place.run(STAY);
    ticks_pass().await;
    let command = place.command(&format!("sh begin.sh free; {STAY}"));
    let mut run = ShellRun::spawn(&command, &free).unwrap();
    let pid = place.escaped("free").await;
    run.stop().await;
    // It could be from this one, which is older.
    other.stop().await;
    assert!(runs(&pid));
    let killed = Command::new("kill").args(["-KILL", &pid]).status();
    assert!(killed.unwrap().success());
    assert!(until(|| stat(&pid).is_none()).await, "adopted, so reaped");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphans_are_reaped_and_no_command_loses_its_exit_code_to_that() {
    let _alone = alone().await;
    let _adopting = Subreaper::claim().unwrap();
    let place = Place::new();
    let line = "for i in 1 2 3; do setsid sh -c 'sh -c \"sleep 0.05\" &'; done; sleep 0.2; exit 7";
    let runs = (0..20).map(|_| {
        let mut run = place.run(line);
        tokio::spawn(async move { run.wait().await.to_string() })
    });
    for run in runs.collect::<Vec<_>>() {
        assert_eq!(run.await.unwrap(), "exit code: 7");
    }
    // Another exit, so that there is somebody to look for the last of them.
    place.run("true").wait().await;
    let zombies = || {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let names = all.filter_map(|entry| entry.file_name().into_string().ok());
        names
            .filter_map(|name| stat(&name))
            .any(|(state, parent)| state == 'Z' && parent == std::process::id())
    };
    assert!(until(|| !zombies()).await);
}

#[tokio::test]
async fn a_child_of_the_host_is_neither_killed_nor_reaped() {
    let _alone = alone().await;
    let _adopting = Subreaper::claim().unwrap();
    let place = Place::new();
    let mut own = Command::new("sh");
    own.args(["-c", "until [ -e go ]; do sleep 0.01; done; exit 5"]);
    let mut own = own.current_dir(place.path()).spawn().unwrap();
    place.run("sleep 0.05").wait().await;
    std::fs::write(place.path().join("go"), "").unwrap();
    let pid = own.id().to_string();
    assert!(until(|| !runs(&pid)).await);
    // It has ended and nobody has asked: commands come and go meanwhile.
    for _ in 0..5 {
        place.run("sleep 0.05").wait().await;
    }
    assert_eq!(own.wait().unwrap().code(), Some(5));
}

#[tokio::test]
async fn a_process_claims_once_and_again_when_it_was_given_up() {
    let _alone = alone().await;
    let adopting = Subreaper::claim().unwrap();
    let error = Subreaper::claim().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    drop(adopting);
    drop(Subreaper::claim().unwrap());
}
