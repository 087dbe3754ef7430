//! Programs as subagents, with real processes.
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::path::Path;
use std::time::Duration;

use offshoot_process::ProcessSettings;
use offshoot_subagent::Outcome;
use support::{SOON, World};
use tokio_util::sync::CancellationToken;

fn settings(command: &str, args: &[&str]) -> ProcessSettings {
    let mut settings = ProcessSettings::new("program", command);
    settings.args = args.iter().map(|arg| (*arg).to_owned()).collect();
    settings
}

fn shell(line: &str) -> ProcessSettings {
    settings("/bin/sh", &["-c", line])
}

/// Waits for a process to write its number there.
async fn number_in(file: &Path) -> i32 {
    let read = async {
        loop {
            if let Ok(text) = std::fs::read_to_string(file)
                && let Ok(number) = text.trim().parse()
            {
                return number;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, read).await.expect("a number")
}

fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.trim_start().as_bytes()[0]);
    state.is_some_and(|state| state != b'Z' && state != b'X')
}

#[tokio::test]
async fn a_prompt_on_standard_input_comes_back_from_cat_and_nothing_is_added() {
    let result = World::of(settings("cat", &[]))
        .run("--not an option\nzwei Zeilen ü")
        .await;
    assert_eq!(result.outcome, Outcome::Completed);
    assert_eq!(result.text, "--not an option\nzwei Zeilen ü");
    assert_eq!(result.diagnostic, None);
}

#[tokio::test]
async fn a_prompt_as_an_argument_is_one_argument_and_standard_input_is_empty() {
    let program = settings(
        "/bin/sh",
        &["-c", "printf '%s|%s|' \"$1\" $#; cat", "sh", "<{prompt}>"],
    );
    let result = World::of(program).run("two words; $(false) 'q'").await;
    assert_eq!(result.text, "<two words; $(false) 'q'>|1|");
}

#[tokio::test]
async fn a_large_prompt_and_a_large_answer_do_not_wait_for_each_other() {
    let prompt = "x".repeat(3 << 20);
    let mut program = settings("cat", &[]);
    program.max_answer = 4 << 20;
    let result = World::of(program).run(&prompt).await;
    assert_eq!(result.text.len(), prompt.len());
}

#[tokio::test]
async fn a_program_need_not_read_its_prompt() {
    let result = World::of(shell("exec <&-; echo done"))
        .run(&"x".repeat(1 << 20))
        .await;
    assert_eq!(
        (result.outcome, result.text.as_str()),
        (Outcome::Completed, "done")
    );
}

#[tokio::test]
async fn false_is_a_failure_that_names_its_code() {
    let result = World::of(settings("false", &[])).run("go").await;
    assert_eq!(result.outcome, Outcome::Error);
    assert_eq!(result.diagnostic.as_deref(), Some("exit code: 1"));
}

#[tokio::test]
async fn a_failure_keeps_what_was_said_and_the_end_of_the_standard_error_without_secrets() {
    let mut program =
        shell("echo half; yes noise | head -c 96000 >&2; echo >&2 bad key $API_KEY; exit 7");
    program.env = vec![("API_KEY".into(), "k-5ecret".into())];
    let result = World::of(program).run("go").await;
    assert_eq!(
        (result.outcome, result.text.as_str()),
        (Outcome::Error, "half")
    );
    let diagnostic = result.diagnostic.unwrap();
    assert!(
        diagnostic.starts_with("exit code: 7; stderr: "),
        "{diagnostic}"
    );
    assert!(
        diagnostic.ends_with("noise bad key [API_KEY]"),
        "{diagnostic}"
    );
    assert!(diagnostic.len() < 1200 && !diagnostic.contains('\n'));
}

#[tokio::test]
async fn exit_codes_mean_what_the_settings_say_and_a_signal_is_an_error() {
    for (line, outcome) in [
        ("exit 0", Outcome::Completed),
        ("exit 3", Outcome::Refusal),
        ("exit 4", Outcome::MaxTokens),
        ("exit 5", Outcome::Error),
        ("kill -SEGV $$", Outcome::Error),
    ] {
        let mut program = shell(line);
        program.exit_codes.insert(3, Outcome::Refusal);
        program.exit_codes.insert(4, Outcome::MaxTokens);
        let result = World::of(program).run("go").await;
        assert_eq!(result.outcome, outcome, "{line}");
        assert_eq!(result.diagnostic.is_none(), outcome == Outcome::Completed);
    }
}

