//! Commands as tasks, with real processes and real time.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::path::Path;
use std::time::{Duration, Instant};

use offshoot_core::Scope;
use offshoot_shell::*;
use offshoot_task::*;

const LONG: Duration = Duration::from_secs(30);

struct Host {
    registry: TaskRegistry,
    owner: Scope,
    config: ShellConfig,
}

impl Host {
    fn new() -> Self {
        let config = ShellConfig {
            stop_grace: Duration::from_millis(300),
            ..ShellConfig::default()
        };
        Self {
            registry: TaskRegistry::new(TaskConfig {
                max_live_per_owner: 1000,
                retain_finished: 1000,
                ..TaskConfig::default()
            }),
            owner: Scope::root("owner"),
            config,
        }
    }

    fn start(&self, line: &str) -> TaskId {
        self.start_command(&ShellCommand::new(line), &ShellTask::default())
    }

    fn start_command(&self, command: &ShellCommand, task: &ShellTask) -> TaskId {
        start_shell(&self.registry, &self.owner, command, task, &self.config).unwrap()
    }

    fn kill(&self, id: &TaskId) {
        let outcome = self
            .registry
            .kill(self.owner.id(), id, StoppedBy::Human, None);
        assert_eq!(outcome.unwrap(), KillOutcome::Requested);
    }

    /// The end of a task and everything it wrote.
    async fn end(&self, id: &TaskId) -> (TaskSnapshot, String) {
        let waited = self.registry.wait(self.owner.id(), id, LONG).await.unwrap();
        assert!(waited.settled(), "{waited:?}");
        let snapshot = waited.snapshot().clone();
        waited.commit();
        let output = self.registry.read_at(self.owner.id(), id, 0).unwrap();
        (snapshot, output.text)
    }

