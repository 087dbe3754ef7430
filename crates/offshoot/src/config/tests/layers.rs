//! Sources that lie over each other, and which of them is named for a fault.

use serde_json::json;

use super::*;

#[test]
fn each_source_goes_over_those_before_it_and_overrides_reach_into_arrays() {
    let config = ConfigLayers::new()
        .toml("f.toml", "[limits]\nmax_depth = 1\nmax_live_children = 5")
        .expect("TOML")
        .script("s.json", json!({"limits": {"max_depth": 2}}))
        .set("limits.max_parallel_tools = 4")
        .and_then(|layers| layers.set("subagent.0.background_mode=one-shot"))
        .and_then(|layers| layers.set("subagent.0.persona=You are = terse."))
        .and_then(|layers| layers.set("subagent.0.tool_filter={ deny = [\"bash\"] }"))
        .and_then(|layers| layers.build())
        .expect("a good configuration");
    let limits = LimitsConfig {
        max_depth: 2,
        max_live_children: 5,
        max_parallel_tools: 4,
        ..LimitsConfig::default()
    };
    let subagent = SubagentConfig {
        background_mode: BackgroundMode::OneShot,
        persona: Some("You are = terse.".to_owned()),
        tool_filter: Some(ToolFilter {
            allow: None,
            deny: Some(vec!["bash".to_owned()]),
        }),
        ..SubagentConfig::default()
    };
    let expected = Config {
        limits,
        subagent: vec![subagent],
        ..Config::default()
    };
    assert_eq!(config, expected);
}

#[test]
fn each_fault_names_the_source_that_made_it() {
    let base = ConfigLayers::new()
        .toml(
            "f.toml",
            "[tools.task_output]\nwait_timeout_ms = 50000\n[[subagent]]\nprovider = \"spawn\"",
        )
        .expect("TOML");
    let script = |value| base.clone().script("s.json", value);
    let set = |text| {
        base.clone()
            .script("s.json", json!({"limits": {"max_depth": 1}}))
            .set(text)
    };
    let faults = [
        ("config = 5", shown(script(json!(5)).build())),
        (
            "null",
            shown(script(json!({"tasks": {"retain_finished": null}})).build()),
        ),
        (
            "script, unknown key",
            shown(script(json!({"limits": {"depth": 1}})).build()),
        ),
        (
            "script, in an array",
            shown(script(json!({"subagent": [{"provider": "x"}]})).build()),
        ),
        (
            "a cap below what the file says",
            shown(
                script(json!({"tools": {"task_output": {"max_wait_timeout_ms": 40000}}})).build(),
            ),
        ),
        (
            "--set, no value",
            shown(set("limits").and_then(|l| l.build())),
        ),
        (
            "--set, a bad key",
            shown(set(".limits=1").and_then(|l| l.build())),
        ),
        (
            "--set, a bad type",
            shown(set("limits.max_depth=deep").and_then(|l| l.build())),
        ),
        (
            "--set, a table",
            shown(set("limits=1").and_then(|l| l.build())),
        ),
        (
            "--set, JSON for an array",
            shown(set(r#"subagent=[{"tool_name":"z"}]"#).and_then(|l| l.build())),
        ),
        (
            "--set, JSON for a table",
            shown(set(r#"limits={"max_depth":2}"#).and_then(|l| l.build())),
        ),
        (
            "--set, TOML for an array",
            shown(set(r#"subagent=[{ tool_name = "z" }]"#).and_then(|l| l.build())),
        ),
        (
            "--set, a text in brackets",
            shown(set("subagent.0.persona=[terse]").and_then(|l| l.build())),
        ),
        (
            "--set, a tool that a filter names",
            shown(
                set("subagent.0.tool_filter={ deny = [\"bash\"] }")
                    .and_then(|l| l.set("tools.bash.enabled=false"))
                    .and_then(|l| l.build()),
            ),
        ),
        (
            "--set, unknown table",
            shown(set("limit.max_depth=1").and_then(|l| l.build())),
        ),
        (
            "--set, below a number",
            shown(set("limits.max_depth.x=1").and_then(|l| l.build())),
        ),
        (
            "--set, no such entry",
            shown(set("subagent.1.provider=fork").and_then(|l| l.build())),
        ),
        (
            "--set, a key without end",
            shown(set(&format!("{}a=1", "a.".repeat(50_000))).and_then(|l| l.build())),
        ),
        (
            "--set, a schema far down",
            shown(
                set(&format!("subagent.0.output_schema{}=1", ".a".repeat(60)))
                    .and_then(|l| l.build()),
            ),
        ),
        (
            "--set, far beyond the entries",
            shown(set("subagent.5.provider=fork").and_then(|l| l.build())),
        ),
        (
            "--set, an entry without its number",
            shown(set("subagent.provider=fork").and_then(|l| l.build())),
        ),
        (
            "--set, an array without entries",
            shown(set("process.0.command=cat").and_then(|l| l.build())),
        ),
        (
            "--set, in an array",
            shown(set("subagent.0.provider=fork2").and_then(|l| l.build())),
        ),
        (
            "no file",
            shown(
                ConfigLayers::new()
                    .file("missing.toml".as_ref())
                    .and_then(|l| l.build()),
            ),
        ),
    ];
    let table: Vec<String> = faults
        .iter()
        .map(|(of, line)| format!("{of}\n  {line}"))
        .collect();
    insta::assert_snapshot!(table.join("\n"));
}
