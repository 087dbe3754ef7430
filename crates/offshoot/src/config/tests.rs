use serde_json::json;

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

const CHILDREN: &str = r#"
[[subagent]]
tool_name = "ask"
provider = "peer"
background_mode = "one-shot"
enable_run_in_background = false
[[subagent]]
tool_name = "terse"
persona = "You are terse."
tool_filter = { deny = ["bash"] }
[[acp]]
name = "peer"
command = "some-agent"
args = ["--acp"]
permission = "allow"
[[process]]
name = "cli"
command = "some-program"
args = ["exec", "--json", "{prompt}"]
env = { A_TOKEN = "x" }
env_allow = ["B_*"]
cwd = "sub"
timeout_ms = 5000
answer = "item.text"
output_tokens = "usage.output"
exit_codes = { 0 = "completed", 3 = "refusal" }
"#;

fn toml(text: &str) -> Result<Config, ConfigError> {
    ConfigLayers::new().toml("f.toml", text)?.build()
}

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
fn a_schema_is_a_table_or_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("answer.json");
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    std::fs::write(&path, schema.to_string()).expect("a file");
    let path = path.display();
    let table = "{ type = \"object\", properties = { n = { type = \"integer\" } } }";
    for value in [table.to_owned(), format!("'{path}'")] {
        let text = format!("[[subagent]]\nbackground_mode = \"one-shot\"\noutput_schema = {value}");
        let config = toml(&text).expect("a good file");
        let read = config.subagent[0].output_schema.as_ref();
        assert_eq!(read.map(|it| it.schema()), Some(&schema), "{value}");
    }
    std::fs::write(folder.path().join("answer.json"), "{").expect("a file");
    let text = format!("[[subagent]]\nbackground_mode = \"one-shot\"\noutput_schema = '{path}'");
    let error = toml(&text).expect_err("not JSON");
    assert_eq!(
        (error.code(), error.key()),
        ("CONFIG_SYNTAX", "subagent[0].output_schema")
    );
}

#[test]
fn a_schema_file_is_beside_the_file_that_names_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let schema = json!({ "type": "object" });
    std::fs::write(folder.path().join("answer.json"), schema.to_string()).expect("a file");
    let file = folder.path().join("offshoot.toml");
    let text = "[[subagent]]\nbackground_mode = \"one-shot\"\noutput_schema = \"answer.json\"";
    std::fs::write(&file, text).expect("a file");
    let config = ConfigLayers::new().file(&file).and_then(|it| it.build());
    let config = config.expect("a good file");
    let read = config.subagent[0].output_schema.as_ref();
    assert_eq!(read.map(|it| it.schema()), Some(&schema));
    // Text has no folder.
    assert_eq!(toml(text).expect_err("no file").code(), "CONFIG_READ");
}

#[test]
fn the_graces_of_children_fit_into_that_of_a_killed_task() {
    let limits = |stop: u64, dispose: u64| {
        toml(&format!(
            "[limits]\nsubagent_stop_grace_ms = {stop}\nsubagent_dispose_grace_ms = {dispose}"
        ))
    };
    assert!(limits(14_999, 15_000).is_ok());
    let error = limits(15_000, 15_000).expect_err("too long");
    assert_eq!(error.code(), "CONFIG_CONTRADICTION");
    assert!(error.to_string().contains("30000 ms"), "{error}");
    assert!(limits(u64::MAX >> 1, u64::MAX >> 1).is_err());
    assert!(limits(0, 1).is_err());
}

