//! What the program may be asked: its commands and options.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use offshoot::core::text;
use offshoot::tools::schema::Variant;

use crate::fault::Fault;

/// The end of the help of the program, and of what runs a root agent.
const EXIT_CODES: &str = "Exit codes: 0 done (the root's run completed); 1 not done (error, refusal, token or step limit, aborted, timeout); 2 bad usage, configuration or script";

/// The end of the help of what shows something.
const SHOWS: &str =
    "Exit codes: 0 shown; 1 the output could not be written; 2 bad usage or configuration";

/// The end of the help of what serves a client.
const SERVES: &str = "Exit codes: 0 the client has gone, or a signal ended the server; 1 serving failed; 2 bad usage, configuration or script";

/// Delegation that can be trusted, for any agent program.
#[derive(Debug, Parser)]
#[command(name = "offshoot", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show delegation at work in the current folder: no key, no network
    #[command(after_help = EXIT_CODES)]
    Demo(DemoArgs),
    /// Run one root agent until it is at rest
    #[command(after_help = EXIT_CODES)]
    Run(RunArgs),
    /// Show the tools that a model sees, with their schemas
    #[command(after_help = SHOWS)]
    Tools(ToolsArgs),
    /// Show the tree of stored sessions
    #[command(after_help = SHOWS)]
    Sessions(SessionsArgs),
    /// Serve the tools over MCP, on stdio or as streamable HTTP
    #[command(after_help = SERVES)]
    Mcp(McpArgs),
    /// Be an ACP agent on stdio, for an editor
    #[command(after_help = SERVES)]
    Acp(AcpArgs),
    /// What was asked has been answered: the help or the version
    #[command(skip)]
    Done,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Run in this folder instead of the current one
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Show the answer only
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Default, Args)]
pub(crate) struct ConfigArgs {
    /// A configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Set one key of the configuration; the value is TOML, or else a text, for example
    /// limits.max_depth=2 or subagent='[{ tool_name = "ask" }]'
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// What the root agent is asked
    pub(crate) prompt: Option<String>,
    /// Play this script instead of asking a model
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// Ask this model, for example openai/gpt-5, anthropic/claude-sonnet-4-5, gemini/gemini-2.5-pro,
    /// ollama/qwen3; the key is in the environment (OPENAI_API_KEY and so on)
    #[arg(long, value_name = "PROVIDER/MODEL")]
    pub(crate) model: Option<String>,
    /// Where the model is, with the path up to the version, for example http://localhost:8000/v1
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Keep the sessions in this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
    /// Go on with this stored root session
    #[arg(long, value_name = "SESSION_ID")]
    pub(crate) resume: Option<String>,
    /// Print every event, then the result, one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Close everything after so long and fail
    #[arg(long, value_name = "SECONDS", value_parser = positive_seconds, allow_negative_numbers = true)]
    pub(crate) timeout: Option<Duration>,
    /// Stop what still lives so long after the root agent became idle
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) linger: Option<Duration>,
    /// Run shell commands in this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
}

/// A form in which tools are shown to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum VariantName {
    /// As an MCP server lists them
    Mcp,
    /// As OpenAI takes them in strict mode
    OpenaiStrict,
    /// As Anthropic takes them
    Anthropic,
    /// As Gemini takes them
    Gemini,
}

