//! Runs: results, exit codes, limits.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::Place;

#[test]
fn the_result_is_the_last_line_and_tells_of_the_run() {
    let run = Place::new().events(
        json!({"prompt": "hi", "agents": {"root": [{"text": "hello"}]}}),
        &[],
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.stderr, "");
    let mut result = run.result;
    assert_eq!(result["session"], run.events[0]["session"]);
    assert!(result["wall_ms"].is_u64());
    result["session"] = Value::Null;
    result["wall_ms"] = Value::Null;
    for key in ["wall_ms", "total_wall_ms"] {
        assert!(result["usage"][key].is_u64(), "{key}");
        result["usage"][key] = Value::Null;
    }
    let expected = json!({
        "type": "result", "session": null, "outcome": "completed", "text": "hello",
        "usage": {"input": 10, "output": 5, "total_input": 10, "total_output": 5,
            "wall_ms": null, "total_wall_ms": null},
        "sessions": 1, "pending": [], "stopped": [], "wall_ms": null,
    });
    assert_eq!(result, expected);
    let last: Vec<&Value> = run.events.iter().rev().take(2).collect();
    assert_eq!(last[0]["event"]["status"], "closed");
    assert_eq!(last[1]["event"]["status"], "closing");
}

#[test]
fn without_json_only_the_final_text_is_printed() {
    let place = Place::new();
    let script = place
        .script(json!({"prompt": "a", "agents": {"root": [{"text": "echo ${last_message}"}]}}));
    // The argument goes over the script's own prompt.
    let output = place
        .offshoot(&["run", "b", "--script", &script])
        .output()
        .expect("the program");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "echo b\n");
    assert_eq!(output.stderr, b"");
}

#[test]
fn the_exit_code_follows_the_last_turn() {
    let cases = [
        (json!([{"text": "a"}]), 0, "completed"),
        (
            json!([{"text": "a", "finish": "max_tokens"}]),
            1,
            "max_tokens",
        ),
        (json!([{"text": "a", "finish": "refusal"}]), 1, "refusal"),
        (json!([{"error": "boom"}]), 1, "error"),
        (json!([]), 1, "error"),
        (json!([{"text": "${last_notice}"}]), 1, "error"),
        (
            json!([{"calls": [{"name": "nope", "args": {}}]}, {"text": "a"}]),
            0,
            "completed",
        ),
        (
            json!([{"calls": [{"name": "bash", "raw_args": "{not"}]}, {"text": "a"}]),
            0,
            "completed",
        ),
        (
            json!([{"calls": [{"name": "bash", "args": {"command": 3}}]}, {"text": "a"}]),
            0,
            "completed",
        ),
        (
            json!([{"calls": [{"name": "bash", "args": {"command": "/no/such/program"}}]}, {"text": "a"}]),
            0,
            "completed",
        ),
    ];
    for (replies, code, outcome) in cases {
        let script = json!({"prompt": "hi", "agents": {"root": replies}});
        let run = Place::new().events(script.clone(), &[]);
        assert_eq!(run.result["outcome"], outcome, "{script}");
        assert_eq!(run.code, Some(code), "{script}");
        assert_eq!(
            run.stderr.lines().count(),
            usize::from(code != 0),
            "{}",
            run.stderr
        );
    }
}

#[test]
fn an_exhausted_script_says_so() {
    let run = Place::new().events(json!({"prompt": "hi", "agents": {"root": []}}), &[]);
    assert!(run.stderr.contains("script exhausted"), "{}", run.stderr);
    assert_eq!(run.kind("turn/end")[0]["error"], "script exhausted");
}

#[test]
fn whatever_kept_a_run_from_completing_is_said_in_one_line() {
    let call = json!({"calls": [{"name": "task_list", "args": {}}], "repeat": "forever"});
    let hangs = json!({"hang": true, "open": ["g"]});
    let at = |mode: &str| json!([{"at": "g", "to": "root", "mode": mode}]);
    let cases: Vec<(Value, Value, &[&str], &str)> = vec![
        (
            call,
            json!([]),
            &["--set", "limits.max_steps_per_turn=2"],
            "error: the turn took as many steps as limits.max_steps_per_turn allows",
        ),
        (
            json!({"text": "a", "finish": "max_tokens"}),
            json!([]),
            &[],
            "max_tokens: the model's token limit cut its answer off",
        ),
        (
            json!({"text": "a", "finish": "refusal"}),
            json!([]),
            &[],
            "refusal: the model refused to answer",
        ),
        (json!({"error": "boom"}), json!([]), &[], "error: boom"),
        (
            hangs.clone(),
            at("cancel"),
            &[],
            "aborted: the turn was cancelled by the user",
        ),
        (
            hangs.clone(),
            at("interrupt"),
            &[],
            "aborted: the turn was interrupted",
        ),
        (
            hangs.clone(),
            at("dispose"),
            &[],
            "aborted: the agent was ended in the middle of its turn",
        ),
        (
            hangs,
            json!([]),
            &["--timeout", "0.3"],
            "timeout: it was not at rest after 0.3 seconds",
        ),
    ];
    for (reply, inputs, args, why) in cases {
        let mut script = json!({"prompt": "hi", "agents": {"root": [reply]}, "inputs": inputs});
        script["agents"]["other"] = json!([{"open": ["g"]}]);
        let run = Place::new().events(script, args);
        assert_eq!(run.code, Some(1), "{why}");
        let line = format!("offshoot: the run ended with {why}\n");
        assert_eq!(run.stderr, line);
    }
}

