//! What commands see of the program's environment.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Place, Stream};

const PROXY: &str = "http://me:password@proxy.example:3128";

/// Two commands that say what they see, one of them in the background.
fn says() -> Value {
    let command = "echo \"[$HTTPS_PROXY] [$AWS_PROFILE] [$OUR_TOKEN] [$OUR_HOME] [$NOT_SET]\"";
    json!({"prompt": "hi", "agents": {"root": [
        {"calls": [
            {"name": "bash", "args": {"command": command}},
            {"name": "bash", "args": {"command": command, "run_in_background": true}}]},
        {"text": "waits"},
        {"text": "x"}]}})
}

fn with_variables(command: &mut Command) -> &mut Command {
    command
        .env("HTTPS_PROXY", PROXY)
        .env("AWS_PROFILE", "work")
        .env("OUR_TOKEN", "t-1")
        .env("OUR_HOME", "home")
        .env_remove("NOT_SET")
}

fn seen(allow: &str) -> (String, Stream) {
    let place = Place::new();
    let script = place.script(says());
    let setting = format!("tools.bash.env_allow={allow}");
    let all = ["run", "--json", "--script", &script, "--set", &setting];
    let mut command = place.offshoot(&all);
    let output = with_variables(&mut command)
        .env("OFFSHOOT_LOG", "offshoot_core=debug")
        .output()
        .expect("the program");
    let stream = Stream::of(&output);
    assert_eq!(stream.code, Some(0), "{}", stream.stderr);
    let results = stream.kind("tool/result");
    let first = results[0]["text"].as_str().expect("a text");
    let first = first.lines().next().unwrap_or_default().to_owned();
    let notice = stream.asked("root").join("\n");
    assert!(notice.contains(&first), "{first}: {notice}");
    (first, stream)
}

#[test]
fn a_variable_that_is_named_in_full_reaches_commands_whatever_it_looks_like() {
    let (nothing, stream) = seen("[]");
    assert_eq!(nothing, "[] [] [] [] []");
    let withheld = stream.stderr.lines().find(|line| line.contains("withheld"));
    let withheld = withheld.expect("a line");
    assert!(withheld.contains("HTTPS_PROXY") && withheld.contains("env_allow"));
    assert!(!stream.stderr.contains("password@"), "{}", stream.stderr);

    let (some, stream) = seen(r#"["HTTPS_PROXY", "AWS_PROFILE", "OUR_TOKEN", "NOT_SET"]"#);
    assert_eq!(some, format!("[{PROXY}] [work] [t-1] [] []"));
    assert!(!stream.stderr.contains("HTTPS_PROXY"), "{}", stream.stderr);
}
