//! What a line says of an event that nothing depends on, read as strictly as the event itself, with nothing
//! of it kept.

use std::fmt;

use offshoot_core::Timestamp;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::event::{is_own, rfc3339};

/// An event of which only this is wanted.
#[derive(Deserialize)]
pub(super) struct Outline {
    pub(super) seq: u64,
    #[serde(with = "rfc3339", rename = "time")]
    _time: Timestamp,
    pub(super) event: Mark,
}

/// The content of an event.
pub(super) struct Mark {
    pub(super) ignorable: bool,
}

impl<'de> Deserialize<'de> for Mark {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(MarkVisitor)
    }
}

struct MarkVisitor;

impl<'de> Visitor<'de> for MarkVisitor {
    type Value = Mark;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Mark, A::Error> {
        let (mut kind, mut ignorable) = (None, false);
        while let Some(key) = map.next_key::<Key>()? {
            match key {
                Key::Type => {
                    if kind.replace(map.next_value::<Kind>()?).is_some() {
                        return Err(A::Error::duplicate_field("type"));
                    }
                }
                // The last one of a name counts.
                Key::Ignorable => ignorable = matches!(map.next_value()?, Walked::True),
                Key::Other => {
                    map.next_value::<Walked>()?;
                }
            }
        }
        let kind = kind.ok_or_else(|| A::Error::missing_field("type"))?;
        // Of an event of this crate the mark is a field like any other one that it does not have.
        let ignorable = ignorable && matches!(kind, Kind::Others);
        Ok(Mark { ignorable })
    }
}

/// The type of an event, whichever way it is written.
enum Kind {
    Own,
    Others,
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct KindVisitor;
        impl Visitor<'_> for KindVisitor {
            type Value = Kind;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a type")
            }

            fn visit_str<E: Error>(self, kind: &str) -> Result<Kind, E> {
                Ok(if is_own(kind) {
                    Kind::Own
                } else {
                    Kind::Others
                })
            }
        }
        from.deserialize_str(KindVisitor)
    }
}

enum Key {
    Type,
    Ignorable,
    Other,
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl Visitor<'_> for KeyVisitor {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Key, E> {
                Ok(match name {
                    "type" => Key::Type,
                    "ignorable" => Key::Ignorable,
                    _ => Key::Other,
                })
            }
        }
        from.deserialize_str(KeyVisitor)
    }
}

/// A value that was looked at as a whole: its texts are texts, its numbers are numbers, and it is not
/// nested more deeply than the parser goes. What the parser skips by itself, it does not look at.
enum Walked {
    True,
    Other,
}

impl<'de> Deserialize<'de> for Walked {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(WalkedVisitor)
    }
}

struct WalkedVisitor;

impl<'de> Visitor<'de> for WalkedVisitor {
    type Value = Walked;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Walked, E> {
        Ok(if value { Walked::True } else { Walked::Other })
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Walked, E> {
        Ok(Walked::Other)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Walked, E> {
        Ok(Walked::Other)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Walked, E> {
        Ok(Walked::Other)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Walked, E> {
        Ok(Walked::Other)
    }

    fn visit_unit<E: Error>(self) -> Result<Walked, E> {
        Ok(Walked::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Walked, A::Error> {
        while seq.next_element::<Walked>()?.is_some() {}
        Ok(Walked::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Walked, A::Error> {
        while map.next_entry::<Key, Walked>()?.is_some() {}
        Ok(Walked::Other)
    }
}