#[tokio::test]
async fn an_answer_in_json_lines_is_found_and_a_missing_one_is_an_error() {
    let json =
        r#"echo warming up; echo '{"item":{"text":"one"}}'; echo '{"item":{"text":"two"},"n":5}'"#;
    let mut program = shell(json);
    program.answer = "item.text".parse().ok();
    program.output_tokens = "n".parse().ok();
    let result = World::of(program).run("go").await;
    assert_eq!(
        (result.outcome, result.text.as_str()),
        (Outcome::Completed, "two")
    );
    assert_eq!((result.usage.output, result.usage.total_output), (5, 5));
    let mut program = shell("echo nothing here");
    program.answer = "item.text".parse().ok();
    let result = World::of(program).run("go").await;
    assert_eq!(result.outcome, Outcome::Error);
    assert!(
        result
            .diagnostic
            .unwrap()
            .starts_with("none of the 1 lines")
    );
}

#[tokio::test]
async fn s125_a_program_that_is_missing_cannot_be_started_and_the_error_names_it() {
    let world = World::of(settings("no-such-program-anywhere", &[]));
    let error = world
        .start("go", &CancellationToken::new())
        .await
        .unwrap_err();
    let text = error.to_string();
    assert_eq!(error.code(), "PROVIDER_FAILED");
    assert!(
        text.contains("cannot start no-such-program-anywhere"),
        "{text}"
    );
    assert_eq!(world.parent.scope().holds(), 0);
}

#[tokio::test]
async fn a_prompt_that_no_argument_can_be_is_named_as_the_reason() {
    let long = "x".repeat(3_000_000);
    let cases = [
        (
            long.as_str(),
            "the prompt of 3000000 bytes is an argument here",
        ),
        ("a\0b", "it is in the prompt, which is an argument here"),
    ];
    for (prompt, expected) in cases {
        let program = settings("echo", &["--", "{prompt}"]);
        let error = World::of(program)
            .start(prompt, &CancellationToken::new())
            .await
            .unwrap_err();
        let text = error.to_string();
        assert!(text.contains(expected), "{text}");
        // On standard input there is no such bound.
        let result = World::of(settings("cat", &[])).run(prompt).await;
        assert_eq!(result.text, prompt);
    }
}

#[tokio::test]
async fn s031_s032_a_folder_that_is_none_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    for bad in [file.as_path(), Path::new("/no/such/folder")] {
        let mut program = settings("touch", &[]);
        program.cwd = Some(bad.to_owned());
        let error = World::of(program)
            .start("go", &CancellationToken::new())
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains(&bad.display().to_string()),
            "{error}"
        );
    }
    let mut program = shell("pwd -P");
    program.cwd = Some(folder.path().to_owned());
    let result = World::of(program).run("go").await;
    assert_eq!(
        Path::new(&result.text),
        folder.path().canonicalize().unwrap()
    );
}

#[tokio::test]
async fn s123_the_environment_is_the_allowed_part_and_what_the_settings_add() {
    let mut program = settings("env", &[]);
    program.env = vec![("MY_TOKEN".into(), "given".into())];
    program.run.env = program.run.env.deny("HOME");
    let result = World::of(program).run("go").await;
    let names: Vec<&str> = result
        .text
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0))
        .collect();
    assert!(
        names.contains(&"MY_TOKEN") && names.contains(&"PATH"),
        "{names:?}"
    );
    // The test runner sets variables that no program needs.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    assert!(!names.contains(&"HOME") && !names.iter().any(|name| name.starts_with("NEXTEST")));
}

