//! The cases: what a provider has to do, each by a name.

use std::fmt;

/// One thing that every provider has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Case {
    /// Its name and its capabilities are stable.
    Identity,
    /// A child that answers.
    Answer,
    /// A child that fails after it said something.
    Fail,
    /// A child that dies after it said something.
    Crash,
    /// A cancel before the provider is asked.
    CancelBeforeStart,
    /// A cancel as the start is told.
    CancelAtPublication,
    /// A cancel while the child works.
    CancelRunning,
    /// A cancel that the child is deaf to.
    Deaf,
    /// A child that says very much.
    Flood,
    /// A start whose future is dropped.
    DroppedStart,
    /// A run that is dropped undisposed.
    DroppedRun,
    /// A disposal that never began, since its caller panicked.
    PanicInDispose,
    /// A disposal of a child that works.
    DisposeWhileRunning,
    /// A result that is awaited and dropped.
    DroppedResult,
    /// A disposal that takes time.
    SlowDispose,
    /// A disposal that never ends.
    HangingDispose,
    /// A disposal that fails beside a result.
    FailingDispose,
    /// The caller of a run goes away.
    CallerGoes,
    /// The parent ends while the child works.
    ParentCloses,
    /// Two runs at once, of which one is cancelled.
    Siblings,
    /// A request for what the provider does not declare.
    Undeclared,
    /// An answer that fits a schema.
    StructuredOutput,
    /// An answer that was to fit a schema and was not given.
    StructuredOutputMissing,
    /// The past of continuable children.
    Seed,
}

impl Case {
    /// All of them.
    pub const ALL: [Self; 24] = [
        Self::Identity,
        Self::Answer,
        Self::Fail,
        Self::Crash,
        Self::CancelBeforeStart,
        Self::CancelAtPublication,
        Self::CancelRunning,
        Self::Deaf,
        Self::Flood,
        Self::DroppedStart,
        Self::DroppedRun,
        Self::PanicInDispose,
        Self::DisposeWhileRunning,
        Self::DroppedResult,
        Self::SlowDispose,
        Self::HangingDispose,
        Self::FailingDispose,
        Self::CallerGoes,
        Self::ParentCloses,
        Self::Siblings,
        Self::Undeclared,
        Self::StructuredOutput,
        Self::StructuredOutputMissing,
        Self::Seed,
    ];

    /// What is required, as one sentence.
    #[must_use]
    pub fn requirement(self) -> &'static str {
        match self {
            Self::Identity => "the name is not empty, and name and capabilities do not change",
            Self::Answer => "a child that answers completes with its answer and is disposed",
            Self::Fail => {
                "a child that fails is an error, with what it said as text and a diagnostic beside it"
            }
            Self::Crash => {
                "a child that dies is an error with a diagnostic, not a failure of result"
            }
            Self::CancelBeforeStart => "a start that is cancelled already leaves nothing",
            Self::CancelAtPublication => {
                "a cancel right after the publication ends the run as aborted"
            }
            Self::CancelRunning => "a cancel ends a run as aborted",
            Self::Deaf => "a child that is deaf to the cancel is ended in time, as aborted",
            Self::Flood => "however much a child says, its end is kept within the bound",
            Self::DroppedStart => "a start that is dropped leaves nothing running",
            Self::DroppedRun => "a run that is dropped undisposed leaves nothing running",
            Self::PanicInDispose => "a run whose disposal never began leaves nothing running",
            Self::DisposeWhileRunning => "a disposal ends a child that works",
            Self::DroppedResult => "a run can be disposed after its result was awaited and dropped",
            Self::SlowDispose => "a run is not told to have ended before it was disposed",
            Self::HangingDispose => {
                "a disposal that never ends hides neither the result nor itself"
            }
            Self::FailingDispose => "a disposal that fails does not hide the result, nor is hidden",
            Self::CallerGoes => "a run whose caller goes away is ended and recorded",
            Self::ParentCloses => "a parent that ends takes its runs with it, on the record",
            Self::Siblings => "two runs share nothing that one of them can cancel or settle",
            Self::Undeclared => "what is not declared is refused before the provider is asked",
            Self::StructuredOutput => "an answer fits the schema that was asked for",
            Self::StructuredOutputMissing => {
                "a child that ends without the answer it was asked for is an error that says so"
            }
            Self::Seed => "the past of a continuable child is whole, and the child can be started",
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
