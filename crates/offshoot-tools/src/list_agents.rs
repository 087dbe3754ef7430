//! `list_agents`: the caller's subagents.

use crate::fit::{Room, fit_list};
use crate::refusal::{Refusal, answer};
use crate::shape::Shape;
use futures::future::BoxFuture;
use offshoot_agent::{Effects, Tool, ToolCall, ToolOutput};
use offshoot_core::text;
use offshoot_subagent::{Listed, Subagents};
use schemars::JsonSchema;
use serde_json::{Value, json};

use crate::arguments::{ArgumentError, Arguments};
use crate::schema;

/// Which agents are listed.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(
    dead_code,
    reason = "describes the schema; arguments are read leniently"
)]
enum ScopeArgument {
    Children,
    Descendants,
}

/// The arguments of `list_agents`.
#[derive(JsonSchema)]
#[expect(
    dead_code,
    reason = "describes the schema; arguments are read leniently"
)]
struct ListAgentsArguments {
    /// "children" (the default) lists the subagents that you started, "descendants" also those below
    /// them.
    #[schemars(with = "ScopeArgument", default)]
    scope: Option<ScopeArgument>,
}

const DESCRIPTION: &str = "List the subagents that you can send messages to: id, status and label. \
running: it works; waiting: its turn has ended and work that it started goes on; idle: it is about \
to finish; ready: it has finished, and a message resumes it; broken: its session is damaged. The \
seconds are the time that it has taken so far. This is for recalling ids, not for waiting: you are \
told when a subagent finishes.";

pub(crate) struct ListAgents {
    subagents: Subagents,
    room: Room,
    schema: Value,
}

impl ListAgents {
    pub(crate) const NAME: &'static str = "list_agents";

    pub(crate) fn new(subagents: Subagents, room: Room) -> Self {
        Self {
            subagents,
            room,
            schema: schema::of::<ListAgentsArguments>(),
        }
    }

    fn run(&self, call: &ToolCall) -> Result<ToolOutput, Refusal> {
        let expected = "\"children\" or \"descendants\"";
        let scope = Arguments::new(&call.args).optional_text("scope", expected)?;
        let descendants = match scope {
            None | Some("children") => false,
            Some("descendants") => true,
            Some(other) => {
                let got = text::one_line(other, 60);
                let message =
                    format!("invalid arguments: scope: expected {expected}, got the text {got:?}");
                return Err(Refusal::new(ArgumentError::CODE, message));
            }
        };
        let agents = self.subagents.list(&call.agent, descendants);
        let lines: Vec<_> = agents
            .iter()
            .map(|agent| line(agent, descendants))
            .collect();
        let shown = fit_list(&lines, Shape::NoSubagents.head(), self.room);
        Ok(ToolOutput::text(shown).with_value(agents.iter().map(value).collect()))
    }
}

fn line(agent: &Listed, descendants: bool) -> String {
    let place = if descendants {
        format!(" parent={} depth={}", agent.parent, agent.depth)
    } else {
        String::new()
    };
    format!(
        "{} [{}]{place} — {} ({} s)",
        agent.id,
        agent.status.as_str(),
        agent.label,
        agent.usage.wall_ms / 1000
    )
}

fn value(agent: &Listed) -> Value {
    json!({
        "id": agent.id.as_str(),
        "parent": agent.parent.as_str(),
        "depth": agent.depth,
        "label": agent.label,
        "status": agent.status.as_str(),
        "usage": agent.usage,
        "tasks": agent.works,
    })
}

impl Tool for ListAgents {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn description(&self) -> &str {
        DESCRIPTION
    }

    fn input_schema(&self) -> &Value {
        &self.schema
    }

    fn is_parallel_safe(&self, _: &Value) -> bool {
        true
    }

    fn effects(&self) -> Effects {
        Effects::READS
    }

    fn call(&self, call: ToolCall) -> BoxFuture<'_, ToolOutput> {
        Box::pin(async move { answer(self.run(&call)) })
    }
}
