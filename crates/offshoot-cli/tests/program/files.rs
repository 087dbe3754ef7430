//! Files and folders that are not what they should be, and arguments that are no text.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::{Place, Stream};

/// The same call without the right to pass permissions over, which an administrator has.
fn unprivileged(place: &Place, args: &[&str]) -> Command {
    let plain = place.offshoot(args);
    if std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() != 0) {
        return plain;
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--bounding-set", "-dac_override,-dac_read_search"])
        .arg(plain.get_program())
        .args(plain.get_args())
        .current_dir(place.path("."))
        .env_remove("OFFSHOOT_LOG")
        .stdin(Stdio::null());
    command
}

fn shut(path: &Path) {
    std::fs::create_dir(path).expect("a folder");
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(path, mode).expect("a mode");
}

fn hello() -> Value {
    json!({"prompt": "hi", "agents": {"root": [{"text": "fine"}]}})
}

fn refused(command: &mut Command) -> String {
    let output = command.output().expect("the program");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(
        (output.status.code(), stderr.lines().count()),
        (Some(2), 1),
        "{stderr}"
    );
    stderr
}

#[test]
fn a_folder_that_cannot_be_entered_is_named_instead_of_the_shell() {
    let place = Place::new();
    let folder = place.path("shut");
    shut(&folder);
    let script = place.script(hello());
    for args in [
        &["run", "--script", &script, "--cwd", "shut"][..],
        &["demo", "--cwd", "shut"],
        &["mcp", "--cwd", "shut"],
    ] {
        let line = refused(&mut unprivileged(&place, args));
        let expected =
            "offshoot: --cwd: shut: Permission denied (os error 13); expected a folder\n";
        assert_eq!(line, expected, "{args:?}");
    }
    // The folder of a program that is a subagent.
    let process = json!([{"name": "p", "command": "cat", "cwd": "shut"}]);
    let subagent = json!([{"provider": "p", "background_mode": "one-shot"}]);
    let mut script = hello();
    script["config"] = json!({"process": process, "subagent": subagent});
    let script = place.script(script);
    let line = refused(&mut unprivileged(&place, &["run", "--script", &script]));
    assert!(line.contains("process[0].cwd: "), "{line}");
    assert!(line.contains("Permission denied"), "{line}");

    // One that is shut while the program runs.
    let later = place.path("later");
    std::fs::create_dir(&later).expect("a folder");
    let script = place.script(json!({"prompt": "hi", "agents": {"root": [
        {"calls": [{"name": "bash", "args": {"command": "chmod 600 ."}}]},
        {"calls": [{"name": "bash", "args": {"command": "true"}}]},
        {"text": "${last_result}"}]}}));
    let args = ["run", "--json", "--script", &script, "--cwd", "later"];
    let stream = Stream::of(&unprivileged(&place, &args).output().expect("the program"));
    let text = stream.result["text"].as_str().expect("a text");
    assert!(text.starts_with("Error: cannot run in /"), "{text}");
    assert!(
        text.ends_with("/later: Permission denied (os error 13)"),
        "{text}"
    );
}

#[test]
fn the_mark_at_the_beginning_of_a_file_is_no_part_of_it() {
    let place = Place::new();
    let script = place.file("marked.json", &format!("\u{feff}{}", hello()));
    let config = place.file("marked.toml", "\u{feff}[limits]\nmax_depth = 1\n");
    let args = ["run", "--script", &script, "--config", &config];
    let output = place.offshoot(&args).output().expect("the program");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.stdout, b"fine\n");
}

#[test]
fn a_store_that_is_no_folder_is_said_to_be_none() {
    let place = Place::new();
    let script = place.script(hello());
    place.file("file", "");
    symlink(place.path("nowhere"), place.path("dangling")).expect("a link");
    for store in ["file", "dangling"] {
        let args = ["run", "--script", &script, "--store", store];
        let line = refused(&mut place.offshoot(&args));
        let expected = format!(
            "offshoot: --store: {store}: not a directory; expected a folder that can be written to\n"
        );
        assert_eq!(line, expected);
    }
    assert!(!place.path("nowhere").exists());
}

#[test]
fn an_argument_that_is_no_text_is_shown() {
    let place = Place::new();
    let mut command = place.offshoot(&["run"]);
    command.arg(OsStr::from_bytes(b"say \xff\x1b[2J"));
    let expected = "offshoot: `say \u{fffd} [2J`: expected text in UTF-8 (see `offshoot --help`)\n";
    assert_eq!(refused(&mut command), expected);
    // A path may be what it is.
    let script = place.script(hello());
    let mut command = place.offshoot(&["run", "--script", &script, "--store"]);
    command.arg(OsStr::from_bytes(b"st\xffore"));
    assert_eq!(command.output().expect("the program").stdout, b"fine\n");
}
