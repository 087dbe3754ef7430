//! What a producer says of a task before it starts.

use std::sync::Arc;
use std::time::Duration;

use offshoot_core::text::one_line;

use crate::error::StartError;
use crate::id::{KIND_LIMIT, is_kind};
use crate::output::OutputBuffer;

/// Longest label, in bytes.
const LABEL_LIMIT: usize = 200;

/// Longest detail or reason, in bytes.
const DETAIL_LIMIT: usize = 500;

/// `text` as a bounded label line; `None` when nothing visible is left.
pub(crate) fn label_line(text: &str) -> Option<Arc<str>> {
    let plain = text.len() <= LABEL_LIMIT
        && !text.starts_with(' ')
        && !text.ends_with(' ')
        && text.bytes().all(|b| (b' '..=b'~').contains(&b))
        && !text.contains("  ");
    let line: Arc<str> = if plain {
        text.into()
    } else {
        one_line(text, LABEL_LIMIT).into()
    };
    (!line.is_empty()).then_some(line)
}

/// `text` as a bounded detail line; `None` when nothing visible is left.
pub(crate) fn detail_line(text: &str) -> Option<String> {
    let line = one_line(text, DETAIL_LIMIT);
    (!line.is_empty()).then_some(line)
}

/// A valid kind, in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KindName {
    len: u8,
    bytes: [u8; KIND_LIMIT],
}

impl KindName {
    fn new(kind: &str) -> Option<Self> {
        if !is_kind(kind) {
            return None;
        }
        let mut bytes = [0; KIND_LIMIT];
        bytes[..kind.len()].copy_from_slice(kind.as_bytes());
        let len = u8::try_from(kind.len()).ok()?;
        Some(Self { len, bytes })
    }

    pub(crate) fn as_str(&self) -> &str {
        // A kind is ASCII.
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

/// Where the output of a task comes from.
#[derive(Clone, Debug)]
pub(crate) enum OutputSource {
    /// The outcome.
    Final,
    /// A buffer that the registry makes.
    Fresh,
    /// A buffer that exists already.
    Buffer(OutputBuffer),
}

/// What a producer says of a task before it starts: its kind, its label, and options.
///
/// ```
/// use std::time::Duration;
/// use offshoot_task::TaskSpec;
///
/// let spec = TaskSpec::new("render", "frame 12").deadline(Duration::from_secs(60)).streaming();
/// ```
#[derive(Clone, Debug)]
#[must_use = "a spec does nothing until a registry starts it"]
pub struct TaskSpec {
    kind: Result<KindName, String>,
    label: Option<Arc<str>>,
    pub(crate) generation: u64,
    pub(crate) deadline: Option<Duration>,
    pub(crate) output: OutputSource,
}

/// A [`TaskSpec`] whose texts were found valid.
pub(crate) struct CheckedSpec {
    pub(crate) kind: KindName,
    pub(crate) label: Arc<str>,
}

impl TaskSpec {
    /// A task of `kind`, described by `label`.
    ///
    /// A kind is 1 to 32 characters of `[a-z0-9_-]`. The label becomes one line of at most 200
    /// bytes. An unusable kind or an empty label is the error of the start.
    pub fn new(kind: impl AsRef<str>, label: impl AsRef<str>) -> Self {
        let kind = kind.as_ref();
        Self {
            kind: KindName::new(kind).ok_or_else(|| one_line(kind, KIND_LIMIT)),
            label: label_line(label.as_ref()),
            generation: 0,
            deadline: None,
            output: OutputSource::Final,
        }
    }

    /// The generation of the turn that starts the task (0 when not set).
    pub fn generation(mut self, generation: u64) -> Self {
        self.generation = generation;
        self
    }

    /// Stops the task after `deadline`, counted from its start; unless it completes nevertheless it
    /// then is `failed`, `deadline exceeded`. Zero is the error of the start.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// The task streams into a buffer that exists already.
    pub fn stream(mut self, buffer: OutputBuffer) -> Self {
        self.output = OutputSource::Buffer(buffer);
        self
    }

    /// The task streams into a buffer of its own, as large as the registry's window.
    pub fn streaming(mut self) -> Self {
        self.output = OutputSource::Fresh;
        self
    }

    pub(crate) fn check(&self) -> Result<CheckedSpec, StartError> {
        let kind = match &self.kind {
            Ok(kind) => *kind,
            Err(kind) => return Err(StartError::InvalidKind { kind: kind.clone() }),
        };
        let label = self.label.clone().ok_or(StartError::EmptyLabel)?;
        if self.deadline.is_some_and(|deadline| deadline.is_zero()) {
            return Err(StartError::InvalidDeadline);
        }
        Ok(CheckedSpec { kind, label })
    }
}
