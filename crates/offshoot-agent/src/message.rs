//! Messages and where they come from.

use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::{AgentId, MessageId};

/// One block of a message's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ContentBlock {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
}

/// Where a message comes from. An open set: a crate above adds kinds of its own with their fields.
///
/// ```
/// use offshoot_agent::Source;
/// let source = Source::new("reminder", 3).with("at", "noon");
/// assert_eq!(source.field("at"), Some("noon"));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Source {
    /// What kind of sender: `user`, `agent`, `runtime`, or a kind of a plugin's own.
    pub kind: String,
    /// How long the chain of automatic wakes behind this message is: a turn that the message opens
    /// has this generation. 0 for independent work.
    pub generation: u64,
    /// What else the kind tells.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

// By hand: every message of a log has one, and a derived one would look at its fields twice.
impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct SourceVisitor;
        impl<'de> Visitor<'de> for SourceVisitor {
            type Value = Source;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("where a message comes from")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Source, A::Error> {
                let (mut kind, mut generation, mut fields) = (None, None, Map::new());
                while let Some(key) = map.next_key::<String>()? {
                    let is_second = match key.as_str() {
                        KIND => kind.replace(map.next_value()?).is_some(),
                        GENERATION => generation.replace(map.next_value()?).is_some(),
                        _ => {
                            fields.insert(key, map.next_value()?);
                            continue;
                        }
                    };
                    if is_second {
                        return Err(A::Error::custom(format_args!("duplicate field `{key}`")));
                    }
                }
                Ok(Source {
                    kind: kind.ok_or_else(|| A::Error::missing_field(KIND))?,
                    generation: generation.unwrap_or_default(),
                    fields,
                })
            }
        }
        from.deserialize_map(SourceVisitor)
    }
}

const KIND: &str = "kind";
const GENERATION: &str = "generation";

impl Source {
    /// A source of `kind`.
    #[must_use]
    pub fn new(kind: impl Into<String>, generation: u64) -> Self {
        Self {
            kind: kind.into(),
            generation,
            fields: Map::new(),
        }
    }

    /// A human, or the host on a human's behalf.
    #[must_use]
    pub fn user() -> Self {
        Self::new("user", 0)
    }

    /// Another agent's model.
    #[must_use]
    pub fn agent(from: &AgentId, generation: u64) -> Self {
        Self::new("agent", generation).with("from", from.as_str())
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(key.to_owned(), value.into());
        self
    }

    /// A field that is text.
    #[must_use]
    pub fn field(&self, key: &str) -> Option<&str> {
        self.fields.get(key).and_then(Value::as_str)
    }

    /// Whether a human wrote the message.
    #[must_use]
    pub fn is_user(&self) -> bool {
        self.kind == "user"
    }
}

/// One message to an agent: immutable, with the same id in the inbox, the log and the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Unique in the session's life.
    pub id: MessageId,
    /// Who sent it.
    pub source: Source,
    /// What it says.
    pub content: Vec<ContentBlock>,
}

impl Message {
    /// A message of one text block, with a fresh id.
    #[must_use]
    pub fn text(source: Source, text: impl Into<String>) -> Self {
        Self {
            id: MessageId::fresh(),
            source,
            content: vec![ContentBlock::Text { text: text.into() }],
        }
    }

    /// A human's message.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self::text(Source::user(), text)
    }

    /// Adds a text block.
    #[must_use]
    pub fn and_text(mut self, text: impl Into<String>) -> Self {
        self.content.push(ContentBlock::Text { text: text.into() });
        self
    }

    /// The text blocks, joined by an empty line.
    #[must_use]
    pub fn to_text(&self) -> String {
        let blocks = self.content.iter().map(|block| match block {
            ContentBlock::Text { text } => text.as_str(),
        });
        blocks.collect::<Vec<_>>().join("\n\n")
    }
}
