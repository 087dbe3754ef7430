//! The calls of one reply: a rolling pool of those that may run beside each other, barriers around
//! the others, results recorded in the model's order.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use offshoot_agent::{
    CallRequest, Deadline, DriverError, SendError, StepContext, Tool, ToolCall, ToolOutput,
    ToolResultRecord,
};
use offshoot_core::text;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::LoopSettings;

/// What the calls of a reply leave to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The model gets the results.
    Ask,
    /// A result ended the turn.
    End,
}

/// Runs the calls and records each with its result.
///
/// After a cancel nothing more is started; what runs is waited for and recorded, and the rest is
/// answered by the agent when it ends the step. After a result that ends the turn nothing more is
/// started; the rest is answered with an error. When the log refuses, nothing more is started either:
/// what runs has its end, unrecorded, before the error is returned.
///
/// Dropping the future drops the calls that run; what was recorded stays.
pub(crate) async fn run(
    context: &StepContext,
    calls: Vec<CallRequest>,
    settings: &LoopSettings,
) -> Result<Next, DriverError> {
    let mut settled: Vec<Option<ToolOutput>> = calls.iter().map(|_| None).collect();
    let mut running = FuturesUnordered::new();
    let (mut started, mut recorded) = (0, 0);
    let (mut alone, mut ended) = (false, false);
    let mut fault = None;
    loop {
        while fault.is_none()
            && let Some(call) = calls.get(started)
        {
            if context.cancellation().is_cancelled() || ended {
                break;
            }
            // Asked anew before each start: an earlier call may have changed what a tool is.
            let prepared = prepare(context, call);
            let parallel = prepared.is_parallel();
            let room = if parallel {
                running.len() < settings.max_parallel_tools.get()
            } else {
                running.is_empty()
            };
            if (alone && !running.is_empty()) || !room {
                break;
            }
            alone = !parallel;
            if let Err(error) = context.record_call(call) {
                fault = Some(error);
                break;
            }
            let index = started;
            let work = contained(call, prepared.run(context, call, settings.tool_timeout));
            running.push(work.map(move |output| (index, output)));
            started += 1;
        }
        let Some((index, output)) = running.next().await else {
            break;
        };
        ended |= output.ends_turn();
        settled[index] = Some(output);
        while fault.is_none()
            && let Some(output) = settled.get_mut(recorded).and_then(Option::take)
        {
            fault = record(context, &calls[recorded], output).err();
            recorded += 1;
        }
        if settled[index].is_some() {
            // It waits for an earlier one: to be seen, and not yet on the record.
            context.call_settled(&calls[index].id);
        }
    }
    if let Some(fault) = fault {
        return Err(fault.into());
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

    async fn run(
        self,
        context: &StepContext,
        call: &CallRequest,
        timeout: Option<Duration>,
    ) -> ToolOutput {
        let (tool, args) = match self {
            Self::Run(tool, args) => (tool, args),
            Self::Refuse(output) => return output,
        };
        let timeout = match tool.deadline() {
            Deadline::Setting => timeout,
            Deadline::After(time) => Some(time),
            Deadline::Never => None,
        };
        let cancel = context.cancellation().child_token();
        let work = tool.call(ToolCall {
            agent: context.agent().clone(),
            call_id: call.id.clone(),
            args,
            key: context.key().clone(),
            generation: context.generation(),
            cancel: cancel.clone(),
        });
        bounded(context, call, work, &cancel, timeout).await
    }
}

/// A panic of a tool, in its call or in dropping it, is its answer.
async fn contained(call: &CallRequest, work: impl Future<Output = ToolOutput>) -> ToolOutput {
    let name = text::one_line(&call.name, 100);
    let span = tracing::info_span!("tool", tool = %name, call_id = %call.id);
    let output = AssertUnwindSafe(work).catch_unwind().instrument(span).await;
    output.unwrap_or_else(|panic| {
        let message = text::panic_message(&*panic);
        ToolOutput::error(
            "TOOL_PANICKED",
            format!("the tool {name} panicked: {message}"),
        )
    })
}

/// Waits for one call, which is told to stop with the turn or at its deadline, and dropped when it has
/// not returned within the grace.
async fn bounded(
    context: &StepContext,
    call: &CallRequest,
    mut work: BoxFuture<'_, ToolOutput>,
    cancel: &CancellationToken,
    timeout: Option<Duration>,
) -> ToolOutput {
    let too_late = async {
        match timeout {
            Some(timeout) => tokio::time::sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        output = &mut work => return output,
        () = context.cancelled() => {}
        () = too_late => {}
    }
    let aborted = context.cancellation().is_cancelled();
    cancel.cancel();
    // The agent drops a cancelled step, and all that it holds, at the end of its own grace: what
    // its other calls have answered is recorded before that.
    let grace = context.agent().host().settings.cancel_grace;
    let grace = if aborted { grace.mul_f32(0.8) } else { grace };
    match (tokio::time::timeout(grace, &mut work).await, aborted) {
        (Ok(output), true) => output,
        // What it says is kept, so that nothing that it told is lost.
        (Ok(output), false) if output.is_error => output,
        (Ok(output), false) => output.into_error("DEADLINE_EXCEEDED"),
        (Err(_), true) => ToolOutput::error("ABORTED", "the call was aborted"),
        (Err(_), false) => ToolOutput::error(
            "DEADLINE_EXCEEDED",
            format!(
                "the tool {} did not return within {:?} and was dropped; what it had begun may have \
                 taken effect",
                call.name,
                timeout.unwrap_or_default(),
            ),
        ),
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
) -> Result<(), SendError> {
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
