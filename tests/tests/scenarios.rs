//! The scenario corpus, run through the built program: each script's event stream is a snapshot.

use offshoot_tests::{Scripted, normalised, scenario};
use serde_json::Value;

/// Runs a scenario in an empty folder and compares its stream with the committed one.
fn check(name: &str) -> Scripted {
    let folder = tempfile::tempdir().expect("a folder");
    let run = Scripted::run(&scenario(name), folder.path(), &[]);
    compare(name, &normalised(&run));
    run
}

fn compare(name: &str, stream: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../scenarios/expected");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, stream));
}

macro_rules! scenarios {
    ($($test:ident = $name:literal;)*) => {
        $(
            #[test]
            fn $test() {
                check($name);
            }
        )*
    };
}

scenarios! {
    background_shell_collected = "background-shell-collected";
    background_shell_notice = "background-shell-notice";
    bad_arguments = "bad-arguments";
    cancel = "cancel";
    cancel_keeps_the_inbox = "cancel-keeps-the-inbox";
    depth_limit = "depth-limit";
    exhausted = "exhausted";
    followup = "followup";
    followup_resumes_a_child = "followup-resumes-a-child";
    foreground = "foreground";
    foreground_failed = "foreground-failed";
    grandchildren_settle_first = "grandchildren-settle-first";
    interrupt = "interrupt";
    kill = "kill";
    killed_by_a_person = "killed-by-a-person";
    one_shot_background = "one-shot-background";
    one_shot_stops_its_tasks = "one-shot-stops-its-tasks";
    refusal = "refusal";
    settlement_wakes_idle_parent = "settlement-wakes-idle-parent";
    steer = "steer";
    waiting_child = "waiting-child";
    parked_behind_an_interrupt = "parked-behind-an-interrupt";
}

/// A child that is resident only for a message that an interrupt has parked stays so, and does not keep
/// the run: it ends long before its timeout.
#[test]
fn parked_messages_do_not_keep_a_run_from_rest() {
    let run = check("parked-at-rest");
    let told = run.of_type("subagent/settled").map(|line| &line["event"]);
    let outcomes: Vec<_> = told.map(|event| event["outcome"].clone()).collect();
    assert_eq!(outcomes, ["aborted"], "it settles when the run closes it");
    assert_eq!((run.exit, run.outcome()), (Some(0), "completed"));
    let result = run.result.as_ref().expect("a result");
    assert_eq!(result["stopped"].as_array().map(Vec::len), Some(0));
}

#[test]
fn settlement() {
    let run = check("settlement");
    let calls: Vec<_> = run
        .of_type("tool/call")
        .map(|line| &line["event"])
        .collect();
    assert_eq!(calls.len(), 1, "the only tool call is the delegation");
    assert_eq!(calls[0]["name"], "subagent");
    assert!(calls[0]["args"].get("run_in_background").is_none());
    let notices: Vec<_> = run.entered("root", "settled").collect();
    assert_eq!(notices.len(), 1, "exactly one notice");
    let said = notices[0]["message"]["content"][0]["text"]
        .as_str()
        .expect("a text");
    assert!(said.contains("CHILD_RESULT 42 KiB"), "{said}");
    assert!(run.text().contains("CHILD_RESULT 42 KiB"), "{}", run.text());
    assert_eq!(
        run.of_label("sizes")
            .filter(|line| line["event"]["type"] == "tool/call")
            .count(),
        0
    );
}

#[test]
fn a_hidden_tool_is_neither_shown_nor_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = Scripted::run(&scenario("tool-filter"), folder.path(), &[]);
    compare("tool-filter", &normalised(&run));
    assert!(
        !folder.path().join("made").exists(),
        "the command did not run"
    );
    let hidden = run.of_label("filtered").map(|line| &line["event"]);
    let hidden = hidden
        .into_iter()
        .find(|event| event["type"] == "tool/result")
        .expect("a result");
    assert_eq!(hidden["code"], "UNKNOWN_TOOL");
}

