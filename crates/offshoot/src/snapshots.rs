//! What models are shown, as it is committed and checked: tool schemas and prompt sections under the
//! default configuration.

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use offshoot_agent::{DriverError, StepContext, StepOutcome, TurnDriver};
use offshoot_tools::schema::Variant;
use serde_json::Value;

use crate::Runtime;
use crate::config::Config;

/// Each tool's name with what a variant of clients is told about it.
#[must_use]
pub fn tool_schemas(variant: Variant) -> Vec<(String, Value)> {
    let runtime = with_defaults();
    let tools = runtime.kit().tools.iter();
    tools
        .map(|tool| (tool.name().to_owned(), variant.describe(tool.as_ref())))
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
