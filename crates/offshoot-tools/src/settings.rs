//! How the tools behave.

use std::path::PathBuf;
use std::time::Duration;

use offshoot_agent::ToolFilter;
use offshoot_shell::EnvPolicy;
use offshoot_subagent::{Mode, OutputSchema};

use crate::fit::Room;

/// How the tools behave.
#[derive(Clone, Debug, Default)]
pub struct ToolsSettings {
    /// Of `task_output`, and the bounds of results.
    pub task_output: TaskOutputSettings,
    /// Of `bash`; without it there is no such tool.
    pub bash: Option<BashSettings>,
    /// Of completion notices.
    pub notices: NoticeSettings,
    /// One delegation tool each.
    pub subagents: Vec<SubagentToolSettings>,
}

/// How `task_output` behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskOutputSettings {
    /// How long a wait takes when the call does not say. Default 30 s.
    pub wait_timeout: Duration,
    /// The longest wait; a longer one is cut to it. Default 10 min.
    pub max_wait_timeout: Duration,
    /// The most bytes of a result; the end is kept. Default 32 KiB, and never less than
    /// [`MIN_BYTES`](Self::MIN_BYTES): what is less counts as that.
    pub max_bytes: usize,
}

impl TaskOutputSettings {
    /// The least bound of a result: the lines around an output are never cut, and leave room for it.
    pub const MIN_BYTES: usize = Room::MIN;
}

impl Default for TaskOutputSettings {
    fn default() -> Self {
        Self {
            wait_timeout: Duration::from_secs(30),
            max_wait_timeout: Duration::from_secs(600),
            max_bytes: 32 * 1024,
        }
    }
}

/// How `bash` behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BashSettings {
    /// Whether a command may run in the background.
    pub background: bool,
    /// How long a foreground call waits for its command. Default 2 min.
    pub timeout: Duration,
    /// How long a command may take to end after it was asked to. Default 3 s.
    pub stop_grace: Duration,
    /// Which variables of this process commands see. Default: those that commands commonly need, without
    /// what looks like a secret.
    pub env: EnvPolicy,
    /// Whether commands are killed when this process is killed, by a small process that is started
    /// with the first command. For programs; default false.
    pub guarded: bool,
    /// A folder for outputs that a result may have to cut: a private file each, named where something
    /// is left out. It goes with the task's record; that of a foreground command when its agent closes,
    /// or twenty later ones have come. Without a folder what is left out cannot be read.
    pub spill: Option<PathBuf>,
    /// Where commands run; the process's own folder when absent.
    pub cwd: Option<PathBuf>,
}

impl Default for BashSettings {
    fn default() -> Self {
        Self {
            background: true,
            timeout: Duration::from_secs(120),
            stop_grace: Duration::from_secs(3),
            env: EnvPolicy::default(),
            guarded: false,
            spill: None,
            cwd: None,
        }
    }
}

/// How completion notices behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoticeSettings {
    /// Whether a task's notice wakes an idle owner.
    pub wake: bool,
    /// The largest output that is put into the notice itself, in bytes. Default 4 KiB.
    pub inline_bytes: usize,
}

impl Default for NoticeSettings {
    fn default() -> Self {
        Self {
            wake: true,
            inline_bytes: 4096,
        }
    }
}

/// One delegation tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubagentToolSettings {
    /// What the model calls it. Default `subagent`.
    pub tool_name: String,
    /// The provider's name. Default `spawn`.
    pub provider: String,
    /// What a background call starts. Default continuable.
    pub mode: Mode,
    /// Whether a call may run in the background.
    pub background: bool,
    /// Who its children are.
    pub persona: Option<String>,
    /// Which of their parent's tools its children see.
    pub tool_filter: Option<ToolFilter>,
    /// What the answers of its children have to be. For runs that are waited for and for background
    /// runs of [`Mode::OneShot`]: a continuable child is refused with it.
    pub output_schema: Option<OutputSchema>,
}

impl Default for SubagentToolSettings {
    fn default() -> Self {
        Self {
            tool_name: "subagent".to_owned(),
            provider: "spawn".to_owned(),
            mode: Mode::Continuable,
            background: true,
            persona: None,
            tool_filter: None,
            output_schema: None,
        }
    }
}