#[test]
fn a_refused_task_leaves_nothing_and_a_freed_place_is_taken_with_the_next_id() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = Scripted::run(&scenario("task-limit"), folder.path(), &[]);
    compare("task-limit", &normalised(&run));
    assert!(
        !folder.path().join("made").exists(),
        "the refused command did not run"
    );
    let ids: Vec<_> = run
        .of_type("task/started")
        .map(|line| &line["event"]["task_id"])
        .collect();
    assert_eq!(ids, ["bash-1", "bash-2"]);
}

#[test]
fn child_message_first() {
    let run = check("child-message-first");
    let entered: Vec<_> = run
        .of_label("root")
        .map(|line| &line["event"])
        .filter(|event| event["type"] == "message/user")
        .map(|event| {
            event["message"]["source"]["kind"]
                .as_str()
                .unwrap_or_default()
        })
        .collect();
    assert_eq!(entered, ["user", "agent", "settled"]);
}

#[test]
fn a_child_that_is_disposed_while_it_waits_did_not_finish() {
    let run = check("disposed-while-waiting");
    let settled = run
        .of_type("subagent/settled")
        .next()
        .expect("a settlement");
    assert_eq!(settled["event"]["outcome"], "aborted");
    assert!(
        run.text()
            .contains("Stopped with it: task bash-1 (slow work)"),
        "{}",
        run.text()
    );
}

#[test]
fn a_person_who_interrupts_a_waiting_child_is_on_the_record_and_does_not_wake_it() {
    let run = check("interrupted-by-a-person-while-waiting");
    let stopping = run.of_type("task/stopping").next().expect("a stop");
    assert_eq!(stopping["event"]["by"], "human");
    let settled = run.of_type("task/settled").next().expect("an end");
    assert_eq!(settled["event"]["reported"], false);
    assert_eq!(
        run.entered("waits", "task").count(),
        0,
        "it does not run again"
    );
    let settled = run
        .of_type("subagent/settled")
        .next()
        .expect("a settlement");
    assert_eq!(settled["event"]["outcome"], "aborted");
}

#[test]
fn work_of_an_ending_run_is_killed_and_nobody_is_left_to_tell() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = scenario("one-shot-ends-before-its-own");
    let run = Scripted::run(&script, folder.path(), &[]);
    assert_eq!(run.exit, Some(0), "{}", run.stderr);
    let settled = run.of_type("task/settled").next().expect("an end");
    assert_eq!(settled["event"]["status"], "killed");
    assert_eq!(settled["event"]["reported"], true);
    assert_eq!(run.of_type("inbox/discarded").count(), 0);
}

/// Every agent starts as many as it can: it ends, within the limits, and each refusal is told to who asked.
#[test]
fn a_fork_bomb_ends_with_every_refusal_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = Scripted::run(&scenario("fork-bomb"), folder.path(), &[]);
    assert_eq!(run.exit, Some(0), "{}", run.stderr);
    assert_eq!(run.outcome(), "completed");
    let (mut live, mut most, mut deepest) = (0_u32, 0, 0);
    for line in &run.events {
        deepest = deepest.max(line["depth"].as_u64().expect("a depth"));
        match line["event"]["type"].as_str() {
            Some("subagent/started") => live += 1,
            Some("subagent/settled") => live -= 1,
            _ => {}
        }
        most = most.max(live);
    }
    assert_eq!(
        (live, deepest),
        (0, 3),
        "depth is that of the real ancestry, of forks too"
    );
    assert!(most <= 20, "{most} live children");
    let result = run.result.as_ref().expect("a result");
    let took = result["wall_ms"].as_u64().expect("a time");
    assert!(took < 30_000, "{took} ms");
    let sessions = result["sessions"].as_u64().expect("a number");
    // A tree of three children each.
    assert!(sessions <= 1 + 3 + 9 + 27, "{sessions}");
    let of_a_start = |line: &&Value| line["event"]["name"] != "bash";
    let asked = run.of_type("tool/call").filter(of_a_start).count();
    assert_eq!(asked as u64, 3 * sessions, "each asks for three");
    let mut refused = std::collections::BTreeMap::<&str, usize>::new();
    let mut started = 0;
    for line in run.of_type("tool/result") {
        let result = &line["event"];
        if result["text"]
            .as_str()
            .is_some_and(|text| text.contains("exit code"))
        {
            continue;
        }
        match result["code"].as_str() {
            None => started += 1,
            Some(code) => {
                assert_eq!(result["is_error"], true);
                let text = result["text"].as_str().expect("a text");
                let limit = if code == "DEPTH_LIMIT" {
                    "limit: 3"
                } else {
                    "limit: 20"
                };
                assert!(text.contains(limit), "{text}");
                *refused.entry(code).or_default() += 1;
            }
        }
    }
    assert_eq!(
        started + refused.values().sum::<usize>(),
        asked,
        "each call was answered"
    );
    assert_eq!(
        started as u64,
        sessions - 1,
        "and what was refused left nothing"
    );
    let codes: Vec<_> = refused.keys().copied().collect();
    assert_eq!(codes, ["CAPACITY_EXCEEDED", "DEPTH_LIMIT"], "{refused:?}");
    let told = run.of_type("inbox/inserted");
    let told = told.filter(|line| line["event"]["message"]["source"]["kind"] == "settled");
    assert_eq!(told.count(), started, "each end is told once");
}

