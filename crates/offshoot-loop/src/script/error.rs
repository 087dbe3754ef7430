//! Why a script was not taken: one line that names the file, the place and what was expected.

use std::fmt;

use offshoot_core::text::one_line;

/// The longest place and the longest explanation in an error, in bytes.
const MAX_PART: usize = 600;

/// The family of a fault in a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ScriptErrorKind {
    /// The text is not JSON.
    Syntax,
    /// An unknown or missing field, or a value of the wrong type.
    Shape,
    /// Fields that exclude each other.
    Contradiction,
    /// A number outside its range.
    Range,
    /// A gate that nothing opens.
    Gate,
    /// A label that no agent can have.
    Label,
    /// A known placeholder, written wrongly.
    Placeholder,
}

/// A script that was not taken. It displays as one line: file, place, what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    file: String,
    fault: Fault,
}

impl ScriptError {
    /// The file, as it was named to [`Script::parse`](super::Script::parse).
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The place in the file, such as `agents.root[1].calls[0].name`.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.fault.place
    }

    /// The family of the fault.
    #[must_use]
    pub fn kind(&self) -> ScriptErrorKind {
        self.fault.kind
    }

    /// A stable name of the fault's family.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self.fault.kind {
            ScriptErrorKind::Syntax => "SCRIPT_SYNTAX",
            ScriptErrorKind::Shape => "SCRIPT_SHAPE",
            ScriptErrorKind::Contradiction => "SCRIPT_CONTRADICTION",
            ScriptErrorKind::Range => "SCRIPT_RANGE",
            ScriptErrorKind::Gate => "SCRIPT_GATE",
            ScriptErrorKind::Label => "SCRIPT_LABEL",
            ScriptErrorKind::Placeholder => "SCRIPT_PLACEHOLDER",
        }
    }
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { place, what, .. } = &self.fault;
        write!(f, "{}: {place}: {what}", one_line(&self.file, MAX_PART))
    }
}

impl std::error::Error for ScriptError {}

/// A fault whose file is not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    kind: ScriptErrorKind,
    place: String,
    what: String,
}

impl Fault {
    pub(super) fn new(
        kind: ScriptErrorKind,
        place: impl fmt::Display,
        what: impl fmt::Display,
    ) -> Self {
        Self {
            kind,
            place: one_line(&place.to_string(), MAX_PART),
            what: one_line(&what.to_string(), MAX_PART),
        }
    }

    pub(super) fn in_file(self, file: &str) -> ScriptError {
        ScriptError {
            file: file.to_owned(),
            fault: self,
        }
    }
}
