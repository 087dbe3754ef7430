//! `interrupt_agent`: stops what a subagent does now.

use crate::refusal::{Refusal, answer};
use futures::future::BoxFuture;
use offshoot_agent::{AgentId, Effects, Tool, ToolCall, ToolOutput};
use offshoot_core::text;
use offshoot_subagent::{Authority, DeliverError, StopReply, Subagents};
use schemars::JsonSchema;
use serde_json::{Value, json};

use crate::arguments::Arguments;
use crate::schema;

/// The arguments of `interrupt_agent`.
#[derive(JsonSchema)]
#[expect(
    dead_code,
    reason = "describes the schema; arguments are read leniently"
)]
struct InterruptAgentArguments {
    /// The id of a subagent that you, or a subagent of yours, started.
    agent_id: String,
}

const DESCRIPTION: &str = "Stop what a subagent of yours does now. Only its current work stops; \
messages that wait for it stay parked until you send it another one with send_message, and agents \
that it started go on. A subagent that only waits for its background tasks has those stopped. One \
that has finished already is left alone.";

pub(crate) struct InterruptAgent {
    subagents: Subagents,
    schema: Value,
}

impl InterruptAgent {
    pub(crate) const NAME: &'static str = "interrupt_agent";

    pub(crate) fn new(subagents: Subagents) -> Self {
        Self {
            subagents,
            schema: schema::of::<InterruptAgentArguments>(),
        }
    }

    fn run(&self, call: &ToolCall) -> Result<ToolOutput, Refusal> {
        let args = Arguments::new(&call.args);
        let target = args.text("agent_id", "the id of an agent")?.trim();
        let id: AgentId = target
            .parse()
            .map_err(|_| DeliverError::Unknown(text::one_line(target, 80)))?;
        let reply = self
            .subagents
            .interrupt(Authority::Agent(&call.agent), &id)?;
        let nothing = match reply {
            StopReply::Requested => "",
            StopReply::Ending => ": it is ending already",
            StopReply::Settled => ": it has finished already, and nothing was stopped",
            StopReply::OneShot => {
                ": it is a one-shot run and goes on; task_kill stops one that is a task"
            }
        };
        let text = format!("interrupt requested for agent {id}{nothing}");
        let mut value = json!({ "accepted": true });
        if reply != StopReply::Requested {
            value["state"] = reply.as_str().into();
        }
        Ok(ToolOutput::text(text).with_value(value))
    }
}

impl Tool for InterruptAgent {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn description(&self) -> &str {
        DESCRIPTION
    }

    fn input_schema(&self) -> &Value {
        &self.schema
    }

    /// Twice is more: the second call stops the tasks that the child waits for.
    fn effects(&self) -> Effects {
        Effects::STOPS_OWN
    }

    fn call(&self, call: ToolCall) -> BoxFuture<'_, ToolOutput> {
        Box::pin(async move { answer(self.run(&call)) })
    }
}
