//! Agents that behave, and agents that do not.
#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::time::Duration;

use offshoot_acp::{AcpSettings, Files, Permission};
use offshoot_subagent::Outcome;
use support::{Pid, SOON, World, fake, is_alive, with_variable};
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn s128_the_streamed_text_of_a_turn_is_the_answer_with_what_it_cost() {
    let world = World::of(fake(&["echo"]));
    let mut request = world.request("the prompt");
    request.guidance = Some("and guidance".into());
    let run = world.subagents.run(request, CancellationToken::new());
    let result = run.await.unwrap();
    assert_eq!(result.outcome, Outcome::Completed, "{result:?}");
    assert_eq!(result.text, "the prompt|and guidance|");
    assert_eq!((result.usage.input, result.usage.total_output), (7, 3));
    assert_eq!((result.diagnostic, result.dispose_error), (None, None));
    let second = world.run("again").await;
    assert_ne!(
        second.child, result.child,
        "the same session id, another child"
    );
}

#[tokio::test]
async fn s128_stop_reasons_are_mapped_end_to_end_and_the_partial_text_is_kept() {
    for (reason, outcome) in [
        ("max_tokens", Outcome::MaxTokens),
        ("refusal", Outcome::Refusal),
        ("cancelled", Outcome::Aborted),
        ("max_turn_requests", Outcome::Error),
    ] {
        let result = World::of(fake(&["stop", reason])).run("go").await;
        assert_eq!((result.outcome, result.text.as_str()), (outcome, "half"));
        assert!(result.diagnostic.unwrap().contains(reason));
    }
}

#[tokio::test]
async fn what_is_odd_and_harmless_is_survived_and_unknown_requests_are_answered() {
    let result = World::of(fake(&["odd"])).run("go").await;
    assert_eq!(result.outcome, Outcome::Completed, "{result:?}");
    assert_eq!(
        result.text,
        "[-32601, -32601, -32601, -32601, -32601, -32601, -32602]\n[left out of the answer: 1 image]"
    );
    for how in ["stray-lines", "early-notification"] {
        let result = World::of(fake(&[how])).run("go").await;
        assert_eq!(
            (result.outcome, result.text.as_str()),
            (Outcome::Completed, how)
        );
    }
}

