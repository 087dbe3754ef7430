//! `send_message`: from an agent to its parent or to one of its children.

use crate::refusal::{Refusal, answer};
use futures::future::BoxFuture;
use offshoot_agent::{Effects, Tool, ToolCall, ToolOutput};
use offshoot_subagent::{Destination, Subagents};
use schemars::JsonSchema;
use serde_json::{Value, json};

use crate::arguments::Arguments;
use crate::schema;

/// The arguments of `send_message`.
#[derive(JsonSchema)]
#[expect(
    dead_code,
    reason = "describes the schema; arguments are read leniently"
)]
struct SendMessageArguments {
    /// The id of a subagent that you started, or of the agent that started you.
    agent_id: String,
    /// What to say. It has to make sense to a reader who does not see your conversation.
    message: String,
}

const DESCRIPTION: &str = "Send a message to a subagent that you started, or to the agent that \
started you. A running agent reads it at its next step; an idle one starts a turn; a finished \
subagent is resumed with its whole conversation. The result says that the message was accepted and \
where it went; it is never an answer. An error means that nothing was delivered.";

pub(crate) struct SendMessage {
    subagents: Subagents,
    schema: Value,
}

impl SendMessage {
    pub(crate) const NAME: &'static str = "send_message";

    pub(crate) fn new(subagents: Subagents) -> Self {
        Self {
            subagents,
            schema: schema::of::<SendMessageArguments>(),
        }
    }

    async fn run(&self, call: ToolCall) -> Result<ToolOutput, Refusal> {
        let args = Arguments::new(&call.args);
        let target = args.text("agent_id", "the id of an agent")?.trim();
        let message = args.text("message", "a text")?;
        let sent = self
            .subagents
            .send(&call.agent, target, message, call.generation)
            .await
            .map_err(|error| Refusal::from(error).under("not delivered"))?;
        let goes = match sent.destination {
            Destination::Running => "running: it reads the message at its next step",
            Destination::Idle => "idle: a turn starts with the message",
            Destination::Queued => "queued: a later turn of it reads the message",
            Destination::Parked => "parked: its next turn reads the message",
            Destination::Resumed => "resumed: a turn starts with the message",
        };
        let value = json!({
            "message_id": sent.message_id.as_str(),
            "agent_id": target,
            "delivery": sent.destination.as_str(),
        });
        let text = format!("message delivered to agent {target} (accepted; {goes})");
        Ok(ToolOutput::text(text).with_value(value))
    }
}

impl Tool for SendMessage {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn description(&self) -> &str {
        DESCRIPTION
    }

    fn input_schema(&self) -> &Value {
        &self.schema
    }

    /// The subagent may do whatever its own tools can.
    fn effects(&self) -> Effects {
        Effects::UNKNOWN
    }

    fn call(&self, call: ToolCall) -> BoxFuture<'_, ToolOutput> {
        Box::pin(async move { answer(self.run(call).await) })
    }
}
