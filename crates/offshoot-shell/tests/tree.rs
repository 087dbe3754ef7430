//! The whole tree of a command: what leaves the group, and what a killed host leaves behind.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "test code")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use offshoot_core::Scope;
use offshoot_shell::*;
use offshoot_task::*;

const LONG: Duration = Duration::from_secs(60);

fn config() -> ShellConfig {
    ShellConfig {
        stop_grace: Duration::from_millis(300),
        ..ShellConfig::default()
    }
}

/// Whether a process is there and is not a zombie.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap_or("")
            .trim_start()
            .starts_with('Z')
    })
}

/// Looks again until `done`, at most for a minute.
fn until(mut done: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < LONG {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// A folder for a command, with the script of its orphan.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("orphan.sh"), ORPHAN_SCRIPT).unwrap();
    folder
}

/// The numbers in the files of `folder` with these names, once they are all there.
fn pids(folder: &Path, names: &[&str]) -> Vec<String> {
    let read = |name: &&str| {
        let text = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        text.ends_with('\n').then(|| text.trim().to_owned())
    };
    let mut found = None;
    assert!(until(|| {
        found = names.iter().map(read).collect::<Option<Vec<_>>>();
        found.is_some()
    }));
    found.unwrap()
}

// Each writes the number of its process to a file, and would run for ten minutes.
const LEFT: &str = "setsid sh -c 'echo $$ > left; exec sleep 600' & ";
const DAEMON: &str = "setsid sh -c 'sh -c \"echo \\$\\$ > daemon; exec sleep 601\" &'; ";
const WIPED: &str = "setsid env -i PATH=\"$PATH\" sh -c 'echo $$ > wiped; exec sleep 602' & ";
const FREE: &str = "setsid sh -c 'echo $$ > free; exec sleep 605' & ";
// Nobody is left to say whose it is: it has no environment, and its parent is gone before it writes.
const ORPHAN: &str = "setsid env -i PATH=\"$PATH\" sh -c 'sh orphan.sh $$ &'; ";
const ORPHAN_SCRIPT: &str =
    "while read -r _ _ _ parent _ </proc/$$/stat && [ $parent = $1 ]; do :; done
echo $$ > orphan
exec sleep 604
";
const WAIT: &str = "echo $$ > shell; while :; do sleep 0.05; done";

#[tokio::test]
async fn a_stop_kills_what_has_left_the_group_also_daemons() {
    let folder = folder();
    let line = format!("{LEFT}{DAEMON}{WIPED}{ORPHAN}{WAIT}");
    let command = ShellCommand::new(line).cwd(folder.path());
    let mut run = ShellRun::spawn(&command, &config()).unwrap();
    let names = ["left", "daemon", "wiped", "orphan", "shell"];
    let pids = pids(folder.path(), &names);
    assert_eq!(pids.iter().filter(|pid| runs(pid)).count(), 5);
    let outcome = run.stop().await;
    assert!(outcome.stopped && outcome.group_gone);
    assert_eq!(pids.iter().filter(|pid| runs(pid)).count(), 0);
}

#[tokio::test]
async fn the_exit_of_the_shell_kills_what_has_left_the_group() {
    let folder = folder();
    let line = format!(
        "{LEFT}{DAEMON}{ORPHAN}until [ -s left ] && [ -s daemon ] && [ -s orphan ]; do sleep 0.01; done"
    );
    let command = ShellCommand::new(line).cwd(folder.path());
    let outcome = ShellRun::spawn(&command, &config()).unwrap().wait().await;
    assert_eq!(outcome.to_string(), "exit code: 0");
    for pid in pids(folder.path(), &["left", "daemon", "orphan"]) {
        assert!(!runs(&pid));
    }
}

/// The limit that is the mark is there before the command's first process, however busy the host is.
#[tokio::test]
async fn nothing_of_a_command_begins_before_it_is_marked() {
    let limit = "grep 'Max realtime timeout' /proc/self/limits";
    let command = ShellCommand::new(format!(
        "{limit}; read x; setsid env -i PATH=\"$PATH\" {limit}"
    ));
    let runs = (0..20).map(|_| ShellRun::spawn(&command, &config()).unwrap());
    let mut seen = std::collections::HashSet::new();
    for mut run in runs.collect::<Vec<_>>() {
        assert_eq!(run.wait().await.to_string(), "exit code: 0");
        let said = run.output().read_at(0).text;
        let (first, second) = said.trim_end().split_once('\n').unwrap();
        let (first, second) = (first.trim_end(), second.trim_end());
        assert_eq!(first, second);
        assert!(!first.contains("unlimited"), "{first}");
        assert!(seen.insert(first.to_owned()), "each command has its own");
    }
}

#[tokio::test]
async fn the_drop_of_a_run_kills_what_has_left_the_group() {
    let folder = tempfile::tempdir().unwrap();
    let command = ShellCommand::new(format!("{DAEMON}{WAIT}")).cwd(folder.path());
    let run = ShellRun::spawn(&command, &config()).unwrap();
    let pids = pids(folder.path(), &["daemon", "shell"]);
    drop(run);
    assert!(until(|| !pids.iter().any(|pid| runs(pid))));
}

#[tokio::test]
async fn a_command_that_reaches_its_group_only_leaves_the_others_alone() {
    let folder = tempfile::tempdir().unwrap();
    let command = ShellCommand::new(format!("{LEFT}{WAIT}")).cwd(folder.path());
    let config = ShellConfig {
        reach: Reach::Group,
        ..config()
    };
    let mut run = ShellRun::spawn(&command, &config).unwrap();
    let pids = pids(folder.path(), &["left", "shell"]);
    run.stop().await;
    assert!(runs(&pids[0]) && !runs(&pids[1]));
    let killed = Command::new("kill").args(["-KILL", &pids[0]]).status();
    assert!(killed.unwrap().success());
}

#[tokio::test]
async fn one_command_does_not_reach_another() {
    let folder = tempfile::tempdir().unwrap();
    let other = ShellCommand::new(format!("{DAEMON}{WAIT}")).cwd(folder.path());
    let mut other = ShellRun::spawn(&other, &config()).unwrap();
    let pids = pids(folder.path(), &["daemon", "shell"]);
    let mut run = ShellRun::spawn(&ShellCommand::new("true"), &config()).unwrap();
    run.wait().await;
    assert!(pids.iter().all(|pid| runs(pid)));
    other.stop().await;
}

#[tokio::test]
async fn a_command_of_a_command_of_ours_has_the_marks_of_both() {
    let inner = "OFFSHOOT_COMMAND=9.9.9; export OFFSHOOT_COMMAND; echo $OFFSHOOT_COMMAND";
    let mut run = ShellRun::spawn(&ShellCommand::new(inner), &config()).unwrap();
    run.wait().await;
    assert_eq!(run.output().read_at(0).text, "9.9.9\n");
    let mut run = ShellRun::spawn(&ShellCommand::new("echo $OFFSHOOT_COMMAND"), &config()).unwrap();
    run.wait().await;
    let own = std::process::id().to_string();
    assert!(run.output().read_at(0).text.starts_with(&own));
}

#[tokio::test]
async fn the_file_of_a_task_has_its_whole_output_and_goes_with_its_record() {
    let temp = tempfile::tempdir().unwrap();
    let registry = TaskRegistry::new(TaskConfig {
        retain_finished: 0,
        ..TaskConfig::default()
    });
    let owner = Scope::root("owner");
    let config = ShellConfig {
        output_window: 1000,
        spill: Some(SpillConfig::new(temp.path().join("spill"))),
        ..config()
    };
    let command = ShellCommand::new("seq 1 5000");
    let id = start_shell(&registry, &owner, &command, &ShellTask::default(), &config).unwrap();
    let waited = registry.wait(owner.id(), &id, LONG).await.unwrap();
    let reading = registry.read(owner.id(), &id).unwrap();
    let path = reading.overflow().unwrap().to_owned();
    let whole = std::fs::read_to_string(&path).unwrap();
    let expected: String = (1..=5000).map(|n| format!("{n}\n")).collect();
    assert_eq!(whole, expected);
    assert_eq!(
        reading.gap() + reading.text().len() as u64,
        whole.len() as u64
    );
    assert_eq!(waited.snapshot().overflow.as_deref(), Some(path.as_path()));
    drop(waited);
    reading.commit();
    assert!(registry.get(owner.id(), &id).is_err());
    assert!(!path.exists(), "it went with the record");
}

const HOST: &str = "OFFSHOOT_TEST_HOST";

/// Not a test of its own: the host that is killed. It runs commands in the folder that it is given.
#[tokio::test]
async fn a_host_of_commands() {
    let Some(folder) = std::env::var_os(HOST) else {
        return;
    };
    let folder = Path::new(&folder);
    let config = ShellConfig {
        guardian: Some(Guardian::default()),
        output_window: 10,
        spill: Some(SpillConfig::new(folder.join("spill"))),
        ..config()
    };
    let start = |line: String| {
        let command = ShellCommand::new(line).cwd(folder);
        ShellRun::spawn(&command, &config).unwrap()
    };
    // One that is over is not on the list any more, and its output is in a file.
    let mut over = start("seq 1 1000".to_owned());
    over.wait().await;
    assert!(over.output().overflow().is_some());
    let grouped = ShellConfig {
        reach: Reach::Group,
        ..config.clone()
    };
    let free = ShellCommand::new(format!(
        "{FREE}echo $$ > third; while :; do sleep 0.05; done"
    ))
    .cwd(folder);
    let _runs = [
        ShellRun::spawn(&free, &grouped).unwrap(),
        start(format!(
            "trap '' TERM HUP; {LEFT}{DAEMON}{WIPED}{ORPHAN}{WAIT}"
        )),
        start("echo $$ > second; sleep 603 & echo $! > child; wait".to_owned()),
    ];
    std::future::pending::<()>().await;
}

#[test]
fn a_host_that_is_killed_leaves_no_command_no_guardian_and_for_the_next_one_no_file() {
    let folder = folder();
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_host_of_commands"])
        .env(HOST, folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pids = pids(
        folder.path(),
        &[
            "left", "daemon", "wiped", "orphan", "shell", "second", "child", "third",
        ],
    );
    assert!(pids.iter().all(|pid| runs(pid)));
    let free = crate::pids(folder.path(), &["free"]).remove(0);
    let guardians = guardians(host.id());
    assert_eq!(guardians.len(), 1, "one for the whole host");
    let spill = SpillConfig::new(folder.path().join("spill"));
    assert_eq!(spill.remove_stale().unwrap(), 0, "the host lives");
    // SIGKILL.
    host.kill().unwrap();
    host.wait().unwrap();
    let left = || std::fs::read_dir(spill.folder()).unwrap().count();
    assert_eq!((left(), spill.remove_stale().unwrap(), left()), (1, 1, 0));
    assert!(until(|| !pids.iter().any(|pid| runs(pid))));
    assert!(until(|| !guardians.iter().any(|pid| runs(pid))));
    assert!(runs(&free), "it was let go, and is nobody's");
    assert!(
        Command::new("kill")
            .args(["-KILL", &free])
            .status()
            .unwrap()
            .success()
    );
}

/// The guardians among the children of a process.
fn guardians(parent: u32) -> Vec<String> {
    let children = format!("/proc/{parent}/task");
    let mut found = Vec::new();
    for thread in std::fs::read_dir(children).unwrap() {
        let children = std::fs::read_to_string(thread.unwrap().path().join("children"));
        for pid in children.unwrap_or_default().split_whitespace() {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if line.contains("offshoot-guardian") {
                found.push(pid.to_owned());
            }
        }
    }
    found
}

#[tokio::test]
async fn a_guardian_goes_with_its_last_handle_and_harms_nothing() {
    let config = ShellConfig {
        guardian: Some(Guardian::default()),
        ..config()
    };
    let mut run = ShellRun::spawn(&ShellCommand::new("sleep 0.2; echo done"), &config).unwrap();
    assert_eq!(run.wait().await.to_string(), "exit code: 0");
    assert_eq!(run.output().read_at(0).text, "done\n");
    drop((run, config));
}