#[tokio::test]
async fn s133_permission_is_denied_unless_the_settings_allow() {
    let result = World::of(fake(&["permission"])).run("go").await;
    assert_eq!(
        result.text,
        concat!(
            r#"{"outcome": "selected", "optionId": "r"}"#,
            "\n[it asked for a permission, which was denied]"
        )
    );
    let mut settings = fake(&["permission"]);
    settings.permission = Permission::Allow;
    let result = World::of(settings).run("go").await;
    assert_eq!(result.text, r#"{"outcome": "selected", "optionId": "a"}"#);
}

#[tokio::test]
async fn files_are_reached_as_far_as_the_settings_say() {
    let folder = tempfile::tempdir().unwrap();
    for (files, expected) in [
        (Files::None, "[-32601, null, -32601]"),
        (Files::ReadWrite, r#"[null, {"content": "two\n"}, -32602]"#),
        (Files::Read, r#"[-32601, {"content": "two\n"}, -32602]"#),
    ] {
        let mut settings = fake(&["files"]);
        settings.cwd = Some(folder.path().canonicalize().unwrap());
        settings.files = files;
        assert_eq!(
            World::of(settings).run("go").await.text,
            expected,
            "{files:?}"
        );
    }
}

#[tokio::test]
async fn s126_s127_the_folder_is_of_the_process_and_of_the_session_and_a_bad_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().canonicalize().unwrap();
    let mut settings = fake(&["cwd"]);
    settings.cwd = Some(real.clone());
    let result = World::of(settings).run("go").await;
    assert_eq!(result.text, format!("{0}|{0}", real.display()));
    let mut settings = fake(&["cwd"]);
    settings.cwd = Some(real.join("missing"));
    let error = World::of(settings).refused().await;
    assert!(error.contains("missing"), "{error}");
}

#[tokio::test]
async fn s125_s130_s135_a_start_that_fails_says_why_and_leaves_nothing() {
    let missing = AcpSettings::new("agent", "no-such-agent-anywhere");
    let error = World::of(missing).refused().await;
    assert!(
        error.contains("cannot start no-such-agent-anywhere"),
        "{error}"
    );
    for (how, parts) in [
        (
            "crash-start",
            vec![
                "ended before it answered initialize",
                "exit code: 3",
                "stderr: no configuration found",
            ],
        ),
        ("version", vec!["speaks version 2 of the protocol"]),
        ("no-session", vec!["no sessionId"]),
        (
            "auth",
            vec!["session/new with error -32000: Authentication required"],
        ),
        (
            "garbage-forever",
            vec!["1001 lines that are no messages", "not a message at all"],
        ),
        ("long-line", vec!["a line of", "limit: 100000"]),
    ] {
        let mut settings = fake(&[how]);
        settings.max_line = 100_000;
        let mark = format!("{how}-{}", std::process::id());
        settings.env.push(("FAKE_MARK".into(), mark.clone()));
        let error = World::of(settings).refused().await;
        for part in parts {
            assert!(error.contains(part), "{how}: expected {part:?} in {error}");
        }
        assert_eq!(with_variable(&format!("FAKE_MARK={mark}")), 0, "{how}");
    }
}

#[tokio::test]
async fn an_agent_that_is_not_ready_in_time_is_gone_when_that_is_told() {
    for how in ["hang-initialize", "hang-session"] {
        let mut settings = fake(&[how]);
        settings.start_timeout = Duration::from_millis(700);
        let error = World::of(settings).refused().await;
        assert!(error.contains("not ready within 0.7 s"), "{error}");
    }
}

#[tokio::test]
async fn s130_a_cancel_during_the_start_ends_it() {
    let pid = Pid::new();
    let world = World::of(fake(&["hang-session", pid.path().to_str().unwrap()]));
    let cancel = CancellationToken::new();
    let (result, number) = tokio::join!(world.start("go", &cancel), async {
        let number = pid.read().await;
        cancel.cancel();
        number
    });
    assert_eq!(result.unwrap_err().code(), "CANCELLED");
    assert!(!is_alive(number));
}

#[tokio::test]
async fn s136_a_crash_in_the_turn_keeps_the_text_and_names_the_signal_without_secrets() {
    let mut settings = fake(&["crash-turn"]);
    settings.env.push(("API_KEY".into(), "k-5ecret".into()));
    let result = World::of(settings).run("go").await;
    assert_eq!(
        (result.outcome, result.text.as_str()),
        (Outcome::Error, "half an answer")
    );
    assert_eq!(
        result.diagnostic.unwrap(),
        "it ended before it answered session/prompt; signal: SIGSEGV; stderr: panic: key is [API_KEY]"
    );
}

#[tokio::test]
async fn an_agent_that_exits_with_its_answer_has_answered() {
    let result = World::of(fake(&["exit-after-answer"])).run("go").await;
    assert_eq!(
        (result.outcome, result.text.as_str()),
        (Outcome::Completed, "done")
    );
}

#[tokio::test]
async fn an_agent_that_fails_its_turn_or_stops_talking_is_an_error() {
    let result = World::of(fake(&["error"])).run("go").await;
    assert_eq!(result.outcome, Outcome::Error);
    assert!(
        result
            .diagnostic
            .unwrap()
            .contains("session/prompt with error -32603: model is down")
    );
    let result = World::of(fake(&["close-output"])).run("go").await;
    assert_eq!(result.outcome, Outcome::Error);
    assert!(
        result
            .diagnostic
            .unwrap()
            .contains("ended before it answered session/prompt")
    );
}

#[tokio::test]
async fn a_flood_ends_the_run_in_bounded_memory() {
    let mut settings = fake(&["flood"]);
    settings.max_output = 2 << 20;
    settings.max_answer = 1000;
    let result = World::of(settings).run("go").await;
    assert_eq!(result.outcome, Outcome::Error);
    assert!(result.text.len() < 1100 && result.text.ends_with(" were not kept]"));
    assert!(
        result
            .diagnostic
            .unwrap()
            .contains("more than 2097152 bytes")
    );
    let result = World::of(fake(&["asks-unread"])).run("go").await;
    assert_eq!(result.outcome, Outcome::Error);
    let diagnostic = result.diagnostic.unwrap();
    assert!(
        diagnostic.contains("asks without reading the answers"),
        "{diagnostic}"
    );
}

#[tokio::test]
async fn s129_a_cancel_reaches_the_agent_which_ends_its_turn_and_gets_no_permission() {
    let pid = Pid::new();
    let mut settings = fake(&["cancel", pid.path().to_str().unwrap()]);
    settings.permission = Permission::Allow;
    settings.cancel_grace = SOON;
    let world = World::of(settings);
    let cancel = CancellationToken::new();
    let (result, _) = tokio::join!(world.start("go", &cancel), async {
        pid.read().await;
        cancel.cancel();
    });
    let result = result.unwrap();
    assert_eq!(
        (result.outcome, result.text.as_str()),
        (Outcome::Aborted, "half stopped:cancelled")
    );
}

#[tokio::test]
async fn s124_s131_s137_an_agent_that_is_deaf_to_everything_is_killed_with_its_tree() {
    for how in ["hang-turn", "deaf", "deaf-tree"] {
        let pid = Pid::new();
        let mut settings = fake(&[how, pid.path().to_str().unwrap()]);
        let mark = pid.path().display().to_string();
        settings.env.push(("FAKE_MARK".into(), mark.clone()));
        let world = World::of(settings);
        let cancel = CancellationToken::new();
        let (result, number) = tokio::join!(world.start("go", &cancel), async {
            let number = pid.read().await;
            cancel.cancel();
            number
        });
        let result = result.unwrap();
        assert_eq!(
            (result.outcome, result.text.as_str()),
            (Outcome::Aborted, "half"),
            "{how}"
        );
        assert_eq!(result.dispose_error, None);
        assert!(!is_alive(number), "{how}");
        assert_eq!(with_variable(&format!("FAKE_MARK={mark}")), 0, "{how}");
    }
}

#[tokio::test]
async fn a_deadline_cuts_the_turn() {
    let pid = Pid::new();
    let mut settings = fake(&["hang-turn", pid.path().to_str().unwrap()]);
    settings.deadline = Some(Duration::from_millis(500));
    let result = World::of(settings).run("go").await;
    assert_eq!(
        (result.outcome, result.text.as_str()),
        (Outcome::Error, "half")
    );
    assert!(
        result
            .diagnostic
            .unwrap()
            .starts_with("deadline exceeded (0.5 s)")
    );
    assert!(!is_alive(pid.read().await));
}

#[tokio::test]
async fn a_run_that_is_dropped_leaves_nothing() {
    for how in ["hang-session", "deaf"] {
        let pid = Pid::new();
        let world = World::of(fake(&[how, pid.path().to_str().unwrap()]));
        let run = world
            .subagents
            .run(world.request("go"), CancellationToken::new());
        let number = tokio::select! {
            _ = run => unreachable!("it hangs"),
            number = pid.read() => number,
        };
        // The run is disposed in the background; the parent's end waits for it.
        world.parent.close(offshoot_agent::Pending::Discard).await;
        assert!(!is_alive(number), "{how}");
    }
}

#[tokio::test]
async fn s123_the_environment_is_the_allowed_part_and_what_the_settings_add() {
    let pid = Pid::new();
    let mut settings = fake(&["deaf", pid.path().to_str().unwrap()]);
    settings.env.push(("MY_TOKEN".into(), "given".into()));
    settings.deadline = Some(Duration::from_secs(30));
    let world = World::of(settings);
    let cancel = CancellationToken::new();
    let (_, environ) = tokio::join!(world.start("go", &cancel), async {
        let number = pid.read().await;
        let environ = std::fs::read(format!("/proc/{number}/environ")).unwrap();
        cancel.cancel();
        String::from_utf8_lossy(&environ).into_owned()
    });
    let names: Vec<&str> = environ
        .split('\0')
        .filter_map(|v| Some(v.split_once('=')?.0))
        .collect();
    assert!(
        names.contains(&"MY_TOKEN") && names.contains(&"PATH"),
        "{names:?}"
    );
    assert!(
        !names
            .iter()
            .any(|name| name.starts_with("NEXTEST") || name.contains("SECRET"))
    );
}

#[tokio::test]
async fn s138_a_continuable_child_a_persona_and_a_filter_are_refused() {
    let world = World::of(fake(&["echo"]));
    let error = world
        .subagents
        .start(world.request("go"))
        .await
        .unwrap_err();
    assert_eq!(error.code(), "UNSUPPORTED_CAPABILITY");
}
