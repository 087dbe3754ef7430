//! Logs that no program writes, each line of which is an event: they are refused by a resumption, and shown
//! as damaged, with the same words.

use offshoot::agent::AgentId;
use serde_json::{Value, json};

use crate::store_faults::{both_say, bounded, listed, log_of, refused, store};
use crate::support::Place;

const MAX: u64 = u64::MAX;

fn lines(place: &Place, id: &str) -> Vec<String> {
    let log = std::fs::read_to_string(log_of(place, id)).expect("a log");
    log.lines().map(str::to_owned).collect()
}

fn write(place: &Place, id: &str, lines: &[String]) {
    std::fs::write(log_of(place, id), lines.join("\n") + "\n").expect("a log");
}

/// Adds events to a log.
fn append(place: &Place, id: &str, events: &[Value]) {
    let mut lines = lines(place, id);
    for event in events {
        let seq = lines.len() - 1;
        lines.push(
            json!({"seq": seq, "time": "2026-01-01T00:00:00.000Z", "event": event}).to_string(),
        );
    }
    write(place, id, &lines);
}

/// Changes the event of this `seq`.
fn edit(place: &Place, id: &str, seq: usize, edit: impl FnOnce(&mut Value)) {
    let mut lines = lines(place, id);
    let mut stored: Value = serde_json::from_str(&lines[1 + seq]).expect("an event");
    edit(&mut stored["event"]);
    lines[1 + seq] = stored.to_string();
    write(place, id, &lines);
}

fn inserted(id: &str, generation: u64) -> Value {
    json!({"type": "inbox/inserted", "target": "next_step", "wake": false, "message": {
        "id": id, "source": {"kind": "user", "generation": generation},
        "content": [{"type": "text", "text": "x"}]}})
}

fn started(task: &str, kind: &str) -> Value {
    json!({"type": "task/started", "task_id": task, "kind": kind, "label": "l", "generation": 0})
}

fn settled(task: &str, status: &str) -> Value {
    json!({"type": "task/settled", "task_id": task, "status": status, "reported": true})
}

fn run(kind: &str, child: &str, run: &str) -> Value {
    json!({"type": kind, "child": child, "run_id": run, "provider": "spawn",
        "mode": "continuable", "label": "c", "outcome": "completed"})
}

