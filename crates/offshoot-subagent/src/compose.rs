//! What a child is made of: its parent's kit, narrowed, and a descriptor from which it can be made
//! again.

use offshoot_agent::{
    Agent, AgentKit, AgentSpec, FilterError, Message, PromptSection, RunId, SessionStart, Source,
    StoredEvent, ToolFilter,
};
use offshoot_core::text;
use serde_json::{Map, Value};

use crate::{ChildRequest, Mode, StartError};

const LABEL_BYTES: usize = 200;

/// What a child's session says of how it was made: enough to make it again without its provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// How long it lives.
    pub mode: Mode,
    /// The provider's name.
    pub provider: String,
    /// Who it is.
    pub persona: Option<String>,
    /// Which of its parent's tools it sees.
    pub tool_filter: Option<ToolFilter>,
}

impl Descriptor {
    /// The fields that go into the session's beginning. What is absent is left out.
    #[must_use]
    pub fn to_fields(&self, run_id: &RunId) -> Map<String, Value> {
        let mut fields = Map::new();
        fields.insert("mode".to_owned(), self.mode.as_str().into());
        fields.insert("provider".to_owned(), self.provider.as_str().into());
        fields.insert("run_id".to_owned(), run_id.as_str().into());
        if let Some(persona) = &self.persona {
            fields.insert("persona".to_owned(), persona.as_str().into());
        }
        if let Some(filter) = &self.tool_filter {
            fields.insert("tool_filter".to_owned(), serde_json::json!(filter));
        }
        fields
    }

    /// Reads what [`to_fields`](Self::to_fields) wrote; `None` when it is not a child's session.
    #[must_use]
    pub fn read(start: &SessionStart) -> Option<Self> {
        let mode = serde_json::from_value(start.extra.get("mode")?.clone()).ok()?;
        let tool_filter = match start.extra.get("tool_filter") {
            Some(filter) => Some(serde_json::from_value(filter.clone()).ok()?),
            None => None,
        };
        Some(Self {
            mode,
            provider: start.extra("provider")?.to_owned(),
            persona: start.extra("persona").map(str::to_owned),
            tool_filter,
        })
    }

    /// The parent's kit as the child gets it.
    ///
    /// # Errors
    ///
    /// [`FilterError`] when the filter does not fit the parent's tools.
    pub fn kit(&self, parent: &AgentKit) -> Result<AgentKit, FilterError> {
        let mut kit = parent.clone();
        kit.tools = kit.tools.inherited();
        if let Some(filter) = &self.tool_filter {
            kit.tools = kit.tools.restrict(filter)?;
        }
        if let Some(persona) = &self.persona {
            kit.prompt = kit.prompt.with(PromptSection::persona(persona));
        }
        Ok(kit)
    }
}

/// A child that can be created: everything about it was checked.
#[derive(Debug)]
pub struct ChildPlan {
    /// What to create.
    pub spec: AgentSpec,
    /// Its first message.
    pub prompt: Message,
}

impl ChildPlan {
    /// Plans a child of `request.parent`.
    ///
    /// # Errors
    ///
    /// [`StartError::EmptyPrompt`] or [`StartError::Filter`].
    pub fn new(
        request: &ChildRequest,
        mode: Mode,
        run_id: &RunId,
        seed: Option<Vec<StoredEvent>>,
    ) -> Result<Self, StartError> {
        let parent: &Agent = &request.parent;
        let descriptor = Descriptor {
            mode,
            provider: request.provider.clone(),
            persona: request.persona.clone(),
            tool_filter: request.tool_filter.clone(),
        };
        let kit = descriptor.kit(parent.kit())?;
        let spec = AgentSpec {
            id: None,
            label: label(&request.label),
            parent: Some(parent.id().clone()),
            depth: parent.depth().saturating_add(1),
            extra: descriptor.to_fields(run_id),
            seed,
            kit,
        };
        Ok(Self {
            spec,
            prompt: prompt(request)?,
        })
    }
}

/// A label as one bounded line.
pub(crate) fn label(text: &str) -> String {
    text::one_line(text, LABEL_BYTES)
}

/// Checks what can be checked before any work.
pub(crate) fn check(request: &ChildRequest) -> Result<(), StartError> {
    if request.prompt.trim().is_empty() {
        return Err(StartError::EmptyPrompt);
    }
    if let Some(filter) = &request.tool_filter {
        request.parent.kit().tools.inherited().restrict(filter)?;
    }
    Ok(())
}

fn prompt(request: &ChildRequest) -> Result<Message, StartError> {
    check(request)?;
    let source = Source::new("user", request.generation);
    let message = Message::text(source, request.prompt.as_str());
    Ok(match &request.guidance {
        Some(guidance) => message.and_text(guidance.as_str()),
        None => message,
    })
}
