//! Unique ids for things that outlive the process.

/// Returns a new id: 26 lower-case letters and digits, unique across processes, whose order is
/// the order of creation to the millisecond.
///
/// ```
/// let id = offshoot_core::fresh_id();
/// assert_eq!(id.len(), 26);
/// assert_ne!(id, offshoot_core::fresh_id());
/// ```
#[must_use]
pub fn fresh_id() -> String {
    let mut text = ulid::Ulid::generate().to_string();
    text.make_ascii_lowercase();
    text
}

/// The number that an id of [`fresh_id`] is the text of; `None` for every other text, also for one that means
/// the same number in another form.
///
/// ```
/// use offshoot_core::{fresh_id, fresh_id_number};
///
/// let (first, second) = (fresh_id(), fresh_id());
/// assert_ne!(fresh_id_number(&first), fresh_id_number(&second));
/// assert_eq!(fresh_id_number(&first.to_uppercase()), None);
/// assert_eq!(fresh_id_number("an id of somebody else's"), None);
/// ```
#[must_use]
pub fn fresh_id_number(id: &str) -> Option<u128> {
    let ulid = ulid::Ulid::from_string(id).ok()?;
    let mut text = [0; ulid::ULID_LEN];
    let text = ulid.array_to_str(&mut text);
    text.make_ascii_lowercase();
    (text == id).then_some(ulid.0)
}
