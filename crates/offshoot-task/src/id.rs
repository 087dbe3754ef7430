//! Task ids: `<kind>-<n>`.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use crate::kind::TaskKind;
use crate::slab::Key;

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
#[derive(Clone)]
pub struct TaskId {
    kind: TaskKind,
    n: u64,
    /// Where the record was when the registry gave the id out: no part of the name.
    hint: Option<Key>,
}

impl TaskId {
    pub(crate) fn from_parts(kind: TaskKind, n: u64, hint: Key) -> Self {
        let hint = Some(hint);
        Self { kind, n, hint }
    }

    pub(crate) fn task_kind(&self) -> TaskKind {
        self.kind
    }

    /// Where to look first. Whoever follows it compares the name.
    pub(crate) fn hint(&self) -> Option<Key> {
        self.hint
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

impl PartialEq for TaskId {
    fn eq(&self, other: &Self) -> bool {
        (self.n, self.kind) == (other.n, other.kind)
    }
}

impl Eq for TaskId {}

impl PartialOrd for TaskId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TaskId {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.kind, self.n).cmp(&(other.kind, other.n))
    }
}

impl Hash for TaskId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.kind, self.n).hash(state);
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
        let kind = TaskKind::new(kind).ok_or(ParseTaskIdError)?;
        if !canonical {
            return Err(ParseTaskIdError);
        }
        let n = digits.parse().map_err(|_| ParseTaskIdError)?;
        let hint = None;
        Ok(Self { kind, n, hint })
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
