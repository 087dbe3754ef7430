//! One step: a request, the reply, its calls.

use std::collections::HashSet;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use offshoot_agent::{
    AssistantMessage, CallId, CallRequest, DriverError, Finish, StepContext, StepOutcome,
    TurnDriver, Usage,
};

use crate::{Model, ModelError, ModelReply, ModelRequest, PartialText, calls};

/// Limits of the stock driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopSettings {
    /// How many calls of one reply may run at once. Default 10.
    pub max_parallel_tools: NonZeroUsize,
    /// How long a call may take before it is stopped, unless its tool says otherwise; absent: as long
    /// as it takes. Default 10 minutes.
    pub tool_timeout: Option<Duration>,
}

/// Calls of one reply that run at once, unless the settings say otherwise.
const PARALLEL_TOOLS: NonZeroUsize = NonZeroUsize::new(10).unwrap();

impl Default for LoopSettings {
    fn default() -> Self {
        Self {
            max_parallel_tools: PARALLEL_TOOLS,
            tool_timeout: Some(Duration::from_secs(600)),
        }
    }
}

/// The stock [`TurnDriver`]: asks a model and runs what it calls.
#[derive(Clone)]
pub struct ModelLoop {
    model: Arc<dyn Model>,
    settings: LoopSettings,
}

impl fmt::Debug for ModelLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelLoop")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl ModelLoop {
    /// A driver that asks `model`.
    #[must_use]
    pub fn new(model: Arc<dyn Model>, settings: LoopSettings) -> Self {
        Self { model, settings }
    }
}

impl TurnDriver for ModelLoop {
    fn step<'a>(
        &'a self,
        context: &'a StepContext,
    ) -> BoxFuture<'a, Result<StepOutcome, DriverError>> {
        Box::pin(async move {
            if context.cancellation().is_cancelled() {
                // A cancelled turn asks nothing.
                return Ok(StepOutcome::Completed);
            }
            let partial = PartialText::default();
            let kit = context.agent().kit();
            let request = self.model.request(ModelRequest {
                agent: context.agent().clone(),
                key: context.key().clone(),
                system: kit.prompt.render(&kit.tools),
                history: context.history(),
                tools: kit.tools.clone(),
                partial: partial.clone(),
            });
            let answer = tokio::select! {
                biased;
                () = context.cancelled() => None,
                answer = request => Some(answer),
            };
            let reply = match answer {
                Some(Ok(reply)) => reply,
                Some(Err(error)) => return fail(context, &partial, error),
                None => return interrupt(context, &partial),
            };
            self.follow(context, reply).await
        })
    }
}

impl ModelLoop {
    async fn follow(
        &self,
        context: &StepContext,
        reply: ModelReply,
    ) -> Result<StepOutcome, DriverError> {
        let mut asked = reply.calls;
        if matches!(reply.finish, Finish::MaxTokens | Finish::Refusal) {
            // Cut or declined: the calls may be half written and are never run.
            asked.clear();
        }
        name_calls(&mut asked, context);
        context.record_reply(AssistantMessage {
            text: reply.text,
            calls: asked.clone(),
            finish: reply.finish,
            usage: reply.usage,
        })?;
        match reply.finish {
            Finish::MaxTokens => Ok(StepOutcome::MaxTokens),
            Finish::Refusal => Ok(StepOutcome::Refusal),
            _ if asked.is_empty() => Ok(StepOutcome::Completed),
            _ => {
                let next = calls::run(context, asked, &self.settings).await?;
                Ok(match next {
                    calls::Next::Ask => StepOutcome::Continue,
                    calls::Next::End => StepOutcome::Final,
                })
            }
        }
    }
}

/// Gives every call an id of its own within the reply: results are paired with calls by it.
fn name_calls(calls: &mut [CallRequest], context: &StepContext) {
    let mut taken = HashSet::new();
    for (index, call) in calls.iter_mut().enumerate() {
        let key = context.key();
        if call.id.0.trim().is_empty() {
            call.id = CallId(format!("call_{}_{}_{}", key.turn, key.step, index + 1));
        }
        if !taken.insert(call.id.clone()) {
            let base = call.id.0.clone();
            let fresh = (2..)
                .map(|n| CallId(format!("{base}_{n}")))
                .find(|id| !taken.contains(id));
            call.id = fresh.unwrap_or_else(|| call.id.clone());
            taken.insert(call.id.clone());
        }
    }
}

fn keep_partial(
    context: &StepContext,
    text: String,
    finish: Finish,
    usage: Usage,
) -> Result<(), DriverError> {
    if text.trim().is_empty() && usage == Usage::default() {
        return Ok(());
    }
    context.record_reply(AssistantMessage {
        text,
        calls: Vec::new(),
        finish,
        usage,
    })?;
    Ok(())
}

/// What had arrived of a cancelled reply is kept; the agent ends the turn as aborted.
fn interrupt(context: &StepContext, partial: &PartialText) -> Result<StepOutcome, DriverError> {
    keep_partial(
        context,
        partial.take(),
        Finish::Interrupted,
        Usage::default(),
    )?;
    Ok(StepOutcome::Completed)
}

fn fail(
    context: &StepContext,
    partial: &PartialText,
    error: ModelError,
) -> Result<StepOutcome, DriverError> {
    let text = partial.take();
    if !text.trim().is_empty() {
        keep_partial(context, text, Finish::Error, error.usage)?;
    }
    Err(DriverError::new(error.message))
}
