//! The JSON of a script, field by field, as `serde` reads it.
//!
//! Only names and types are judged here; what fields mean together is `convert`'s business.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Unexpected, Visitor};
use serde_json::{Map, Value};

use super::error::{Fault, ScriptErrorKind};
use super::reply::{Finish, Repeat};

/// Reads the text of a script.
pub(super) fn read(text: &str) -> Result<RawScript, Fault> {
    let mut json = serde_json::Deserializer::from_str(text);
    let Strict(script) = serde_path_to_error::deserialize::<_, Strict<RawScript>>(&mut json)
        .map_err(|error| {
            let place = error.path().to_string();
            fault(&place, error.inner())
        })?;
    json.end().map_err(|error| fault(".", &error))?;
    Ok(script)
}

/// What `serde` says of Rust's types, and what the author of a script calls them.
const JSON_NAMES: [(&str, &str); 6] = [
    ("type: sequence", "type: array"),
    ("type: map", "type: object"),
    ("expected a sequence", "expected an array"),
    ("expected a map", "expected an object"),
    ("expected u64", "expected a whole number"),
    ("expected usize", "expected a whole number"),
];

/// `place` is the path of `serde_path_to_error`, which calls the whole document a dot.
fn fault(place: &str, error: &serde_json::Error) -> Fault {
    let kind = if error.is_data() {
        ScriptErrorKind::Shape
    } else {
        ScriptErrorKind::Syntax
    };
    let (line, column) = (error.line(), error.column());
    let mut message = error.to_string();
    if let Some(end) = message.rfind(" at line ") {
        message.truncate(end);
    }
    for (name, ours) in JSON_NAMES {
        message = message.replace(name, ours);
    }
    let place = match kind {
        ScriptErrorKind::Shape if place != "." => place,
        _ => "the script",
    };
    Fault::new(
        kind,
        place,
        format_args!("{message} (line {line}, column {column})"),
    )
}

/// A value that must be a JSON object: `serde` alone would take an array for a struct.
#[derive(Debug)]
pub(super) struct Strict<T>(pub(super) T);

/// What an error calls the object that it expected.
pub(super) trait Named {
    const NAME: &'static str;
}

impl<'de, T: Deserialize<'de> + Named> Deserialize<'de> for Strict<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de> + Named> Visitor<'de> for ObjectVisitor<T> {
            type Value = Strict<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::NAME)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Strict)
            }
        }

        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// For optional fields: a `null` is a wrong type, not an absent field.
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(json: D) -> Result<Option<T>, D::Error> {
    T::deserialize(json).map(Some)
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawScript {
    #[serde(default)]
    pub(super) config: Map<String, Value>,
    #[serde(default, deserialize_with = "present")]
    pub(super) prompt: Option<String>,
    pub(super) agents: Agents,
    #[serde(default)]
    pub(super) inputs: Vec<Strict<RawInput>>,
}

impl Named for RawScript {
    const NAME: &'static str = "a script: an object with `agents`";
}

/// The replies by agent; an agent named twice is an error.
#[derive(Debug)]
pub(super) struct Agents(pub(super) BTreeMap<String, Vec<Strict<RawReply>>>);

impl<'de> Deserialize<'de> for Agents {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AgentsVisitor;

        impl<'de> Visitor<'de> for AgentsVisitor {
            type Value = Agents;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object from agents to their replies")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut agents = BTreeMap::new();
                while let Some((label, replies)) = map.next_entry::<String, _>()? {
                    if agents.insert(label.clone(), replies).is_some() {
                        return Err(A::Error::custom(format_args!("two agents `{label}`")));
                    }
                }
                Ok(Agents(agents))
            }
        }

        deserializer.deserialize_map(AgentsVisitor)
    }
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawReply {
    #[serde(default)]
    pub(super) text: String,
    #[serde(default)]
    pub(super) calls: Vec<Strict<RawCall>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) finish: Option<Finish>,
    #[serde(default, deserialize_with = "present")]
    pub(super) error: Option<String>,
    #[serde(default, deserialize_with = "present")]
    pub(super) usage: Option<Strict<RawUsage>>,
    #[serde(default)]
    pub(super) delay_ms: u64,
    #[serde(default)]
    pub(super) hang: bool,
    #[serde(default)]
    pub(super) open: Vec<String>,
    #[serde(default, rename = "await")]
    pub(super) await_: Vec<String>,
    #[serde(default, deserialize_with = "present")]
    pub(super) await_inbox: Option<Strict<RawAwaitInbox>>,
    #[serde(default, deserialize_with = "repeat")]
    pub(super) repeat: Repeat,
}

