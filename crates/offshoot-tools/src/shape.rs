//! Every line of the runtime's own that stands beside the text of others in what a model reads. The
//! one list of them: what writes such a line takes its beginning from here, and what quotes imitations
//! goes through the same list.

use std::fmt;

macro_rules! shapes {
    ($($(#[$doc:meta])* $name:ident = $head:literal,)*) => {
        /// A kind of line, by how it begins.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Shape { $($(#[$doc])* $name,)* }

        impl Shape {
            pub(crate) const ALL: &[Self] = &[$(Self::$name),*];

            /// How its lines begin; `#` stands for a number.
            pub(crate) const fn head(self) -> &'static str {
                match self { $(Self::$name => $head),* }
            }
        }
    };
}

shapes! {
    /// The last line of what is said of a task.
    Status = "[status:",
    /// A wait has ended before its time.
    WaitEnded = "[wait ended early",
    /// What this result does not have since another one has it.
    Elsewhere = "[# bytes of new output are in",
    /// What was no text.
    Replaced = "[# bytes that are not UTF-8",
    /// What is cut off, and where it is.
    Omitted = "[# bytes omitted",
    /// A command did not go on.
    Stopped = "[the command was stopped",
    /// An answer is not whole.
    Partial = "[partial output",
    /// What ended with a run.
    StoppedWith = "[stopped with the run",
    /// In place of an output.
    NoNewOutput = "(no new output)",
    /// In place of an output.
    NoOutput = "(no output)",
    /// In place of an answer.
    NoMessage = "(it left no message)",
    /// In place of a list.
    NoTasks = "(no background tasks)",
    /// In place of a list.
    NoSubagents = "(no subagents)",
    /// A notice in the result of a call, for clients that have no other place for it.
    Notice = "[notice]",
}

impl Shape {
    /// A line of this kind that goes on with `rest`.
    pub(crate) fn line(self, rest: impl fmt::Display) -> String {
        format!("{}{rest}", self.head())
    }

    /// A line of a kind that begins with a number.
    pub(crate) fn counted(self, number: u64, rest: impl fmt::Display) -> String {
        let head = self.head().replacen('#', &number.to_string(), 1);
        format!("{head}{rest}")
    }
}

/// What a notice begins with where it is part of the result of a call.
pub const NOTICE_PREFIX: &str = Shape::Notice.head();

#[cfg(test)]
mod tests {
    use super::*;

    /// A renderer that writes a line of its own without the list would be one that nobody quotes.
    #[test]
    fn no_other_file_begins_a_line_of_the_runtimes() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if !path.is_file() || name == "shape.rs" {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            for start in ["\"[", "\"(", "\\n[", "\\n("] {
                assert!(!code.contains(start), "{name} has {start}");
            }
            seen += 1;
        }
        assert!(seen > 15);
    }

    #[test]
    fn a_line_begins_with_its_head() {
        assert_eq!(Shape::Status.line(" running]"), "[status: running]");
        assert_eq!(Shape::Omitted.counted(12, "]"), "[12 bytes omitted]");
        for shape in Shape::ALL {
            let head = shape.head();
            assert!(head.starts_with('[') || head.starts_with('('), "{head}");
            assert!(head.is_ascii() && head.matches('#').count() <= 1, "{head}");
        }
    }
}
