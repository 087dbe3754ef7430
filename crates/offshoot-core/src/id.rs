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
