//! The program: `offshoot demo`, `run`, `tools`, `sessions`, `mcp`, `acp`.
//!
//! What it may be asked is in [`args`]; what it answers with is a result on stdout, an exit code, and
//! for bad usage one line on stderr. Everything else is in the libraries.

mod acp;
mod args;
mod demo;
mod fault;
mod mcp;
mod output;
mod run;
mod sessions;
mod setup;
mod tools;

use std::process::ExitCode;

use args::Command;
use fault::Fault;

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
    let filter = match std::env::var(VARIABLE) {
        Ok(filter) if !filter.trim().is_empty() => filter,
        _ => return Ok(()),
    };
    let filter = tracing_subscriber::EnvFilter::try_new(filter)
        .map_err(|error| Fault::usage(format_args!("{VARIABLE}: {error}")))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    Ok(())
}
