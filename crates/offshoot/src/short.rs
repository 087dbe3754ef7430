//! Tools and models that are one function.

use std::future::Future;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use offshoot_agent::{Tool, ToolCall, ToolOutput};
use offshoot_loop::{Model, ModelError, ModelReply, ModelRequest};
use serde_json::{Value, json};

struct Function<F> {
    name: String,
    description: String,
    schema: Value,
    call: F,
}

impl<F, Fut> Tool for Function<F>
where
    F: Fn(Value) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, String>> + Send + 'static,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn input_schema(&self) -> &Value {
        &self.schema
    }

    fn call(&self, call: ToolCall) -> BoxFuture<'_, ToolOutput> {
        let result = (self.call)(call.args);
        async move {
            match result.await {
                Ok(text) => ToolOutput::text(text),
                Err(error) => ToolOutput::error("TOOL_FAILED", error),
            }
        }
        .boxed()
    }
}

/// A tool that is one function of its arguments, and has none when its schema is not given: see
/// [`tool_with`]. An `Err` is told to the model as an error.
///
/// ```
/// let today = offshoot::tool("today", "Tell which day it is.", |_| async {
///     Ok("a Tuesday".to_owned())
/// });
/// assert_eq!(today.name(), "today");
/// ```
pub fn tool<F, Fut>(
    name: impl Into<String>,
    description: impl Into<String>,
    call: F,
) -> Arc<dyn Tool>
where
    F: Fn(Value) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, String>> + Send + 'static,
{
    let schema = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    tool_with(name, description, schema, call)
}

/// As [`tool`], with the JSON schema of its arguments. Arguments are passed on as they come.
pub fn tool_with<F, Fut>(
    name: impl Into<String>,
    description: impl Into<String>,
    schema: Value,
    call: F,
) -> Arc<dyn Tool>
where
    F: Fn(Value) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, String>> + Send + 'static,
{
    Arc::new(Function {
        name: name.into(),
        description: description.into(),
        schema,
        call,
    })
}

struct Answering<F>(F);

impl<F, Fut> Model for Answering<F>
where
    F: Fn(ModelRequest) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<ModelReply, ModelError>> + Send + 'static,
{
    fn request(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelReply, ModelError>> {
        // Made inside the future, so that a panic of the call is the request's.
        async move { (self.0)(request).await }.boxed()
    }
}

/// A model that is one function. [`Model`]'s section *Implementing* holds for its futures.
pub fn model<F, Fut>(answer: F) -> Arc<dyn Model>
where
    F: Fn(ModelRequest) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<ModelReply, ModelError>> + Send + 'static,
{
    Arc::new(Answering(answer))
}

/// A reply that only says something. Its cost is not known.
#[must_use]
pub fn say(text: impl Into<String>) -> ModelReply {
    ModelReply {
        text: text.into(),
        calls: Vec::new(),
        finish: offshoot_agent::Finish::Stop,
        usage: offshoot_agent::Usage::default(),
    }
}

/// A reply that calls one tool. Its cost is not known.
#[must_use]
pub fn call(tool: impl Into<String>, args: Value) -> ModelReply {
    let call = offshoot_agent::CallRequest {
        id: offshoot_agent::CallId("call-1".to_owned()),
        name: tool.into(),
        args,
    };
    ModelReply {
        calls: vec![call],
        finish: offshoot_agent::Finish::ToolCalls,
        ..say("")
    }
}
