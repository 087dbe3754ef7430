//! What models are shown, as it is committed and checked: tool schemas and prompt sections under the
//! default configuration.

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use offshoot_agent::{DriverError, StepContext, StepOutcome, Tool, TurnDriver};
use serde_json::{Value, json};

use crate::Runtime;
use crate::config::Config;

/// A tool as a variant of clients is told about it. `None` for a variant that is not known.
#[must_use]
pub fn describe(tool: &dyn Tool, variant: &str) -> Option<Value> {
    match variant {
        "mcp" => Some(json!({
            "name": tool.name(),
            "description": tool.description(),
            "inputSchema": tool.input_schema(),
        })),
        _ => None,
    }
}

/// Each tool's name with what a variant of clients is told about it. Empty for an unknown variant.
#[must_use]
pub fn tool_schemas(variant: &str) -> Vec<(String, Value)> {
    let runtime = with_defaults();
    let tools = runtime.kit().tools.iter();
    tools
        .filter_map(|tool| Some((tool.name().to_owned(), describe(tool.as_ref(), variant)?)))
        .collect()
}

/// Each prompt section's key, as a file name, with its text.
#[must_use]
pub fn prompt_sections() -> Vec<(String, String)> {
    let runtime = with_defaults();
    let sections = runtime.toolbox().sections.iter();
    sections
        .map(|section| (section.key.replace(':', "-"), section.text.clone()))
        .collect()
}

/// A runtime that is only looked at.
fn with_defaults() -> Runtime {
    Runtime::builder(Config::default())
        .cwd(PathBuf::from("/"))
        .driver(Arc::new(Nothing))
}

struct Nothing;

impl TurnDriver for Nothing {
    fn step<'a>(&'a self, _: &'a StepContext) -> BoxFuture<'a, Result<StepOutcome, DriverError>> {
        Box::pin(async { Ok(StepOutcome::Completed) })
    }
}
