//! What every tool is shown as and how it reads its arguments.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use offshoot_agent::{Agent, AgentSpec, Prompt, ToolFilter};
use offshoot_tools::schema::Variant;
use serde_json::{Value, json};
use support::{Setup, World, soon};

fn walk(value: &Value, visit: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                visit(key, value);
                walk(value, visit);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, visit)),
        _ => {}
    }
}

#[tokio::test]
async fn b133_b136_b137_every_schema_is_a_plain_strict_object() {
    let world = World::new();
    let names: Vec<_> = world
        .toolbox
        .tools
        .iter()
        .map(|t| t.name().to_owned())
        .collect();
    assert_eq!(
        names,
        [
            "subagent",
            "send_message",
            "interrupt_agent",
            "list_agents",
            "task_output",
            "task_list",
            "task_kill",
            "bash"
        ]
    );
    for tool in world.toolbox.tools.iter() {
        let (name, schema) = (tool.name(), tool.input_schema());
        assert_eq!(schema["type"], "object", "{name}");
        assert_eq!(schema["additionalProperties"], false, "{name}");
        let properties = schema["properties"].as_object().unwrap();
        for required in schema["required"].as_array().into_iter().flatten() {
            assert!(
                properties.contains_key(required.as_str().unwrap()),
                "{name}"
            );
        }
        for (property, schema) in properties {
            assert!(schema["type"].is_string(), "{name}.{property}: {schema}");
            assert!(schema["description"].is_string(), "{name}.{property}");
        }
        walk(schema, &mut |key, value| {
            let banned = [
                "$schema",
                "$id",
                "$ref",
                "$defs",
                "definitions",
                "oneOf",
                "anyOf",
                "allOf",
                "not",
                "format",
                "default",
                "title",
            ];
            assert!(!banned.contains(&key), "{name}: {key}: {value}");
        });
        assert!(
            !tool.description().contains("job"),
            "{name}: the word is task"
        );
    }
}

/// (tool, arguments that are taken, arguments that are refused with the name that the error shows)
type Row = (&'static str, Vec<Value>, Vec<(Value, &'static str)>);

fn table() -> Vec<Row> {
    let task = |more: Value| {
        let mut args = json!({"task_id": "render-1"});
        args.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        args
    };
    vec![
        (
            "task_output",
            vec![
                task(json!({})),
                task(json!({"wait": null, "timeout_ms": null})),
                task(json!({"wait": "False", "timeout_ms": "750"})),
                task(json!({"wait": false, "timeout_ms": 750.0})),
                task(json!({"wait": "true", "timeout_ms": 1})),
                task(json!({"timeoutMs": 10})),
                task(json!({"timeout_ms": 9_007_199_254_740_993_u64})),
                json!({"task_id": " render-1 "}),
            ],
            vec![
                (json!({}), "task_id"),
                (json!({"task_id": ""}), "task_id"),
                (json!({"task_id": null}), "task_id"),
                (json!({"task_id": 17}), "task_id"),
                (json!({"task_id": ["render-1"]}), "task_id"),
                (task(json!({"wait": "yes"})), "wait"),
                (task(json!({"wait": 1})), "wait"),
                (task(json!({"timeout_ms": 0})), "timeout_ms"),
                (task(json!({"timeout_ms": -5})), "timeout_ms"),
                (task(json!({"timeout_ms": "750ms"})), "timeout_ms"),
                (task(json!({"timeout_ms": "1e9999"})), "timeout_ms"),
                (task(json!({"timeout_ms": 1.5})), "timeout_ms"),
                (task(json!({"timeout_ms": true})), "timeout_ms"),
            ],
        ),
        (
            "task_list",
            vec![json!({}), json!({"x": 1}), Value::Null],
            vec![],
        ),
        (
            "task_kill",
            vec![
                task(json!({"reason": null})),
                task(json!({"reason": ""})),
                task(json!({})),
            ],
            vec![
                (json!({}), "task_id"),
                (json!({"task_id": ""}), "task_id"),
                (task(json!({"reason": 5})), "reason"),
            ],
        ),
        (
            "list_agents",
            vec![
                json!({}),
                json!({"scope": null}),
                json!({"scope": "descendants"}),
                json!({"scope": ""}),
            ],
            vec![
                (json!({"scope": "all"}), "scope"),
                (json!({"scope": 1}), "scope"),
            ],
        ),
        (
            "send_message",
            vec![],
            vec![
                (json!({"message": "x"}), "agent_id"),
                (json!({"agent_id": "a"}), "message"),
                (json!({"agent_id": "a", "message": ""}), "message"),
                (json!({"agent_id": 1, "message": "x"}), "agent_id"),
            ],
        ),
        (
            "interrupt_agent",
            vec![],
            vec![
                (json!({}), "agent_id"),
                (json!({"agent_id": {}}), "agent_id"),
            ],
        ),
        (
            "bash",
            vec![
                json!({"command": "true", "description": null, "run_in_background": null, "timeout_ms": null}),
                json!({"command": "true", "run_in_background": "false", "timeout_ms": "60000"}),
            ],
            vec![
                (json!({}), "command"),
                (json!({"command": " "}), "command"),
                (json!({"command": ["true"]}), "command"),
                (
                    json!({"command": "true", "run_in_background": "no"}),
                    "run_in_background",
                ),
                (json!({"command": "true", "timeout_ms": 0}), "timeout_ms"),
                (json!({"command": "true", "description": 5}), "description"),
            ],
        ),
        (
            "subagent",
            vec![
                json!({"description": "d", "prompt": "p", "run_in_background": null}),
                json!({"description": "d", "prompt": "p", "run_in_background": "False"}),
            ],
            vec![
                (json!({"prompt": "p"}), "description"),
                (json!({"description": "d"}), "prompt"),
                (json!({"description": "d", "prompt": "\n"}), "prompt"),
                (
                    json!({"description": "d", "prompt": "p", "run_in_background": "sure"}),
                    "run_in_background",
                ),
            ],
        ),
    ]
}

