//! Repository chores: `cargo xtask layers`, `cargo xtask schemas [--check]`, `cargo xtask ci`.
//!
//! What a human may do by hand stays a plain cargo command; here is only what must be the same for
//! everybody.

mod ci;
mod layers;
mod schemas;

use std::process::ExitCode;

use anyhow::Context as _;

const USAGE: &str = "usage: cargo xtask layers | schemas [--check] | ci";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["layers"] => layers::run(),
        ["schemas"] => schemas::run(schemas::Mode::Write),
        ["schemas", "--check"] => schemas::run(schemas::Mode::Check),
        ["ci"] => ci::run(),
        _ => return complain(USAGE, 2),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&format!("error: {error:#}"), 1),
    }
}

/// The last words; a closed stderr changes nothing.
fn complain(words: &str, code: u8) -> ExitCode {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{words}");
    ExitCode::from(code)
}

/// The workspace as cargo sees it from the current folder, without foreign packages.
fn workspace() -> anyhow::Result<cargo_metadata::Metadata> {
    cargo_metadata::MetadataCommand::new()
        .no_deps()
        .exec()
        .context("reading the workspace with cargo metadata")
}