#[test]
fn events_out_of_order_are_refused_and_shown_as_damage() {
    let in_turn = |kind: &str| json!({"type": kind, "turn": 2, "step": 1});
    let turn = json!({"type": "turn/start", "turn": 2, "generation": 0});
    let step = in_turn("step/start");
    let with = |mut event: Value, fields: Value| {
        let fields = fields.as_object().expect("fields").clone();
        event.as_object_mut().expect("an event").extend(fields);
        event
    };
    let result = with(
        in_turn("tool/result"),
        json!({"call_id": "c", "text": "", "is_error": false}),
    );
    let call = with(
        in_turn("tool/call"),
        json!({"call_id": "c", "name": "n", "args": {}}),
    );
    let reply = with(
        in_turn("message/assistant"),
        json!({"text": "t", "calls": [{"id": "c", "name": "n", "args": {}}], "finish": "stop",
            "usage": {"input": 1, "output": 1}}),
    );
    let message = inserted("m", 0)["message"].clone();
    let entered = with(in_turn("message/user"), json!({"message": message}));
    let claimed = |id: &str, turn: u64, step: u64| json!({"type": "inbox/claimed", "message_id": id, "turn": turn, "step": step});
    let moved = |id: &str, before: &str| json!({"type": "inbox/moved", "message_id": id, "target": "next_turn", "before": before});
    let start = |resumed: bool, depth: u32| json!({"type": "session/start", "origin": "root", "depth": depth, "resumed": resumed, "label": "root"});
    let rows: Vec<(Vec<Value>, &str)> = vec![
        (
            vec![inserted("m", 0), inserted("m", 0)],
            "the message m was accepted before",
        ),
        (
            vec![with(inserted("m", 0), json!({"before": "x"}))],
            "the message x does not wait in that list",
        ),
        (
            vec![inserted("m", 0), moved("x", "m")],
            "the message x does not wait",
        ),
        (
            vec![inserted("m", 0), moved("m", "m")],
            "does not wait in that list",
        ),
        (
            vec![turn.clone(), claimed("m", 2, 1)],
            "the message m does not wait",
        ),
        (
            vec![inserted("m", 0), claimed("m", 2, 1)],
            "the turn 2 does not run",
        ),
        (
            vec![inserted("m", 0), turn.clone(), claimed("m", 2, MAX)],
            "impossible number 18446744073709551615 of a step",
        ),
        (
            vec![json!({"type": "inbox/discarded", "message_id": "m", "cause": "user"})],
            "the message m does not wait",
        ),
        (
            vec![json!({"type": "turn/start", "turn": MAX, "generation": 0})],
            "impossible number 18446744073709551615 of a turn after 1",
        ),
        (
            vec![json!({"type": "turn/start", "turn": 1, "generation": 0})],
            "impossible number 1 of a turn after 1",
        ),
        (
            vec![
                turn.clone(),
                json!({"type": "turn/start", "turn": 3, "generation": 0}),
            ],
            "the turn 2 has not ended",
        ),
        (
            vec![json!({"type": "turn/end", "turn": 1, "reason": "completed"})],
            "the turn 1 does not run",
        ),
        (
            vec![
                turn.clone(),
                json!({"type": "turn/end", "turn": 3, "reason": "completed"}),
            ],
            "the turn 3 while the turn 2 runs",
        ),
        (
            vec![
                turn.clone(),
                step.clone(),
                json!({"type": "turn/end", "turn": 2, "reason": "completed"}),
            ],
            "the step 1 has not ended",
        ),
        (vec![step.clone()], "the turn 2 does not run"),
        (
            vec![turn.clone(), with(step.clone(), json!({"step": 2}))],
            "impossible number 2 of a step after 0",
        ),
        (
            vec![turn.clone(), in_turn("step/end")],
            "the step 1 does not run",
        ),
        (
            vec![
                turn.clone(),
                step.clone(),
                reply.clone(),
                in_turn("step/end"),
            ],
            "the call c has no result",
        ),
        (
            vec![turn.clone(), step.clone(), call.clone()],
            "no reply asked for the call c",
        ),
        (
            vec![turn.clone(), step.clone(), reply.clone(), result.clone()],
            "no call c is open",
        ),
        (
            vec![
                turn.clone(),
                step.clone(),
                reply,
                call,
                result.clone(),
                result,
            ],
            "no call c is open",
        ),
        (
            vec![inserted("m", 0), turn, step, entered],
            "the message m was not claimed",
        ),
        (
            vec![json!({"type": "agent/status", "status": "idle"})],
            "the status of an agent is in no log",
        ),
        (vec![start(false, 0)], "a second beginning"),
        (vec![start(true, 1)], "a root at the depth 1"),
        (
            vec![with(start(true, 0), json!({"origin": "subagent"}))],
            "the resumption of another session",
        ),
        (
            vec![started("bash-18446744073709551615", "bash")],
            "impossible task id bash-18446744073709551615: expected at most",
        ),
        (
            vec![started("bash-9223372036854775807", "bash")],
            "impossible task id bash-9223372036854775807",
        ),
        (
            vec![started("bash-1\u{1b}[31m", "bash")],
            "the task id \"bash-1\\u{1b}[31m\": not a task id",
        ),
        (vec![started("ba\nsh-1", "ba\nsh")], "not a task id"),
        (
            vec![json!({"type": "task/started", "task_id": 7})],
            "not a task id",
        ),
        (
            vec![started("bash-1", "\u{1b}[31m")],
            "the task bash-1 of the kind \"\\u{1b}[31m\"",
        ),
        (
            vec![started("bash-1", "bash"), started("bash-1", "bash")],
            "the task bash-1 was started before",
        ),
        (
            vec![started("bash-1", "bash"), settled("bash-1", "done\n")],
            "ended with the status \"done\\n\"",
        ),
        (
            vec![settled("bash-1", "failed"), settled("bash-1", "failed")],
            "the task bash-1 ended before",
        ),
        (vec![settled("x", "failed")], "not a task id"),
        (
            vec![settled("bash-18446744073709551615", "failed")],
            "impossible task id",
        ),
        (
            vec![settled("bash-1", "failed"), started("bash-1", "bash")],
            "the task bash-1 ended before",
        ),
        (
            vec![json!({"type": "task/stopping", "task_id": "\u{7}"})],
            "not a task id",
        ),
        (
            vec![run("subagent/started", "OWN", "r")],
            "the session is its own child in the run r",
        ),
        (
            vec![
                run("subagent/started", "a", "r"),
                run("subagent/started", "a", "r"),
            ],
            "the run r was started before",
        ),
        (
            vec![
                run("subagent/settled", "a", "r"),
                run("subagent/settled", "a", "r"),
            ],
            "the run r ended before",
        ),
        (
            vec![
                run("subagent/started", "a", "r"),
                run("subagent/settled", "b", "r"),
            ],
            "the run r is one of a, and here of b",
        ),
        (
            vec![json!({"type": "subagent/started", "child": "a b"})],
            "a subagent/started event without its fields",
        ),
    ];
    let (place, root) = store();
    let whole = lines(&place, &root);
    for (events, what) in rows {
        write(&place, &root, &whole);
        let own = |event: &Value| event.to_string().replace("\"OWN\"", &format!("\"{root}\""));
        let events = events
            .iter()
            .map(|event| serde_json::from_str(&own(event)).expect("JSON"));
        append(&place, &root, &events.collect::<Vec<_>>());
        both_say(&place, &root, what);
    }
    // What stands at the beginning.
    type Edit<'a> = Box<dyn Fn(&mut Value) + 'a>;
    let edits: Vec<(Edit<'_>, &str)> = vec![
        (
            Box::new(|event| event["parent"] = root.clone().into()),
            "a root with the parent",
        ),
        (
            Box::new(|event| event["depth"] = 1.into()),
            "a root at the depth 1",
        ),
        (
            Box::new(|event| event["resumed"] = true.into()),
            "found a resumption",
        ),
        (
            Box::new(|event| *event = inserted("m", 0)),
            "expected session/start",
        ),
        (
            Box::new(|event| {
                event["origin"] = "subagent".into();
                event["parent"] = root.clone().into();
            }),
            "a session that is its own parent",
        ),
    ];
    for (change, what) in edits {
        write(&place, &root, &whole);
        edit(&place, &root, 0, change);
        both_say(&place, &root, what);
    }
    write(&place, &root, &whole);
    assert_eq!(listed(&place, &root)["status"], "completed");
}

