//! Everything that agents of one program share, put together.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use offshoot_agent::EventRule;
use offshoot_agent::{
    Agent, AgentHandle, AgentHost, AgentId, AgentKit, AgentSettings, AgentSpec, EventHub,
    JsonlStore, MemoryStore, OpenError, Pending, Prompt, PromptSection, SessionStore, StoreError,
    Tool, ToolSet, TurnDriver,
};
use offshoot_inprocess::{Fork, Spawn};
use offshoot_loop::{LoopSettings, Model, ModelLoop};
use offshoot_shell::EnvPolicy;
use offshoot_subagent::{Mode, Provider, RunRule, SubagentSettings, Subagents};
use offshoot_task::{TaskConfig, TaskRegistry};
use offshoot_tools::TaskRule;
use offshoot_tools::{
    BashSettings, NoticeSettings, SubagentToolSettings, TaskOutputSettings, Toolbox, ToolsSettings,
};

use crate::config::{BackgroundMode, Config, Delivery};
use crate::modelless::{NoModel, Refusing};
use crate::{external, routed};

/// Puts a [`Runtime`] together. Every part has a default but the driver.
pub struct RuntimeBuilder {
    config: Config,
    store: Arc<dyn SessionStore>,
    tools: Vec<Arc<dyn Tool>>,
    sections: Vec<PromptSection>,
    providers: Vec<Arc<dyn Provider>>,
    cwd: Option<PathBuf>,
    guarded: bool,
    depth: u32,
    spill: Option<PathBuf>,
    event_types: Vec<String>,
    event_rules: Vec<Arc<dyn EventRule>>,
}

impl fmt::Debug for RuntimeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeBuilder")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl RuntimeBuilder {
    /// Where sessions live; in memory by default.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn SessionStore>) -> Self {
        self.store = store;
        self
    }

    /// Keeps sessions as files in this folder, which is made when it is not there.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the folder cannot be used.
    pub fn sessions_in(self, folder: impl AsRef<Path>) -> Result<Self, StoreError> {
        let store = JsonlStore::open_folder(folder.as_ref())?;
        Ok(self.store(Arc::new(store)))
    }

    /// Adds a tool of the program's own. One with the name of a built-in takes its place.
    #[must_use]
    pub fn tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Adds a section to the system prompt.
    #[must_use]
    pub fn section(mut self, section: PromptSection) -> Self {
        self.sections.push(section);
        self
    }

    /// Says that the program's own code records events of this type in sessions and understands them.
    /// A stored session with an event of a type that nobody understands is not resumed, unless the
    /// event is [ignorable](offshoot_agent::Extension::ignorable).
    #[must_use]
    pub fn event_type(mut self, kind: impl Into<String>) -> Self {
        self.event_types.push(kind.into());
        self
    }

    /// Adds what the program's own code asks of its events in a stored session, and what it keeps of them
    /// in place of the events; beside the [rules](event_rules) of this workspace. Without a
    /// [fold](EventRule::fold) of them a session keeps such events in memory for as long as it is resident.
    #[must_use]
    pub fn event_rule(mut self, rule: Arc<dyn EventRule>) -> Self {
        self.event_rules.push(rule);
        self
    }

    /// Adds a subagent provider beside `spawn`, `fork` and those of the configuration. One that has the
    /// name of an `acp` or `process` entry takes its place.
    #[must_use]
    pub fn provider(mut self, provider: Arc<dyn Provider>) -> Self {
        self.providers.push(provider);
        self
    }

    /// Where shell commands and programs run; the process's own folder by default.
    #[must_use]
    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = Some(cwd.into());
        self
    }

    /// Has shell commands, and the programs that are subagents, killed when this process is killed, even by `SIGKILL`: a small process that
    /// is started with the first command does it. For programs; a library starts no process that
    /// nobody asked for.
    #[must_use]
    pub fn guard_commands(mut self) -> Self {
        self.guarded = true;
        self
    }

    /// Says that this program runs `depth` levels below another runtime (0 by default): they are taken off
    /// `limits.max_depth`, and programs that are subagents of this runtime are told of them, so that a
    /// chain of programs ends where one program's would.
    #[must_use]
    pub fn below(mut self, depth: u32) -> Self {
        self.depth = depth;
        self
    }

    /// Keeps what background commands write beyond what is kept in memory in private files in this
    /// folder, which is made when it is needed. Each file goes with its task's record.
    #[must_use]
    pub fn spill(mut self, folder: impl Into<PathBuf>) -> Self {
        self.spill = Some(folder.into());
        self
    }

    /// A runtime whose agents ask `model`, with the [event rules](Model::event_rules) of the model.
    #[must_use]
    pub fn model(mut self, model: Arc<dyn Model>) -> Runtime {
        let limits = &self.config.limits;
        let mut settings = LoopSettings {
            tool_timeout: Some(Duration::from_millis(limits.tool_timeout_ms)),
            ..LoopSettings::default()
        };
        // A configuration that was read has at least 1.
        if let Ok(most) = limits.max_parallel_tools.try_into() {
            settings.max_parallel_tools = most;
        }
        self.event_rules.extend(model.event_rules());
        let driver = ModelLoop::new(model, settings);
        self.driver(Arc::new(driver))
    }

    /// A runtime without a model, for hosts that bring their own agent: the delegation tools whose
    /// children would ask one are shown, and refuse with `why`.
    #[must_use]
    pub fn without_model(self, why: impl Into<String>) -> Runtime {
        let why = why.into();
        let mut runtime = self.driver(Arc::new(NoModel(why.clone())));
        let needing = runtime.config.subagent.iter();
        let needing = needing.filter(|entry| ["spawn", "fork"].contains(&entry.provider.as_str()));
        for entry in needing {
            let tools = &runtime.kit.tools;
            if let Some(tool) = tools.get(&entry.tool_name).cloned() {
                let why = why.clone();
                runtime.kit.tools = tools.with(Arc::new(Refusing { tool, why }));
            }
        }
        runtime
    }

    /// A runtime whose agents' steps are done by `driver`.
    #[must_use]
    pub fn driver(mut self, driver: Arc<dyn TurnDriver>) -> Runtime {
        let limits = &mut self.config.limits;
        limits.max_depth = limits.max_depth.saturating_sub(self.depth);
        let config = &self.config;
        let mut host = AgentHost::new(self.store, agent_settings(config));
        let mut known = event_types();
        known.extend(self.event_types);
        host.event_types = Some(Arc::new(known));
        host.event_rules = self.event_rules.into();
        let tasks = TaskRegistry::new(task_config(config));
        let subagents = Subagents::new(host.clone(), subagent_settings(config));
        let built_in: [Arc<dyn Provider>; 2] = [Arc::new(Spawn), Arc::new(Fork)];
        let external = external::providers(config, self.cwd.as_deref(), self.guarded, self.depth);
        let routed = routed::providers(config);
        let added = self.providers.into_iter().chain(external).chain(routed);
        for provider in built_in.into_iter().chain(added) {
            if let Err(error) = subagents.register(provider) {
                tracing::warn!(%error, "a provider is left out");
            }
        }
        let toolbox = Toolbox::install(
            &tasks,
            &subagents,
            tools_settings(config, self.cwd, self.guarded, self.spill),
        );
        let tools = ToolSet::new(toolbox.tools.iter().cloned().chain(self.tools));
        let prompt = Prompt::new(toolbox.sections.iter().cloned().chain(self.sections));
        let kit = AgentKit {
            driver,
            tools,
            prompt,
        };
        Runtime {
            config: self.config,
            host,
            tasks,
            subagents,
            kit,
            toolbox,
        }
    }
}

