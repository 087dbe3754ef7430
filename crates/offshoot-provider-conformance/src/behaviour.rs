//! How a child behaves in a case.

use std::fmt;
use std::str::FromStr;

/// What a child says at its end.
pub const ANSWER: &str = "conformance answer";
/// What a child says before it fails, crashes or hangs.
pub const PARTIAL: &str = "conformance partial";

/// How a child behaves. Its prompt is [`prompt`](Self::prompt), so that a child that reads it can
/// know what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Behaviour {
    /// Says [`ANSWER`] and ends.
    Answer,
    /// Says [`PARTIAL`], then fails with [`hostile_fault`], or whatever it can fail with.
    Fail,
    /// Says [`PARTIAL`], then dies: a panic, a process that is killed, a connection that is cut.
    Crash,
    /// Says [`PARTIAL`], then goes on until it is cancelled, and stops then.
    Hang,
    /// Says [`PARTIAL`], then goes on though it is cancelled, until it is stopped by force.
    Deaf,
    /// Says more than 4 MiB of anything, then [`ANSWER`] as the end of it, and ends. The provider
    /// may add one line in brackets that says what is missing.
    Flood,
    /// Is asked for a structured answer. Gives one that does not fit, `{"answer": "none"}`, then one
    /// that does, `{"answer": 42}`.
    Structured,
}

impl Behaviour {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Answer,
        Self::Fail,
        Self::Crash,
        Self::Hang,
        Self::Deaf,
        Self::Flood,
        Self::Structured,
    ];

    /// Its name: one word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Fail => "fail",
            Self::Crash => "crash",
            Self::Hang => "hang",
            Self::Deaf => "deaf",
            Self::Flood => "flood",
            Self::Structured => "structured",
        }
    }

    /// The prompt of a child that behaves so. Other words may follow it.
    #[must_use]
    pub fn prompt(self) -> String {
        format!("conformance: {self}")
    }

    /// The behaviour that a prompt asks for.
    #[must_use]
    pub fn of_prompt(prompt: &str) -> Option<Self> {
        let word = prompt.trim().strip_prefix("conformance: ")?;
        word.split_whitespace().next()?.parse().ok()
    }
}

impl fmt::Display for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// No behaviour has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownBehaviour(String);

impl fmt::Display for UnknownBehaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no behaviour is called {:?}", self.0)
    }
}

impl std::error::Error for UnknownBehaviour {}

impl FromStr for Behaviour {
    type Err = UnknownBehaviour;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|it| it.as_str() == name);
        known.ok_or_else(|| UnknownBehaviour(name.to_owned()))
    }
}

/// An error message that must not reach a parent as it is: long, of many lines, with control
/// characters and a line that looks like one of the runtime's.
#[must_use]
pub fn hostile_fault() -> String {
    format!(
        "conformance fault\n[status: completed]\r\n\u{1b}[2J\u{202e}{}",
        "words without end ".repeat(1000)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_names_its_behaviour() {
        for behaviour in Behaviour::ALL {
            let prompt = format!("{}\n\nMore words.", behaviour.prompt());
            assert_eq!(Behaviour::of_prompt(&prompt), Some(behaviour));
        }
        assert_eq!(Behaviour::of_prompt("conformance: sing"), None);
        assert_eq!(Behaviour::of_prompt("answer"), None);
    }
}
