//! The sections of the system prompt.

use std::sync::Arc;

use crate::ToolSet;

/// One part of the system prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptSection {
    /// Its identity: a later section with the same key takes its place.
    pub key: String,
    /// Its place: lower comes first. Identity -100, persona 0, guidance on tools 100 to 199.
    pub order: i32,
    /// The tool that it is about: the section is shown only while that tool is visible.
    pub tool: Option<String>,
    /// The text.
    pub text: String,
}

impl PromptSection {
    /// The key of the section that says who the agent is.
    pub const PERSONA: &'static str = "persona";

    /// A section that is always shown.
    #[must_use]
    pub fn new(key: impl Into<String>, order: i32, text: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            order,
            tool: None,
            text: text.into(),
        }
    }

    /// Who the agent is.
    #[must_use]
    pub fn persona(text: impl Into<String>) -> Self {
        Self::new(Self::PERSONA, 0, text)
    }

    /// Guidance on a tool, with the key `tool:NAME`.
    #[must_use]
    pub fn for_tool(tool: impl Into<String>, order: i32, text: impl Into<String>) -> Self {
        let tool = tool.into();
        Self {
            key: format!("tool:{tool}"),
            order,
            tool: Some(tool),
            text: text.into(),
        }
    }
}

/// The system prompt: sections in order. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt(Arc<Vec<PromptSection>>);

impl Prompt {
    /// The prompt of these sections.
    #[must_use]
    pub fn new(sections: impl IntoIterator<Item = PromptSection>) -> Self {
        sections
            .into_iter()
            .fold(Self::default(), |prompt, section| prompt.with(section))
    }

    /// The prompt with one more section, which takes the place of one with its key.
    #[must_use]
    pub fn with(&self, section: PromptSection) -> Self {
        let mut sections: Vec<_> = self
            .0
            .iter()
            .filter(|old| old.key != section.key)
            .cloned()
            .collect();
        let at = sections.partition_point(|old| old.order <= section.order);
        sections.insert(at, section);
        Self(Arc::new(sections))
    }

    /// The sections in order.
    pub fn sections(&self) -> impl Iterator<Item = &PromptSection> {
        self.0.iter()
    }

    /// The text of the sections that are shown beside `tools`, with an empty line between two.
    #[must_use]
    pub fn render(&self, tools: &ToolSet) -> String {
        let shown = self.0.iter().filter(|section| {
            let visible = section
                .tool
                .as_ref()
                .is_none_or(|tool| tools.get(tool).is_some());
            visible && !section.text.is_empty()
        });
        shown
            .map(|section| section.text.as_str())
            .collect::<Vec<_>>()
            .join("\n\n")
    }
}