/// Waits until no process with this command line is left.
fn wait_until_gone(command: &str) {
    let words: Vec<_> = command.split(' ').map(str::as_bytes).collect();
    let is_there = || {
        let processes = std::fs::read_dir("/proc").expect("the processes");
        processes.flatten().any(|process| {
            let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0)
                .filter(|word| !word.is_empty())
                .eq(words.iter().copied())
        })
    };
    let begun = std::time::Instant::now();
    while is_there() {
        assert!(begun.elapsed().as_secs() < 20, "{command} goes on");
        std::thread::yield_now();
    }
}

#[test]
fn crash_and_resume() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("sessions");
    let store = store.to_str().expect("a path");
    let crashed = Scripted::run(&scenario("crash"), folder.path(), &["--store", store]);
    assert_eq!(crashed.exit, Some(86));
    assert!(crashed.result.is_none());
    wait_until_gone("sleep 600.25");
    let root = crashed.root().to_owned();
    let arguments = ["--store", store, "--resume", &root];
    let resumed = Scripted::run(&scenario("crash.resume"), folder.path(), &arguments);
    assert_eq!(resumed.exit, Some(0), "{}", resumed.stderr);
    // One stream: the sessions go on where they were.
    let mut both = crashed;
    both.events.extend(resumed.events.clone());
    both.result = resumed.result.clone();
    both.exit = resumed.exit;
    compare("crash-and-resume", &normalised(&both));
    // Told once: a second resume has nothing to tell.
    let again = Scripted::run(&scenario("crash.resume"), folder.path(), &arguments);
    assert_eq!(again.entered("root", "settled").count(), 0);
    assert_eq!(again.entered("root", "task").count(), 0);
}

/// A child that waited for a task of its own did not finish, though its last turn did; and what its own
/// child had used is not forgotten.
#[test]
fn a_child_that_waited_when_the_program_died_is_lost_with_all_that_it_cost() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("sessions");
    let store = store.to_str().expect("a path");
    let crashed = Scripted::run(&scenario("crash-below"), folder.path(), &["--store", store]);
    assert_eq!(crashed.exit, Some(86), "{}", crashed.stderr);
    wait_until_gone("sleep 600.75");
    let root = crashed.root().to_owned();
    let arguments = ["--store", store, "--resume", &root];
    let resumed = Scripted::run(&scenario("crash.resume"), folder.path(), &arguments);
    let settled: Vec<_> = resumed.of_type("subagent/settled").collect();
    assert_eq!(settled.len(), 1, "{}", resumed.stderr);
    let settled = &settled[0]["event"];
    assert_eq!(settled["label"], "middle");
    assert_eq!(settled["outcome"], "lost");
    // Three replies of its own, the default 10 read each, and the 7 and 5 of its child.
    let usage = &settled["usage"];
    assert_eq!(
        (&usage["input"], &usage["total_input"]),
        (&30.into(), &37.into())
    );
    let own = usage["output"].as_u64().expect("a number");
    assert_eq!(usage["total_output"], own + 5);
}

