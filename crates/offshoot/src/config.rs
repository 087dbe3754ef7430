//! The configuration of a run: typed, with its defaults, strictly read.
//!
//! [`Config`] mirrors the keys of the TOML file; a script has the same keys as JSON. [`ConfigLayers`]
//! lays sources over the defaults and names, in one line, the source and the key of what is wrong.

pub(crate) mod check;
mod children;
mod error;
mod file;
mod layers;
mod models;
mod number;
mod programs;
mod set;
mod source;

use offshoot_agent::SyncPolicy;
use serde::{Deserialize, Serialize};

pub use children::{BackgroundMode, SubagentConfig, ToolFilter, UnavailableProvider};
pub use error::{ConfigError, ConfigErrorKind};
pub use file::read_text;
pub use layers::ConfigLayers;
pub use models::ModelConfig;
pub use programs::{AcpConfig, ExitMeaning, Files, Permission, ProcessConfig};

/// The names of the tools that are there whatever `subagent` entries there are.
pub const BUILT_IN_TOOLS: [&str; 7] = [
    "send_message",
    "task_output",
    "task_list",
    "task_kill",
    "bash",
    "list_agents",
    "interrupt_agent",
];

/// Everything that a configuration says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Config {
    /// The model that agents ask.
    pub model: ModelConfig,
    /// The task registry.
    pub tasks: TasksConfig,
    /// What an agent is told of work that ended, and how.
    pub notices: NoticesConfig,
    /// The tools other than `subagent`.
    pub tools: ToolsConfig,
    /// Bounds of one tree of agents.
    pub limits: LimitsConfig,
    /// Stored sessions.
    pub sessions: SessionsConfig,
    /// One delegation tool an entry.
    pub subagent: Vec<SubagentConfig>,
    /// External agents that speak the Agent Client Protocol; each is a provider.
    pub acp: Vec<AcpConfig>,
    /// Programs that answer a prompt; each is a provider.
    pub process: Vec<ProcessConfig>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            model: ModelConfig::default(),
            tasks: TasksConfig::default(),
            notices: NoticesConfig::default(),
            tools: ToolsConfig::default(),
            limits: LimitsConfig::default(),
            sessions: SessionsConfig::default(),
            subagent: vec![SubagentConfig::default()],
            acp: Vec::new(),
            process: Vec::new(),
        }
    }
}

/// The table `tasks`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct TasksConfig {
    /// Live tasks of one owner, at least 1.
    #[serde(deserialize_with = "number::positive")]
    pub max_live_per_owner: usize,
    /// How long a cancelled task has to end by itself.
    #[serde(deserialize_with = "number::whole")]
    pub teardown_grace_ms: u64,
    /// Finished and reported tasks that are kept, an owner.
    #[serde(deserialize_with = "number::whole")]
    pub retain_finished: usize,
}

impl Default for TasksConfig {
    fn default() -> Self {
        Self {
            max_live_per_owner: 10,
            teardown_grace_ms: 5_000,
            retain_finished: 100,
        }
    }
}

/// The table `notices`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct NoticesConfig {
    /// Whether a task's notice wakes its idle owner.
    pub delivery: Delivery,
    /// The generation above which notices no longer wake.
    #[serde(deserialize_with = "number::whole")]
    pub max_wake_chain: u32,
    /// After how long a waiting child is mentioned to its parent.
    #[serde(deserialize_with = "number::whole")]
    pub waiting_after_ms: u64,
    /// Up to how many bytes a final output is in the notice itself.
    #[serde(deserialize_with = "number::whole")]
    pub inline_bytes: usize,
}

impl Default for NoticesConfig {
    fn default() -> Self {
        Self {
            delivery: Delivery::default(),
            max_wake_chain: 100,
            waiting_after_ms: 30_000,
            inline_bytes: 4_096,
        }
    }
}

/// How a task's notice reaches its owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// An idle owner starts a turn for it.
    #[default]
    Wakeup,
    /// It waits for the owner's next turn.
    Quiet,
}

