//! What a line says of an event that nothing depends on, read as strictly as the event itself, with nothing
//! of it kept.

use std::fmt;

use offshoot_core::Timestamp;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::event::rfc3339;

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
        let (mut types, mut ignorable) = (0, false);
        while let Some(key) = map.next_key::<Key>()? {
            match (key, map.next_value::<Walked>()?) {
                (Key::Type, Walked::Text) => types += 1,
                (Key::Type, _) => return Err(A::Error::custom("a type that is no text")),
                // The last one of a name counts.
                (Key::Ignorable, value) => ignorable = matches!(value, Walked::True),
                (Key::Other, _) => {}
            }
        }
        if types != 1 {
            return Err(A::Error::custom("not one type"));
        }
        Ok(Mark { ignorable })
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
    Text,
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
        Ok(Walked::Text)
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