/// The agents of one program: their sessions, tasks, subagents and tools.
#[derive(Debug)]
pub struct Runtime {
    config: Config,
    host: AgentHost,
    tasks: TaskRegistry,
    subagents: Subagents,
    kit: AgentKit,
    toolbox: Toolbox,
}

impl Runtime {
    /// Begins to put a runtime together.
    #[must_use]
    pub fn builder(config: Config) -> RuntimeBuilder {
        RuntimeBuilder {
            config,
            store: Arc::new(MemoryStore::default()),
            tools: Vec::new(),
            sections: Vec::new(),
            providers: Vec::new(),
            cwd: None,
            guarded: false,
            depth: 0,
            spill: None,
            event_types: Vec::new(),
            event_rules: event_rules(),
        }
    }

    /// Makes a root agent and lets it run: it waits for its first message.
    ///
    /// # Errors
    ///
    /// [`OpenError`] when its session cannot be made.
    pub fn create_root(&self) -> Result<AgentHandle, OpenError> {
        let agent = Agent::create(&self.host, None, AgentSpec::root(self.kit.clone()))?;
        agent.start();
        Ok(agent)
    }

    /// Goes on with a stored root session. It is told of what its last process left behind, and what
    /// waits runs at once.
    ///
    /// # Errors
    ///
    /// [`OpenError`] when the session is not there, is open elsewhere, or cannot be read.
    pub fn resume_root(&self, id: &AgentId) -> Result<AgentHandle, OpenError> {
        let kit = self.kit.clone();
        let agent = Agent::resume(&self.host, None, id, serde_json::Map::new(), kit)?;
        self.subagents.recover(&agent);
        agent.start();
        Ok(agent)
    }

