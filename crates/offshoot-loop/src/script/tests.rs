use serde_json::json;

use super::*;

/// The example of the format's description, whole.
const EXAMPLE: &str = r#"{
  "config": { "subagent": [ { "tool_name": "subagent", "provider": "spawn", "background_mode": "continuable" } ] },
  "prompt": "Find out how large this folder is.",
  "agents": {
    "root": [
      { "calls": [ { "name": "subagent", "args": { "description": "sizes", "prompt": "Measure." } } ] },
      { "text": "STARTED", "open": ["go"] },
      { "text": "The answer is in: ${last_notice}" }
    ],
    "sizes": [
      { "await": ["go"], "calls": [ { "id": "c1", "name": "bash", "args": { "command": "du -sh ${HOME}" } } ] },
      { "text": "CHILD_RESULT ${last_result}" }
    ]
  },
  "inputs": [ { "at": "go", "to": "sizes", "mode": "steer", "text": "Hurry." } ]
}"#;

fn reply(text: &str) -> Reply {
    Reply {
        text: text.to_owned(),
        ..Reply::default()
    }
}

fn call(id: Option<&str>, name: &str, arguments: CallArguments) -> Vec<ScriptCall> {
    vec![ScriptCall {
        id: id.map(str::to_owned),
        name: name.to_owned(),
        arguments,
    }]
}

#[test]
fn the_example_is_read_whole() {
    let arguments = json!({"description": "sizes", "prompt": "Measure."});
    let root = vec![
        Reply {
            calls: call(None, "subagent", CallArguments::Json(arguments)),
            ..Reply::default()
        },
        Reply {
            open: vec!["go".to_owned()],
            ..reply("STARTED")
        },
        reply("The answer is in: ${last_notice}"),
    ];
    let arguments = json!({"command": "du -sh ${HOME}"});
    let sizes = vec![
        Reply {
            await_: vec!["go".to_owned()],
            calls: call(Some("c1"), "bash", CallArguments::Json(arguments)),
            ..Reply::default()
        },
        reply("CHILD_RESULT ${last_result}"),
    ];
    let expected = Script {
        config: json!({"subagent": [{"tool_name": "subagent", "provider": "spawn", "background_mode": "continuable"}]}),
        prompt: Some("Find out how large this folder is.".to_owned()),
        agents: [("root".to_owned(), root), ("sizes".to_owned(), sizes)].into(),
        inputs: vec![Input {
            at: At::Gate("go".to_owned()),
            to: Target::Child("sizes".to_owned()),
            mode: InputMode::Steer {
                text: "Hurry.".to_owned(),
            },
        }],
    };
    assert_eq!(Script::parse(EXAMPLE, "example.json"), Ok(expected));
}

#[test]
fn every_field_of_a_reply_is_read() {
    let text = r#"{"agents": {"root": [
        {"text": "t", "calls": [{"name": "n", "raw_args": "{\"a\": "}, {"name": "m"}, {"name": "l", "args": null}],
         "finish": "max_tokens", "usage": {"output": 3}, "delay_ms": 5, "open": ["g"], "await": ["g"],
         "await_inbox": {"source": "settled", "count": 2}, "repeat": 4},
        {"hang": true, "repeat": "forever"},
        {"error": "overloaded", "text": "part", "repeat": 1}
    ]}}"#;
    let mut calls = call(None, "n", CallArguments::Raw("{\"a\": ".to_owned()));
    calls.extend(call(None, "m", CallArguments::Json(json!({}))));
    calls.extend(call(None, "l", CallArguments::Json(json!(null))));
    let full = Reply {
        calls,
        finish: Some(Finish::MaxTokens),
        usage: Usage {
            input: None,
            output: Some(3),
        },
        delay_ms: 5,
        open: vec!["g".to_owned()],
        await_: vec!["g".to_owned()],
        await_inbox: Some(AwaitInbox {
            source: "settled".to_owned(),
            count: 2,
        }),
        repeat: Repeat::Times(4),
        ..reply("t")
    };
    let hanging = Reply {
        hang: true,
        repeat: Repeat::Forever,
        ..Reply::default()
    };
    let failing = Reply {
        error: Some("overloaded".to_owned()),
        ..reply("part")
    };
    let script = Script::parse(text, "a.json").expect("a good script");
    assert_eq!(script.agents["root"], [full, hanging, failing]);
    assert_eq!((script.config, script.prompt), (json!({}), None));
}

