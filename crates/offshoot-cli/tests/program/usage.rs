//! Bad usage: exit code 2, one line that names the place, nothing on stdout.

use crate::support::Place;

/// The one line on stderr.
fn refused(place: &Place, args: &[&str]) -> String {
    let output = place.offshoot(args).output().expect("the program");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
    assert_eq!(output.stdout, b"", "{args:?}");
    assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
    stderr
}

#[test]
fn each_fault_is_one_line_that_names_its_place() {
    let place = Place::new();
    let good = place.file(
        "good.json",
        r#"{"prompt": "hi", "agents": {"root": [{"text": "x"}]}}"#,
    );
    let mute = place.file("mute.json", r#"{"agents": {"root": [{"text": "x"}]}}"#);
    let unknown = place.file("unknown.json", r#"{"agents": {"root": [{"txt": "x"}]}}"#);
    let gate = place.file(
        "gate.json",
        r#"{"agents": {"root": [{"text": "x", "await": ["go"]}]}}"#,
    );
    let syntax = place.file("syntax.json", "{");
    let empty = place.file("empty.json", "");
    let blank = place.file("blank.json", " \n");
    let binary = place.file("binary.json", "");
    std::fs::write(&binary, [0xff, 0xfe]).expect("a file");
    let config = place.file("config.toml", "[limits]\nmax_dept = 1\n");
    let script_config = place.file(
        "sc.json",
        r#"{"config": {"tasks": {"x": 1}}, "prompt": "hi", "agents": {}}"#,
    );
    let tokens = place.file("tokens", "0123456789abcdef\n");
    let acp = place.file("acp.json", r#"{"config": {"acp": [{"name": "p", "command": "c"}], "subagent": [{"provider": "p"}]}, "prompt": "hi", "agents": {}}"#);
    let cases: Vec<(Vec<&str>, Vec<&str>)> = vec![
        (vec![], vec!["expected a command"]),
        (vec!["frob"], vec!["frob"]),
        (vec!["run", "hi"], vec!["--script FILE", "--model"]),
        (
            vec!["run", "hi", "--model", "a/b"],
            vec!["--model", "unknown provider `a`"],
        ),
        (
            vec!["run", "hi", "--model", "a/b", "--script", &good],
            vec!["--script and --model"],
        ),
        (
            vec!["run", "--script", "missing.json"],
            vec!["missing.json", "cannot be read"],
        ),
        (
            vec!["run", "--script", &binary],
            vec!["binary.json", "cannot be read"],
        ),
        (vec!["run", "--script", &syntax], vec!["syntax.json"]),
        (
            vec!["run", "--script", &empty],
            vec!["empty.json: the file is empty; expected a script"],
        ),
        (
            vec!["run", "--script", &blank],
            vec!["blank.json: the file is empty; expected a script"],
        ),
        (
            vec![
                "run",
                "--script",
                &good,
                "--set",
                r#"subagent=[{"tool_name":"z"}]"#,
            ],
            vec![
                "--set: subagent: ",
                "expected an array",
                "[{ key = \"text\" }]",
            ],
        ),
        (vec!["help", "frob"], vec!["unrecognized subcommand 'frob'"]),
        (
            vec!["tools", "-1"],
            vec!["unexpected argument '-1' found (see"],
        ),
        (
            vec!["run", "-1"],
            vec!["unexpected argument '-1' found; tip: to pass '-1' as a value, use '-- -1' (see"],
        ),
        (
            vec!["run", "--timeout", "-1"],
            vec!["'--timeout <SECONDS>': expected a number of seconds, not `-1`"],
        ),
        (
            vec!["run", "--script", &unknown],
            vec!["unknown.json: agents.root[0].txt", "unknown field"],
        ),
        (
            vec!["run", "--script", &gate, "hi"],
            vec!["gate.json: agents.root[0].await[0]", "nothing opens `go`"],
        ),
        (
            vec!["run", "--script", &mute],
            vec!["no prompt", "mute.json"],
        ),
        (
            vec!["run", "--script", &good, "--config", &config],
            vec!["config.toml: limits.max_dept", "unknown key"],
        ),
        (
            vec!["run", "--script", &good, "--config", "no.toml"],
            vec!["no.toml", "cannot be read"],
        ),
        (
            vec!["run", "--script", &script_config],
            vec!["sc.json: config.tasks.x", "unknown key"],
        ),
        (
            vec!["run", "--script", &acp],
            vec!["acp.json", "subagent[0].background_mode", "another program"],
        ),
        (
            vec![
                "run",
                "--script",
                &good,
                "--set",
                r#"process=[{ name = "p", command = "cat" }]"#,
                "--set",
                "subagent.0.provider=p",
            ],
            vec!["subagent[0].provider", "another program", "one-shot"],
        ),
        (
            vec!["run", "--script", &good, "--set", "limits.max_depth=x"],
            vec!["--set: limits.max_depth"],
        ),
        (
            vec!["run", "--script", &good, "--set", "nonsense"],
            vec!["--set", "KEY=VALUE"],
        ),
        (
            vec!["run", "--script", &good, "--store", &good],
            vec!["--store", "good.json", "can be written to"],
        ),
        (
            vec!["run", "--script", &good, "--store", "/proc/nowhere"],
            vec!["--store", "/proc/nowhere"],
        ),
        (
            vec!["run", "--script", &good, "--cwd", "nowhere"],
            vec!["--cwd", "nowhere"],
        ),
        (
            vec!["run", "--script", &good, "--cwd", &good],
            vec!["--cwd", "not a folder"],
        ),
        (
            vec!["run", "--script", &good, "--resume", "x"],
            vec!["--resume", "--store DIR"],
        ),
        (
            vec!["run", "--script", &good, "--store", "s", "--resume", "a/b"],
            vec!["--resume: `a/b`", "not an id"],
        ),
        (
            vec!["run", "--script", &good, "--store", "s", "--resume", "gone"],
            vec![
                "--resume",
                "no session gone",
                "`offshoot sessions --store s` lists them",
            ],
        ),
        (
            vec!["mcp", "--store", "s", "--resume", "gone"],
            vec![
                "no session gone",
                "`offshoot sessions --store s` lists them",
            ],
        ),
        (
            vec!["run", "hi", "--model", "openai-compatible/m"],
            vec![
                "--base-url: openai-compatible has no address of its own",
                "expected a base URL",
            ],
        ),
        (
            vec!["run", "hi", "--set", "model.name=openai-compatible/m"],
            vec!["model.base_url: openai-compatible has no address of its own"],
        ),
        (
            vec![
                "run",
                "hi",
                "--model",
                "ollama/m",
                "--set",
                "subagent.0.model=openai-compatible/m",
            ],
            vec!["subagent[0].base_url: openai-compatible has no address of its own"],
        ),
        (
            vec![
                "run",
                "--script",
                &good,
                "--set",
                "subagent.5.provider=fork",
            ],
            vec![
                "--set: subagent.5: `subagent` has one entry, number 0; expected subagent.0.provider",
            ],
        ),
        (
            vec![
                "run",
                "--script",
                &good,
                "--set",
                r#"process=[{ name = "p", command = "cat", cwd = "gone" }]"#,
                "--set",
                r#"subagent=[{ provider = "p", background_mode = "one-shot" }]"#,
            ],
            vec![
                "--set: process[0].cwd: gone: No such file",
                "expected a folder",
            ],
        ),
        (
            vec!["run", "--script", &good, "--timeout", "0"],
            vec!["--timeout", "more than 0"],
        ),
        (
            vec!["run", "--script", &good, "--linger=x"],
            vec!["--linger", "seconds"],
        ),
        (vec!["tools", "--variant", "x"], vec!["--variant", "mcp"]),
        (vec!["tools", "--set", "x=1"], vec!["--set: x"]),
        (vec!["sessions"], vec!["--store <DIR>"]),
        (
            vec!["sessions", "--store", "nowhere"],
            vec!["--store", "nowhere"],
        ),
        (
            vec!["mcp", "--http", "0.0.0.0:0"],
            vec!["--http", "not a loopback address", "--http-token-file"],
        ),
        (vec!["mcp", "--http", "x"], vec!["--http", "ADDRESS:PORT"]),
        (
            vec!["mcp", "--http", "0", "--http-host", "a b"],
            vec!["--http-host: `a b` can be nobody's name"],
        ),
        (
            vec!["mcp", "--http", "192.0.2.1:0", "--http-token-file", &tokens],
            vec![
                "--http: 192.0.2.1:0: ",
                "expected an address of this machine",
            ],
        ),
        (
            vec!["mcp", "--http-host", "box"],
            vec!["--http-host", "--http ADDR"],
        ),
        (
            vec!["mcp", "--http", "0", "--http-token-file", "nowhere"],
            vec!["--http-token-file", "nowhere"],
        ),
        (
            vec!["mcp", "--http", "0", "--http-token-file", "/dev/zero"],
            vec!["--http-token-file: /dev/zero: it has more than"],
        ),
        (vec!["mcp", "--resume", "x"], vec!["--resume"]),
        (
            vec!["mcp", "--model", "x/y", "--script", "s.json"],
            vec!["--model", "--script"],
        ),
        (vec!["acp"], vec!["no model", "--script FILE"]),
        (vec!["demo", "--cwd", "nowhere"], vec!["--cwd", "nowhere"]),
    ];
    for (args, parts) in cases {
        let line = refused(&place, &args);
        for part in parts {
            assert!(line.contains(part), "{args:?}: expected {part:?} in {line}");
        }
    }
}

/// The one line on stderr of `offshoot tools` with this variable.
fn refused_variable(name: &str, value: &[u8]) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    let place = Place::new();
    let mut command = place.offshoot(&["tools"]);
    let output = command
        .env(name, std::ffi::OsStr::from_bytes(value))
        .output();
    let output = output.expect("the program");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    stderr
}

#[test]
fn a_bad_log_filter_is_named() {
    let cases: [(&[u8], &str); 4] = [
        (b"a=b=c", "OFFSHOOT_LOG: `a=b=c`: "),
        (b"offshoot=loud", "OFFSHOOT_LOG: `offshoot=loud`: "),
        (b"[", "OFFSHOOT_LOG: `[`: "),
        (b"\xff", "it is not UTF-8"),
    ];
    for (value, expected) in cases {
        let line = refused_variable("OFFSHOOT_LOG", value);
        assert!(line.contains(expected), "{line}");
        assert!(
            line.contains("expected a filter, for example debug"),
            "{line}"
        );
    }
}

#[test]
fn a_bad_depth_is_named() {
    for value in ["x", "-1", "", "4294967296"] {
        let line = refused_variable("OFFSHOOT_DEPTH", value.as_bytes());
        let expected = format!("OFFSHOOT_DEPTH: expected a whole number, not `{value}`: ");
        assert!(line.contains(&expected), "{line}");
        assert!(line.contains("unset it"), "{line}");
    }
}

#[test]
fn an_address_that_is_in_use_is_named_with_what_to_do() {
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let line = refused(&place, &["mcp", "--http", &address]);
    assert!(line.contains(&format!("--http: {address}: ")), "{line}");
    assert!(line.contains("choose another port"), "{line}");
}

#[test]
fn help_and_version_are_results() {
    let place = Place::new();
    let cases: [&[&str]; 5] = [
        &["--help"],
        &["--version"],
        &["help"],
        &["help", "run"],
        &["run", "--help"],
    ];
    for args in cases {
        let output = place.offshoot(args).output().expect("the program");
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(!output.stdout.is_empty());
        assert_eq!(output.stderr, b"");
    }
}

#[test]
fn help_says_what_the_exit_codes_are() {
    let place = Place::new();
    let help = |args: &[&str]| {
        let output = place.offshoot(args).output().expect("the program");
        String::from_utf8(output.stdout).expect("text")
    };
    let all = help(&["--help"]);
    let own = [
        ("demo", "0 done (the root's run completed)"),
        ("run", "0 done (the root's run completed)"),
        ("tools", "0 shown"),
        ("sessions", "0 shown"),
        ("mcp", "0 the client has gone"),
        ("acp", "0 the client has gone"),
    ];
    for (command, zero) in own {
        let text = help(&[command, "--help"]);
        assert!(text.contains(&format!("Exit codes: {zero}")), "{text}");
    }
    assert!(all.contains("Exit codes: 0 "), "{all}");
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    let place = Place::new();
    let cases: [&[&str]; 4] = [&["--help"], &["--version"], &["help", "run"], &["tools"]];
    for args in cases {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let Ok(full) = full else { return };
        let output = place.offshoot(args).stdout(full).output();
        let output = output.expect("the program");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(stderr.contains("stdout"), "{args:?}: {stderr}");
    }
}

#[test]
fn the_tools_are_shown_as_each_kind_of_client_takes_them() {
    let place = Place::new();
    let cases = [
        ("mcp", "/inputSchema/properties/command/type"),
        ("openai-strict", "/parameters/properties/command/type"),
        ("anthropic", "/input_schema/properties/command/type"),
        ("gemini", "/parameters/properties/command/type"),
    ];
    for (variant, pointer) in cases {
        let args = ["tools", "--json", "--variant", variant];
        let output = place.offshoot(&args).output().expect("the program");
        assert_eq!(output.status.code(), Some(0), "{variant}");
        let tools: Vec<serde_json::Value> =
            serde_json::from_slice(&output.stdout).expect("an array");
        let bash = tools.iter().find(|tool| tool["name"] == "bash");
        let bash = bash.unwrap_or_else(|| panic!("{variant}: {tools:?}"));
        assert_eq!(bash.pointer(pointer), Some(&"string".into()), "{variant}");
        let text = place.offshoot(&["tools", "--variant", variant]).output();
        let text = String::from_utf8(text.expect("the program").stdout).expect("text");
        assert!(text.contains("The command line, as for sh -c."), "{text}");
    }
}

#[test]
fn the_tools_are_listed_as_the_configuration_exposes_them() {
    let place = Place::new();
    let names_below = |depth: &str, args: &[&str]| -> Vec<String> {
        let mut program = place.offshoot(args);
        let output = program.env("OFFSHOOT_DEPTH", depth).output();
        let output = output.expect("the program");
        assert_eq!(output.status.code(), Some(0));
        let tools: Vec<serde_json::Value> =
            serde_json::from_slice(&output.stdout).expect("an array");
        tools
            .iter()
            .map(|tool| {
                assert_eq!(tool["inputSchema"]["type"], "object");
                assert!(
                    tool["description"]
                        .as_str()
                        .is_some_and(|text| !text.is_empty())
                );
                tool["name"].as_str().expect("a name").to_owned()
            })
            .collect()
    };
    let names = |args: &[&str]| names_below("0", args);
    let all = names(&["tools", "--json"]);
    for name in ["subagent", "bash", "task_output", "send_message"] {
        assert!(all.iter().any(|tool| tool == name), "{name} in {all:?}");
    }
    let fewer = names(&["tools", "--json", "--set", "tools.bash.enabled=false"]);
    assert!(!fewer.iter().any(|tool| tool == "bash"), "{fewer:?}");
    // What nobody can delegate with is not shown.
    let alone = ["task_output", "task_list", "task_kill", "bash"];
    assert_eq!(
        names(&["tools", "--json", "--set", "limits.max_depth=0"]),
        alone
    );
    assert_eq!(names_below("3", &["tools", "--json"]), alone);
    assert_eq!(names_below("2", &["tools", "--json"]), all);
}
