//! The built program, and one scripted run of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// The program, built like this test.
///
/// # Panics
///
/// When it cannot be built.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let test = std::env::current_exe().expect("the test's own path");
        // target/PROFILE/deps/TEST
        let folder = test.ancestors().nth(2).expect("a profile's folder");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--package", "offshoot-cli"]);
        if folder.file_name().is_some_and(|name| name == "release") {
            build.arg("--release");
        }
        let target = folder.parent().expect("the target folder");
        let built = build
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .arg("--target-dir")
            .arg(target)
            .status()
            .expect("cargo runs");
        assert!(built.success(), "the program does not build");
        folder.join("offshoot")
    })
}

/// The path of a scenario's script.
#[must_use]
pub fn scenario(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("scenarios")
        .join(format!("{name}.json"))
}

/// `offshoot run --json --script SCRIPT` in `folder`, in an empty environment but for `PATH`.
#[must_use]
pub fn command(script: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program());
    command
        .args(["run", "--json", "--timeout", "60", "--script"])
        .arg(script)
        .current_dir(folder)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::null());
    command
}

/// One run of the program with `--json`.
#[derive(Clone, Debug)]
pub struct Scripted {
    /// Its exit code; `None` when a signal ended it.
    pub exit: Option<i32>,
    /// The event lines, in order.
    pub events: Vec<Value>,
    /// The last line, when it is a result.
    pub result: Option<Value>,
    /// What it wrote to standard error.
    pub stderr: String,
}

impl Scripted {
    /// Runs `offshoot run --json --script SCRIPT` with more arguments, in an empty environment but
    /// for `PATH`, in `folder`.
    ///
    /// # Panics
    ///
    /// When the program cannot be started or a line of its output is not JSON.
    #[must_use]
    pub fn run(script: &Path, folder: &Path, arguments: &[&str]) -> Self {
        let output = command(script, folder)
            .args(arguments)
            .output()
            .expect("the program starts");
        Self::of(&output)
    }

    /// Like [`run`](Self::run), with `folder` also as the place of temporary files.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run).
    #[must_use]
    pub fn run_in_tmp(script: &Path, folder: &Path) -> Self {
        let output = command(script, folder)
            .env("TMPDIR", folder)
            .output()
            .expect("the program starts");
        Self::of(&output)
    }

    /// Reads the output of a run.
    ///
    /// # Panics
    ///
    /// When a line is not JSON.
    #[must_use]
    pub fn of(output: &Output) -> Self {
        let stdout = String::from_utf8_lossy(&output.stdout);
        let mut lines: Vec<Value> = stdout
            .lines()
            .map(|line| {
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
            })
            .collect();
        let result = lines.pop_if(|line| line["type"] == "result");
        Self {
            exit: output.status.code(),
            events: lines,
            result,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The events of one type, in order.
    pub fn of_type<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.events
            .iter()
            .filter(move |line| line["event"]["type"] == kind)
    }

    /// The events of the agent with this label, in order.
    pub fn of_label<'a>(&'a self, label: &'a str) -> impl Iterator<Item = &'a Value> {
        self.events
            .iter()
            .filter(move |line| line["label"] == label)
    }

    /// The messages of one source that entered the history of the agent with this label.
    pub fn entered<'a>(
        &'a self,
        label: &'a str,
        source: &'a str,
    ) -> impl Iterator<Item = &'a Value> {
        let events = self.of_label(label).map(|line| &line["event"]);
        events.filter(move |event| {
            event["type"] == "message/user" && event["message"]["source"]["kind"] == source
        })
    }

    /// The id of the root session.
    ///
    /// # Panics
    ///
    /// When the run has no events.
    #[must_use]
    pub fn root(&self) -> &str {
        let root = self
            .events
            .iter()
            .find(|line| line["depth"] == 0)
            .expect("a root event");
        root["session"].as_str().expect("a session id")
    }

    /// The text of the result.
    #[must_use]
    pub fn text(&self) -> &str {
        self.result
            .as_ref()
            .and_then(|result| result["text"].as_str())
            .unwrap_or_default()
    }

    /// The outcome of the result.
    #[must_use]
    pub fn outcome(&self) -> &str {
        self.result
            .as_ref()
            .and_then(|result| result["outcome"].as_str())
            .unwrap_or_default()
    }
}
