//! The driver of the cases: what agents of this process do in a step.

use futures::future::BoxFuture;
use offshoot_agent::{
    AssistantMessage, CallId, CallRequest, DriverError, Finish, StepContext, StepOutcome, ToolCall,
    ToolResultRecord, TurnDriver, Usage,
};
use serde_json::{Value, json};

use crate::behaviour::{ANSWER, Behaviour, PARTIAL, hostile_fault};

const FLOOD_BYTES: usize = 6 * 1024 * 1024;

/// Lets children behave; a root takes note.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Actor(pub(crate) Behaviour);

impl TurnDriver for Actor {
    fn step<'a>(
        &'a self,
        context: &'a StepContext,
    ) -> BoxFuture<'a, Result<StepOutcome, DriverError>> {
        Box::pin(async move {
            if context.agent().depth() == 0 {
                return say(context, "noted", Finish::Stop);
            }
            if self.0 == Behaviour::Structured {
                return offer(context).await;
            }
            if context.key().step == 1 && self.0 != Behaviour::Answer && self.0 != Behaviour::Flood
            {
                say(context, PARTIAL, Finish::ToolCalls)?;
                return Ok(StepOutcome::Continue);
            }
            match self.0 {
                Behaviour::Answer | Behaviour::Structured => say(context, ANSWER, Finish::Stop),
                Behaviour::Flood => {
                    let mut text = "flood ".repeat(FLOOD_BYTES / 6);
                    text.push_str(ANSWER);
                    say(context, &text, Finish::Stop)
                }
                Behaviour::Fail => Err(DriverError::new(hostile_fault())),
                Behaviour::Crash => panic!("conformance crash"),
                Behaviour::Hang => {
                    context.cancelled().await;
                    Ok(StepOutcome::Completed)
                }
                Behaviour::Deaf => std::future::pending().await,
            }
        })
    }
}

fn reply(context: &StepContext, text: &str, calls: Vec<CallRequest>) -> Result<(), DriverError> {
    let finish = if calls.is_empty() {
        Finish::Stop
    } else {
        Finish::ToolCalls
    };
    record(context, text, calls, finish)
}

fn record(
    context: &StepContext,
    text: &str,
    calls: Vec<CallRequest>,
    finish: Finish,
) -> Result<(), DriverError> {
    let usage = Usage {
        input: 10,
        output: text.len() as u64,
    };
    context.record_reply(AssistantMessage {
        text: text.to_owned(),
        calls,
        finish,
        usage,
    })?;
    Ok(())
}

fn say(context: &StepContext, text: &str, finish: Finish) -> Result<StepOutcome, DriverError> {
    record(context, text, Vec::new(), finish)?;
    Ok(StepOutcome::Completed)
}

/// Offers an answer that does not fit, then one that does, to the one tool that takes answers.
async fn offer(context: &StepContext) -> Result<StepOutcome, DriverError> {
    let fits = context.key().step > 1;
    let answer = if fits { json!(42) } else { json!("none") };
    let tools = &context.agent().kit().tools;
    let Some(tool) = tools.iter().last() else {
        return say(context, ANSWER, Finish::Stop);
    };
    let call = CallRequest {
        id: CallId("offer".to_owned()),
        name: tool.name().to_owned(),
        args: json!({ "answer": answer }),
    };
    reply(context, "", vec![call.clone()])?;
    context.record_call(&call)?;
    let mut output = tool
        .call(ToolCall {
            agent: context.agent().clone(),
            call_id: call.id.clone(),
            args: call.args.clone(),
            key: context.key().clone(),
            generation: context.generation(),
            cancel: context.cancellation().clone(),
        })
        .await;
    let commit = output.take_commit();
    let ends_turn = output.ends_turn();
    context.record_result(ToolResultRecord {
        call_id: call.id,
        text: output.text,
        value: None::<Value>,
        is_error: output.is_error,
        code: output.code,
    })?;
    if let Some(commit) = commit {
        commit();
    }
    Ok(if ends_turn {
        StepOutcome::Final
    } else {
        StepOutcome::Continue
    })
}
