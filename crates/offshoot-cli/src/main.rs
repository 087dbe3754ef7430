//! The program: `offshoot demo`, `run`, `tools`, `sessions`, `mcp`, `acp`.
//!
//! What it may be asked is in [`args`]; what it answers with is a result on stdout, an exit code, and
//! for bad usage one line on stderr. Everything else is in the libraries.

mod acp;
mod args;
mod demo;
mod fault;
mod mcp;
mod orphans;
mod output;
mod run;
mod sessions;
mod setup;
mod spill;
mod tools;

use std::process::ExitCode;

use args::Command;
use fault::Fault;
use offshoot::core::text::one_line;

fn main() -> ExitCode {
    let outcome = args::parse().and_then(|command| {
        start_logs()?;
        perform(command)
    });
    match outcome {
        Ok(exit) => exit,
        Err(fault) => {
            output::complain(&fault);
            ExitCode::from(fault.exit_code())
        }
    }
}

fn perform(command: Command) -> Result<ExitCode, Fault> {
    match command {
        Command::Demo(args) => demo::demo(args),
        Command::Run(args) => run::run(args),
        Command::Tools(args) => tools::tools(args),
        Command::Sessions(args) => sessions::sessions(args),
        Command::Mcp(args) => mcp::mcp(args),
        Command::Acp(args) => acp::acp(args),
        Command::Done => Ok(ExitCode::SUCCESS),
    }
}

/// Logs go to stderr, and only when they are asked for: what a user must know is said in one line.
fn start_logs() -> Result<(), Fault> {
    const VARIABLE: &str = "OFFSHOOT_LOG";
    let text = match std::env::var_os(VARIABLE) {
        Some(text) if !text.is_empty() => text,
        _ => return Ok(()),
    };
    let fault = |why: &dyn std::fmt::Display| {
        let text = one_line(&text.to_string_lossy(), 200);
        Fault::usage(format_args!(
            "{VARIABLE}: `{text}`: {why}; expected a filter, for example debug or offshoot_task=debug,warn"
        ))
    };
    let filter = text.to_str().ok_or_else(|| fault(&"it is not UTF-8"))?;
    if filter.trim().is_empty() {
        return Ok(());
    }
    let filter = tracing_subscriber::EnvFilter::try_new(filter).map_err(|error| fault(&error))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    Ok(())
}
