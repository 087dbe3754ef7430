//! The steps of CI, in order; the first that fails ends it. The tests come last, so that the end of
//! the output is their summary.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};

use crate::{layers, schemas};

/// How cargo runs an example.
const EXAMPLE: &str = "run --quiet --package offshoot --example";

/// One step: what it is called, and what it does.
struct Step {
    name: &'static str,
    work: Work,
}

enum Work {
    /// A cargo command line, with the environment that it needs.
    Cargo(&'static [(&'static str, &'static str)], &'static str),
    /// An example of the facade, and what it has to print.
    Example(&'static str, &'static str),
    /// A chore of this program, with the words that call it.
    Chore(&'static str, fn() -> anyhow::Result<()>),
}

fn steps() -> Vec<Step> {
    let cargo = |name, line| Step {
        name,
        work: Work::Cargo(&[], line),
    };
    let chore = |name, words, chore| Step {
        name,
        work: Work::Chore(words, chore),
    };
    let example = |name, prints| Step {
        name: "example",
        work: Work::Example(name, prints),
    };
    let tests = match has_nextest() {
        true => "nextest run --workspace",
        false => "test --workspace --lib --bins --tests",
    };
    vec![
        cargo("format", "fmt --all --check"),
        cargo("clippy", "clippy --workspace --all-targets -- -D warnings"),
        Step {
            name: "doc",
            work: Work::Cargo(
                &[("RUSTDOCFLAGS", "-D warnings")],
                "doc --no-deps --workspace",
            ),
        },
        chore("layers", "layers", layers::run),
        chore("schemas", "schemas --check", || {
            schemas::run(schemas::Mode::Check)
        }),
        cargo("build", "build --package offshoot-cli"),
        example("agent", "It is a Tuesday."),
        example("own_driver", "5 words."),
        example("own_provider", "HELLO FROM BELOW"),
        example("own_store", "Noted. 9 events are kept."),
        cargo("doctests", "test --workspace --doc"),
        cargo("tests", tests),
    ]
}

pub(crate) fn run() -> anyhow::Result<()> {
    let root = crate::workspace()?.workspace_root;
    let began = Instant::now();
    for step in steps() {
        let seconds = began.elapsed().as_secs_f64();
        let line = match step.work {
            Work::Cargo([], line) => format!("cargo {line}"),
            Work::Cargo(variables, line) => {
                let set = |(name, value): &(&str, &str)| format!("{name}='{value}' ");
                let set: String = variables.iter().map(set).collect();
                format!("{set}cargo {line}")
            }
            Work::Example(name, _) => format!("cargo {EXAMPLE} {name}"),
            Work::Chore(words, _) => format!("cargo xtask {words}"),
        };
        // A closed stderr does not keep the steps from running.
        let _ = writeln!(
            std::io::stderr(),
            "==> [{seconds:6.1} s] {}: {line}",
            step.name
        );
        let done = match step.work {
            Work::Cargo(variables, line) => cargo(root.as_std_path(), variables, line),
            Work::Example(name, prints) => example(root.as_std_path(), name, prints),
            Work::Chore(_, chore) => chore(),
        };
        done.with_context(|| format!("the step `{}` failed", step.name))?;
    }
    Ok(())
}

fn cargo(root: &Path, variables: &[(&str, &str)], line: &str) -> anyhow::Result<()> {
    let status = Command::new(program())
        .args(line.split(' '))
        .envs(variables.iter().copied())
        .current_dir(root)
        .stdin(Stdio::null())
        .status()
        .context("starting cargo")?;
    ensure!(status.success(), "{status}");
    Ok(())
}

/// Runs an example, which needs no key and no network, and looks at what it prints.
fn example(root: &Path, name: &str, prints: &str) -> anyhow::Result<()> {
    let output = Command::new(program())
        .args(EXAMPLE.split(' ').chain([name]))
        .current_dir(root)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("starting cargo")?;
    ensure!(output.status.success(), "{}", output.status);
    let printed = String::from_utf8_lossy(&output.stdout);
    ensure!(
        printed.contains(prints),
        "the example `{name}` should print {prints:?}, and printed {printed:?}"
    );
    Ok(())
}

fn has_nextest() -> bool {
    Command::new(program())
        .args(["nextest", "--version"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The cargo that runs this program, else the one on the path.
fn program() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
