//! How the program is run, and what its end means.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use offshoot_core::process::{Program, ProgramConfig, SpawnError};
use offshoot_subagent::{DEPTH_VARIABLE, Outcome, RunResult};

use crate::FieldPath;

/// What stands for the prompt in an argument.
pub const PROMPT: &str = "{prompt}";

/// How much of a run's text is left for what is said of a long answer.
const NOTE: usize = 1024;

/// How a program is run as a subagent. Start from [`new`](Self::new) and change what should differ.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProcessSettings {
    /// The provider's name.
    pub name: String,
    /// The program: a path, or a name that is looked for in `PATH`.
    pub command: PathBuf,
    /// Its arguments. [`PROMPT`] in any of them is replaced by the prompt; when none has it, the prompt
    /// is on the program's standard input, which is then closed.
    ///
    /// A prompt is a text that a model wrote and may begin with `-`: put `--` before it when the
    /// program knows it.
    pub args: Vec<String>,
    /// Variables that are set for it, whatever the policy says of their names. The values of all that it
    /// sees and whose names look like secrets are taken out of diagnostics.
    pub env: Vec<(String, String)>,
    /// How deep this process is itself, below other runtimes (0): the program is told how deep it is,
    /// in [`DEPTH_VARIABLE`].
    pub depth: u32,
    /// Where it runs; the working directory of this process when absent.
    pub cwd: Option<PathBuf>,
    /// How long it may run, from its start; for ever when absent.
    pub deadline: Option<Duration>,
    /// Where its answer is: at this path in the JSON lines of its standard output, the last one that
    /// has it. When absent, all of the standard output is the answer.
    pub answer: Option<FieldPath>,
    /// Where the JSON lines say how many tokens were read, the last one that does.
    pub input_tokens: Option<FieldPath>,
    /// Where the JSON lines say how many tokens were written, the last one that does.
    pub output_tokens: Option<FieldPath>,
    /// What exit codes mean. By default 0 is `completed`; whatever is not here is an error.
    pub exit_codes: BTreeMap<i32, Outcome>,
    /// How many bytes an answer has at most (4 MiB, what a run may have, without room for a note): of a
    /// longer one the end is kept, and how much is missing is said after it.
    pub max_answer: usize,
    /// How long a JSON line may be (8 MiB); a longer one is skipped.
    pub max_line: usize,
    /// How it is stopped, which variables of this process it sees, who kills it when this process
    /// dies.
    pub run: ProgramConfig,
}

impl ProcessSettings {
    /// The provider `name` that runs `command` without arguments.
    pub fn new(name: impl Into<String>, command: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            command: command.into(),
            args: Vec::new(),
            env: Vec::new(),
            depth: 0,
            cwd: None,
            deadline: None,
            answer: None,
            input_tokens: None,
            output_tokens: None,
            exit_codes: BTreeMap::from([(0, Outcome::Completed)]),
            max_answer: RunResult::MAX_TEXT_BYTES - NOTE,
            max_line: 8 * 1024 * 1024,
            run: ProgramConfig::default(),
        }
    }

    pub(crate) fn reads_json(&self) -> bool {
        let paths = [&self.answer, &self.input_tokens, &self.output_tokens];
        paths.iter().any(|path| path.is_some())
    }

    /// Whether the prompt is on the program's standard input.
    pub(crate) fn feeds(&self) -> bool {
        !self.args.iter().any(|arg| arg.contains(PROMPT))
    }

    /// The program for one prompt of a parent at this depth.
    pub(crate) fn program(&self, prompt: &str, parent: u32) -> Program {
        let args = self.args.iter().map(|arg| arg.replace(PROMPT, prompt));
        let depth = self.depth.saturating_add(parent).saturating_add(1);
        let mut program = Program::new(&self.command)
            .args(args)
            .env(DEPTH_VARIABLE, depth.to_string());
        for (name, value) in &self.env {
            program = program.env(name, value);
        }
        if let Some(cwd) = &self.cwd {
            program = program.cwd(cwd);
        }
        if self.feeds() {
            program = program.piped_stdin();
        }
        program
    }

    /// Why the program was not started with this prompt, for the model that wrote it.
    pub(crate) fn describe(&self, error: &SpawnError, prompt: &str) -> String {
        let advice = match error {
            _ if self.feeds() => String::new(),
            SpawnError::ArgumentsTooLong { .. } => {
                let bytes = prompt.len();
                format!("; the prompt of {bytes} bytes is an argument here: make it shorter")
            }
            SpawnError::NulInCommand if prompt.contains('\0') => {
                "; it is in the prompt, which is an argument here".to_owned()
            }
            _ => String::new(),
        };
        format!(
            "the program of the subagent {} was not started: {error}{advice}",
            self.name
        )
    }
}
