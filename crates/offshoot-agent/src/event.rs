//! The vocabulary of a session log, which is also the event stream's.

mod read;
mod storable;

use std::sync::Arc;

use offshoot_core::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{AgentId, CallId, Message, MessageId, StoreError, Target};

use storable::is_of_newer;
pub(crate) use storable::{check, is_of_this_crate, is_own};

/// How a session came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Made by a host.
    Root,
    /// Made by another agent's delegation.
    Subagent,
}

/// What a session took over from another one, without its events being repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inherited {
    /// How many events: the session's own begin at this `seq`.
    pub events: u64,
    /// How many turns: the session's own begin after this one.
    pub turns: u64,
}

/// The first event of every residency of a session. The first one of all describes the session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionStart {
    /// The session that delegated to this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<AgentId>,
    /// What the session is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// How the session came to be.
    pub origin: Origin,
    /// How deep it is: 0 for a root.
    pub depth: u32,
    /// Whether the session existed before.
    pub resumed: bool,
    /// What it took over at its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherited: Option<Inherited>,
    /// What crates above need to make the same agent again.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl SessionStart {
    /// A field of [`extra`](Self::extra) that is text.
    #[must_use]
    pub fn extra(&self, key: &str) -> Option<&str> {
        self.extra.get(key).and_then(Value::as_str)
    }
}

/// Tokens of one reply, or a sum of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read.
    pub input: u64,
    /// Tokens written.
    pub output: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
    }
}

/// Why a model's reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Finish {
    /// It was complete.
    Stop,
    /// It asks for tool calls.
    ToolCalls,
    /// It ran out of tokens.
    MaxTokens,
    /// The model declined.
    Refusal,
    /// The request failed.
    Error,
    /// It was cut by a cancellation; what had arrived is kept.
    Interrupted,
}

/// A tool call as the model asked for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallRequest {
    /// The model's id of the call.
    pub id: CallId,
    /// The tool's name.
    pub name: String,
    /// The arguments. Argument text that is not JSON is kept as a JSON string.
    pub args: Value,
}

/// One reply of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AssistantMessage {
    /// What it says; may be empty.
    pub text: String,
    /// What it asks for.
    pub calls: Vec<CallRequest>,
    /// Why it ended.
    pub finish: Finish,
    /// What it cost.
    pub usage: Usage,
}

/// How one tool call ended, as the log and the model see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolResultRecord {
    /// The call.
    pub call_id: CallId,
    /// What the model reads.
    pub text: String,
    /// The same for a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Whether the call failed.
    pub is_error: bool,
    /// A stable code of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TurnEndReason {
    /// The work was done.
    Completed,
    /// A reply ran out of tokens.
    MaxTokens,
    /// The model declined.
    Refusal,
    /// It was cancelled.
    Aborted,
    /// A request or the driver failed.
    Error,
    /// The process ended in the middle of it. Written by the next one.
    Interrupted,
    /// It took as many steps as a turn may.
    StepLimit,
}

impl TurnEndReason {
    /// Whether the work was done: the agent goes on by itself with all that waits in its inbox.
    #[must_use]
    pub fn is_ordinary(self) -> bool {
        matches!(self, Self::Completed | Self::MaxTokens)
    }
}

/// An event of a crate above: its type, with a `/` in it, and its fields.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Extension {
    /// For example `build/started`. The families `session`, `inbox`, `turn`, `step`, `message`, `tool` and
    /// `agent` are this crate's: an event of one of them is not recorded.
    #[serde(rename = "type")]
    pub kind: String,
    /// Everything else.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

