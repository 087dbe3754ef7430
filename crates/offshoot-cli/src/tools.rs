//! `offshoot tools`: what a model is shown, as a configuration makes it.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use offshoot::Runtime;
use offshoot::driver::ScriptedModel;
use offshoot::driver::script::{Gates, Script};
use offshoot::tools::schema::Variant;
use serde_json::Value;

use crate::args::ToolsArgs;
use crate::fault::Fault;
use crate::{output, setup};

/// `offshoot tools`.
pub(crate) fn tools(args: ToolsArgs) -> Result<ExitCode, Fault> {
    let config = setup::config(&args.config, None, Some(setup::base(None)))?;
    let asynchronous = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the asynchronous runtime")?;
    let _inside = asynchronous.enter();
    // Nobody is asked anything: the model is there to make the runtime whole.
    let silent = Script::parse(r#"{"agents": {}}"#, "nothing").map_err(Fault::usage)?;
    let model = ScriptedModel::new(&silent, Gates::new());
    let runtime = Runtime::builder(config)
        .below(setup::depth()?)
        .model(Arc::new(model));
    let variant = Variant::from(args.variant);
    let tools: Vec<Value> = runtime
        .kit()
        .tools
        .iter()
        .map(|tool| variant.describe(tool.as_ref()))
        .collect();
    if args.json {
        output::json_result(&tools)?;
    } else {
        output::result(&listing(&tools).context("the tools")?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Each tool's name and description, and what else a client is told: its schema.
fn listing(tools: &[Value]) -> anyhow::Result<String> {
    let mut text = String::new();
    for tool in tools {
        let words = |key: &str| tool[key].as_str().unwrap_or_default();
        writeln!(text, "{}", words("name"))?;
        for line in words("description").lines() {
            writeln!(text, "  {line}")?;
        }
        let schema = SCHEMA_KEYS.iter().find_map(|key| tool.get(key));
        let schema = match schema {
            Some(schema) => serde_json::to_string_pretty(schema)?,
            None => "no parameters".to_owned(),
        };
        for line in schema.lines() {
            writeln!(text, "    {line}")?;
        }
        writeln!(text)?;
    }
    Ok(text)
}

/// Where the variants have the schema.
const SCHEMA_KEYS: [&str; 3] = ["inputSchema", "input_schema", "parameters"];