#[test]
fn a_ring_of_sessions_is_damage_of_each() {
    let (place, root) = store();
    let text = std::fs::read_to_string(log_of(&place, &root)).expect("a log");
    let beginning: Vec<_> = text.lines().take(2).map(str::to_owned).collect();
    let ids = [(); 3].map(|()| AgentId::fresh().to_string());
    for (n, id) in ids.iter().enumerate() {
        let mut header: Value = serde_json::from_str(&beginning[0]).expect("a header");
        header["session"] = id.clone().into();
        header.as_object_mut().expect("an object").remove("check");
        write(&place, id, &[header.to_string(), beginning[1].clone()]);
        edit(&place, id, 0, |event| {
            event["origin"] = "subagent".into();
            event["depth"] = (n + 1).into();
            event["parent"] = ids[(n + 1) % 3].clone().into();
        });
    }
    for id in &ids {
        both_say(&place, id, "the sessions above it are a ring");
    }
    assert_eq!(listed(&place, &root)["status"], "completed");
    assert!(!refused(&place, &ids[0]).contains("expected a root"));
}

#[test]
fn a_value_without_a_bottom_is_refused_by_both() {
    let (place, root) = store();
    let mut all = lines(&place, &root);
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let seq = all.len() - 1;
    all.push(format!(
        "{{\"seq\":{seq},\"time\":\"2026-01-01T00:00:00.000Z\",\"event\":{{\"type\":\"x/y\",\"ignorable\":true,\"v\":{deep}}}}}"
    ));
    write(&place, &root, &all);
    both_say(&place, &root, "recursion limit exceeded");
}

/// Numbers at the ends of their ranges that can be gone on from are gone on from, as often as one likes.
#[test]
fn great_numbers_are_gone_on_from() {
    let (place, root) = store();
    let task = format!("bash-{}", 1_u64 << 53);
    append(
        &place,
        &root,
        &[
            inserted("m", MAX),
            started(&task, "bash"),
            json!({"type": "task/settled", "task_id": "bash-7", "status": "failed", "reported": false}),
            run("subagent/settled", "a", "r"),
            json!({"type": "x/y", "ignorable": true, "task_id": "\u{1b}"}),
            json!({"type": "task/started", "ignorable": true, "task_id": "\u{1b}"}),
        ],
    );
    edit(&place, &root, 0, |event| {
        event["label"] = "\u{1b}[31m\nx".into()
    });
    for round in 0..3 {
        let session = listed(&place, &root);
        assert!(session.get("error").is_none(), "{session}");
        let run = place.events(
            json!({"agents": {"root": [
                {"calls": [{"name": "bash", "args": {"command": "true", "run_in_background": true}}]},
                {"text": "b", "repeat": "forever"}]}}),
            &["two", "--store", "store", "--resume", &root],
        );
        assert_eq!(run.code, Some(0), "round {round}: {}", run.stderr);
        assert_eq!(
            run.kind("task/settled").len(),
            if round == 0 { 2 } else { 1 }
        );
        assert_eq!(run.result["text"], "b");
    }
    let text = bounded(&place, &["sessions", "--store", "store"]).stdout;
    assert!(!text.contains(&0x1b));
}

/// A log that refused the beginning of a task may have its end.
#[test]
fn an_id_of_which_only_the_end_is_known_is_not_used_again() {
    let (place, root) = store();
    append(&place, &root, &[settled("bash-1", "failed")]);
    let run = place.events(
        json!({"agents": {"root": [
            {"calls": [{"name": "bash", "args": {"command": "true", "run_in_background": true}}]},
            {"text": "b", "repeat": "forever"}]}}),
        &["two", "--store", "store", "--resume", &root],
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.kind("task/started")[0]["task_id"], "bash-2");
    assert_eq!(listed(&place, &root)["status"], "completed");
}