/// The table `tools`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ToolsConfig {
    /// The tool that reads a task's output.
    pub task_output: TaskOutputConfig,
    /// The tool that runs a shell command.
    pub bash: BashConfig,
}

/// The table `tools.task_output`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct TaskOutputConfig {
    /// How long a wait is when the model names no time; at most `max_wait_timeout_ms`.
    #[serde(deserialize_with = "number::positive")]
    pub wait_timeout_ms: u64,
    /// The longest wait that a model may ask for.
    #[serde(deserialize_with = "number::positive")]
    pub max_wait_timeout_ms: u64,
    /// The most bytes that one result has, at least
    /// [`MIN_BYTES`](offshoot_tools::TaskOutputSettings::MIN_BYTES).
    #[serde(deserialize_with = "number::result_bytes")]
    pub max_bytes: usize,
}

impl Default for TaskOutputConfig {
    fn default() -> Self {
        Self {
            wait_timeout_ms: 30_000,
            max_wait_timeout_ms: 600_000,
            max_bytes: 32_768,
        }
    }
}

/// The table `tools.bash`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct BashConfig {
    /// Whether there is the tool.
    pub enabled: bool,
    /// Whether a command may run as a task.
    pub enable_run_in_background: bool,
    /// How long a foreground call waits for its command.
    #[serde(deserialize_with = "number::positive")]
    pub timeout_ms: u64,
    /// Variables of this process that commands see too, each by its whole name: also one that looks like
    /// a secret.
    pub env_allow: Vec<String>,
}

impl Default for BashConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            enable_run_in_background: true,
            timeout_ms: 120_000,
            env_allow: Vec::new(),
        }
    }
}

/// The table `limits`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct LimitsConfig {
    /// The deepest child; the root is 0, so 0 forbids children.
    #[serde(deserialize_with = "number::whole")]
    pub max_depth: u32,
    /// Live children in one tree.
    #[serde(deserialize_with = "number::positive")]
    pub max_live_children: usize,
    /// How long a one-shot child, or its start, may take to end after it was cancelled.
    #[serde(deserialize_with = "number::positive")]
    pub subagent_stop_grace_ms: u64,
    /// How long its disposal may take. With the grace before it less than a killed task has.
    #[serde(deserialize_with = "number::positive")]
    pub subagent_dispose_grace_ms: u64,
    /// Tools of one step that run at the same time.
    #[serde(deserialize_with = "number::positive")]
    pub max_parallel_tools: usize,
    /// How long a call of a tool without a bound of its own may take.
    #[serde(deserialize_with = "number::positive")]
    pub tool_timeout_ms: u64,
    /// Steps after which a turn ends.
    #[serde(deserialize_with = "number::positive")]
    pub max_steps_per_turn: u32,
    /// Steps that messages for the next step keep a finished turn open for while a followup waits.
    #[serde(deserialize_with = "number::whole")]
    pub max_steered_steps: u32,
    /// Messages that may wait for one agent.
    #[serde(deserialize_with = "number::positive")]
    pub max_waiting_messages: usize,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            max_depth: 3,
            max_live_children: 64,
            subagent_stop_grace_ms: 10_000,
            subagent_dispose_grace_ms: 15_000,
            max_parallel_tools: 10,
            tool_timeout_ms: 600_000,
            max_steps_per_turn: 200,
            max_steered_steps: 8,
            max_waiting_messages: 10_000,
        }
    }
}

/// The table `sessions`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct SessionsConfig {
    /// When logs are made to survive a loss of power, in a store of files.
    pub sync: SyncPolicy,
    /// Whether a resumed agent begins with what waits in its session and may wake.
    pub auto_wake: bool,
}

impl Default for SessionsConfig {
    fn default() -> Self {
        Self {
            sync: SyncPolicy::default(),
            auto_wake: true,
        }
    }
}

#[cfg(test)]
mod tests;
