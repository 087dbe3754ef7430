//! What a file says is what the configuration has.

use std::collections::BTreeMap;

use super::*;

/// The documented file, whole.
const DOCUMENTED: &str = r#"
[tasks]
max_live_per_owner = 10
teardown_grace_ms = 5000
retain_finished = 100
[notices]
delivery = "wakeup"
max_wake_chain = 100
waiting_after_ms = 30000
inline_bytes = 4096
[tools.task_output]
wait_timeout_ms = 30000
max_wait_timeout_ms = 600000
max_bytes = 32768
[tools.bash]
enabled = true
enable_run_in_background = true
timeout_ms = 120000
env_allow = []
[limits]
max_depth = 3
max_live_children = 64
subagent_stop_grace_ms = 10000
subagent_dispose_grace_ms = 15000
max_parallel_tools = 10
tool_timeout_ms = 600000
max_steps_per_turn = 200
max_steered_steps = 8
max_waiting_messages = 10000
[sessions]
sync = "close"
auto_wake = true
[[subagent]]
tool_name = "subagent"
provider = "spawn"
background_mode = "continuable"
enable_run_in_background = true
"#;

#[test]
fn the_defaults_are_the_documented_ones() {
    assert_eq!(toml(DOCUMENTED), Ok(Config::default()));
    assert_eq!(toml(""), Ok(Config::default()));
    assert_eq!(ConfigLayers::new().build(), Ok(Config::default()));
}

#[test]
fn tools_and_providers_are_read() {
    let expected = Config {
        subagent: vec![
            SubagentConfig {
                tool_name: "ask".to_owned(),
                provider: "peer".to_owned(),
                background_mode: BackgroundMode::OneShot,
                enable_run_in_background: false,
                ..SubagentConfig::default()
            },
            SubagentConfig {
                tool_name: "terse".to_owned(),
                persona: Some("You are terse.".to_owned()),
                tool_filter: Some(ToolFilter {
                    allow: None,
                    deny: Some(vec!["bash".to_owned()]),
                }),
                ..SubagentConfig::default()
            },
        ],
        acp: vec![AcpConfig {
            name: "peer".to_owned(),
            command: "some-agent".to_owned(),
            args: vec!["--acp".to_owned()],
            env: BTreeMap::new(),
            env_allow: Vec::new(),
            cwd: None,
            permission: Permission::Allow,
            files: Files::None,
            start_timeout_ms: 60_000,
            timeout_ms: None,
            cancel_grace_ms: 1_000,
            exit_grace_ms: 3_000,
        }],
        process: vec![ProcessConfig {
            name: "cli".to_owned(),
            command: "some-program".to_owned(),
            args: ["exec", "--json", "{prompt}"].map(str::to_owned).into(),
            env: [("A_TOKEN".to_owned(), "x".to_owned())].into(),
            env_allow: vec!["B_*".to_owned()],
            cwd: Some("sub".into()),
            timeout_ms: Some(5_000),
            answer: Some("item.text".to_owned()),
            input_tokens: None,
            output_tokens: Some("usage.output".to_owned()),
            exit_codes: [
                ("0".to_owned(), ExitMeaning::Completed),
                ("3".to_owned(), ExitMeaning::Refusal),
            ]
            .into(),
        }],
        ..Config::default()
    };
    assert_eq!(toml(CHILDREN), Ok(expected));
}

#[test]
fn a_configuration_survives_being_written() {
    for config in [Config::default(), toml(CHILDREN).expect("a good file")] {
        let value = serde_json::to_value(&config).expect("JSON");
        assert_eq!(ConfigLayers::new().json("copy", value).build(), Ok(config));
    }
}
