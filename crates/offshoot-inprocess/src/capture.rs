//! The tool that a child gives a structured answer with: the child's own, which nobody inherits.
//!
//! What a call gives is staged with its result and taken once the result is in the log, so that an
//! answer that the model was told is refused is never the run's.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use offshoot_agent::{AgentKit, PromptSection, Tool, ToolCall, ToolOutput};
use offshoot_subagent::{ANSWER_TOOL as NAME, OutputSchema};
use serde_json::Value;

const DESCRIPTION: &str = "Gives the answer of this run. Call it once, alone, when the work is done: the \
run ends with it. An answer that does not fit the parameters is refused with the reason, and can be \
given again.";

const SECTION: &str = "The answer of this run is the arguments of structured_output, not a message: do \
the work first, then call structured_output once. Ending without that call is a failure.";

/// After the guidance on all other tools.
const ORDER: i32 = 199;

/// How many answers that do not fit are refused; the last one of them ends the turn.
const MAX_REFUSED: u32 = 5;

#[derive(Default)]
struct Taken {
    answer: Option<Value>,
    refused: u32,
    /// Why the last answer was refused.
    fault: Option<String>,
}

/// What a child has given so far.
#[derive(Clone, Default)]
pub(crate) struct Capture(Arc<Mutex<Taken>>);

impl Capture {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a child the tool, as its last one, and tells it to use it.
    pub(crate) fn equip(&self, kit: &mut AgentKit, schema: &OutputSchema) {
        kit.tools = kit.tools.with(Arc::new(StructuredOutput {
            schema: schema.clone(),
            capture: self.clone(),
        }));
        let section = PromptSection::for_tool(NAME, ORDER, SECTION);
        kit.prompt = kit.prompt.with(section);
    }

    /// The answer that was taken.
    pub(crate) fn answer(&self) -> Option<Value> {
        self.taken().answer.clone()
    }

    /// Why there is none, of a child that ended as if it had done its work.
    pub(crate) fn missing(&self) -> String {
        let taken = self.taken();
        match (&taken.fault, taken.refused) {
            (Some(fault), MAX_REFUSED..) => {
                format!("{MAX_REFUSED} answers did not fit the schema; the last one: {fault}")
            }
            (Some(fault), _) => {
                format!("it ended without a structured answer that fits; the last one: {fault}")
            }
            (None, _) => "it ended without calling structured_output".to_owned(),
        }
    }
}

struct StructuredOutput {
    schema: OutputSchema,
    capture: Capture,
}

impl Tool for StructuredOutput {
    fn name(&self) -> &'static str {
        NAME
    }

    fn description(&self) -> &'static str {
        DESCRIPTION
    }

    fn input_schema(&self) -> &Value {
        self.schema.schema()
    }

    fn is_inherited(&self) -> bool {
        false
    }

    fn call(&self, call: ToolCall) -> BoxFuture<'_, ToolOutput> {
        Box::pin(async move {
            if let Err(fault) = self.schema.check(&call.args) {
                let mut taken = self.capture.taken();
                taken.refused += 1;
                let output = ToolOutput::error(
                    "INVALID_ARGUMENTS",
                    format_args!("the answer does not fit: {fault}"),
                );
                taken.fault = Some(fault);
                return if taken.refused >= MAX_REFUSED {
                    output.ending_turn()
                } else {
                    output
                };
            }
            let capture = self.capture.clone();
            ToolOutput::text("the answer was taken")
                .ending_turn()
                .on_commit(move || capture.taken().answer = Some(call.args))
        })
    }
}
