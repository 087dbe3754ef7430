//! What happens from outside while a script runs.

use serde_json::{Value, json};

use crate::support::Place;

/// A root that starts one child `c` and says what it is told.
fn with_child(child: Value, inputs: Value) -> Value {
    json!({"prompt": "hi", "agents": {
        "root": [
            {"calls": [{"name": "subagent", "args": {"description": "c", "prompt": "p"}}]},
            {"text": "STARTED", "open": ["go"]},
            {"text": "told", "repeat": "forever"}],
        "c": child}, "inputs": inputs})
}

#[test]
fn an_input_for_a_child_that_never_started_is_refused_on_the_record() {
    let run = Place::new().events(
        json!({"prompt": "hi", "agents": {"root": [{"text": "a", "open": ["g"]}]},
            "inputs": [
                {"at": "g", "to": "root", "mode": "inject", "text": "x"},
                {"at": "g", "to": "nobody", "mode": "steer", "text": "x"},
                {"at": "g", "to": "*", "mode": "cancel"}]}),
        &[],
    );
    let refused = run.kind("input/refused");
    let seen: Vec<_> = refused
        .iter()
        .map(|event| (&event["index"], event["reason"].as_str().unwrap_or("")))
        .collect();
    assert_eq!(
        seen,
        [
            (&json!(1), "no child `nobody` was started"),
            (&json!(2), "no child was started")
        ]
    );
    let line = run
        .events
        .iter()
        .find(|line| line["event"]["type"] == "input/refused")
        .expect("a line");
    assert_eq!(line["label"], "root");
    assert!(line.get("seq").is_none());
}

