//! Why a configuration was not taken: one line that names the source, the key and what was expected.

use std::fmt;

use offshoot_core::text::one_line;

/// The longest part of an error, in bytes.
const MAX_PART: usize = 600;

/// The family of a fault in a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConfigErrorKind {
    /// The file cannot be read.
    Read,
    /// The text is not TOML, or an override is not `KEY=VALUE`.
    Syntax,
    /// An unknown or missing key, a value of the wrong type or outside its range.
    Value,
    /// Values that exclude each other, or a name that is used twice.
    Contradiction,
    /// A provider that nothing defines.
    UnknownProvider,
    /// A tool that is not there, in a tool filter.
    UnknownTool,
    /// A provider that is used and that this build does not have.
    UnavailableProvider,
    /// The folder of a program that is used is not there, or is none.
    Folder,
}

/// A configuration that was not taken. It displays as one line: source, key, what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    kind: ConfigErrorKind,
    origin: String,
    key: String,
    what: String,
}

impl ConfigError {
    pub(super) fn new(
        kind: ConfigErrorKind,
        origin: impl fmt::Display,
        key: impl fmt::Display,
        what: impl fmt::Display,
    ) -> Self {
        Self {
            kind,
            origin: one_line(&origin.to_string(), MAX_PART),
            key: one_line(&key.to_string(), MAX_PART),
            what: one_line(&what.to_string(), MAX_PART),
        }
    }

    /// The source: a file as it was named, or `--set`.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The place in the source: a key such as `tasks.max_live_per_owner`, else a line and column. Empty
    /// when the source as a whole is meant.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The family of the fault.
    #[must_use]
    pub fn kind(&self) -> ConfigErrorKind {
        self.kind
    }

    /// A stable name of the fault's family.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self.kind {
            ConfigErrorKind::Read => "CONFIG_READ",
            ConfigErrorKind::Syntax => "CONFIG_SYNTAX",
            ConfigErrorKind::Value => "CONFIG_VALUE",
            ConfigErrorKind::Contradiction => "CONFIG_CONTRADICTION",
            ConfigErrorKind::UnknownProvider => "CONFIG_UNKNOWN_PROVIDER",
            ConfigErrorKind::UnknownTool => "CONFIG_UNKNOWN_TOOL",
            ConfigErrorKind::UnavailableProvider => "CONFIG_UNAVAILABLE_PROVIDER",
            ConfigErrorKind::Folder => "CONFIG_FOLDER",
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            origin, key, what, ..
        } = self;
        match key.as_str() {
            "" => write!(f, "{origin}: {what}"),
            key => write!(f, "{origin}: {key}: {what}"),
        }
    }
}

impl std::error::Error for ConfigError {}