impl Named for RawReply {
    const NAME: &'static str = "a reply (an object)";
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCall {
    #[serde(default, deserialize_with = "present")]
    pub(super) id: Option<String>,
    pub(super) name: String,
    #[serde(default, deserialize_with = "present")]
    pub(super) args: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    pub(super) raw_args: Option<String>,
}

impl Named for RawCall {
    const NAME: &'static str = "a call (an object with `name`)";
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawUsage {
    #[serde(default, deserialize_with = "present")]
    pub(super) input: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    pub(super) output: Option<u64>,
}

impl Named for RawUsage {
    const NAME: &'static str = "an object with `input` and `output`";
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAwaitInbox {
    pub(super) source: String,
    pub(super) count: usize,
}

impl Named for RawAwaitInbox {
    const NAME: &'static str = "an object with `source` and `count`";
}

/// A number or `"forever"`. Zero is left to `convert`, which knows the place.
fn repeat<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Repeat, D::Error> {
    struct RepeatVisitor;

    impl Visitor<'_> for RepeatVisitor {
        type Value = Repeat;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a whole number or \"forever\"")
        }

        fn visit_u64<E: Error>(self, times: u64) -> Result<Repeat, E> {
            Ok(match times {
                1 => Repeat::Once,
                times => Repeat::Times(times),
            })
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Repeat, E> {
            match text {
                "forever" => Ok(Repeat::Forever),
                other => Err(E::invalid_value(Unexpected::Str(other), &self)),
            }
        }
    }

    deserializer.deserialize_any(RepeatVisitor)
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawInput {
    pub(super) at: RawAt,
    #[serde(default, deserialize_with = "present")]
    pub(super) to: Option<String>,
    pub(super) mode: RawMode,
    #[serde(default, deserialize_with = "present")]
    pub(super) text: Option<String>,
    #[serde(default, deserialize_with = "present")]
    pub(super) task: Option<String>,
    #[serde(default, deserialize_with = "present")]
    pub(super) gate: Option<String>,
}

impl Named for RawInput {
    const NAME: &'static str = "an input (an object with `at`, `to` and `mode`)";
}

#[derive(Clone, Copy, Debug, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RawMode {
    Followup,
    Steer,
    Inject,
    Cancel,
    CancelKeepInbox,
    Interrupt,
    Dispose,
    KillTask,
    Open,
    Crash,
}

/// The place of an input: a gate, or an object with exactly one of `idle` and `settled`.
#[derive(Debug)]
pub(super) enum RawAt {
    Gate(String),
    Moment(RawMoment),
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMoment {
    #[serde(default, deserialize_with = "present")]
    pub(super) idle: Option<String>,
    #[serde(default, deserialize_with = "present")]
    pub(super) settled: Option<String>,
}

impl<'de> Deserialize<'de> for RawAt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AtVisitor;

        impl<'de> Visitor<'de> for AtVisitor {
            type Value = RawAt;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a gate, {\"idle\": \"root\"} or {\"settled\": LABEL}")
            }

            fn visit_str<E: Error>(self, gate: &str) -> Result<RawAt, E> {
                Ok(RawAt::Gate(gate.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawAt, A::Error> {
                RawMoment::deserialize(MapAccessDeserializer::new(map)).map(RawAt::Moment)
            }
        }

        deserializer.deserialize_any(AtVisitor)
    }
}
