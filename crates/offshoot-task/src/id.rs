//! Task ids: `<kind>-<n>`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Longest kind, in bytes.
pub(crate) const KIND_LIMIT: usize = 32;

/// Whether `kind` is one to [`KIND_LIMIT`] characters of `[a-z0-9_-]`.
pub(crate) fn is_kind(kind: &str) -> bool {
    (1..=KIND_LIMIT).contains(&kind.len())
        && kind
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
}

/// Names one task of a registry: `<kind>-<n>`, with `n` counted from 1 for each kind.
///
/// Ids are guessable on purpose. They name; they do not give access, which belongs to the owner.
///
/// ```
/// use offshoot_task::TaskId;
/// let id: TaskId = "bash-7".parse()?;
/// assert_eq!((id.kind(), id.number()), ("bash", 7));
/// assert_eq!(id.to_string(), "bash-7");
/// assert!("bash-07".parse::<TaskId>().is_err());
/// # Ok::<(), offshoot_task::ParseTaskIdError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    kind: Arc<str>,
    n: u64,
}

impl TaskId {
    pub(crate) fn from_parts(kind: Arc<str>, n: u64) -> Self {
        Self { kind, n }
    }

    /// The part before the last `-`.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The number within the kind, at least 1.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.n
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.kind, self.n)
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskId({self})")
    }
}

/// The text is not the id of any task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a task id: expected <kind>-<number>")]
pub struct ParseTaskIdError;

impl FromStr for TaskId {
    type Err = ParseTaskIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, digits) = text.rsplit_once('-').ok_or(ParseTaskIdError)?;
        // One text form only: no sign, no leading zero.
        let canonical = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
        if !is_kind(kind) || !canonical {
            return Err(ParseTaskIdError);
        }
        let n = digits.parse().map_err(|_| ParseTaskIdError)?;
        Ok(Self {
            kind: kind.into(),
            n,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_canonical_text_is_an_id() {
        for good in [
            "bash-1",
            "pty-send-100",
            "a-b-c-9",
            "x_1-18446744073709551615",
        ] {
            assert_eq!(good.parse::<TaskId>().unwrap().to_string(), good);
        }
        for bad in [
            "",
            "bash",
            "bash-",
            "-1",
            "bash-0",
            "bash-01",
            "bash-+1",
            "bash-x",
            "Bash-1",
            "bash 1-1",
            "bash-18446744073709551616",
            "bash-1\n",
        ] {
            assert_eq!(bad.parse::<TaskId>(), Err(ParseTaskIdError), "{bad:?}");
        }
    }
}
