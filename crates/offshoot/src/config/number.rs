//! Whole numbers with a least value, and errors that say so in the words of a configuration.

use std::fmt;
use std::num::NonZeroU32;

use offshoot_tools::TaskOutputSettings;
use serde::de::{Deserializer, Error, Unexpected, Visitor};

/// A whole number.
pub(super) fn whole<'de, D: Deserializer<'de>, T: TryFrom<u64>>(json: D) -> Result<T, D::Error> {
    narrow(json.deserialize_any(AtLeast::<0>)?)
}

/// A whole number that is at least 1.
pub(super) fn positive<'de, D: Deserializer<'de>, T: TryFrom<u64>>(json: D) -> Result<T, D::Error> {
    narrow(json.deserialize_any(AtLeast::<1>)?)
}

/// A bound of a result, which has room for the lines around an output.
pub(super) fn result_bytes<'de, D: Deserializer<'de>>(json: D) -> Result<usize, D::Error> {
    const LEAST: u64 = TaskOutputSettings::MIN_BYTES as u64;
    narrow(json.deserialize_any(AtLeast::<LEAST>)?)
}

/// The same as [`positive`], for a key that may be absent.
pub(super) fn maybe_positive<'de, D: Deserializer<'de>, T: TryFrom<u64>>(
    json: D,
) -> Result<Option<T>, D::Error> {
    positive(json).map(Some)
}

/// A number of tokens, for a key that may be absent.
pub(super) fn maybe_tokens<'de, D: Deserializer<'de>>(
    json: D,
) -> Result<Option<NonZeroU32>, D::Error> {
    let number: u32 = positive(json)?;
    Ok(NonZeroU32::new(number))
}

fn narrow<T: TryFrom<u64>, E: Error>(number: u64) -> Result<T, E> {
    T::try_from(number).map_err(|_| E::custom(format_args!("{number} is too large")))
}

struct AtLeast<const MIN: u64>;

impl<const MIN: u64> Visitor<'_> for AtLeast<MIN> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match MIN {
            0 => f.write_str("a whole number"),
            min => write!(f, "a whole number, at least {min}"),
        }
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        if number < MIN {
            return Err(E::invalid_value(Unexpected::Unsigned(number), &self));
        }
        Ok(number)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }
}