    /// Waits until the task has written `text`.
    async fn written(&self, id: &TaskId, text: &str) -> String {
        let look = async {
            loop {
                let slice = self.registry.read_at(self.owner.id(), id, 0).unwrap();
                if slice.text.contains(text) {
                    return slice.text;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LONG, look).await.unwrap()
    }
}

/// The status and the detail of an end.
fn how((snapshot, _): &(TaskSnapshot, String)) -> (TaskStatus, &str) {
    (snapshot.status, snapshot.detail.as_deref().unwrap_or(""))
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

fn pids(output: &str) -> Vec<String> {
    output
        .split_whitespace()
        .filter(|word| word.parse::<u32>().is_ok())
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn a_command_streams_its_output_and_ends_with_its_exit_code() {
    let host = Host::new();
    let end = host
        .end(&host.start("echo out; echo err >&2; exit 3"))
        .await;
    assert_eq!(how(&end), (TaskStatus::Completed, "exit code: 3"));
    assert_eq!(end.1, "out\nerr\n");
    let task = &end.0;
    assert_eq!(
        (task.id.to_string().as_str(), task.streams, task.output_len),
        ("bash-1", true, 8)
    );
    assert_eq!(&*task.label, "echo out; echo err >&2; exit 3");
}

#[tokio::test]
async fn output_that_was_not_read_stays_readable_once_after_the_exit() {
    let host = Host::new();
    let id = host.start("echo one; read x; echo two");
    host.end(&id).await;
    let reading = host.registry.read(host.owner.id(), &id).unwrap();
    assert_eq!((reading.text(), reading.gap()), ("one\ntwo\n", 0));
    reading.commit();
    assert_eq!(host.registry.read(host.owner.id(), &id).unwrap().text(), "");
}

#[tokio::test]
async fn b040_reads_between_interleaved_writes_see_every_token_once() {
    let host = Host::new();
    let dir = tempfile::tempdir().unwrap();
    // The command goes on when the test says so.
    let steps = "echo o1; until [ -e 1 ]; do sleep 0.01; done; echo e1 >&2; \
                 until [ -e 2 ]; do sleep 0.01; done; echo o2; until [ -e 3 ]; do sleep 0.01; done; echo e2 >&2";
    let id = host.start_command(
        &ShellCommand::new(steps).cwd(dir.path()),
        &ShellTask::default(),
    );
    let mut seen = String::new();
    for (step, token) in ["o1", "e1", "o2", "e2"].into_iter().enumerate() {
        host.written(&id, token).await;
        let reading = host.registry.read(host.owner.id(), &id).unwrap();
        assert_eq!(reading.gap(), 0);
        seen.push_str(reading.text());
        reading.commit();
        std::fs::write(dir.path().join((step + 1).to_string()), "").unwrap();
    }
    assert_eq!(seen, "o1\ne1\no2\ne2\n");
    host.end(&id).await;
}

/// The text of a command. Its pipe ends with it, though it may be read for much longer.
async fn text_of(line: &str) -> String {
    let config = ShellConfig {
        drain_limit: 10 * LONG,
        ..ShellConfig::default()
    };
    let mut run = ShellRun::spawn(&ShellCommand::new(line), &config).unwrap();
    let end = tokio::time::timeout(LONG, run.wait()).await.unwrap();
    assert_eq!(end.to_string(), "exit code: 0");
    run.output().read_at(0).text
}

#[tokio::test]
async fn what_goes_to_both_streams_keeps_its_order() {
    for _ in 0..50 {
        let text = text_of("for i in 1 2 3; do echo o$i; echo e$i >&2; done").await;
        assert_eq!(text, "o1\ne1\no2\ne2\no3\ne3\n");
        let text = text_of("set -x; echo one; (echo two >&2); echo three").await;
        assert_eq!(
            text,
            "+ echo one\none\n+ echo two\ntwo\n+ echo three\nthree\n"
        );
    }
}

#[tokio::test]
async fn many_short_lines_of_both_streams_keep_their_order() {
    let line = "i=0; while [ $i -lt 4000 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done";
    let expected: String = (0..4000).map(|i| format!("o{i}\ne{i}\n")).collect();
    assert_eq!(text_of(line).await, expected);
}

#[tokio::test]
async fn a_stream_that_is_closed_or_led_elsewhere_leaves_the_other() {
    let text = text_of("echo a; exec >&-; echo lost 2>/dev/null; echo b >&2").await;
    assert_eq!(text, "a\nb\n");
    let text = text_of("exec 2>/dev/null; echo a; echo lost >&2; echo b >/dev/stdout").await;
    assert_eq!(text, "a\nb\n");
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_command_has_the_pipe_of_another() {
    let lines = "readlink /proc/$$/fd/1; for fd in $(ls /proc/$$/fd); do readlink /proc/$$/fd/$fd; done; read x; true";
    let runs: Vec<_> = (0..24).map(|_| tokio::spawn(text_of(lines))).collect();
    let mut pipes: Vec<Vec<String>> = Vec::new();
    for run in runs {
        pipes.push(run.await.unwrap().lines().map(str::to_owned).collect());
    }
    for (n, of) in pipes.iter().enumerate() {
        assert!(of[0].starts_with("pipe:"), "{of:?}");
        let holders = pipes.iter().filter(|others| others.contains(&of[0]));
        assert_eq!(holders.count(), 1, "{n}: {pipes:?}");
    }
}

#[tokio::test]
async fn b049_a_killed_command_is_killed_and_not_failed() {
    let host = Host::new();
    let id = host.start("sleep 600");
    host.kill(&id);
    let end = host.end(&id).await;
    assert_eq!(how(&end), (TaskStatus::Killed, "signal: SIGTERM"));
}

#[tokio::test]
async fn b050_a_command_that_exits_with_zero_when_killed_is_killed() {
    let host = Host::new();
    let id = host.start("trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done");
    host.written(&id, "ready").await;
    host.kill(&id);
    let end = host.end(&id).await;
    assert_eq!(how(&end), (TaskStatus::Killed, "exit code: 0"));
}

#[tokio::test]
async fn b052_a_command_that_ignores_the_polite_signal_is_killed_after_the_grace() {
    let host = Host::new();
    let id = host.start("trap '' TERM; echo $$; sleep 600");
    let pid = pids(&host.written(&id, "\n").await).remove(0);
    let begun = Instant::now();
    host.kill(&id);
    let end = host.end(&id).await;
    assert!(begun.elapsed() >= host.config.stop_grace);
    assert!(begun.elapsed() < host.config.stop_grace + Duration::from_secs(5));
    assert_eq!(how(&end), (TaskStatus::Killed, "signal: SIGKILL"));
    assert!(!runs(&pid));
}

#[tokio::test]
async fn b053_no_descendant_of_a_killed_command_is_left() {
    let host = Host::new();
    let id = host.start("sleep 600 & echo $!; sleep 601 & echo $!; echo $$; echo ready; wait");
    let output = host.written(&id, "ready").await;
    host.kill(&id);
    let end = host.end(&id).await;
    assert_eq!(end.0.status, TaskStatus::Killed);
    let pids = pids(&output);
    assert_eq!(pids.len(), 3);
    assert_eq!(pids.iter().filter(|pid| runs(pid)).count(), 0);
}

#[tokio::test]
async fn what_a_command_leaves_in_its_group_is_killed_when_its_shell_exits() {
    let host = Host::new();
    let end = host
        .end(&host.start("sleep 600 & echo $!; (trap '' TERM HUP; sleep 601) & echo $!"))
        .await;
    assert_eq!(how(&end), (TaskStatus::Completed, "exit code: 0"));
    let pids = pids(&end.1);
    assert_eq!(
        (pids.len(), pids.iter().filter(|pid| runs(pid)).count()),
        (2, 0)
    );
}

#[tokio::test]
async fn a_program_that_left_the_group_and_holds_the_pipes_does_not_hold_the_task() {
    let host = Host::new();
    let id = host.start("setsid sleep 30 & echo $!; exit 0");
    let begun = Instant::now();
    let end = host.end(&id).await;
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(how(&end), (TaskStatus::Completed, "exit code: 0"));
}

#[tokio::test]
async fn a_command_that_dies_of_a_signal_by_itself_failed_and_names_it() {
    let host = Host::new();
    let end = host.end(&host.start("kill -SEGV $$")).await;
    assert_eq!(how(&end), (TaskStatus::Failed, "signal: SIGSEGV"));
}

#[tokio::test]
async fn a_command_past_its_deadline_failed_and_is_gone() {
    let host = Host::new();
    let task = ShellTask {
        deadline: Some(Duration::from_millis(50)),
        label: Some("too slow".to_owned()),
        generation: 7,
    };
    let id = host.start_command(&ShellCommand::new("sleep 600"), &task);
    let end = host.end(&id).await;
    assert_eq!(
        how(&end),
        (TaskStatus::Failed, "deadline exceeded (signal: SIGTERM)")
    );
    assert_eq!(
        (&*end.0.label, end.0.generation, end.0.reported),
        ("too slow", 7, true)
    );
}

#[tokio::test]
async fn b076_a_command_that_cannot_be_started_is_a_failed_task_that_says_why() {
    let mut host = Host::new();
    let nowhere = ShellCommand::new("true").cwd("/nonexistent/directory");
    let end = host
        .end(&host.start_command(&nowhere, &ShellTask::default()))
        .await;
    assert_eq!(end.0.status, TaskStatus::Failed);
    assert_eq!(
        how(&end).1,
        "cannot run in /nonexistent/directory: No such file or directory (os error 2)"
    );
    let file = ShellCommand::new("true").cwd("/etc/passwd");
    assert!(matches!(
        ShellRun::spawn(&file, &host.config),
        Err(SpawnError::Directory { .. })
    ));
    host.config.shell = "/nonexistent/sh".into();
    let end = host.end(&host.start("true")).await;
    assert!(
        how(&end).1.starts_with("cannot start /nonexistent/sh: "),
        "{end:?}"
    );
    for (line, code) in [(" ", "EMPTY_COMMAND"), ("a\0b", "NUL_IN_COMMAND")] {
        let error = ShellRun::spawn(&ShellCommand::new(line), &host.config).unwrap_err();
        assert_eq!(error.code(), code);
    }
}

/// Of a page and more: the bound of one argument depends on the size of a page.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_command_beyond_the_systems_limit_says_what_that_is_and_what_to_do() {
    let host = Host::new();
    let limit = 32 * rustix::param::page_size() - 1;
    let line = |bytes: usize| {
        let start = "echo fits; : ";
        format!("{start}{}", "x".repeat(bytes - start.len()))
    };
    let end = host.end(&host.start(&line(limit))).await;
    assert_eq!(end.1, "fits\n");

    let long = line(limit + 1);
    let said = format!(
        "the command has {} bytes, and the system takes at most {limit}: write it to a file in several commands, and run that",
        limit + 1
    );
    let error = ShellRun::spawn(&ShellCommand::new(&long), &host.config).unwrap_err();
    assert_eq!(
        (error.code(), error.to_string()),
        ("COMMAND_TOO_LONG", said.clone())
    );
    let end = host.end(&host.start(&long)).await;
    assert_eq!((end.0.status, how(&end).1), (TaskStatus::Failed, &*said));

    // Each variable is short enough, and all together are more than any stack has room for.
    let many = (0..100).fold(ShellCommand::new("true"), |command, i| {
        command.env(format!("VARIABLE_{i}"), "x".repeat(100_000))
    });
    let error = ShellRun::spawn(&many, &host.config).unwrap_err();
    assert_eq!(error.code(), "ARGUMENTS_TOO_LONG");
    let said = error.to_string();
    assert!(
        said.starts_with("cannot start /bin/sh: its arguments and variables have 100")
            && said.ends_with(" bytes together, more than the system takes"),
        "{said}"
    );
}

#[tokio::test]
async fn b067_b070_bytes_that_are_not_text_and_nul_bytes_lose_nothing_around_them() {
    let host = Host::new();
    let end = host
        .end(&host.start(r"printf 'foo\377\376bar a\000b\n'"))
        .await;
    assert_eq!(end.1, "foo\u{fffd}\u{fffd}bar a\0b\n");
    assert_eq!(end.0.replaced, 2);
}

#[tokio::test]
async fn b061_output_beyond_the_window_is_counted_exactly() {
    let host = Host::new();
    let id = host.start("head -c 300001 /dev/zero | tr '\\0' x");
    host.end(&id).await;
    let reading = host.registry.read(host.owner.id(), &id).unwrap();
    assert_eq!(
        (reading.text().len(), reading.gap()),
        (262_144, 300_001 - 262_144)
    );
}

#[tokio::test]
async fn a_command_gets_no_standard_input_and_only_the_variables_of_the_policy() {
    let mut host = Host::new();
    // Cargo sets this one for the test itself.
    let line = r#"cat; echo "[$PATH][$GIVEN][$CARGO_PKG_NAME]""#;
    let command = ShellCommand::new(line).env("GIVEN", "yes");
    let mut end = host
        .end(&host.start_command(&command, &ShellTask::default()))
        .await;
    assert!(
        end.1.ends_with("][yes][offshoot-shell]\n") && !end.1.starts_with("[]"),
        "{end:?}"
    );
    host.config.env = EnvPolicy::default().deny("CARGO_PKG_*");
    end = host
        .end(&host.start_command(&command, &ShellTask::default()))
        .await;
    assert!(end.1.ends_with("][yes][]\n"), "{end:?}");
}

#[tokio::test]
async fn a_command_runs_in_its_directory() {
    let host = Host::new();
    let dir = tempfile::tempdir().unwrap();
    let command = ShellCommand::new("pwd -P").cwd(dir.path());
    let end = host
        .end(&host.start_command(&command, &ShellTask::default()))
        .await;
    let real = std::fs::canonicalize(dir.path()).unwrap();
    assert_eq!(Path::new(end.1.trim_end()), real);
}

#[tokio::test]
async fn a_running_command_becomes_a_task_and_keeps_its_output() {
    let host = Host::new();
    let command = ShellCommand::new("echo before; sleep 600");
    let mut run = ShellRun::spawn(&command, &host.config).unwrap();
    let output = run.output();
    tokio::select! {
        _ = run.wait() => panic!("it goes on"),
        () = output.grown_past(6) => {}
    }
    let spec = ShellTask::default().spec(&command).stream(run.output());
    let id = host
        .registry
        .start(&host.owner, spec, |context| Ok(run.into_task(context)))
        .unwrap();
    assert_eq!(
        host.registry.read(host.owner.id(), &id).unwrap().text(),
        "before\n"
    );
    host.kill(&id);
    assert_eq!(
        how(&host.end(&id).await),
        (TaskStatus::Killed, "signal: SIGTERM")
    );
}

#[tokio::test]
async fn a_dropped_wait_loses_nothing_and_the_outcome_stays() {
    let host = Host::new();
    let mut run = ShellRun::spawn(&ShellCommand::new("echo a; echo b"), &host.config).unwrap();
    for _ in 0..3 {
        let _ = tokio::time::timeout(Duration::from_micros(1), run.wait()).await;
    }
    let outcome = run.wait().await;
    assert_eq!(outcome.end, ProgramEnd::Exited(0));
    assert_eq!(run.output().read_at(0).text, "a\nb\n");
    assert_eq!(run.wait().await, outcome);
    // It has ended: a stop changes nothing.
    assert_eq!(run.stop().await, outcome);
}

#[tokio::test]
async fn the_drop_of_a_run_kills_the_whole_group() {
    let host = Host::new();
    let line = "trap '' TERM; sleep 600 & echo $!; echo $$; echo ready; wait";
    let mut run = ShellRun::spawn(&ShellCommand::new(line), &host.config).unwrap();
    let output = run.output();
    let ready = async {
        while !output.read_at(0).text.contains("ready") {
            output.grown_past(output.written()).await;
        }
    };
    tokio::select! {
        _ = run.wait() => panic!("it goes on"),
        () = ready => {}
    }
    let pids = pids(&output.read_at(0).text);
    drop(run);
    let gone = async {
        while pids.iter().any(|pid| runs(pid)) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LONG, gone).await.unwrap();
}

#[tokio::test]
async fn closing_the_owner_stops_its_commands_before_it_ends() {
    let host = Host::new();
    let id = host.start("sleep 600 & echo $!; echo $$; echo ready; wait");
    let output = host.written(&id, "ready").await;
    assert!(host.owner.close().await.is_clean());
    assert_eq!(pids(&output).iter().filter(|pid| runs(pid)).count(), 0);
}

#[tokio::test]
async fn a_flood_of_output_can_be_stopped_and_stays_bounded() {
    let host = Host::new();
    let id = host.start("yes 'bad input!'");
    host.written(&id, "bad input!").await;
    host.kill(&id);
    let end = host.end(&id).await;
    assert_eq!(end.0.status, TaskStatus::Killed);
    assert!(end.1.len() <= 256 * 1024);
}

#[tokio::test]
async fn a_variable_of_any_name_reaches_the_command() {
    let command = ShellCommand::new("echo \"[$go]\"; env | grep '^go='").env("go", "value");
    let mut run = ShellRun::spawn(&command, &ShellConfig::default()).unwrap();
    run.wait().await;
    assert_eq!(run.output().read_at(0).text, "[value]\ngo=value\n");
}
