//! Reads events in one pass: the type, which is written first, says what follows. A log is as long as a
//! life, and all of it is read when it is gone on with.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::de::value::{MapAccessDeserializer, MapDeserializer, StrDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, Unexpected, VariantAccess, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::{Map, Value};

use super::storable::is_own;
use super::{
    AssistantMessage, CallRequest, Event, Extension, Finish, SessionStart, ToolResultRecord,
    TurnEndReason, Usage,
};
use crate::{CallId, Message, MessageId, Target};

const TYPE: &str = "type";

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct EventVisitor;
        impl<'de> Visitor<'de> for EventVisitor {
            type Value = Event;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Event, A::Error> {
                let first = map.next_key::<Text<'de>>()?;
                if first.as_ref().is_some_and(|key| key.0 == TYPE) {
                    let kind = map.next_value::<Text<'de>>()?;
                    return event_of(&kind.0, Rest(map));
                }
                // Another order: all of it is looked at before its type is known.
                let (kind, fields) = typed(first, map)?;
                let rest = MapDeserializer::<_, serde_json::Error>::new(fields.into_iter());
                event_of(&kind, Rest(rest)).map_err(A::Error::custom)
            }
        }
        from.deserialize_map(EventVisitor)
    }
}

impl<'de> Deserialize<'de> for Extension {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct ExtensionVisitor;
        impl<'de> Visitor<'de> for ExtensionVisitor {
            type Value = Extension;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event of a crate above")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Extension, A::Error> {
                let (kind, fields) = typed(None, map)?;
                let fields = fields.into_iter().collect();
                Ok(Extension { kind, fields })
            }
        }
        from.deserialize_map(ExtensionVisitor)
    }
}

/// As they stand: one may be there twice.
type Fields = Vec<(String, Value)>;

/// The type of an event, and its other fields.
fn typed<'de, A: MapAccess<'de>>(
    first: Option<Text<'de>>,
    mut map: A,
) -> Result<(String, Fields), A::Error> {
    let (mut kind, mut fields) = (None, Vec::new());
    let mut next = first;
    loop {
        let key = match next.take() {
            Some(key) => Some(key),
            None => map.next_key::<Text<'de>>()?,
        };
        match key {
            None => break,
            Some(key) if key.0 == TYPE => {
                if kind.replace(map.next_value::<String>()?).is_some() {
                    return Err(A::Error::duplicate_field(TYPE));
                }
            }
            Some(key) => fields.push((key.0.into_owned(), map.next_value()?)),
        }
    }
    let kind = kind.ok_or_else(|| A::Error::missing_field(TYPE))?;
    Ok((kind, fields))
}

/// The event of this type, whose other fields follow.
fn event_of<'de, A: MapAccess<'de>>(kind: &str, mut rest: Rest<A>) -> Result<Event, A::Error> {
    // What is written beside its turn and step is read beside them, and not looked at twice.
    match kind {
        "message/assistant" => Reply::deserialize(MapAccessDeserializer::new(rest))
            .map(Event::from)
            .map_err(|error| of_kind(kind, &error)),
        "tool/result" => CallEnd::deserialize(MapAccessDeserializer::new(rest))
            .map(Event::from)
            .map_err(|error| of_kind(kind, &error)),
        _ if is_own(kind) => {
            Own::deserialize(OwnEvent { kind, rest }).map_err(|error| of_kind(kind, &error))
        }
        _ => {
            // Most have as many, and it does not grow step by step.
            let mut fields = Map::with_capacity(7);
            while let Some((key, value)) = rest.next_entry::<String, Value>()? {
                fields.insert(key, value);
            }
            let kind = kind.to_owned();
            Ok(Event::Extension(Arc::new(Extension { kind, fields })))
        }
    }
}

fn of_kind<E: Error>(kind: &str, error: &E) -> E {
    E::custom(format_args!("a {kind} event: {error}"))
}

/// A text, borrowed where it can be.
struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_string<E: Error>(self, text: String) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text)))
            }
        }
        from.deserialize_str(TextVisitor)
    }
}

/// The fields behind the type, which is not among them a second time.
struct Rest<A>(A);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Rest<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let Some(key) = self.0.next_key::<Text<'de>>()? else {
            return Ok(None);
        };
        if key.0 == TYPE {
            return Err(A::Error::duplicate_field(TYPE));
        }
        let key: StrDeserializer<'_, A::Error> = StrDeserializer::new(&key.0);
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.0.next_value_seed(seed)
    }
}

