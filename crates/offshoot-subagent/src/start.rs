//! Starting a continuable child.

use offshoot_agent::{Agent, AgentId, MessageId, Pending, RunId};

use crate::event::RunRecord;
use crate::provider::contain;
use crate::{ChildPlan, ChildRequest, Mode, StartError, Subagents, compose};

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
        let hold = parent
            .scope()
            .hold()
            .map_err(|_| StartError::ParentClosing)?;
        let place = self.0.limit.take(parent.scope())?;
        let seed = contain("seed", || provider.seed(parent)).await?;
        // From here on nothing is awaited: the child is either wholly there or not at all.
        let run_id = RunId::fresh();
        let plan = ChildPlan::new(&request, Mode::Continuable, &run_id, seed)?;
        let label = plan.spec.label.clone();
        let child = Agent::create(&self.0.host, Some(parent.scope()), plan.spec)?;
        let run = RunRecord {
            child: child.id().clone(),
            run_id: run_id.clone(),
            provider: request.provider.clone(),
            mode: Mode::Continuable,
            label,
            task_id: None,
        };
        let activation = match self.activate(parent, child.clone(), run, hold, place) {
            Ok(activation) => activation,
            Err(error) => {
                child.retract().await;
                return Err(error);
            }
        };
        let accepted = child.followup(plan.prompt);
        if accepted.is_err() {
            activation.keep_from_parent();
            child.begin_close(Pending::Discard);
        }
        child.start();
        self.watch(&activation);
        let delivered = accepted?;
        let message_id = delivered.message_id;
        Ok(Started {
            child: child.id().clone(),
            run_id,
            message_id,
        })
    }
}
