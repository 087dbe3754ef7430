//! What a producer says of a task before it starts.

use std::sync::Arc;
use std::time::Duration;

use offshoot_core::text::one_line;

use crate::error::StartError;
use crate::kind::{KIND_LIMIT, TaskKind};
use crate::output::OutputBuffer;

/// Longest label, in bytes.
const LABEL_LIMIT: usize = 200;

/// Longest detail or reason, in bytes.
const DETAIL_LIMIT: usize = 500;

/// `text` as a bounded label line; `None` when nothing visible is left.
pub(crate) fn label_line(text: &str) -> Option<Arc<str>> {
    let line: Arc<str> = if is_plain(text) {
        text.into()
    } else {
        one_line(text, LABEL_LIMIT).into()
    };
    (!line.is_empty()).then_some(line)
}

/// Whether `text` is a bounded line already, found in one pass: nearly every label is.
fn is_plain(text: &str) -> bool {
    // A space at the start, as after another one.
    let mut last = b' ';
    text.len() <= LABEL_LIMIT
        && text.bytes().all(|b| {
            let before = std::mem::replace(&mut last, b);
            (b'!'..=b'~').contains(&b) || (b == b' ' && before != b' ')
        })
        && last != b' '
}

/// `text` as a bounded detail line; `None` when nothing visible is left.
pub(crate) fn detail_line(text: &str) -> Option<String> {
    let line = one_line(text, DETAIL_LIMIT);
    (!line.is_empty()).then_some(line)
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
    kind: Result<TaskKind, String>,
    label: Option<Arc<str>>,
    generation: u64,
    deadline: Option<Duration>,
    promised: Option<Duration>,
    output: OutputSource,
}

/// A [`TaskSpec`] whose texts were found valid.
pub(crate) struct CheckedSpec {
    pub(crate) kind: TaskKind,
    pub(crate) label: Arc<str>,
    pub(crate) generation: u64,
    pub(crate) deadline: Option<Duration>,
    pub(crate) promised: Option<Duration>,
    /// Where a task that streams writes.
    pub(crate) output: Option<OutputBuffer>,
}

impl TaskSpec {
    /// A task of `kind`, described by `label`.
    ///
    /// A kind is 1 to 32 characters of `[a-z0-9_-]`. The label becomes one line of at most 200
    /// bytes. An unusable kind or an empty label is the error of the start.
    pub fn new(kind: impl AsRef<str>, label: impl AsRef<str>) -> Self {
        let kind = kind.as_ref();
        Self {
            kind: TaskKind::new(kind).ok_or_else(|| one_line(kind, KIND_LIMIT)),
            label: label_line(label.as_ref()),
            generation: 0,
            deadline: None,
            promised: None,
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

    /// The work promises to report its [progress](crate::TaskContext::progress) at least `every` so
    /// often. A live task that does not is marked as [stalled](crate::TaskSnapshot::stalled);
    /// nothing else happens to it. Zero is the error of the start.
    pub fn promises_progress(mut self, every: Duration) -> Self {
        self.promised = Some(every);
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

    pub(crate) fn check(self, window: usize) -> Result<CheckedSpec, StartError> {
        let kind = self.kind.map_err(|kind| StartError::InvalidKind { kind })?;
        let label = self.label.ok_or(StartError::EmptyLabel)?;
        if self.deadline.is_some_and(|deadline| deadline.is_zero()) {
            return Err(StartError::InvalidDeadline);
        }
        if self.promised.is_some_and(|every| every.is_zero()) {
            return Err(StartError::InvalidPromise);
        }
        Ok(CheckedSpec {
            kind,
            label,
            generation: self.generation,
            deadline: self.deadline,
            promised: self.promised,
            output: match self.output {
                OutputSource::Final => None,
                OutputSource::Fresh => Some(OutputBuffer::new(window)),
                OutputSource::Buffer(buffer) => Some(buffer),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Plain is exactly what making a line of it leaves alone, within printable ASCII.
        #[test]
        fn a_plain_label_is_a_line_already(text in "[ a-z\u{e9}\u{202e}\n~!]{0,12}( {0,2}x{180,200})?") {
            let line = one_line(&text, LABEL_LIMIT);
            prop_assert_eq!(is_plain(&text), text.is_ascii() && !text.is_empty() && line == text);
            let label = label_line(&text);
            prop_assert_eq!(label.as_deref().unwrap_or_default(), line);
        }
    }
}
