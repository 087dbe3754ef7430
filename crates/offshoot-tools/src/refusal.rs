//! A call that is refused: a code and a sentence for the model, from typed errors.

use offshoot_agent::{Agent, ToolOutput};
use offshoot_subagent::DeliverError;
use offshoot_task::AccessError;

use crate::arguments::ArgumentError;
use crate::task_list::TaskList;

/// The code of an id that its caller has no task of.
pub(crate) const UNKNOWN_TASK: &str = "UNKNOWN_TASK";

/// Why a call came to nothing.
#[derive(Debug)]
pub(crate) struct Refusal {
    code: &'static str,
    message: String,
}

impl Refusal {
    pub(crate) fn new(code: &'static str, message: impl ToString) -> Self {
        Self {
            code,
            message: message.to_string(),
        }
    }

    /// The same, and where the ids are that are known, when it is about one that is not and the caller
    /// has the tool that shows them.
    pub(crate) fn with_way_out(mut self, caller: &Agent) -> Self {
        let can_list = || caller.kit().tools.get(TaskList::NAME).is_some();
        if self.code == UNKNOWN_TASK && can_list() {
            self.message = format!("{}; {} shows yours", self.message, TaskList::NAME);
        }
        self
    }

    /// The same under a heading.
    pub(crate) fn under(mut self, heading: &str) -> Self {
        self.message = format!("{heading}: {}", self.message);
        self
    }
}

impl From<ArgumentError> for Refusal {
    fn from(error: ArgumentError) -> Self {
        Self::new(ArgumentError::CODE, error)
    }
}

impl From<AccessError> for Refusal {
    fn from(error: AccessError) -> Self {
        Self::new(error.code(), error)
    }
}

impl From<offshoot_task::StartError> for Refusal {
    fn from(error: offshoot_task::StartError) -> Self {
        Self::new(error.code(), error)
    }
}

impl From<offshoot_subagent::StartError> for Refusal {
    fn from(error: offshoot_subagent::StartError) -> Self {
        Self::new(error.code(), error)
    }
}

impl From<DeliverError> for Refusal {
    fn from(error: DeliverError) -> Self {
        Self::new(error.code(), error)
    }
}

/// What the model gets of a call.
pub(crate) fn answer(result: Result<ToolOutput, Refusal>) -> ToolOutput {
    result.unwrap_or_else(|refusal| ToolOutput::error(refusal.code, refusal.message))
}
