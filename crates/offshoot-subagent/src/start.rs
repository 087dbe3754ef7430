//! Starting a continuable child.

use offshoot_agent::{AgentId, MessageId, OpenError, Pending, RunId};

use crate::event::RunRecord;
use crate::host::Session;
use crate::open::{OpenFault, Opening};
use crate::provider::contain;
use crate::{ChildPlan, ChildRequest, Mode, StartError, Subagents, Verb, compose};

/// A child that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// The child's address.
    pub child: AgentId,
    /// Its first run.
    pub run_id: RunId,
    /// Its first message.
    pub message_id: MessageId,
}

impl Subagents {
    /// Checks what a provider can do against what is asked of it.
    pub(crate) fn check_request(
        &self,
        request: &ChildRequest,
        mode: Mode,
    ) -> Result<std::sync::Arc<dyn crate::Provider>, StartError> {
        let provider = self.provider(&request.provider)?;
        let capabilities = provider.capabilities();
        let asked = [
            (
                mode == Mode::Continuable,
                capabilities.continuable,
                "continuable children",
            ),
            (request.persona.is_some(), capabilities.persona, "a persona"),
            (
                request.tool_filter.is_some(),
                capabilities.tool_filter,
                "a tool filter",
            ),
            (
                request.output_schema.is_some(),
                capabilities.structured_output,
                "structured output",
            ),
            (
                request.output_schema.is_some() && mode == Mode::Continuable,
                false,
                "structured output of a continuable child",
            ),
        ];
        for (wanted, able, feature) in asked {
            if wanted && !able {
                let provider = request.provider.clone();
                return Err(StartError::Unsupported { provider, feature });
            }
        }
        self.check_depth(&request.parent)?;
        compose::check(request)?;
        Ok(provider)
    }

    /// Starts a continuable child. Returns when its prompt is in its inbox, before it answered
    /// anything; its settlement is told to the parent, exactly once.
    ///
    /// Dropping the future before it resolves leaves either nothing or a started child, which then
    /// settles like any other.
    ///
    /// # Errors
    ///
    /// [`StartError`]; nothing is left then.
    pub async fn start(&self, request: ChildRequest) -> Result<Started, StartError> {
        let provider = self.check_request(&request, Mode::Continuable)?;
        let parent = &request.parent;
        self.pay(parent);
        let run_id = RunId::fresh();
        let run = RunRecord {
            child: AgentId::fresh(),
            run_id: run_id.clone(),
            provider: request.provider.clone(),
            mode: Mode::Continuable,
            label: compose::label(&request.label),
            task_id: None,
            call_id: None,
        };
        let child = run.child.clone();
        let opening = Opening::enter(self, parent, run)
            .ok_or_else(|| StartError::Open(OpenError::Live(child.clone())))?;
        opening.tie()?;
        let seed = contain("seed", || provider.seed(parent)).await?;
        let plan = ChildPlan::new(&request, Mode::Continuable, &run_id, seed)?;
        let (session, prompt) = (Session::New(plan.spec), plan.prompt);
        let begun = opening.complete(session, prompt, Verb::Followup, Pending::Discard);
        let delivered = begun.await.map_err(OpenFault::into_start_error)?;
        Ok(Started {
            child,
            run_id,
            message_id: delivered.message_id,
        })
    }
}