impl Extension {
    /// An event of `kind`.
    #[must_use]
    pub fn new(kind: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            fields: Map::new(),
        }
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(key.to_owned(), value.into());
        self
    }

    /// Adds a field when there is a value.
    #[must_use]
    pub fn with_some(self, key: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    /// Marks the event as one that nothing depends on: a program that does not know its type passes it
    /// over instead of refusing the session, and so does everyone who goes on with the session. It
    /// stays in the log and in the stream of events.
    #[must_use]
    pub fn ignorable(self) -> Self {
        self.with(IGNORABLE, true)
    }

    /// Whether nothing depends on the event.
    #[must_use]
    pub fn is_ignorable(&self) -> bool {
        self.get(IGNORABLE) == Some(&Value::Bool(true))
    }

    /// A field that is text.
    #[must_use]
    pub fn field(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(Value::as_str)
    }

    /// Asked several times of every event of a log: a look at a few names costs less than one hash.
    fn get(&self, key: &str) -> Option<&Value> {
        if self.fields.len() > FEW {
            return self.fields.get(key);
        }
        let mut fields = self.fields.iter();
        fields.find_map(|(name, value)| (name == key).then_some(value))
    }
}

/// As many fields as are looked through one by one.
const FEW: usize = 16;

/// The field of an event that nothing depends on.
const IGNORABLE: &str = "ignorable";

/// One event of a session.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type")]
#[non_exhaustive]
pub enum Event {
    /// A residency of the session begins.
    #[serde(rename = "session/start")]
    SessionStart(Arc<SessionStart>),
    /// A message was accepted.
    #[serde(rename = "inbox/inserted")]
    InboxInserted {
        /// The list that it was put into.
        target: Target,
        /// Whether it may start a turn.
        wake: bool,
        /// The message.
        message: Arc<Message>,
        /// The waiting message that it was put in front of; absent: at the end.
        #[serde(skip_serializing_if = "Option::is_none")]
        before: Option<MessageId>,
        /// Whether it is no reason for a step or a turn.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        passive: bool,
    },
    /// A waiting message has another place.
    #[serde(rename = "inbox/moved")]
    InboxMoved {
        /// Which one.
        message_id: MessageId,
        /// The list that it waits in now.
        target: Target,
        /// The waiting message that it was put in front of; absent: at the end.
        #[serde(skip_serializing_if = "Option::is_none")]
        before: Option<MessageId>,
    },
    /// A message left the inbox for a step of a turn.
    #[serde(rename = "inbox/claimed")]
    InboxClaimed {
        /// Which one.
        message_id: MessageId,
        /// The turn.
        turn: u64,
        /// The step that it is meant for.
        step: u64,
    },
    /// A message will never be read.
    #[serde(rename = "inbox/discarded")]
    InboxDiscarded {
        /// Which one.
        message_id: MessageId,
        /// Why.
        cause: String,
    },
    /// A turn begins.
    #[serde(rename = "turn/start")]
    TurnStart {
        /// Its number, from 1.
        turn: u64,
        /// The least generation among the messages that opened it.
        generation: u64,
    },
    /// A step begins.
    #[serde(rename = "step/start")]
    StepStart {
        /// The turn.
        turn: u64,
        /// The step's number in the turn, from 1.
        step: u64,
    },
    /// A step ends.
    #[serde(rename = "step/end")]
    StepEnd {
        /// The turn.
        turn: u64,
        /// The step.
        step: u64,
    },
    /// A claimed message entered the history.
    #[serde(rename = "message/user")]
    MessageUser {
        /// The turn.
        turn: u64,
        /// The step.
        step: u64,
        /// The message.
        message: Arc<Message>,
    },
    /// A model's reply entered the history.
    #[serde(rename = "message/assistant")]
    MessageAssistant {
        /// The turn.
        turn: u64,
        /// The step.
        step: u64,
        /// The reply.
        #[serde(flatten)]
        message: Arc<AssistantMessage>,
    },
    /// A tool call was dispatched.
    #[serde(rename = "tool/call")]
    ToolCall {
        /// The turn.
        turn: u64,
        /// The step.
        step: u64,
        /// The call.
        call_id: CallId,
        /// The tool.
        name: String,
        /// The arguments.
        args: Arc<Value>,
    },
    /// A tool call ended.
    #[serde(rename = "tool/result")]
    ToolResult {
        /// The turn.
        turn: u64,
        /// The step.
        step: u64,
        /// How.
        #[serde(flatten)]
        result: Arc<ToolResultRecord>,
    },
    /// A turn ends.
    #[serde(rename = "turn/end")]
    TurnEnd {
        /// Which one.
        turn: u64,
        /// How.
        reason: TurnEndReason,
        /// Who cancelled it.
        #[serde(skip_serializing_if = "Option::is_none")]
        cause: Option<String>,
        /// What failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// The agent was stopped, and no turn says so with its end, or not in time: until the next message
    /// of whoever stopped it, notices are quiet.
    #[serde(rename = "agent/stopped")]
    AgentStopped {
        /// Who stopped it.
        cause: String,
    },
    /// The agent's status changed. Live only: never in a log.
    #[serde(rename = "agent/status")]
    AgentStatus {
        /// The new status.
        status: crate::Status,
    },
    /// An event of a crate above.
    #[serde(untagged)]
    Extension(Arc<Extension>),
}

impl From<SessionStart> for Event {
    fn from(start: SessionStart) -> Self {
        Self::SessionStart(Arc::new(start))
    }
}

impl From<Extension> for Event {
    fn from(extension: Extension) -> Self {
        Self::Extension(Arc::new(extension))
    }
}

impl Event {
    /// The turn and step that the event happens in, for what only happens in a step.
    pub(crate) fn step(&self) -> Option<(u64, u64)> {
        match self {
            Self::MessageUser { turn, step, .. }
            | Self::MessageAssistant { turn, step, .. }
            | Self::ToolCall { turn, step, .. }
            | Self::ToolResult { turn, step, .. } => Some((*turn, *step)),
            _ => None,
        }
    }
}

/// An event in a log. A clone shares its content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredEvent {
    /// Its place in the session, from 0.
    pub seq: u64,
    /// When it was committed.
    #[serde(with = "rfc3339")]
    pub time: Timestamp,
    /// What happened.
    pub event: Event,
}