#[test]
fn a_pipe_gets_the_final_text_as_it_is_and_a_complaint_has_no_escapes() {
    let place = Place::new();
    let text = "a\u{1b}[31mred\u{1b}[0m\tb\r\nc\u{7}";
    let script = place.script(json!({"prompt": "a", "agents": {"root": [{"text": text}]}}));
    let output = place
        .offshoot(&["run", "--script", &script])
        .output()
        .expect("the program");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{text}\n"));
    let script = place.script(json!({"prompt": "a", "agents": {"root": [{"error": text}]}}));
    let output = place
        .offshoot(&["run", "--script", &script])
        .output()
        .expect("the program");
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "offshoot: the run ended with error: ared\tb c\n"
    );
}

#[test]
fn a_run_waits_for_what_its_root_started() {
    let run = Place::new().events(
        json!({"prompt": "hi", "agents": {
            "root": [
                {"calls": [{"name": "subagent", "args": {"description": "c", "prompt": "p"}}]},
                {"text": "STARTED", "open": ["go"]},
                {"text": "FINAL ${last_notice}"}],
            "c": [{"await": ["go"], "text": "CHILD_RESULT"}]}}),
        &[],
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let text = run.result["text"].as_str().expect("a text");
    assert!(
        text.starts_with("FINAL ") && text.contains("CHILD_RESULT"),
        "{text}"
    );
    assert_eq!(run.result["sessions"], 2);
    assert_eq!(
        run.result["usage"]["total_output"].as_u64(),
        Some(
            run.result["usage"]["output"].as_u64().expect("a number") + "CHILD_RESULT".len() as u64
        )
    );
}

#[test]
fn a_timeout_closes_the_tree_and_lists_what_it_stopped() {
    let run = Place::new().events(
        json!({"prompt": "hi", "agents": {"root": [
            {"calls": [{"name": "bash", "args": {"command": "sleep 600", "description": "long", "run_in_background": true}}]},
            {"hang": true}]}}),
        &["--timeout", "0.5"],
    );
    assert_eq!(run.code, Some(1));
    assert_eq!(run.result["outcome"], "timeout");
    assert_eq!(
        run.result["stopped"],
        json!([{"task_id": "bash-1", "label": "long"}])
    );
    assert_eq!(run.kind("task/settled")[0]["status"], "killed");
    assert!(run.stderr.contains("timeout"), "{}", run.stderr);
}

#[test]
fn linger_stops_what_outlives_the_idle_root() {
    let began = std::time::Instant::now();
    let run = Place::new().events(
        json!({"prompt": "hi", "agents": {
            "root": [
                {"calls": [
                    {"name": "bash", "args": {"command": "sleep 600", "description": "long", "run_in_background": true}},
                    {"name": "subagent", "args": {"description": "c", "prompt": "p"}}]},
                {"text": "DONE"}],
            "c": [{"hang": true}]}}),
        &["--linger", "0.2"],
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.result["text"], "DONE");
    let stopped = run.result["stopped"].as_array().expect("a list");
    let labels: Vec<&str> = stopped.iter().filter_map(|s| s["label"].as_str()).collect();
    assert_eq!(labels, ["long", "c"]);
    assert_eq!(stopped[0]["task_id"], "bash-1");
    assert!(stopped[1]["child"].is_string());
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn messages_that_wait_are_listed_and_keep_nothing() {
    let run = Place::new().events(
        json!({"prompt": "hi", "agents": {"root": [{"text": "a"}]},
            "inputs": [{"at": {"idle": "root"}, "to": "root", "mode": "inject", "text": "later"}]}),
        &[],
    );
    assert_eq!(run.code, Some(0));
    let pending = run.result["pending"].as_array().expect("a list");
    assert_eq!(pending.len(), 1);
    assert!(pending[0]["id"].is_string());
    assert_eq!(pending[0]["source"]["kind"], "user");
    assert_eq!(pending[0]["target"], "next_step");
}

#[test]
fn commands_run_where_cwd_says() {
    let place = Place::new();
    std::fs::create_dir(place.path("below")).expect("a folder");
    let run = place.events(
        json!({"prompt": "hi", "agents": {"root": [
            {"calls": [{"name": "bash", "args": {"command": "basename \"$PWD\""}}]},
            {"text": "${last_result}"}]}}),
        &["--cwd", "below"],
    );
    assert!(
        run.result["text"]
            .as_str()
            .is_some_and(|text| text.starts_with("below\n")),
        "{:?}",
        run.result
    );
}

#[test]
fn configuration_is_laid_in_layers() {
    // Defaults < file < script < --set: the last layer that disables `bash` wins.
    let place = Place::new();
    let file = place.file("c.toml", "[tools.bash]\nenabled = false\n");
    let call = json!([{"calls": [{"name": "bash", "args": {"command": "echo ran"}}]}, {"text": "${last_result}"}]);
    let ran = |config: Value, args: &[&str]| {
        let run = place.events(
            json!({"config": config, "prompt": "hi", "agents": {"root": call}}),
            args,
        );
        run.result["text"]
            .as_str()
            .is_some_and(|text| text.contains("ran\n"))
    };
    assert!(ran(json!({}), &[]));
    assert!(!ran(json!({}), &["--config", &file]));
    assert!(ran(
        json!({"tools": {"bash": {"enabled": true}}}),
        &["--config", &file]
    ));
    assert!(!ran(
        json!({"tools": {"bash": {"enabled": true}}}),
        &["--set", "tools.bash.enabled=false"]
    ));
}