#[test]
fn a_configuration_survives_being_written() {
    for config in [Config::default(), toml(CHILDREN).expect("a good file")] {
        let value = serde_json::to_value(&config).expect("JSON");
        assert_eq!(ConfigLayers::new().json("copy", value).build(), Ok(config));
    }
}

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
fn each_bad_file_is_one_line_that_names_the_key() {
    let faults = [
        "tasks = ",
        "[tasks]\nretain_finished = 1\nretain_finished = 2",
        "unknown = 1",
        "[tasks]\nmax_live = 1",
        "[tools.bush]\nenabled = true",
        "tasks = 1",
        "tasks = []",
        "[tasks]\nmax_live_per_owner = 0",
        "[tasks]\nmax_live_per_owner = -1",
        "[tasks]\nmax_live_per_owner = 1.5",
        "[tasks]\nmax_live_per_owner = nan",
        "[tasks]\nmax_live_per_owner = inf",
        "[tasks]\nmax_live_per_owner = \"ten\"",
        "[limits]\nmax_depth = 4294967296",
        "[limits]\nmax_steps_per_turn = 0",
        "[limits]\nmax_parallel_tools = 0",
        "[limits]\nmax_waiting_messages = 0",
        "[notices]\ndelivery = \"loud\"",
        "[tools.bash]\nenabled = \"yes\"",
        "[tools.bash]\ntimeout_ms = 0",
        "[tools.bash]\nenv_allow = \"HTTPS_PROXY\"",
        "[tools.bash]\nenv_allow = [\"HTTPS_PROXY\", \"OURS\", \"OURS\", \"http_proxy\", \"A-B.C\"]",
        "[tools.bash]\nenv_allow = [\"OK\", \"\"]",
        "[tools.bash]\nenv_allow = [\"OK\", \"A=B\"]",
        "[tools.bash]\nenv_allow = [\"OK\", \"A\\u0000B\"]",
        "[tools.bash]\nenv_allow = [\"OK\", \" A\"]",
        "[tools.bash]\nenv_allow = [\"OK\", \"MY_*\"]",
        "[tools.bash]\nenv_allow = [\"OK\", \"*\"]",
        "[tools.task_output]\nwait_timeout_ms = 600001",
        "[tools.task_output]\nmax_wait_timeout_ms = 1000",
        "[tools.task_output]\nmax_bytes = 0",
        "[tools.task_output]\nmax_bytes = 2047",
        "subagent = 1",
        "subagent = [1]",
        "[subagent]\nprovider = \"spawn\"",
        "[[subagent]]\nprovder = \"spawn\"",
        "[[subagent]]\nprovider = \"peer\"",
        "[[subagent]]\nbackground_mode = \"detached\"",
        "[[subagent]]\ntool_name = \"\"",
        "[[subagent]]\ntool_name = \"two words\"",
        "[[subagent]]\ntool_name = \"bash\"",
        "[[subagent]]\ntool_name = \"structured_output\"",
        "[[subagent]]\n[[subagent]]",
        "[[subagent]]\ntool_filter = {}",
        "[[subagent]]\ntool_filter = []",
        "[[subagent]]\ntool_filter = { allow = [] }",
        "[[subagent]]\ntool_filter = { deny = [\"bash\"], allow = [] }",
        "[[subagent]]\ntool_filter = { deny = \"bash\" }",
        "[[subagent]]\ntool_filter = { deny = [\"bash\", \"\"] }",
        "[[subagent]]\ntool_filter = { deny = [\"bash\", \"bsah\"] }",
        "[[subagent]]\ntool_filter = { allow = [\"Bash\"] }",
        "[[subagent]]\ntool_filter = { allow = [\"ask\", \"bash\"] }\n[[subagent]]\ntool_name = \"ask\"",
        "[[subagent]]\ntool_filter = { allow = [\"bash\", \"task_list\"], deny = [\"task_list\"] }",
        "[tools.bash]\nenabled = false\n[[subagent]]\ntool_filter = { deny = [\"bash\"] }",
        "[tools.bash]\nenabled = false\n[[subagent]]\ntool_filter = { deny = [\"x\"] }",
        "[[acp]]\nname = \"peer\"",
        "[[acp]]\nname = \" \"\ncommand = \"a\"",
        "[[acp]]\nname = \"a\"\ncommand = \"a\"\npermission = \"ask\"",
        "[[process]]\nname = \"cli\"\ncommand = \"\"",
        "[[process]]\nname = \"fork\"\ncommand = \"a\"",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\n[[acp]]\nname = \"a\"\ncommand = \"a\"",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\nanswer = \"item..text\"",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\nexit_codes = { x = \"error\" }",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\nexit_codes = { 256 = \"error\" }",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\ntimeout_ms = 0",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\ncwd = \"\"",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\nenv = { \"a=b\" = \"c\" }",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\nenv_allow = [\"OK\", \"OK_*\", \"*\"]",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\nenv_allow = [\"OK\", \"OK_*\", \"A=B\"]",
        "[[acp]]\nname = \"a\"\ncommand = \"a\"\nenv_allow = [\"OK\", \"OK_*\", \"\"]",
        "[[acp]]\nname = \"a\"\ncommand = \"a\"\nenv_allow = [\"OK\", \"OK_*\", \"A*B\"]",
        "[[acp]]\nname = \"a\"\ncommand = \"a\"\nenv_allow = [\"OK\", \"OK_*\", \" A\"]",
        "[[acp]]\nname = \"a\"\ncommand = \"a\"\nfiles = \"all\"",
        "[[acp]]\nname = \"a\"\ncommand = \"a\"\nstart_timeout_ms = 0",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\nexit_codes = { \"+5\" = \"error\" }",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\nexit_codes = { 5 = \"refusal\", 05 = \"error\" }",
        "[[process]]\nname = \"a\\nb\"\ncommand = \"a\"",
        "[[process]]\nname = \"a \"\ncommand = \"a\"",
        "[[acp]]\nname = \"a\\u0007b\"\ncommand = \"a\"",
        "[[acp]]\nname = \"a\\u202eb\"\ncommand = \"a\"",
        "[[acp]]\nname = \"0123456789012345678901234567890123456789012345678901234567890123\"\ncommand = \"a\"",
        "[[acp]]\nname = \"01234567890123456789012345678901234567890123456789012345678901234\"\ncommand = \"a\"",
        "[[acp]]\nname = \"a\"\ncommand = \"a\\u0000b\"",
        "[[process]]\nname = \"a\"\ncommand = \"a\\u0000b\"",
        "[[acp]]\nname = \"a\"\ncommand = \"a\"\nargs = [\"b\", \"\\u0000\"]",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\nargs = [\"two\\nlines\", \"b\\u0000\"]",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\nenv = { A = \"two\\nlines\", B = \"c\\u0000d\" }",
        "[[acp]]\nname = \"a\"\ncommand = \"a\"\nenv = { \"\" = \"c\" }",
        "[[acp]]\nname = \"a\"\ncommand = \"a\"\nenv = { \"a\\nb\" = \"c\" }",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\nenv_allow = [\"a\\u0007b\"]",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\ncwd = \"a\\u0000b\"",
        "[[subagent]]\ntool_name = \"a\\nb\"",
        "[[subagent]]\nprovider = \"a\\nb\"",
        "[[process]]\nname = \"cli\"\ncommand = \"a\"\n[[acp]]\nname = \"peer\"\ncommand = \"a\"\n[[subagent]]\nprovider = \"per\"",
        "[model]\nname = \"openai/a\"\nbase_url = \"http://a\\nb/\"",
        "[model]\nname = \"openai/a\"\nbase_url = \"\"",
        "[model]\nmax_output_tokens = 0",
        "[model]\nmax_output_tokens = -1",
        "[model]\nmax_output_tokens = \"many\"",
        "[model]\nmax_output_tokens = 4294967296",
        "[model]\nmax_output_tokens = 4294967295",
        "[tasks]\nmax_live_per_owner =\n",
        "[tasks]\nmax_live_per_owner = ten",
        "[notices]\ndelivery = quiet",
        "[tools.bash]\nenabled = no",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\n[[subagent]]\nprovider = \"a\"",
        "[[acp]]\nname = \"a\"\ncommand = \"a\"\n[[subagent]]\nprovider = \"a\"\nbackground_mode = \"continuable\"",
        "[[acp]]\nname = \"a\"\ncommand = \"a\"\n[[subagent]]\nprovider = \"a\"\nbackground_mode = \"one-shot\"\npersona = \"x\"",
        "[[acp]]\nname = \"a\"\ncommand = \"a\"\n[[subagent]]\nprovider = \"a\"\nbackground_mode = \"one-shot\"\ntool_filter = { deny = [\"bash\"] }",
        "[[process]]\nname = \"a\"\ncommand = \"a\"\n[[subagent]]\nprovider = \"a\"\nbackground_mode = \"one-shot\"\noutput_schema = { type = \"object\" }",
        "[[subagent]]\noutput_schema = { type = \"object\" }",
        "[[subagent]]\nbackground_mode = \"one-shot\"\noutput_schema = { type = \"array\" }",
        "[[subagent]]\nbackground_mode = \"one-shot\"\noutput_schema = { type = \"object\", properties = { a = { type = \"strin\" } } }",
        "[[subagent]]\nbackground_mode = \"one-shot\"\noutput_schema = { type = \"object\", properties = { a = { \"$ref\" = \"a.json\" } } }",
        "[[subagent]]\nbackground_mode = \"one-shot\"\noutput_schema = \"no/such/schema.json\"",
        "[[subagent]]\nbackground_mode = \"one-shot\"\noutput_schema = 5",
    ];
    let table: Vec<String> = faults
        .iter()
        .map(|text| format!("{text}\n  {}", shown(toml(text))))
        .collect();
    insta::assert_snapshot!(table.join("\n"));
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

fn shown(result: Result<Config, ConfigError>) -> String {
    match result {
        Ok(_) => "accepted".to_owned(),
        Err(error) => {
            let line = error.to_string();
            assert!(!line.contains('\n'), "{line:?}");
            format!("{} {line}", error.code())
        }
    }
}

#[test]
fn a_provider_that_is_used_and_not_in_this_build_is_named() {
    let layers = ConfigLayers::new().toml("f.toml", CHILDREN).expect("TOML");
    for (provider, there) in [
        ("peer", cfg!(feature = "acp")),
        ("cli", cfg!(feature = "process")),
        ("fork", true),
    ] {
        let layers = layers
            .clone()
            .set(&format!("subagent.0.provider={provider}"));
        let shown = shown(layers.expect("an override").build_available());
        let expected = if there {
            "accepted".to_owned()
        } else {
            format!(
                "CONFIG_UNAVAILABLE_PROVIDER --set: subagent[0].provider: provider \"{provider}\" is not available in this build"
            )
        };
        assert_eq!(shown, expected);
    }
}

#[test]
fn a_filter_may_name_a_tool_that_the_program_adds() {
    let text = "[[subagent]]\ntool_filter = { allow = [\"render\"] }";
    let layers = ConfigLayers::new().toml("f.toml", text).expect("TOML");
    let error = layers.build().expect_err("an unknown tool");
    assert_eq!(error.code(), "CONFIG_UNKNOWN_TOOL");
    assert!(layers.tool("render").build().is_ok());
}

#[test]
fn an_overlong_argument_is_refused_where_it_stands() {
    let entry = |argument: &str| {
        let entry = json!([{ "name": "a", "command": "a", "args": ["b", argument] }]);
        ConfigLayers::new()
            .json("f.json", json!({ "process": entry }))
            .build()
    };
    assert!(entry(&"x".repeat(131_071)).is_ok());
    let error = entry(&"x".repeat(131_072)).expect_err("too long");
    assert_eq!(
        (error.code(), error.key()),
        ("CONFIG_VALUE", "process[0].args[1]")
    );
    assert!(
        error.to_string().contains("at most 131071 bytes"),
        "{error}"
    );
}

/// Layers with a process entry that runs in `cwd`, for a run in `folder`.
#[cfg(feature = "process")]
fn in_folder(cwd: &str, folder: Option<&std::path::Path>) -> ConfigLayers {
    let process = json!([{ "name": "p", "command": "cat", "cwd": cwd }]);
    let subagent = json!([{ "provider": "p", "background_mode": "one-shot" }]);
    let layers = ConfigLayers::new().json(
        "f.json",
        json!({ "process": process, "subagent": subagent }),
    );
    match folder {
        Some(folder) => layers.run_in(folder),
        None => layers,
    }
}

#[cfg(feature = "process")]
#[test]
fn a_folder_that_is_not_there_is_refused_for_a_run() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("file"), "").expect("a file");
    std::fs::create_dir(folder.path().join("sub")).expect("a folder");
    let here = Some(folder.path());
    assert!(in_folder("sub", here).build_available().is_ok());
    for (cwd, why) in [
        ("gone", "No such file or directory"),
        ("file", "is no folder"),
    ] {
        let error = in_folder(cwd, here).build_available().expect_err(cwd);
        assert_eq!(
            (error.code(), error.key()),
            ("CONFIG_FOLDER", "process[0].cwd")
        );
        let line = error.to_string();
        assert!(
            line.contains(why) && line.contains("expected a folder"),
            "{line}"
        );
        // Nothing is run: the folder is not looked for.
        assert!(in_folder(cwd, here).build().is_ok());
    }
    // Where a relative one is, is not known; an absolute one is known everywhere.
    assert!(in_folder("gone", None).build_available().is_ok());
    assert!(
        in_folder("/no/such/folder", None)
            .build_available()
            .is_err()
    );
    // Nobody uses the entry.
    let unused = in_folder("gone", here).json("g.json", json!({ "subagent": [{}] }));
    assert!(unused.build_available().is_ok());
}
