//! Programs that are used as subagents: the providers that configuration adds.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::number;

/// An entry of `acp`: an external agent that speaks the Agent Client Protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AcpConfig {
    /// The provider's name.
    pub name: String,
    /// The program.
    pub command: String,
    /// Its arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// Variables that are set for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Variables of this process that it sees too; a trailing `*` stands for any ending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_allow: Vec<String>,
    /// Where it runs, and where its session is; by default where the run's commands run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// What it is answered when it asks for permission.
    #[serde(default)]
    pub permission: Permission,
    /// What it may do with files through this program.
    #[serde(default)]
    pub files: Files,
    /// How long it may take to be ready for a prompt.
    #[serde(default = "start_timeout_ms", deserialize_with = "number::positive")]
    pub start_timeout_ms: u64,
    /// How long its turn may take; for ever when absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "number::maybe_positive"
    )]
    pub timeout_ms: Option<u64>,
    /// How long it may take to end its turn after it was asked to.
    #[serde(default = "cancel_grace_ms", deserialize_with = "number::whole")]
    pub cancel_grace_ms: u64,
    /// How long it may take to exit after its standard input was closed.
    #[serde(default = "exit_grace_ms", deserialize_with = "number::whole")]
    pub exit_grace_ms: u64,
}

const fn start_timeout_ms() -> u64 {
    60_000
}

const fn cancel_grace_ms() -> u64 {
    1_000
}

const fn exit_grace_ms() -> u64 {
    3_000
}

/// The answer to an external agent that asks for permission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Permission {
    /// No.
    #[default]
    Reject,
    /// Yes.
    Allow,
}

/// What an external agent may do with files through the client that drives it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Files {
    /// Nothing: it is told so, and uses its own tools.
    #[default]
    None,
    /// Read those below its folder.
    Read,
    /// Read and write those below its folder.
    ReadWrite,
}

/// An entry of `process`: any program that answers a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ProcessConfig {
    /// The provider's name.
    pub name: String,
    /// The program.
    pub command: String,
    /// Its arguments; `{prompt}` in them is replaced, else the prompt is on its stdin.
    #[serde(default)]
    pub args: Vec<String>,
    /// Variables that are set for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Variables of this process that it sees too; a trailing `*` stands for any ending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_allow: Vec<String>,
    /// Where it runs; by default where the run's commands run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// How long it may run; for ever when absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "number::maybe_positive"
    )]
    pub timeout_ms: Option<u64>,
    /// A path of fields into JSON lines, the last match is the answer; absent: stdout is the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// A path of fields into JSON lines: the tokens that were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<String>,
    /// A path of fields into JSON lines: the tokens that were written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<String>,
    /// What exit codes mean; without an entry 0 is `completed`, all others are `error`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exit_codes: BTreeMap<String, ExitMeaning>,
}

/// What the exit code of a program says of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitMeaning {
    /// It did its work.
    Completed,
    /// It failed.
    Error,
    /// It ran out of tokens.
    MaxTokens,
    /// It declined.
    Refusal,
    /// It was stopped.
    Aborted,
}