impl From<VariantName> for Variant {
    fn from(name: VariantName) -> Self {
        match name {
            VariantName::Mcp => Self::Mcp,
            VariantName::OpenaiStrict => Self::OpenAiStrict,
            VariantName::Anthropic => Self::Anthropic,
            VariantName::Gemini => Self::Gemini,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ToolsArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
    /// For which kind of client
    #[arg(long, value_enum, default_value = "mcp")]
    pub(crate) variant: VariantName,
}

#[derive(Debug, Args)]
pub(crate) struct SessionsArgs {
    /// The folder of the sessions
    #[arg(long, value_name = "DIR")]
    pub(crate) store: PathBuf,
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Keep the sessions in this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
    /// Go on with this stored session, and with its subagents
    #[arg(long, value_name = "SESSION_ID")]
    pub(crate) resume: Option<String>,
    /// Serve streamable HTTP at this address instead of stdio; a port alone is one of loopback
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<String>,
    /// Let in only who sends one of these bearer tokens, one a line; each is a client of its own
    #[arg(long, value_name = "FILE")]
    pub(crate) http_token_file: Option<PathBuf>,
    /// A name by which clients call the server, besides its address
    #[arg(long, value_name = "NAME")]
    pub(crate) http_host: Vec<String>,
    /// Subagents play this script instead of asking a model
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// Subagents ask this model; the key is in the environment, as for `run`
    #[arg(long, value_name = "PROVIDER/MODEL")]
    pub(crate) model: Option<String>,
    /// Where the model is, with the path up to the version, for example http://localhost:8000/v1
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// Run shell commands in this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct AcpArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Keep the sessions in this folder, so that they can be loaded again
    #[arg(long, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
    /// Play this script in every session instead of asking a model
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// Ask this model, as in `offshoot run`
    #[arg(long, value_name = "PROVIDER/MODEL")]
    pub(crate) model: Option<String>,
    /// Where the model is, as in `offshoot run`
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let expected = || format!("expected a number of seconds, not `{text}`");
    let seconds: f64 = text.trim().parse().map_err(|_| expected())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| expected())
}

fn positive_seconds(text: &str) -> Result<Duration, String> {
    match seconds(text)? {
        Duration::ZERO => Err("expected more than 0 seconds".to_owned()),
        some => Ok(some),
    }
}

/// Reads the command line. A request for help or the version is answered here.
pub(crate) fn parse() -> Result<Command, Fault> {
    parse_from(std::env::args_os())
}

fn parse_from(args: impl IntoIterator<Item = OsString>) -> Result<Command, Fault> {
    let args: Vec<OsString> = args.into_iter().collect();
    match Cli::try_parse_from(&args) {
        Ok(cli) => Ok(cli.command),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            ) =>
        {
            let printed = error.print().and_then(|()| std::io::stdout().flush());
            match printed {
                // A closed stdout is nobody's fault here.
                Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                    Err(anyhow::Error::new(error).context("stdout").into())
                }
                _ => Ok(Command::Done),
            }
        }
        Err(error) if error.kind() == ErrorKind::InvalidUtf8 => Err(Fault::usage(no_text(&args))),
        Err(error) => Err(Fault::usage(one_line(&error))),
    }
}

/// The arguments that are no text. Which of them should be one, the parser does not say.
fn no_text(args: &[OsString]) -> String {
    let bad = args.iter().filter(|arg| arg.to_str().is_none());
    let shown = bad.map(|arg| format!("`{}`", text::one_line(&arg.to_string_lossy(), 80)));
    let shown = shown.collect::<Vec<_>>().join(", ");
    format!("{shown}: expected text in UTF-8 (see `offshoot --help`)")
}

/// The problem alone, without the usage that follows it.
fn one_line(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "expected a command: demo, run, tools, sessions, mcp or acp (see `offshoot --help`)"
            .to_owned();
    }
    let text = error.to_string();
    let lines = text
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let mut problem = String::new();
    for line in lines.map(str::trim).filter(|line| !line.is_empty()) {
        problem.push_str(match (problem.is_empty(), line.starts_with("tip: ")) {
            (true, _) => "",
            (false, true) => "; ",
            (false, false) => " ",
        });
        problem.push_str(line);
    }
    let problem = problem.strip_prefix("error: ").unwrap_or(&problem);
    format!("{problem} (see `offshoot --help`)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<Command, String> {
        let args = ["offshoot"].iter().chain(args).map(OsString::from);
        parse_from(args).map_err(|fault| fault.to_string())
    }

    #[test]
    fn a_fault_is_one_line_that_names_the_problem() {
        let cases: [(&[&str], &str); 8] = [
            (&[], "expected a command: demo, run"),
            (&["run", "--frob"], "unexpected argument '--frob' found"),
            (
                &["sessions"],
                "the following required arguments were not provided: --store <DIR>",
            ),
            (
                &["run", "--timeout", "0"],
                "invalid value '0' for '--timeout <SECONDS>': expected more than 0 seconds",
            ),
            (
                &["run", "-1"],
                "unexpected argument '-1' found; tip: to pass '-1' as a value, use '-- -1' (see",
            ),
            (
                &["run", "--jsn"],
                "unexpected argument '--jsn' found; tip: a similar argument exists: '--json' (see",
            ),
            (
                &["run", "--linger", "-1"],
                "invalid value '-1' for '--linger <SECONDS>': expected a number of seconds, not `-1` (see",
            ),
            (
                &["run", "--linger=soon"],
                "invalid value 'soon' for '--linger <SECONDS>': expected a number of seconds, not `soon`",
            ),
        ];
        for (args, expected) in cases {
            let line = parsed(args).expect_err("a fault");
            assert!(line.starts_with(expected), "{args:?}: {line}");
            assert!(!line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn seconds_may_be_fractions() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        assert_eq!(seconds("0"), Ok(Duration::ZERO));
        assert!(seconds("inf").is_err());
        assert!(seconds("NaN").is_err());
    }
}
