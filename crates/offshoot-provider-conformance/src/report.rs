//! What was found.

use std::fmt;

use crate::Case;

/// How a case went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The provider does what it has to.
    Passed,
    /// The subject has no children that behave as the case needs.
    Skipped,
    /// What it does wrong, each as one sentence.
    Failed(Vec<String>),
}

/// What was found of one provider.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a report says what the provider does wrong"]
pub struct Report(pub(crate) Vec<(Case, Verdict)>);

impl Report {
    /// Every case with its verdict.
    pub fn cases(&self) -> impl Iterator<Item = (Case, &Verdict)> {
        self.0.iter().map(|(case, verdict)| (*case, verdict))
    }

    /// The cases that failed, with what was wrong.
    pub fn failures(&self) -> impl Iterator<Item = (Case, &[String])> {
        self.cases().filter_map(|(case, verdict)| match verdict {
            Verdict::Failed(faults) => Some((case, faults.as_slice())),
            _ => None,
        })
    }

    /// The cases that were skipped.
    pub fn skipped(&self) -> impl Iterator<Item = Case> {
        let skipped = self
            .cases()
            .filter(|(_, verdict)| **verdict == Verdict::Skipped);
        skipped.map(|(case, _)| case)
    }

    /// Panics unless every case passed, but for `skipped`, which the provider cannot have.
    ///
    /// # Panics
    ///
    /// With the whole report when a case failed, when another one was skipped, or when one of
    /// `skipped` was not.
    #[track_caller]
    pub fn assert_conforms(&self, skipped: &[Case]) {
        let expected = |case: &Case| skipped.contains(case);
        let failed = self.failures().next().is_some();
        let left_out: Vec<_> = self.skipped().collect();
        let same = left_out.iter().all(expected) && left_out.len() == skipped.len();
        assert!(!failed && same, "the provider does not conform:\n{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (case, verdict) in self.cases() {
            match verdict {
                Verdict::Passed => writeln!(f, "passed   {case}")?,
                Verdict::Skipped => writeln!(f, "skipped  {case}")?,
                Verdict::Failed(faults) => {
                    writeln!(f, "FAILED   {case}: {}", case.requirement())?;
                    for fault in faults {
                        writeln!(f, "           {fault}")?;
                    }
                }
            }
        }
        Ok(())
    }
}
