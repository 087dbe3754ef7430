//! The calls of one reply: a rolling pool of those that may run beside each other, barriers around
//! the others, results recorded in the model's order.

use std::panic::AssertUnwindSafe;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use offshoot_agent::{
    CallRequest, DriverError, StepContext, Tool, ToolCall, ToolOutput, ToolResultRecord,
};
use offshoot_core::text;
use serde_json::{Map, Value};

/// What the calls of a reply leave to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The model gets the results.
    Ask,
    /// A result ended the turn.
    End,
}

/// Runs the calls and records each with its result. After a cancel nothing more is started; what
/// runs is waited for and recorded, and the rest is answered by the agent when it ends the step.
/// After a result that ends the turn nothing more is started; the rest is answered with an error.
///
/// Dropping the future drops the calls that run; what was recorded stays.
pub(crate) async fn run(
    context: &StepContext,
    calls: Vec<CallRequest>,
    max_parallel: usize,
) -> Result<Next, DriverError> {
    let mut settled: Vec<Option<ToolOutput>> = calls.iter().map(|_| None).collect();
    let mut running = FuturesUnordered::new();
    let (mut started, mut recorded) = (0, 0);
    let (mut alone, mut ended) = (false, false);
    loop {
        while let Some(call) = calls.get(started) {
            if context.cancellation().is_cancelled() || ended {
                break;
            }
            // Asked anew before each start: an earlier call may have changed what a tool is.
            let prepared = prepare(context, call);
            let parallel = prepared.is_parallel();
            let room = if parallel {
                running.len() < max_parallel.max(1)
            } else {
                running.is_empty()
            };
            if (alone && !running.is_empty()) || !room {
                break;
            }
            alone = !parallel;
            context.record_call(call)?;
            let index = started;
            running.push(
                prepared
                    .run(context, call)
                    .map(move |output| (index, output)),
            );
            started += 1;
        }
        let Some((index, output)) = running.next().await else {
            break;
        };
        ended |= output.ends_turn();
        settled[index] = Some(output);
        while let Some(output) = settled.get_mut(recorded).and_then(Option::take) {
            record(context, &calls[recorded], output)?;
            recorded += 1;
        }
    }
    if !ended || context.cancellation().is_cancelled() {
        return Ok(Next::Ask);
    }
    for call in &calls[started..] {
        let denied =
            ToolOutput::error("TURN_ENDED", "an earlier call of this reply ended the turn");
        context.record_call(call)?;
        record(context, call, denied)?;
    }
    Ok(Next::End)
}

enum Prepared<'a> {
    Run(&'a dyn Tool, Value),
    Refuse(ToolOutput),
}

impl Prepared<'_> {
    fn is_parallel(&self) -> bool {
        match self {
            Self::Run(tool, args) => {
                // A classifier that panics says nothing: the call runs alone.
                std::panic::catch_unwind(AssertUnwindSafe(|| tool.is_parallel_safe(args)))
                    .unwrap_or(false)
            }
            // Nobody vouches for what is not known.
            Self::Refuse(_) => false,
        }
    }

    async fn run(self, context: &StepContext, call: &CallRequest) -> ToolOutput {
        let (tool, args) = match self {
            Self::Run(tool, args) => (tool, args),
            Self::Refuse(output) => return output,
        };
        let work = async {
            tool.call(ToolCall {
                agent: context.agent().clone(),
                call_id: call.id.clone(),
                args,
                key: context.key().clone(),
                generation: context.generation(),
                cancel: context.cancellation().clone(),
            })
            .await
        };
        AssertUnwindSafe(work)
            .catch_unwind()
            .await
            .unwrap_or_else(|panic| {
                let message = text::panic_message(&*panic);
                ToolOutput::error(
                    "TOOL_PANICKED",
                    format!("the tool {} panicked: {message}", call.name),
                )
            })
    }
}

fn prepare<'a>(context: &'a StepContext, call: &CallRequest) -> Prepared<'a> {
    let tools = &context.agent().kit().tools;
    let Some(tool) = tools.get(&call.name) else {
        let names: Vec<_> = tools.iter().map(|tool| tool.name()).collect();
        let message = format!(
            "unknown tool `{}`; the tools are: {}",
            text::one_line(&call.name, 100),
            if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            }
        );
        return Prepared::Refuse(ToolOutput::error("UNKNOWN_TOOL", message));
    };
    match arguments(&call.args) {
        Ok(args) => Prepared::Run(tool.as_ref(), Value::Object(args)),
        Err(message) => Prepared::Refuse(ToolOutput::error("INVALID_ARGUMENTS", message)),
    }
}

/// The arguments as an object. Nothing at all is the empty object; an object that was sent as a
/// JSON string is parsed once.
fn arguments(args: &Value) -> Result<Map<String, Value>, String> {
    let parsed;
    let args = match args {
        Value::String(text) if text.trim().is_empty() => &Value::Null,
        Value::String(text) => {
            parsed = serde_json::from_str(text).map_err(|error| {
                format!(
                    "invalid arguments: expected a JSON object, got text that is not JSON: {error}"
                )
            })?;
            &parsed
        }
        other => other,
    };
    match args {
        Value::Null => Ok(Map::new()),
        Value::Object(object) => Ok(object.clone()),
        other => Err(format!(
            "invalid arguments: expected a JSON object, got {}",
            kind(other)
        )),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn record(
    context: &StepContext,
    call: &CallRequest,
    mut output: ToolOutput,
) -> Result<(), DriverError> {
    if context.cancellation().is_cancelled() && !output.is_error {
        // What it says is kept, so that nothing that it told is lost.
        output = output.into_error("ABORTED");
    }
    let commit = output.take_commit();
    context.record_result(ToolResultRecord {
        call_id: call.id.clone(),
        text: output.text,
        value: output.value,
        is_error: output.is_error,
        code: output.code,
    })?;
    if let Some(commit) = commit {
        commit();
    }
    Ok(())
}
