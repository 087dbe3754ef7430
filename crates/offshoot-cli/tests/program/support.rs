//! How tests call the program.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A folder of its own for one test.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file; its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    }

    /// Writes a script; its path.
    pub(crate) fn script(&self, script: Value) -> String {
        self.file("script.json", &script.to_string())
    }

    /// The program, to be run in this folder.
    pub(crate) fn offshoot(&self, args: &[&str]) -> Command {
        offshoot(self.0.path(), args)
    }

    /// Runs a script with `--json` and more arguments.
    pub(crate) fn events(&self, script: Value, args: &[&str]) -> Stream {
        let script = self.script(script);
        let all = [&["run", "--json", "--script", &script], args].concat();
        Stream::of(&self.offshoot(&all).output().expect("the program"))
    }
}

fn offshoot(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_offshoot"));
    command
        .args(args)
        .current_dir(folder)
        .env_remove("OFFSHOOT_LOG")
        .stdin(Stdio::null());
    command
}

/// What a run with `--json` printed.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) code: Option<i32>,
    pub(crate) events: Vec<Value>,
    /// `Null` when there was none.
    pub(crate) result: Value,
    pub(crate) stderr: String,
}

impl Stream {
    pub(crate) fn of(output: &Output) -> Self {
        let stdout = String::from_utf8(output.stdout.clone()).expect("text");
        let mut events: Vec<Value> = stdout
            .lines()
            .map(|line| serde_json::from_str(line).expect("one JSON object a line"))
            .collect();
        let is_result = events.last().is_some_and(|last| last["type"] == "result");
        let result = is_result.then(|| events.pop()).flatten();
        Self {
            code: output.status.code(),
            events,
            result: result.unwrap_or_default(),
            stderr: String::from_utf8(output.stderr.clone()).expect("text"),
        }
    }

    /// The events of one kind.
    pub(crate) fn kind(&self, kind: &str) -> Vec<&Value> {
        let events = self.events.iter().map(|line| &line["event"]);
        events.filter(|event| event["type"] == kind).collect()
    }

    /// The texts of the messages that an agent of this label was asked with.
    pub(crate) fn asked(&self, label: &str) -> Vec<&str> {
        let lines = self.events.iter().filter(|line| line["label"] == label);
        let messages = lines.filter(|line| line["event"]["type"] == "message/user");
        messages
            .filter_map(|line| line["event"]["message"]["content"][0]["text"].as_str())
            .collect()
    }
}

/// Sends a signal by its name.
pub(crate) fn send(child: &Child, signal: &str) {
    let status = Command::new("kill")
        .args([&format!("-{signal}"), &child.id().to_string()])
        .status();
    assert!(status.expect("kill").success());
}

/// Reads lines of a run until one has all of these texts.
pub(crate) fn read_until(
    lines: &mut impl Iterator<Item = std::io::Result<String>>,
    parts: &[&str],
) {
    for line in lines {
        let line = line.expect("a line");
        if parts.iter().all(|part| line.contains(part)) {
            return;
        }
    }
    panic!("the run ended without {parts:?}");
}