#[test]
fn every_input_is_read() {
    let text = r#"{"agents": {"root": [{"open": ["g"]}], "*": []}, "inputs": [
        {"at": "g", "to": "root", "mode": "followup", "text": "f"},
        {"at": {"idle": "root"}, "to": "a", "mode": "steer", "text": "s"},
        {"at": {"settled": "a"}, "to": "*", "mode": "inject", "text": "i"},
        {"at": "g", "to": "a", "mode": "cancel"},
        {"at": "g", "to": "a", "mode": "cancel_keep_inbox"},
        {"at": "g", "to": "a", "mode": "interrupt"},
        {"at": "g", "to": "a", "mode": "dispose"},
        {"at": "g", "to": "a", "mode": "kill_task", "task": "bash-1"},
        {"at": "g", "mode": "open", "gate": "h"},
        {"at": "h", "mode": "crash"}
    ]}"#;
    let (gate, child) = (
        || At::Gate("g".to_owned()),
        || Target::Child("a".to_owned()),
    );
    let text_of = |text: &str| text.to_owned();
    let expected = [
        (
            gate(),
            Target::Root,
            InputMode::Followup { text: text_of("f") },
        ),
        (
            At::Idle(Target::Root),
            child(),
            InputMode::Steer { text: text_of("s") },
        ),
        (
            At::Settled(child()),
            Target::AnyChild,
            InputMode::Inject { text: text_of("i") },
        ),
        (gate(), child(), InputMode::Cancel),
        (gate(), child(), InputMode::CancelKeepInbox),
        (gate(), child(), InputMode::Interrupt),
        (gate(), child(), InputMode::Dispose),
        (
            gate(),
            child(),
            InputMode::KillTask {
                task: text_of("bash-1"),
            },
        ),
        (gate(), Target::Root, InputMode::Open { gate: text_of("h") }),
        (At::Gate("h".to_owned()), Target::Root, InputMode::Crash),
    ]
    .map(|(at, to, mode)| Input { at, to, mode });
    assert_eq!(
        Script::parse(text, "a.json").expect("a good script").inputs,
        expected
    );
}