impl StoredEvent {
    /// Reads an event as [`to_json`](Self::to_json) writes it. `place` is for errors: where it stands.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] for what is not an event, and [`StoreError::UnknownEvent`] for one that
    /// only a newer version of this crate understands.
    pub fn from_json(json: &[u8], place: impl FnOnce() -> String) -> Result<Self, StoreError> {
        // Looked at as a whole, and not text by text: a parser passes over what nobody asks for.
        let text = std::str::from_utf8(json).map_err(|error| error.to_string());
        let stored = text
            .and_then(|text| serde_json::from_str::<Self>(text).map_err(|error| error.to_string()));
        let stored = stored.map_err(|error| format!("expected an event: {error}"));
        match stored {
            Ok(Self {
                event: Event::Extension(extension),
                ..
            }) if is_of_newer(&extension) => Err(StoreError::UnknownEvent {
                place: place(),
                kind: extension.kind.clone(),
            }),
            Ok(stored) => Ok(stored),
            Err(what) => Err(StoreError::Corrupt {
                place: place(),
                what,
            }),
        }
    }

    /// When it was committed, as in the log: `2026-01-01T00:00:00.000Z`.
    #[must_use]
    pub fn time_text(&self) -> String {
        rfc3339::to_text(self.time)
    }

    /// The event as one JSON object without line ends, added to `json`.
    pub fn to_json(&self, json: &mut Vec<u8>) {
        // Writing to memory does not fail, and an event has no keys that are not texts.
        let written = serde_json::to_writer(json, self);
        debug_assert!(written.is_ok(), "an event is always JSON");
    }
}

/// Wall time as text, as in `2026-01-01T00:00:00.000Z`.
pub(crate) mod rfc3339 {
    use std::fmt;

    use offshoot_core::Timestamp;
    use serde::de::{Error, Visitor};
    use serde::{Deserializer, Serializer};

    pub(crate) fn to_text(time: Timestamp) -> String {
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let time = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
        format!("{time:.3}")
    }

    pub(crate) fn serialize<S: Serializer>(time: &Timestamp, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&to_text(*time))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Timestamp, D::Error> {
        struct TimeVisitor;
        impl Visitor<'_> for TimeVisitor {
            type Value = Timestamp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Timestamp, E> {
                let time: jiff::Timestamp = text.parse().map_err(E::custom)?;
                let millis = u64::try_from(time.as_millisecond()).unwrap_or(0);
                Ok(Timestamp::from_millis(millis))
            }
        }
        d.deserialize_str(TimeVisitor)
    }
}
