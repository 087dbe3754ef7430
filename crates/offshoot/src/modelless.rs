//! A runtime without a model: what needs one says so.

use std::sync::Arc;

use futures::future::BoxFuture;
use offshoot_agent::{
    DriverError, Effects, StepContext, StepOutcome, Tool, ToolCall, ToolOutput, TurnDriver,
};
use serde_json::Value;

/// A driver that fails every step with one sentence.
pub(crate) struct NoModel(pub(crate) String);

impl TurnDriver for NoModel {
    fn step<'a>(&'a self, _: &'a StepContext) -> BoxFuture<'a, Result<StepOutcome, DriverError>> {
        Box::pin(async { Err(DriverError::new(self.0.clone())) })
    }
}

/// A tool that is shown as it is, and whose calls are refused with one sentence.
pub(crate) struct Refusing {
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) why: String,
}

impl Tool for Refusing {
    fn name(&self) -> &str {
        self.tool.name()
    }

    fn description(&self) -> &str {
        self.tool.description()
    }

    fn input_schema(&self) -> &Value {
        self.tool.input_schema()
    }

    fn effects(&self) -> Effects {
        self.tool.effects()
    }

    fn call(&self, _: ToolCall) -> BoxFuture<'_, ToolOutput> {
        Box::pin(async { ToolOutput::error("NO_MODEL", &self.why) })
    }
}