/// Cuts a stored session after its first event of this kind, and in the middle of what was appended
/// with it.
fn cut_after(store: &std::path::Path, root: &str, kind: &str) {
    let path = store.join(format!("{root}.jsonl"));
    let log = std::fs::read_to_string(&path).expect("the log");
    let at = log
        .find(&format!("\"type\":\"{kind}\""))
        .expect("the event");
    let end = at + log[at..].find('\n').expect("a whole line") + 1;
    std::fs::write(&path, &log[..end + 40]).expect("a shorter log");
}

#[test]
fn an_end_whose_notice_was_cut_off_is_told_once() {
    for (name, kind, source) in [
        ("settlement", "subagent/settled", "settled"),
        ("background-shell-notice", "task/settled", "task"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let store = folder.path().join("sessions");
        let place = store.to_str().expect("a path");
        let first = Scripted::run(&scenario(name), folder.path(), &["--store", place]);
        let root = first.root().to_owned();
        cut_after(&store, &root, kind);
        let arguments = ["--store", place, "--resume", &root];
        let resumed = Scripted::run(&scenario("crash.resume"), folder.path(), &arguments);
        assert_eq!(
            resumed.entered("root", source).count(),
            1,
            "{name}: {}",
            resumed.stderr
        );
        assert_eq!(
            resumed.of_type(kind).count(),
            0,
            "{name}: the end itself is on the record"
        );
        let again = Scripted::run(&scenario("crash.resume"), folder.path(), &arguments);
        assert_eq!(again.entered("root", source).count(), 0, "{name}");
    }
}

#[test]
fn t184_what_the_window_lost_is_named_and_its_file_goes_with_the_run() {
    let folder = tempfile::tempdir().expect("a folder");
    // 400 000 bytes: more than a task keeps, and far more than a result shows. The file is read by
    // a second command while its task's record is there.
    let script = serde_json::json!({
        "prompt": "Write much.",
        "agents": { "root": [
            { "calls": [{ "name": "bash", "args": {
                "command": "echo FIRST LINE; yes 123456789 | head -n 40000; echo LAST LINE",
                "description": "much output",
                "run_in_background": true
            } }] },
            { "text": "WAITING", "await_inbox": { "source": "task", "count": 1 } },
            { "calls": [{ "name": "task_output", "args": { "task_id": "${task}" } }] },
            { "calls": [{ "name": "bash", "args": {
                "command": "set -- \"$TMPDIR\"/offshoot-*/*/*; head -n 1 \"$1\"; stat -c %a \"$1\"; stat -c %s \"$1\""
            } }] },
            { "text": "DONE" }
        ] }
    });
    let path = folder.path().join("script.json");
    std::fs::write(&path, script.to_string()).expect("a script");
    let run = Scripted::run_in_tmp(&path, folder.path());
    assert_eq!(run.outcome(), "completed", "{}", run.stderr);
    let results: Vec<_> = run
        .of_type("tool/result")
        .map(|line| &line["event"]["text"])
        .collect();
    let shown = results[1].as_str().expect("a text");
    let (mark, rest) = shown.split_once('\n').expect("a mark");
    assert!(
        mark.contains(" bytes omitted; the output from its beginning is in "),
        "{mark}"
    );
    assert!(
        rest.ends_with("LAST LINE\n[status: completed, exit code: 0]"),
        "{shown}"
    );
    let file = results[2].as_str().expect("a text");
    assert!(file.starts_with("FIRST LINE\n600\n400021\n"), "{file}");
    let left = std::fs::read_dir(folder.path())
        .expect("the folder")
        .flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["script.json"], "nothing is left behind");
}