#[test]
fn a_steer_at_a_gate_reaches_a_running_child_in_its_turn() {
    let run = Place::new().events(
        with_child(
            json!([{"await": ["go"], "calls": [{"name": "task_list", "args": {}}]}, {"text": "done"}]),
            json!([{"at": "go", "to": "c", "mode": "steer", "text": "Hurry, ${self}."}]),
        ),
        &[],
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let child = run.kind("subagent/started")[0]["child"]
        .as_str()
        .expect("an id")
        .to_owned();
    assert_eq!(run.asked("c"), ["p", &format!("Hurry, {child}.")]);
    assert_eq!(run.kind("subagent/started").len(), 1);
}

#[test]
fn a_followup_for_a_settled_child_resumes_it_and_keeps_the_run() {
    let run = Place::new().events(
        with_child(
            json!([{"await": ["go"], "text": "one"}, {"text": "two"}]),
            json!([{"at": {"settled": "c"}, "to": "*", "mode": "followup", "text": "again"}]),
        ),
        &[],
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.asked("c"), ["p", "again"]);
    assert_eq!(run.kind("subagent/settled").len(), 2);
    assert_eq!(run.result["sessions"], 2);
}

#[test]
fn a_quiet_message_for_a_settled_child_resumes_nobody_and_is_refused() {
    for mode in ["continuable", "one-shot"] {
        let mut script = with_child(
            json!([{"await": ["go"], "text": "one"}]),
            json!([{"at": {"settled": "c"}, "to": "c", "mode": "inject", "text": "later"}]),
        );
        script["config"] = json!({"subagent": [{"background_mode": mode}]});
        script["agents"]["root"][0]["calls"][0]["args"]["run_in_background"] = json!(true);
        let run = Place::new().events(script, &["--timeout", "20"]);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        assert_eq!(run.kind("subagent/started").len(), 1);
        let events = run.kind("input/refused");
        assert_eq!(events.len(), 1, "{mode}");
        assert_eq!(events[0]["index"], 0);
        let reason = events[0]["reason"].as_str().expect("a reason");
        assert!(reason.contains("a quiet message"), "{mode}: {reason}");
        let inserted = run.kind("inbox/inserted");
        let texts = inserted.iter().map(|e| &e["message"]["content"][0]["text"]);
        assert!(!texts.into_iter().any(|text| text == "later"), "{mode}");
        // "no event of that activation follows" `closed`.
        let last = run.events.iter().rfind(|line| line["label"] == "c");
        assert_eq!(last.expect("an event")["event"]["status"], "closed");
    }
}

/// A message that resumes a child takes a while; what comes after it in the list comes after it.
#[test]
fn a_stop_behind_a_message_that_resumes_a_child_reaches_it() {
    for mode in ["interrupt", "cancel", "cancel_keep_inbox", "dispose"] {
        let script = with_child(
            json!([{"await": ["go"], "text": "one"}, {"hang": true}]),
            json!([
                {"at": {"settled": "c"}, "to": "c", "mode": "steer", "text": "again"},
                {"at": {"settled": "c"}, "to": "c", "mode": mode}]),
        );
        let run = Place::new().events(script, &["--timeout", "20"]);
        assert_eq!(run.code, Some(0), "{mode}: {}", run.stderr);
        assert!(run.kind("input/refused").is_empty(), "{mode}");
        let settled = run.kind("subagent/settled");
        let outcomes: Vec<_> = settled.iter().map(|e| e["outcome"].clone()).collect();
        assert_eq!(outcomes, ["completed", "aborted"], "{mode}");
    }
}

#[test]
fn inputs_at_one_place_happen_in_the_order_of_the_list_though_a_child_is_resumed_first() {
    let script = with_child(
        json!([{"await": ["go"], "text": "one"}, {"text": "two"}]),
        json!([
            {"at": {"settled": "c"}, "to": "c", "mode": "followup", "text": "again"},
            {"at": {"settled": "c"}, "to": "root", "mode": "inject", "text": "after"},
            {"at": {"settled": "c"}, "to": "nobody", "mode": "cancel"}]),
    );
    let run = Place::new().events(script, &["--timeout", "20"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let inserted = |text: &str| {
        let at = run.events.iter().position(|line| {
            let event = &line["event"];
            event["type"] == "inbox/inserted" && event["message"]["content"][0]["text"] == text
        });
        at.expect("it was accepted")
    };
    let refused = run
        .events
        .iter()
        .position(|line| line["event"]["type"] == "input/refused");
    let refused = refused.expect("there is no such child");
    assert!(inserted("again") < inserted("after"));
    assert!(inserted("after") < refused);
}

#[test]
fn a_stop_of_a_settled_child_changes_nothing_and_says_so() {
    for mode in ["interrupt", "cancel", "cancel_keep_inbox", "dispose"] {
        let script = with_child(
            json!([{"await": ["go"], "text": "one"}]),
            json!([{"at": {"settled": "c"}, "to": "root", "mode": "followup", "text": "then"},
                {"at": "later", "to": "c", "mode": mode}]),
        );
        let mut script = script;
        let root = script["agents"]["root"].as_array_mut().expect("a list");
        root[2] = json!({"text": "told"});
        root.push(json!({"text": "told", "open": ["later"]}));
        let run = Place::new().events(script, &["--timeout", "20"]);
        assert_eq!(run.code, Some(0), "{mode}: {}", run.stderr);
        let child = run.kind("subagent/started")[0]["child"].as_str();
        let refused = run.kind("input/refused");
        assert_eq!(refused.len(), 1, "{mode}");
        let reason = format!("agent {} has settled already", child.expect("an id"));
        assert_eq!(
            (&refused[0]["index"], &refused[0]["reason"]),
            (&json!(1), &json!(reason))
        );
        assert_eq!(run.kind("subagent/settled").len(), 1, "{mode}");
    }
}

#[test]
fn a_followup_at_idle_starts_another_turn_before_the_run_rests() {
    let run = Place::new().events(
        json!({"prompt": "one", "agents": {"root": [{"text": "a"}, {"text": "b"}, {"text": "c"}]},
            "inputs": [
                {"at": {"idle": "root"}, "to": "root", "mode": "followup", "text": "two"},
                {"at": {"idle": "root"}, "to": "root", "mode": "followup", "text": "three"}]}),
        &[],
    );
    assert_eq!(run.asked("root"), ["one", "two", "three"]);
    assert_eq!(run.result["text"], "c");
}

#[test]
fn a_cancel_aborts_the_turn_and_discards_what_waits_unless_it_keeps_it() {
    for (mode, discarded) in [("cancel", 1), ("cancel_keep_inbox", 0)] {
        let run = Place::new().events(
            json!({"prompt": "one", "agents": {"root": [{"hang": true, "open": ["g"]}]},
                "inputs": [
                    {"at": "g", "to": "root", "mode": "followup", "text": "two"},
                    {"at": "g", "to": "root", "mode": mode}]}),
            &[],
        );
        assert_eq!(run.code, Some(1));
        assert_eq!(run.result["outcome"], "aborted");
        assert_eq!(run.kind("inbox/discarded").len(), discarded, "{mode}");
        assert_eq!(
            run.result["pending"].as_array().map(Vec::len),
            Some(1 - discarded),
            "{mode}"
        );
        assert_eq!(run.kind("turn/end")[0]["cause"], "user");
    }
}

#[test]
fn a_child_can_be_interrupted_and_disposed() {
    for (mode, outcome) in [("interrupt", "aborted"), ("dispose", "aborted")] {
        let run = Place::new().events(
            with_child(
                json!([{"hang": true, "open": ["hung"]}]),
                json!([{"at": "hung", "to": "c", "mode": mode}]),
            ),
            &[],
        );
        assert_eq!(run.code, Some(0), "{mode}: {}", run.stderr);
        assert_eq!(
            run.kind("subagent/settled")[0]["outcome"],
            outcome,
            "{mode}"
        );
    }
}

#[test]
fn disposing_the_root_ends_the_run() {
    let run = Place::new().events(
        json!({"prompt": "one", "agents": {"root": [{"hang": true, "open": ["g"]}]},
            "inputs": [{"at": "g", "to": "root", "mode": "dispose"}]}),
        &[],
    );
    assert_eq!(run.code, Some(1));
    assert_eq!(run.result["outcome"], "aborted");
}

#[test]
fn a_human_kills_a_task_and_the_model_is_told() {
    let run = Place::new().events(
        json!({"prompt": "one", "agents": {"root": [
            {"calls": [{"name": "bash", "args": {"command": "sleep 600", "run_in_background": true}}]},
            {"text": "a", "open": ["g"]},
            {"text": "${last_notice}"}]},
            "inputs": [
                {"at": "g", "to": "root", "mode": "kill_task", "task": "${task}"},
                {"at": "g", "to": "root", "mode": "kill_task", "task": "bash-77"}]}),
        &[],
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.kind("task/stopping")[0]["by"], "human");
    assert_eq!(run.kind("task/settled")[0]["status"], "killed");
    assert_eq!(run.kind("input/refused")[0]["index"], 1);
    assert!(
        run.result["text"]
            .as_str()
            .is_some_and(|text| text.contains("bash-1"))
    );
}

#[test]
fn an_input_may_open_a_gate() {
    let run = Place::new().events(
        json!({"prompt": "one", "agents": {"root": [{"text": "a", "open": ["x"]}, {"await": ["y"], "text": "b"}]},
            "inputs": [
                {"at": {"idle": "root"}, "to": "root", "mode": "followup", "text": "two"},
                {"at": "x", "mode": "open", "gate": "y"}]}),
        &["--timeout", "20"],
    );
    assert_eq!(run.result["text"], "b");
}