#[test]
fn each_bad_script_is_one_line_that_names_the_place() {
    // A script whose root has this one reply, or this one input beside a reply that opens `g`.
    let reply = |reply: &str| format!(r#"{{"agents": {{"root": [{reply}]}}}}"#);
    let input = |input: &str| {
        format!(r#"{{"agents": {{"root": [{{"open": ["g"]}}]}}, "inputs": [{input}]}}"#)
    };
    let whole = str::to_owned;
    let faults = [
        whole(""),
        whole("[]"),
        whole("{} {}"),
        whole(r#"{"agents": {"root": []}"#),
        whole(r#"{"prompt": "x"}"#),
        whole(r#"{"agent": {}}"#),
        whole(r#"{"agents": []}"#),
        whole(r#"{"agents": {}, "prompt": 5}"#),
        whole(r#"{"agents": {}, "prompt": null}"#),
        whole(r#"{"agents": {}, "config": []}"#),
        whole(r#"{"agents": {"a b": [], "a b": []}}"#),
        whole(r#"{"agents": {"root": {}}}"#),
        reply("[]"),
        reply(r#"{"txt\n": "hi"}"#),
        reply(r#"{"text": 5}"#),
        reply(r#"{"text": "a", "text": "b"}"#),
        reply(r#"{"calls": [{"args": {}}]}"#),
        reply(r#"{"calls": [{"name": 5}]}"#),
        reply(r#"{"calls": [{"name": "n", "args": {}, "raw_args": ""}]}"#),
        reply(r#"{"finish": "done"}"#),
        reply(r#"{"error": "e", "finish": "stop"}"#),
        reply(r#"{"error": "e", "calls": [{"name": "n"}]}"#),
        reply(r#"{"usage": {"in": 1}}"#),
        reply(r#"{"delay_ms": -1}"#),
        reply(r#"{"delay_ms": 1.5}"#),
        reply(r#"{"hang": true, "text": "a"}"#),
        reply(r#"{"hang": true, "error": "a"}"#),
        reply(r#"{"hang": 1}"#),
        reply(r#"{"await": "g"}"#),
        reply(r#"{"await": ["g"]}"#),
        reply(r#"{"await_inbox": {"source": "settled", "count": 0}}"#),
        reply(r#"{"await_inbox": {"count": 1}}"#),
        reply(r#"{"repeat": 0}"#),
        reply(r#"{"repeat": -1}"#),
        reply(r#"{"repeat": "always"}"#),
        reply(r#"{"text": "${task:0}"}"#),
        reply(r#"{"calls": [{"name": "n", "args": {"a": ["${child:}"]}}]}"#),
        input(r#"{"to": "root", "mode": "cancel"}"#),
        input(r#"{"at": 5, "to": "root", "mode": "cancel"}"#),
        input(r#"{"at": {}, "to": "root", "mode": "cancel"}"#),
        input(r#"{"at": {"idle": "root", "settled": "a"}, "to": "root", "mode": "cancel"}"#),
        input(r#"{"at": {"started": "a"}, "to": "root", "mode": "cancel"}"#),
        input(r#"{"at": {"settled": "root"}, "to": "root", "mode": "cancel"}"#),
        input(r#"{"at": {"settled": "a"}, "to": "root", "mode": "cancel"}"#),
        input(r#"{"at": "h", "to": "root", "mode": "cancel"}"#),
        input(r#"{"at": "h", "mode": "open", "gate": "h"}"#),
        input(r#"{"at": "g", "to": "root", "mode": "stop"}"#),
        input(r#"{"at": "g", "mode": "cancel"}"#),
        input(r#"{"at": "g", "to": "root", "mode": "steer"}"#),
        input(r#"{"at": "g", "to": "root", "mode": "kill_task"}"#),
        input(r#"{"at": "g", "mode": "open"}"#),
        input(r#"{"at": "g", "to": "root", "mode": "cancel", "text": "a"}"#),
        input(r#"{"at": "g", "to": "root", "mode": "steer", "text": "${task:x}"}"#),
    ];
    let table: Vec<String> = faults
        .iter()
        .map(|text| match Script::parse(text, "s.json") {
            Ok(_) => format!("{text}\n  accepted"),
            Err(error) => {
                let line = error.to_string();
                assert!(!line.contains('\n'), "{line:?}");
                format!("{text}\n  {} {line}", error.code())
            }
        })
        .collect();
    insta::assert_snapshot!(table.join("\n"));
}

#[test]
fn a_label_may_come_from_a_call_that_starts_the_child() {
    let script = |arguments: &str| {
        let call = format!(r#"{{"name": "subagent", {arguments}}}"#);
        let root = format!(r#"{{"calls": [{call}]}}"#);
        let input = r#"{"at": {"settled": "a"}, "to": "root", "mode": "cancel"}"#;
        let text = format!(r#"{{"agents": {{"root": [{root}]}}, "inputs": [{input}]}}"#);
        Script::parse(&text, "s.json").is_ok()
    };
    assert!(script(r#""args": {"description": "a"}"#));
    assert!(script(r#""args": {"description": "${last_result}"}"#));
    assert!(script(r#""raw_args": "whatever""#));
    assert!(!script(r#""args": {"description": "b"}"#));
    assert!(!script(r#""args": {}"#));
}

#[test]
fn the_recipient_of_an_input_is_not_judged() {
    let text = r#"{"agents": {"root": [{"open": ["g"]}]}, "inputs": [{"at": "g", "to": "nobody", "mode": "cancel"}]}"#;
    assert!(Script::parse(text, "s.json").is_ok());
}
