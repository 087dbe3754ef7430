//! `offshoot tools`: what a model is shown, as a configuration makes it.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use offshoot::Runtime;
use offshoot::agent::Tool;
use offshoot::driver::ScriptedModel;
use offshoot::driver::script::{Gates, Script};
use serde::Serialize;
use serde_json::Value;

use crate::args::{ToolsArgs, Variant};
use crate::fault::Fault;
use crate::{output, setup};

/// A tool as MCP shows it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct McpTool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a Value,
}

impl<'a> McpTool<'a> {
    fn of(tool: &'a Arc<dyn Tool>) -> Self {
        Self {
            name: tool.name(),
            description: tool.description(),
            input_schema: tool.input_schema(),
        }
    }
}

/// `offshoot tools`.
pub(crate) fn tools(args: ToolsArgs) -> Result<ExitCode, Fault> {
    let variant = match args.variant {
        Variant::Mcp => None,
        Variant::OpenaiStrict => Some("openai-strict"),
        Variant::Anthropic => Some("anthropic"),
        Variant::Gemini => Some("gemini"),
    };
    if let Some(variant) = variant {
        return Err(Fault::usage(format_args!(
            "--variant: `{variant}` is not available in this build; expected `mcp`"
        )));
    }
    let config = setup::config(&args.config, None)?;
    let asynchronous = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the asynchronous runtime")?;
    let _inside = asynchronous.enter();
    // Nobody is asked anything: the model is there to make the runtime whole.
    let silent = Script::parse(r#"{"agents": {}}"#, "nothing").map_err(Fault::usage)?;
    let model = ScriptedModel::new(&silent, Gates::new());
    let runtime = Runtime::builder(config).model(Arc::new(model));
    let tools: Vec<McpTool<'_>> = runtime.kit().tools.iter().map(McpTool::of).collect();
    if args.json {
        output::json_result(&tools)?;
    } else {
        output::result(&listing(&tools).context("the tools")?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn listing(tools: &[McpTool<'_>]) -> anyhow::Result<String> {
    let mut text = String::new();
    for tool in tools {
        writeln!(text, "{}", tool.name)?;
        for line in tool.description.lines() {
            writeln!(text, "  {line}")?;
        }
        let schema = serde_json::to_string_pretty(tool.input_schema)?;
        for line in schema.lines() {
            writeln!(text, "    {line}")?;
        }
        writeln!(text)?;
    }
    Ok(text)
}