#[tokio::test]
async fn b139_b140_b142_b143_b145_arguments_are_read_leniently_or_refused_by_name() {
    let world = World::new();
    let root = world.root();
    let (_, end) = world.task(&root, "frame 1");
    for (tool, taken, refused) in table() {
        for args in refused {
            let output = world.call(&root, tool, args.0.clone()).await;
            assert!(output.is_error, "{tool} {}", args.0);
            assert_eq!(
                output.code.as_deref(),
                Some("INVALID_ARGUMENTS"),
                "{tool} {}",
                args.0
            );
            let start = format!("Error: invalid arguments: {}: expected ", args.1);
            assert!(
                output.text.starts_with(&start),
                "{tool} {}: {}",
                args.0,
                output.text
            );
            assert!(output.text.contains(", got "), "{}", output.text);
        }
        for args in taken {
            let output = soon(tool, world.call(&root, tool, args.clone())).await;
            assert!(!output.is_error, "{tool} {args}: {}", output.text);
        }
    }
    drop(end);
    soon("rest", root.rest()).await;
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn o139_o140_a_list_has_the_callers_tasks_only() {
    let world = World::new();
    let (root, other) = (world.root(), world.root());
    let list = world.call(&root, "task_list", json!({})).await;
    assert_eq!(list.text, "(no background tasks)");
    assert_eq!(list.value, Some(json!([])));
    let (id, end) = world.task(&root, "rotate key ZQX-11\n[status: completed]");
    let (_, kept) = world.task(&root, "frame 2");
    end.output("x");
    world.settled(&root, &id).await;
    let list = world.call(&root, "task_list", json!({})).await;
    let lines = [
        "render-1 [render] completed — rotate key ZQX-11 [status: completed]",
        "render-2 [render] running — frame 2",
    ];
    assert_eq!(list.text, lines.join("\n"));
    let value = list.value.unwrap();
    let keys: Vec<_> = value[0].as_object().unwrap().keys().cloned().collect();
    assert_eq!(
        keys,
        [
            "id",
            "kind",
            "label",
            "status",
            "started_at",
            "elapsed_ms",
            "finished_at"
        ]
    );
    // B079, B080: to another agent there is nothing, and no sign that there is.
    let list = world.call(&other, "task_list", json!({})).await;
    assert_eq!(list.text, "(no background tasks)");
    for tool in ["task_output", "task_kill"] {
        let foreign = world
            .call(&other, tool, json!({"task_id": "render-2"}))
            .await;
        let unknown = world
            .call(&other, tool, json!({"task_id": "render-99"}))
            .await;
        let impossible = world
            .call(&other, tool, json!({"task_id": "no such\nthing"}))
            .await;
        assert_eq!(
            foreign.text.replace("render-2", "X"),
            unknown.text.replace("render-99", "X")
        );
        assert_eq!(
            impossible.text,
            "Error: unknown task no such thing; task_list shows yours"
        );
        for output in [&foreign, &unknown, &impossible] {
            assert_eq!(
                output.code.as_deref(),
                Some("UNKNOWN_TASK"),
                "{tool}: {}",
                output.text
            );
        }
    }
    drop(kept);
    world.close(&other).await;
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn p142_p149_a_kill_says_what_it_found_and_keeps_the_output() {
    let world = World::new();
    let root = world.root();
    let (id, _end) = world.task(&root, "frame 1");
    let args = json!({"task_id": id.to_string(), "reason": "not\nneeded"});
    let killed = world.call(&root, "task_kill", args.clone()).await;
    assert_eq!(killed.text, "requested cancellation of task render-1");
    let value = killed.value.unwrap();
    assert_eq!(value["outcome"], "cancellation-requested");
    assert_eq!(value["task"]["status"], "stopping");
    world.settled(&root, &id).await;
    let again = world.call(&root, "task_kill", args).await;
    assert_eq!(
        again.text,
        "task render-1 had already finished [status: killed]"
    );
    assert_eq!(again.value.unwrap()["outcome"], "already-finished");
    let stopping = world.extensions("task/stopping");
    assert_eq!(stopping.len(), 1, "once a task");
    assert_eq!(stopping[0].field("by"), Some("model"));
    assert_eq!(stopping[0].field("reason"), Some("not needed"));
    assert!(world.accepted(&root, "task").is_empty(), "the model knows");
    let (done, end) = world.task(&root, "frame 2");
    end.with(offshoot_task::TaskOutcome::failed("out of memory").with_output(&*"x".repeat(5000)));
    world.settled(&root, &done).await;
    let late = world
        .call(&root, "task_kill", json!({"task_id": done.to_string()}))
        .await;
    assert_eq!(
        late.text,
        "task render-2 had already finished [status: failed, out of memory]"
    );
    let read = world
        .call(&root, "task_output", json!({"task_id": done.to_string()}))
        .await;
    assert!(read.text.starts_with("xxxxx"), "unread output survives");
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn list_agents_and_messages_have_their_shapes() {
    let agents = json!({
        "root": [{"text": "ok", "repeat": "forever"}],
        "first": [{"text": "one", "await": ["go"]}, {"text": "two"}],
    });
    let world = World::plays(agents, support::Setup::default());
    let root = world.root();
    assert_eq!(
        world.call(&root, "list_agents", json!({})).await.text,
        "(no subagents)"
    );
    let args = json!({"description": "first", "prompt": "p"});
    let started = world.call(&root, "subagent", args).await;
    let value = started.value.unwrap();
    let id = value["agent_id"].as_str().unwrap().to_owned();
    assert_eq!(started.text, format!("started subagent {id}"));
    assert_eq!(value["kind"], "continuable");
    let list = world
        .call(&root, "list_agents", json!({"scope": "descendants"}))
        .await;
    assert_eq!(
        list.text,
        format!("{id} [running] parent={} depth=1 — first (0 s)", root.id())
    );
    let said = world
        .call(
            &root,
            "send_message",
            json!({"agent_id": id, "message": "x"}),
        )
        .await;
    let expected = format!(
        "message delivered to agent {id} (accepted; running: it reads the message at its next step)"
    );
    assert_eq!(said.text, expected);
    assert_eq!(said.value.unwrap()["delivery"], "running");
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    world.gates.open("go");
    soon("rest", root.rest()).await;
    let list = world.call(&root, "list_agents", json!({})).await;
    assert_eq!(list.text, format!("{id} [ready] — first (2 s)"));
    let usage = &list.value.unwrap()[0]["usage"];
    assert_eq!(
        (&usage["wall_ms"], &usage["total_wall_ms"]),
        (&json!(2_500), &json!(2_500)),
        "decision 20"
    );
    let stopped = world
        .call(&root, "interrupt_agent", json!({"agent_id": id}))
        .await;
    assert_eq!(
        stopped.text,
        format!(
            "interrupt requested for agent {id}: it has finished already, and nothing was stopped"
        ),
        "a no-op is accepted, and says what it is"
    );
    assert_eq!(
        stopped.value.unwrap(),
        json!({"accepted": true, "state": "settled"})
    );
    let nobody = json!({"agent_id": "nobody", "message": "x"});
    let said = world.call(&root, "send_message", nobody).await;
    assert_eq!(said.code.as_deref(), Some("UNKNOWN_AGENT"));
    assert!(
        said.text
            .starts_with("Error: not delivered: unknown agent nobody"),
        "{}",
        said.text
    );
    let stopped = world.call(
        &root,
        "interrupt_agent",
        json!({"agent_id": root.id().as_str()}),
    );
    assert_eq!(stopped.await.code.as_deref(), Some("UNKNOWN_AGENT"));
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn b061_long_lists_keep_their_end_and_say_how_much_is_missing() {
    let mut setup = support::Setup::default();
    setup.tools.task_output.max_bytes = 2048;
    setup.tasks.max_live_per_owner = 30;
    let world = World::with(setup);
    let root = world.root();
    let ends: Vec<_> = (0..30)
        .map(|n| world.task(&root, &format!("界 frame {n} {}", "x".repeat(90))))
        .collect();
    let list = world.call(&root, "task_list", json!({})).await;
    assert!(
        list.text.len() <= 2048 && list.text.starts_with('['),
        "{}",
        list.text
    );
    // Whole lines, so that none of them begins with a part of a label.
    let (mark, rest) = list.text.split_once(" bytes omitted]\n").unwrap();
    let whole = |line: &str| line.starts_with("render-") && line.ends_with('x');
    assert!(
        rest.lines().all(whole) && rest.contains("frame 29"),
        "{rest}"
    );
    let line = rest.lines().last().unwrap().len();
    let missing: usize = mark[1..].parse().unwrap();
    assert_eq!(missing + rest.len() + 1, 30 * (line + 1) - 9 - 10);
    assert_eq!(
        list.value.unwrap().as_array().unwrap().len(),
        30,
        "the value has all"
    );
    drop(ends);
    world.close(&root).await;
}

#[tokio::test]
async fn each_tool_says_what_its_calls_may_change() {
    let world = World::new();
    // Read only, destructive, idempotent, open to the world.
    let hints = |name: &str| {
        let tool = Arc::clone(world.toolbox.tools.get(name).unwrap());
        let told = Variant::Mcp.describe(tool.as_ref());
        [
            "readOnlyHint",
            "destructiveHint",
            "idempotentHint",
            "openWorldHint",
        ]
        .map(|hint| told["annotations"][hint].as_bool().unwrap())
    };
    for reads in ["task_output", "task_list", "list_agents"] {
        assert_eq!(hints(reads), [true, false, true, false], "{reads}");
    }
    assert_eq!(hints("task_kill"), [false, true, true, false]);
    assert_eq!(hints("interrupt_agent"), [false, true, false, false]);
    for anything in ["bash", "subagent", "send_message"] {
        assert_eq!(hints(anything), [false, true, false, true], "{anything}");
    }
    // What changes nothing disturbs no sibling.
    for tool in world.toolbox.tools.iter() {
        let harmless = !tool.effects().is_read_only() || tool.is_parallel_safe(&json!({}));
        assert!(harmless, "{}", tool.name());
    }
}

#[tokio::test]
async fn without_depth_there_is_nothing_to_delegate_with() {
    let mut setup = Setup::default();
    setup.subagents.max_depth = 0;
    let world = World::with(setup);
    let names: Vec<_> = world.toolbox.tools.iter().map(|t| t.name()).collect();
    assert_eq!(names, ["task_output", "task_list", "task_kill", "bash"]);
    let prompt = Prompt::new(world.toolbox.sections.iter().cloned());
    let shown = prompt.render(&world.toolbox.tools);
    assert!(
        !shown.contains("subagent") && !shown.contains("send_message"),
        "{shown}"
    );
}

#[tokio::test]
async fn who_has_no_listing_is_not_sent_to_it() {
    let world = World::new();
    let root = world.root();
    let mut kit = root.kit().clone();
    let deny = ToolFilter {
        allow: None,
        deny: Some(vec!["task_list".to_owned()]),
    };
    kit.tools = kit.tools.restrict(&deny).unwrap();
    let spec = AgentSpec::root(kit);
    let agent = Agent::create(&world.host, None, spec).unwrap().into_agent();
    let args = json!({"task_id": "bash-9"});
    for tool in ["task_output", "task_kill"] {
        let has = world.call(&root, tool, args.clone()).await;
        assert_eq!(
            has.text,
            "Error: unknown task bash-9; task_list shows yours"
        );
        let has_not = world.call(&agent, tool, args.clone()).await;
        assert_eq!(has_not.text, "Error: unknown task bash-9");
    }
}
