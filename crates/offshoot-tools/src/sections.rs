//! What models are told about delegation and background work: tool descriptions that depend on
//! settings, prompt sections, and what goes into a child's first message.

use offshoot_agent::{Agent, PromptSection};
use offshoot_subagent::Mode;

use crate::bash::Bash;
use crate::send_message::SendMessage;
use crate::task_output::TaskOutput;
use crate::{SubagentToolSettings, ToolsSettings};

/// The most of a schema that a description shows, in bytes.
const SCHEMA_BYTES: usize = 1024;

const BASH_ORDER: i32 = 105;
const TASKS_ORDER: i32 = 106;
const SUBAGENT_ORDER: i32 = 110;
const SEND_MESSAGE_ORDER: i32 = 120;

const BASH: &str = "Commands run in a shell of their own each time: a change of folder or of a \
variable does not last. Run what takes long in the background and go on with something else.";

const TASKS: &str = "Background tasks: keep every task id that you get. You are told when a task ends, \
so do not poll and do not sleep; go on with work that does not depend on it, and do not do again what \
a task does already. Before your final answer, collect the tasks that still matter with task_output, \
and wait only when there is nothing else to do. Stop tasks that do not matter any more with \
task_kill.";

const SEND_MESSAGE: &str = "send_message reaches the subagents that you started and the agent that \
started you, nobody else. A message is read at the receiver's next step; you do not get an answer \
from the call, the receiver answers with a message of its own if it wants to.";

/// Tells a one-shot child how it ends.
pub(crate) const ONE_SHOT_GUIDANCE: &str = "Your last message is the whole result of this run: make \
it complete in itself. The run ends with your turn, and background tasks that still run then are \
stopped, so wait for those that you need.";

/// Tells a one-shot child whose answer has a schema how it ends.
pub(crate) const STRUCTURED_GUIDANCE: &str = "The answer that you give at the end is the whole result \
of this run: make it complete in itself. The run ends with it, and background tasks that still run \
then are stopped, so wait for those that you need.";

/// Tells a child whom it works for: in its first message, so that nothing about a single child is in
/// the system prompt or in the tools.
pub(crate) fn return_guidance(parent: &Agent) -> String {
    let id = serde_json::Value::from(parent.id().as_str());
    format!(
        "You work for the agent {id}, which does not see this conversation. When you finish, it is \
told so with your last message: make that message complete in itself. You may send it something \
earlier with send_message, when a finding would change what it does; sending does not end your turn."
    )
}

/// What a model is told about a delegation tool.
pub(crate) fn subagent_description(settings: &SubagentToolSettings, inherits: bool) -> String {
    let context = if inherits {
        "It begins with this conversation up to your last finished turn"
    } else {
        "It begins without this conversation, so the prompt has to say everything that it needs"
    };
    let way = match (settings.background, settings.mode) {
        (true, Mode::Continuable) => {
            "By default it works in the background: the call returns its id at once, you go on \
working, and you are told how it ended, with its last message. The id stays good: send_message gives a \
running subagent more to consider at its next step, and starts a finished one again with its whole \
conversation. Set run_in_background to false only when your next step needs the answer: the call then \
waits for the answer, and that run cannot be sent messages."
        }
        (true, Mode::OneShot) => {
            "By default the call waits for its answer. With run_in_background the call returns a task \
id at once and you are told when it has ended; task_output reads its answer and task_kill stops it."
        }
        (false, _) => "The call waits for its answer.",
    };
    let result = match &settings.output_schema {
        None => "You get its result, not its steps.".to_owned(),
        Some(schema) => format!(
            "You get its result, not its steps: JSON that fits the schema {}.",
            offshoot_core::text::one_line(&schema.schema().to_string(), SCHEMA_BYTES)
        ),
    };
    format!("Delegate a task to a subagent. {context}. {result} {way}")
}

/// What a model is told about the background parameter.
pub(crate) fn background_parameter(mode: Mode) -> &'static str {
    match mode {
        Mode::Continuable => {
            "Default true: the subagent works in the background and its id is returned at once. Set \
it to false only when your next step needs the answer."
        }
        Mode::OneShot => {
            "Default false: the call waits for the answer. Set it to true to get a task id at once \
and go on working."
        }
    }
}

/// The prompt sections of all tools.
pub(crate) fn all(settings: &ToolsSettings) -> Vec<PromptSection> {
    let mut sections = Vec::new();
    if settings.bash.as_ref().is_some_and(|bash| bash.background) {
        sections.push(PromptSection::for_tool(Bash::NAME, BASH_ORDER, BASH));
    }
    sections.push(PromptSection::for_tool(
        TaskOutput::NAME,
        TASKS_ORDER,
        TASKS,
    ));
    for tool in &settings.subagents {
        if tool.background && tool.mode == Mode::Continuable {
            let text = subagent_section(&tool.tool_name);
            sections.push(PromptSection::for_tool(
                &tool.tool_name,
                SUBAGENT_ORDER,
                text,
            ));
        }
    }
    let text = SEND_MESSAGE;
    sections.push(PromptSection::for_tool(
        SendMessage::NAME,
        SEND_MESSAGE_ORDER,
        text,
    ));
    sections
}

fn subagent_section(tool: &str) -> String {
    format!(
        "Delegation with {tool} is background first: start tasks that do not depend on each other \
together, in one message, and go on with useful work while they run. You are told when each has ended; \
do not poll and do not wait. Wait for an answer, with run_in_background set to false, only when your \
next step depends on it."
    )
}