#[tokio::test]
async fn yes_takes_bounded_memory_and_ends_at_its_deadline_with_the_end_of_its_output() {
    let mut program = settings("yes", &[]);
    program.deadline = Some(Duration::from_millis(500));
    program.max_answer = 1000;
    let result = World::of(program).run("go").await;
    assert_eq!(result.outcome, Outcome::Error);
    let diagnostic = result.diagnostic.unwrap();
    assert!(
        diagnostic.starts_with("deadline exceeded (0.5 s); signal: SIG"),
        "{diagnostic}"
    );
    assert!(
        result.text.len() < 1100 && result.text.ends_with(" were not kept]"),
        "{}",
        result.text.len()
    );
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_on_the_clock_of_the_runtime() {
    let begun = tokio::time::Instant::now();
    let mut program = settings("sleep", &["1000000"]);
    program.deadline = Some(Duration::from_secs(3600));
    let world = World::of(program);
    // Not within the bound of the other tests: the clock jumps.
    let run = world
        .subagents
        .run(world.request("go"), CancellationToken::new());
    let result = run.await.unwrap();
    assert_eq!(result.outcome, Outcome::Error);
    assert!(
        result
            .diagnostic
            .unwrap()
            .starts_with("deadline exceeded (3600 s)")
    );
    assert!(begun.elapsed() >= Duration::from_secs(3600));
}

#[tokio::test]
async fn s129_a_cancel_ends_the_whole_tree_and_the_run_is_aborted_with_its_partial_answer() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    // One that left the group, and one that is deaf to the polite signal.
    let line = format!(
        "trap '' TERM; echo half; setsid sh -c 'echo $$ >{0}.new; mv {0}.new {0}; exec sleep 1000000' & sleep 1000000",
        file.display()
    );
    let mut program = shell(&line);
    program.run.stop_grace = Duration::from_millis(100);
    let world = World::of(program);
    let cancel = CancellationToken::new();
    let (result, pid) = tokio::join!(world.start("go", &cancel), async {
        let pid = number_in(&file).await;
        cancel.cancel();
        pid
    });
    let result = result.unwrap();
    assert_eq!(
        (result.outcome, result.text.as_str()),
        (Outcome::Aborted, "half")
    );
    assert!(!is_alive(pid));
    assert_eq!(world.parent.scope().holds(), 0);
}

#[tokio::test]
async fn s129_what_was_cancelled_before_it_began_starts_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("made");
    let cancel = CancellationToken::new();
    cancel.cancel();
    let world = World::of(settings("touch", &[file.to_str().unwrap()]));
    let error = world.start("go", &cancel).await.unwrap_err();
    assert_eq!(error.code(), "CANCELLED");
    assert!(!file.exists());
}

#[tokio::test]
async fn the_parents_end_ends_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let line = format!(
        "echo $$ >{0}.new; mv {0}.new {0}; exec sleep 1000000",
        file.display()
    );
    let world = World::of(shell(&line));
    let cancel = CancellationToken::new();
    let (result, pid) = tokio::join!(world.start("go", &cancel), async {
        let pid = number_in(&file).await;
        world.parent.close(offshoot_agent::Pending::Discard).await;
        assert!(
            !is_alive(pid),
            "the parent is closed when the program is gone"
        );
        pid
    });
    assert_eq!(result.unwrap().outcome, Outcome::Aborted);
    assert!(!is_alive(pid));
}

#[tokio::test]
async fn what_a_program_leaves_running_goes_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let line = format!(
        "setsid sleep 1000000 >&2 & echo $! >{}; echo done",
        file.display()
    );
    let result = World::of(shell(&line)).run("go").await;
    assert_eq!(
        (result.outcome, result.text.as_str()),
        (Outcome::Completed, "done")
    );
    assert!(!is_alive(number_in(&file).await));
}

#[tokio::test]
async fn s138_a_continuable_child_a_persona_and_a_filter_are_refused() {
    let world = World::of(settings("cat", &[]));
    let error = world
        .subagents
        .start(world.request("go"))
        .await
        .unwrap_err();
    assert_eq!(error.code(), "UNSUPPORTED_CAPABILITY");
    let mut request = world.request("go");
    request.persona = Some("a poet".into());
    let error = world
        .subagents
        .run(request, CancellationToken::new())
        .await
        .unwrap_err();
    assert_eq!(error.code(), "UNSUPPORTED_CAPABILITY");
}

#[tokio::test]
async fn a_program_is_told_how_deep_it_is() {
    for (depth, said) in [(0, "1"), (2, "3")] {
        let mut program = shell("echo $OFFSHOOT_DEPTH");
        program.depth = depth;
        assert_eq!(World::of(program).run("go").await.text, said);
    }
}