    /// Ends a root agent with everything below it, within the teardown grace. What waits stays in
    /// the sessions.
    pub fn close(&self, root: &Agent) -> impl Future<Output = ()> + Send + 'static {
        let closing = root.close(Pending::Keep);
        async move {
            closing.await;
        }
    }

    /// What it was made from.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The background tasks.
    #[must_use]
    pub fn tasks(&self) -> &TaskRegistry {
        &self.tasks
    }

    /// The delegation service.
    #[must_use]
    pub fn subagents(&self) -> &Subagents {
        &self.subagents
    }

    /// What the agents share.
    #[must_use]
    pub fn host(&self) -> &AgentHost {
        &self.host
    }

    /// Every event of every session.
    #[must_use]
    pub fn events(&self) -> &EventHub {
        &self.host.hub
    }

    /// What a root agent works with.
    #[must_use]
    pub fn kit(&self) -> &AgentKit {
        &self.kit
    }

    /// The built-in tools.
    #[must_use]
    pub fn toolbox(&self) -> &Toolbox {
        &self.toolbox
    }
}

fn agent_settings(config: &Config) -> AgentSettings {
    AgentSettings {
        max_wake_chain: config.notices.max_wake_chain.into(),
        max_steps_per_turn: config.limits.max_steps_per_turn.into(),
        max_steered_steps: config.limits.max_steered_steps.into(),
        inbox_capacity: config.limits.max_waiting_messages,
        cancel_grace: Duration::from_millis(config.tasks.teardown_grace_ms),
        auto_wake: config.sessions.auto_wake,
        ..AgentSettings::default()
    }
}

fn task_config(config: &Config) -> TaskConfig {
    TaskConfig {
        max_live_per_owner: config.tasks.max_live_per_owner,
        teardown_grace: Duration::from_millis(config.tasks.teardown_grace_ms),
        retain_finished: config.tasks.retain_finished,
        ..TaskConfig::default()
    }
}

/// The types of the events that the crates of this workspace record in sessions: what every runtime
/// understands, beside what [`RuntimeBuilder::event_type`] adds.
#[must_use]
pub fn event_types() -> BTreeSet<String> {
    let known = offshoot_tools::EVENT_TYPES.iter();
    let known = known.chain(&offshoot_subagent::EVENT_TYPES);
    known.map(|kind| (*kind).to_owned()).collect()
}

/// What the crates of this workspace ask of their events in a stored session, and what sessions keep of them,
/// for an [`AgentHost`] of one's own. They belong together: some read events that others do not keep.
#[must_use]
pub fn event_rules() -> Vec<Arc<dyn EventRule>> {
    vec![Arc::new(TaskRule), Arc::new(RunRule)]
}

fn subagent_settings(config: &Config) -> SubagentSettings {
    SubagentSettings {
        max_depth: config.limits.max_depth,
        max_live_children: config.limits.max_live_children,
        waiting_after: Duration::from_millis(config.notices.waiting_after_ms),
        stop_grace: Duration::from_millis(config.limits.subagent_stop_grace_ms),
        dispose_grace: Duration::from_millis(config.limits.subagent_dispose_grace_ms),
        close_grace: Duration::from_millis(config.tasks.teardown_grace_ms),
    }
}

/// A command that is deaf to the polite signal is killed well before its task would be dropped.
pub(crate) fn stop_grace(config: &Config) -> Duration {
    let teardown = Duration::from_millis(config.tasks.teardown_grace_ms);
    BashSettings::default().stop_grace.min(teardown * 3 / 5)
}

/// The settings of the tools that a configuration asks for.
pub(crate) fn tools_settings(
    config: &Config,
    cwd: Option<PathBuf>,
    guarded: bool,
    spill: Option<PathBuf>,
) -> ToolsSettings {
    let tools = &config.tools;
    let subagents = config.subagent.iter().map(|entry| SubagentToolSettings {
        tool_name: entry.tool_name.clone(),
        provider: routed::provider_name(entry),
        mode: match entry.background_mode {
            BackgroundMode::Continuable => Mode::Continuable,
            BackgroundMode::OneShot => Mode::OneShot,
        },
        background: entry.enable_run_in_background,
        persona: entry.persona.clone(),
        tool_filter: entry
            .tool_filter
            .as_ref()
            .map(|filter| offshoot_agent::ToolFilter {
                allow: filter.allow.clone(),
                deny: filter.deny.clone(),
            }),
        output_schema: entry.output_schema.clone(),
    });
    ToolsSettings {
        task_output: TaskOutputSettings {
            wait_timeout: Duration::from_millis(tools.task_output.wait_timeout_ms),
            max_wait_timeout: Duration::from_millis(tools.task_output.max_wait_timeout_ms),
            max_bytes: tools.task_output.max_bytes,
        },
        bash: tools.bash.enabled.then(|| BashSettings {
            background: tools.bash.enable_run_in_background,
            timeout: Duration::from_millis(tools.bash.timeout_ms),
            stop_grace: stop_grace(config),
            env: EnvPolicy::default().allow_each(&tools.bash.env_allow),
            guarded,
            spill,
            cwd,
        }),
        notices: NoticeSettings {
            wake: config.notices.delivery == Delivery::Wakeup,
            inline_bytes: config.notices.inline_bytes,
        },
        subagents: subagents.collect(),
    }
}
