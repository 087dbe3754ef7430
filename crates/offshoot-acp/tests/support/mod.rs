//! A parent whose one provider of subagents is an external agent.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test file is a program of its own and uses a part of this"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use offshoot_acp::{AcpProvider, AcpSettings};
use offshoot_agent::{
    Agent, AgentHost, AgentKit, AgentSettings, AgentSpec, DriverError, MemoryStore, Prompt,
    StepContext, StepOutcome, ToolSet, TurnDriver,
};
use offshoot_subagent::{ChildRequest, OneShotResult, StartError, SubagentSettings, Subagents};
use tokio_util::sync::CancellationToken;

/// A bound on waits for something that must happen.
pub const SOON: Duration = Duration::from_secs(120);

/// The parent's turns are not what is tested.
struct Idle;

impl TurnDriver for Idle {
    fn step<'a>(&'a self, _: &'a StepContext) -> BoxFuture<'a, Result<StepOutcome, DriverError>> {
        Box::pin(std::future::pending())
    }
}

pub struct World {
    pub subagents: Subagents,
    pub parent: Agent,
}

impl World {
    pub fn of(settings: AcpSettings) -> Self {
        let host = AgentHost::new(Arc::new(MemoryStore::default()), AgentSettings::default());
        let subagents = Subagents::new(host.clone(), SubagentSettings::default());
        subagents
            .register(Arc::new(AcpProvider::new(settings)))
            .unwrap();
        let kit = AgentKit {
            driver: Arc::new(Idle),
            tools: ToolSet::new([]),
            prompt: Prompt::new([]),
        };
        let parent = Agent::create(&host, None, AgentSpec::root(kit))
            .unwrap()
            .into_agent();
        Self { subagents, parent }
    }

    pub fn request(&self, prompt: &str) -> ChildRequest {
        ChildRequest::new(self.parent.clone(), "agent", "work", prompt)
    }

    pub async fn start(
        &self,
        prompt: &str,
        cancel: &CancellationToken,
    ) -> Result<OneShotResult, StartError> {
        let run = self.subagents.run(self.request(prompt), cancel.clone());
        let result = tokio::time::timeout(SOON, run).await.expect("an end");
        assert_eq!(self.parent.scope().holds(), 0);
        result
    }

    pub async fn run(&self, prompt: &str) -> OneShotResult {
        let result = self.start(prompt, &CancellationToken::new()).await.unwrap();
        assert_eq!(result.dispose_error, None);
        result
    }

    /// The error of a start that must fail.
    pub async fn refused(&self) -> String {
        let result = self.start("go", &CancellationToken::new()).await;
        result.expect_err("a failed start").to_string()
    }
}

/// The agent of `fake_agent.py`.
pub fn fake(how: &[&str]) -> AcpSettings {
    let mut settings = AcpSettings::new("agent", "python3");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_agent.py");
    settings.args = vec![script.display().to_string()];
    settings
        .args
        .extend(how.iter().map(|arg| (*arg).to_owned()));
    settings.exit_grace = Duration::from_millis(200);
    settings.cancel_grace = Duration::from_millis(200);
    settings.run.stop_grace = Duration::from_millis(200);
    settings
}

/// A folder with a file that an agent writes its number to.
pub struct Pid {
    folder: tempfile::TempDir,
}

impl Pid {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("pid")
    }

    /// Waits for the number.
    pub async fn read(&self) -> i32 {
        let read = async {
            loop {
                if let Ok(text) = std::fs::read_to_string(self.path())
                    && let Ok(number) = text.trim().parse()
                {
                    return number;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(SOON, read).await.expect("a number")
    }
}

pub fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.trim_start().as_bytes()[0]);
    state.is_some_and(|state| state != b'Z' && state != b'X')
}

/// The processes that have this text in their environment.
pub fn with_variable(text: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let environments = processes.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let environ = std::fs::read(entry.path().join("environ")).ok()?;
        is_alive(pid).then_some(environ)
    });
    environments
        .filter(|environ| environ.split(|b| *b == 0).any(|v| v == text.as_bytes()))
        .count()
}