/// An event of this crate, as the enum whose variant is named by the type.
struct OwnEvent<'k, A> {
    kind: &'k str,
    rest: Rest<A>,
}

impl<'de, A: MapAccess<'de>> Deserializer<'de> for OwnEvent<'_, A> {
    type Error = A::Error;

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        visitor.visit_enum(self)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, A::Error> {
        visitor.visit_map(self.rest)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

impl<'de, 'k, A: MapAccess<'de>> EnumAccess<'de> for OwnEvent<'k, A> {
    type Error = A::Error;
    type Variant = Rest<A>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Rest<A>), A::Error> {
        let kind: StrDeserializer<'k, A::Error> = StrDeserializer::new(self.kind);
        Ok((seed.deserialize(kind)?, self.rest))
    }
}

impl<'de, A: MapAccess<'de>> VariantAccess<'de> for Rest<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        Err(A::Error::invalid_type(
            Unexpected::Map,
            &"a type without fields",
        ))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, A::Error> {
        seed.deserialize(MapAccessDeserializer::new(self))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, A::Error> {
        visitor.visit_map(self)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        visitor.visit_map(self)
    }
}

#[derive(Deserialize)]
struct Reply {
    turn: u64,
    step: u64,
    text: String,
    calls: Vec<CallRequest>,
    finish: Finish,
    usage: Usage,
}

impl From<Reply> for Event {
    fn from(reply: Reply) -> Self {
        let message = AssistantMessage {
            text: reply.text,
            calls: reply.calls,
            finish: reply.finish,
            usage: reply.usage,
        };
        Self::MessageAssistant {
            turn: reply.turn,
            step: reply.step,
            message: Arc::new(message),
        }
    }
}

#[derive(Deserialize)]
struct CallEnd {
    turn: u64,
    step: u64,
    call_id: CallId,
    text: String,
    #[serde(default)]
    value: Option<Value>,
    is_error: bool,
    #[serde(default)]
    code: Option<String>,
}

impl From<CallEnd> for Event {
    fn from(end: CallEnd) -> Self {
        let result = ToolResultRecord {
            call_id: end.call_id,
            text: end.text,
            value: end.value,
            is_error: end.is_error,
            code: end.code,
        };
        Self::ToolResult {
            turn: end.turn,
            step: end.step,
            result: Arc::new(result),
        }
    }
}

/// The other events of this crate: as they are written, see [`Event`].
#[derive(Deserialize)]
#[serde(remote = "Event")]
enum Own {
    #[serde(rename = "session/start")]
    SessionStart(Arc<SessionStart>),
    #[serde(rename = "inbox/inserted")]
    InboxInserted {
        target: Target,
        wake: bool,
        message: Arc<Message>,
        #[serde(default)]
        before: Option<MessageId>,
        #[serde(default)]
        passive: bool,
    },
    #[serde(rename = "inbox/moved")]
    InboxMoved {
        message_id: MessageId,
        target: Target,
        #[serde(default)]
        before: Option<MessageId>,
    },
    #[serde(rename = "inbox/claimed")]
    InboxClaimed {
        message_id: MessageId,
        turn: u64,
        step: u64,
    },
    #[serde(rename = "inbox/discarded")]
    InboxDiscarded {
        message_id: MessageId,
        cause: String,
    },
    #[serde(rename = "turn/start")]
    TurnStart { turn: u64, generation: u64 },
    #[serde(rename = "step/start")]
    StepStart { turn: u64, step: u64 },
    #[serde(rename = "step/end")]
    StepEnd { turn: u64, step: u64 },
    #[serde(rename = "message/user")]
    MessageUser {
        turn: u64,
        step: u64,
        message: Arc<Message>,
    },
    #[serde(rename = "tool/call")]
    ToolCall {
        turn: u64,
        step: u64,
        call_id: CallId,
        name: String,
        args: Arc<Value>,
    },
    #[serde(rename = "turn/end")]
    TurnEnd {
        turn: u64,
        reason: TurnEndReason,
        #[serde(default)]
        cause: Option<String>,
        #[serde(default)]
        error: Option<String>,
    },
    #[serde(rename = "agent/stopped")]
    AgentStopped { cause: String },
    #[serde(rename = "agent/status")]
    AgentStatus { status: crate::Status },
}
