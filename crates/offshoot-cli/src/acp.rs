//! `offshoot acp`: an agent on stdio that an editor drives over the Agent Client Protocol.
//!
//! Each session is a root agent in a runtime of its own, since each has a folder of its own. stdout has
//! the protocol and nothing else.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use offshoot::Runtime;
use offshoot::acp::{Opened, Sessions, UnusedServers, serve};
use offshoot::agent::{Agent, AgentHandle, AgentId, OpenError, SessionStore};
use offshoot::config::Config;
use offshoot::driver::script::{Gates, Script};
use offshoot::driver::{Model, ScriptedModel};
use offshoot::subagent::Authority;
use offshoot::task::StoppedBy;
use tokio_util::sync::CancellationToken;

use crate::args::AcpArgs;
use crate::fault::Fault;
use crate::run::{Signals, check_root};
use crate::spill::SpillFolder;
use crate::{orphans, output, setup};

/// `offshoot acp`.
pub(crate) fn acp(args: AcpArgs) -> Result<ExitCode, Fault> {
    let (mut config, model) = model(&args)?;
    let store = match &args.store {
        Some(folder) => Some(setup::store(folder, config.sessions.sync)? as Arc<dyn SessionStore>),
        None => None,
    };
    setup::end_in_time(&mut config);
    let spill = SpillFolder::of_this_user();
    let sessions = Arc::new(Roots {
        config,
        model,
        store,
        depth: setup::depth()?,
        spill: spill.folder().to_owned(),
    });
    // One thread runs all agents, as in `offshoot run`: what a script makes certain is certain.
    let asynchronous = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the asynchronous runtime")?;
    let adopting = orphans::adopt(&asynchronous);
    let served = asynchronous.block_on(async {
        let mut signals = Signals::listen().context("signals")?;
        output::says_who_is_awaited("an ACP client");
        let stop = CancellationToken::new();
        let serving = serve(
            sessions,
            tokio::io::stdin(),
            tokio::io::stdout(),
            stop.clone(),
        );
        let mut serving = std::pin::pin!(serving);
        let served = tokio::select! {
            served = &mut serving => served,
            _ = signals.next() => {
                stop.cancel();
                serving.await
            }
        };
        served.map_err(anyhow::Error::from)
    });
    // A read of stdin may still be under way, and nobody can end it.
    asynchronous.shutdown_timeout(Duration::from_millis(200));
    drop(adopting);
    drop(spill);
    served?;
    Ok(ExitCode::SUCCESS)
}

/// Who answers in a session.
enum Answers {
    /// A script, from its beginning in every session.
    Script(Box<Script>),
    Model(Arc<dyn Model>),
}

fn model(args: &AcpArgs) -> Result<(Config, Answers), Fault> {
    if args.model.is_some() && args.script.is_some() {
        return Err(Fault::usage("--script and --model: expected one of them"));
    }
    let Some(path) = &args.script else {
        let mut config = setup::config(&args.config, None, None)?;
        let (model, url) = (args.model.as_deref(), args.base_url.as_deref());
        let model = setup::model(&mut config, model, url)?;
        return Ok((config, Answers::Model(model)));
    };
    if args.base_url.is_some() {
        return Err(Fault::usage(
            "--base-url: expected --model PROVIDER/MODEL too",
        ));
    }
    let script = setup::script(path)?;
    if !script.inputs.is_empty() {
        let path = path.display();
        return Err(Fault::usage(format_args!(
            "{path}: inputs: expected none: the client of `offshoot acp` is the host"
        )));
    }
    let config = setup::config(&args.config, Some((path, &script)), None)?;
    Ok((config, Answers::Script(Box::new(script))))
}

/// Makes root agents, each in a runtime of its own.
struct Roots {
    config: Config,
    model: Answers,
    store: Option<Arc<dyn SessionStore>>,
    depth: u32,
    spill: PathBuf,
}

impl Roots {
    fn model(&self) -> Arc<dyn Model> {
        match &self.model {
            Answers::Script(script) => Arc::new(ScriptedModel::new(script, Gates::new())),
            Answers::Model(model) => Arc::clone(model),
        }
    }

    fn open(
        &self,
        cwd: &Path,
        root: impl FnOnce(&Runtime) -> Result<AgentHandle, OpenError>,
    ) -> Result<Opened, String> {
        let mut builder = Runtime::builder(self.config.clone())
            .guard_commands()
            .below(self.depth)
            .spill(&self.spill)
            .cwd(cwd);
        if let Some(store) = &self.store {
            builder = builder.store(Arc::clone(store));
        }
        let runtime = Arc::new(builder.model(self.model()));
        let agent = root(&runtime).map_err(|error| error.to_string())?;
        let agent = agent.into_agent();
        let (stopping, root) = (Arc::clone(&runtime), agent.clone());
        let stop = move || stop(&stopping, &root);
        let limit = crate::run::closing_limit(&self.config);
        let root = agent.clone();
        let close = move || {
            let closing = async move {
                // What is deaf even to its grace is left.
                let _ = tokio::time::timeout(limit, runtime.close(&root)).await;
            };
            Box::pin(closing) as _
        };
        Ok(Opened {
            agent,
            stop: Box::new(stop),
            close: Box::new(close),
        })
    }
}

impl Sessions for Roots {
    fn create(&self, cwd: &Path) -> Result<Opened, String> {
        self.open(cwd, Runtime::create_root)
    }

    fn load(&self, id: &AgentId, cwd: &Path) -> Result<Opened, String> {
        if let Some(store) = &self.store {
            check_root(store, id)?;
        }
        self.open(cwd, |runtime| runtime.resume_root(id))
    }

    fn can_load(&self) -> bool {
        self.store.is_some()
    }

    fn not_stored(&self) -> String {
        "sessions are not stored; start `offshoot acp` with --store DIR".to_owned()
    }

    fn unused(&self, servers: &UnusedServers) {
        output::note(format_args!(
            "the client's MCP servers are not used: {servers}"
        ));
    }
}

/// Ends what a root has started: its user has cancelled.
fn stop(runtime: &Runtime, root: &Agent) {
    let scope = root.scope().id();
    for task in runtime.tasks().list(scope) {
        if !task.status.is_terminal() {
            let reason = Some("cancelled by the user".to_owned());
            // One that has just ended needs no stop.
            let _ = runtime
                .tasks()
                .kill(scope, &task.id, StoppedBy::Human, reason);
        }
    }
    for child in runtime.subagents().list(root, false) {
        let _ = runtime.subagents().interrupt(Authority::Host, &child.id);
        let _ = runtime.subagents().dispose(&child.id);
    }
}
