//! `offshoot run`: one root agent, until it is at rest.
//!
//! One thread runs all agents, so that what a script makes certain is certain: an event is seen by
//! every observer before the agent that committed it goes on. Printing has threads of its own.

pub(crate) mod host;
mod inputs;
mod rest;
mod result;
mod signals;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use offshoot::Runtime;
use offshoot::agent::{
    AgentHandle, AgentId, Event, EventObserver, EventRecord, Message, SessionStore,
};
use offshoot::config::Config;
use offshoot::driver::script::{Gates, Input};
use offshoot::driver::{Model, ScriptedModel};

use crate::args::RunArgs;
use crate::fault::Fault;
use crate::output::json::{self, JsonLines};
use crate::output::progress::{Progress, Style};
use crate::sessions::examiner;
use crate::spill::SpillFolder;
use crate::{orphans, output, setup};
use host::Host;
use rest::End;
pub(crate) use rest::{Limits, closing_limit};
pub(crate) use signals::Signals;

/// Everything that a run needs, checked.
pub(crate) struct Plan {
    pub(crate) config: Config,
    pub(crate) gates: Gates,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) inputs: Vec<Input>,
    pub(crate) prompt: Option<String>,
    pub(crate) store: Option<Arc<dyn SessionStore>>,
    pub(crate) resume: Option<AgentId>,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) limits: Limits,
    pub(crate) show: Show,
}

/// What is shown of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    /// Every event and the result, on stdout.
    Json,
    /// The final text on stdout, and progress on stderr in this style.
    Text(Style),
}

/// `offshoot run`.
pub(crate) fn run(args: RunArgs) -> Result<ExitCode, Fault> {
    conduct(plan(args)?)
}

fn plan(args: RunArgs) -> Result<Plan, Fault> {
    if args.model.is_some() && args.script.is_some() {
        return Err(Fault::usage("--script and --model: expected one of them"));
    }
    if args.base_url.is_some() && args.script.is_some() {
        return Err(Fault::usage(
            "--script and --base-url: expected one of them",
        ));
    }
    let script = match &args.script {
        Some(path) => Some((path.as_path(), setup::script(path)?)),
        None => None,
    };
    let with_script = script.as_ref().map(|(path, script)| (*path, script));
    let cwd = setup::cwd(args.cwd.as_deref())?;
    let base = setup::base(cwd.as_deref());
    let mut config = setup::config(&args.config, with_script, Some(base))?;
    let gates = Gates::new();
    let model: Arc<dyn Model> = match &script {
        Some((_, script)) => Arc::new(ScriptedModel::new(script, gates.clone())),
        None => setup::model(&mut config, args.model.as_deref(), args.base_url.as_deref())?,
    };
    let (prompt_of_script, inputs) = match script {
        Some((_, script)) => (script.prompt, script.inputs),
        None => (None, Vec::new()),
    };
    let prompt = args.prompt.or(prompt_of_script);
    let prompt = prompt.filter(|prompt| !prompt.trim().is_empty());
    let resume = args.resume.as_deref().map(session_id).transpose()?;
    if prompt.is_none() && resume.is_none() {
        return Err(match &args.script {
            Some(path) => Fault::usage(format_args!(
                "no prompt: expected PROMPT, or `prompt` in {}",
                path.display()
            )),
            None => Fault::usage("no prompt: expected PROMPT"),
        });
    }
    if resume.is_some() && args.store.is_none() {
        return Err(Fault::usage(
            "--resume: expected --store DIR too, the folder that has the session",
        ));
    }
    let store = match &args.store {
        Some(folder) => Some(setup::store(folder, config.sessions.sync)? as Arc<dyn SessionStore>),
        None => None,
    };
    if let (Some(id), Some(store), Some(folder)) = (&resume, &store, &args.store) {
        check_resumed(store, id, folder)?;
    }
    let show = match (args.json, args.quiet) {
        (true, _) => Show::Json,
        (false, true) => Show::Text(Style::Nothing),
        (false, false) => Show::Text(Style::of_a_terminal_only()),
    };
    Ok(Plan {
        config,
        model,
        gates,
        inputs,
        prompt,
        store,
        resume,
        cwd,
        limits: Limits {
            timeout: args.timeout,
            linger: args.linger,
        },
        show,
    })
}

pub(crate) fn session_id(text: &str) -> Result<AgentId, Fault> {
    text.parse()
        .map_err(|error| Fault::usage(format_args!("--resume: `{text}`: {error}")))
}

/// Only a root session can be resumed: a child belongs to its parent. The fault does not say who asked.
/// Of a damaged session it says what is damaged, as `offshoot sessions` does.
pub(crate) fn check_root(store: &Arc<dyn SessionStore>, id: &AgentId) -> Result<(), String> {
    let first = store.first(id).map_err(|error| error.to_string())?;
    let parent = match first.as_ref().map(|stored| &stored.event) {
        Some(Event::SessionStart(start)) => match &start.parent {
            None => return Ok(()),
            Some(parent) => Some(parent),
        },
        _ => None,
    };
    let examined = examiner(Arc::clone(store)).examine(id, &mut |_| {});
    examined.map_err(|error| error.to_string())?;
    Err(match parent {
        Some(parent) => {
            format!("session {id} is a subagent's of {parent}; expected a root session")
        }
        None => format!("session {id} has no beginning"),
    })
}

/// As [`check_root`], for the session of the option.
pub(crate) fn check_resumed(
    store: &Arc<dyn SessionStore>,
    id: &AgentId,
    folder: &Path,
) -> Result<(), Fault> {
    check_root(store, id).map_err(|fault| {
        let folder = folder.display();
        Fault::usage(format_args!(
            "--resume: {fault}; `offshoot sessions --store {folder}` lists them"
        ))
    })
}

/// Runs a plan to its end.
pub(crate) fn conduct(plan: Plan) -> Result<ExitCode, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the asynchronous runtime")?;
    let adopting = orphans::adopt(&runtime);
    let spill = SpillFolder::of_this_user();
    let ended = runtime.block_on(Run::new(plan)?.play(&spill));
    // What still runs has been told to stop and had its grace.
    runtime.shutdown_timeout(Duration::from_millis(200));
    drop(adopting);
    drop(spill);
    ended
}

struct Run {
    plan: Plan,
    began: Instant,
    lines: Option<Arc<JsonLines>>,
    progress: Option<Progress>,
    /// Why the prompt was not accepted.
    unasked: Option<String>,
}

impl Run {
    fn new(plan: Plan) -> Result<Self, Fault> {
        let (lines, progress) = match plan.show {
            Show::Json => (
                Some(Arc::new(JsonLines::stdout().context("a thread")?)),
                None,
            ),
            Show::Text(style) => (None, Progress::begin(style).context("a thread")?),
        };
        Ok(Self {
            plan,
            began: Instant::now(),
            lines,
            progress,
            unasked: None,
        })
    }

    async fn play(mut self, spill: &SpillFolder) -> Result<ExitCode, Fault> {
        let mut signals = Signals::listen().context("signals")?;
        let mut builder = Runtime::builder(self.plan.config.clone())
            .guard_commands()
            .below(setup::depth()?)
            .spill(spill.folder());
        if let Some(store) = self.plan.store.take() {
            builder = builder.store(store);
        }
        if let Some(cwd) = self.plan.cwd.take() {
            builder = builder.cwd(cwd);
        }
        let runtime = builder.model(Arc::clone(&self.plan.model));
        let host = Host::new(
            runtime,
            self.plan.gates.clone(),
            std::mem::take(&mut self.plan.inputs),
            self.lines.clone(),
        );
        let observers = self.observe(&host);
        let root = self.open(&host)?;
        let tell = self.progress.as_ref().map(Progress::teller);
        let say = |line: &str| {
            if let Some(tell) = &tell {
                tell(line);
            }
        };
        let lines = self.lines.as_deref();
        let limits = &self.plan.limits;
        let end = rest::until_end(&host, &root, limits, &mut signals, lines, say).await;
        let stopped = match end {
            End::Rest => Vec::new(),
            _ => result::living(&host, &root),
        };
        rest::close(&host, &root, &self.plan.config).await;
        drop(observers);
        let wall = self.began.elapsed();
        let unasked = self.unasked.take();
        let record = result::record(&host, &root, end, limits, stopped, unasked, wall);
        self.answer(end, &record)
    }

    /// The order counts: an event is printed before an input that it triggers does anything.
    fn observe(&self, host: &Arc<Host>) -> Vec<offshoot::agent::ObserverGuard> {
        let events = host.runtime().events();
        let mut guards = Vec::new();
        if let Some(lines) = self.lines.clone() {
            guards.push(events.observe(Arc::new(move |record: &_| lines.event(record))));
        }
        if let Some(progress) = &self.progress {
            guards.push(events.observe(progress.observer()));
        }
        guards.push(events.observe(self.tells_of_torn_logs(host)));
        guards.push(events.observe(host.observer()));
        guards
    }

    /// "A torn last line is cut off and reported": once, when its session is resumed.
    fn tells_of_torn_logs(&self, host: &Arc<Host>) -> Arc<dyn EventObserver> {
        let host = Arc::clone(host);
        let tell = self.progress.as_ref().map(Progress::teller);
        Arc::new(move |record: &EventRecord| {
            let agent = match &record.event {
                Event::SessionStart(start) if start.resumed => {
                    host.runtime().host().agents.get(&record.session)
                }
                _ => None,
            };
            let Some(torn) = agent.map(|agent| agent.torn_bytes()) else {
                return;
            };
            if torn > 0 {
                let line = format!(
                    "session {}: the last line was torn, its {torn} bytes were cut off",
                    record.session
                );
                match &tell {
                    Some(tell) => tell(&line),
                    None => output::note(line),
                }
            }
        })
    }

    /// The root agent, with its prompt.
    fn open(&mut self, host: &Arc<Host>) -> Result<AgentHandle, Fault> {
        let opened = match &self.plan.resume {
            Some(id) => host.runtime().resume_root(id),
            None => host.runtime().create_root(),
        };
        let root = opened.map_err(|error| Fault::usage(format_args!("the session: {error}")))?;
        host.begin(&root);
        if let Some(prompt) = self.plan.prompt.take()
            && let Err(error) = root.followup(Message::user(prompt))
        {
            self.unasked = Some(format!("the prompt was not accepted: {error}"));
        }
        Ok(root)
    }

    fn answer(self, end: End, record: &result::ResultRecord) -> Result<ExitCode, Fault> {
        if let Some(progress) = self.progress {
            progress.finish();
        }
        match &self.lines {
            Some(lines) => {
                if end != End::StdoutClosed {
                    lines.line(record);
                }
                match lines.finish() {
                    Err(error) if json::is_closed(&error) => return Err(Fault::StdoutClosed),
                    Ok(()) if end == End::StdoutClosed => return Err(Fault::StdoutClosed),
                    other => other.context("stdout")?,
                }
            }
            None if record.text.is_empty() => {}
            None => output::result(&record.text)?,
        }
        if record.is_completed() {
            return Ok(ExitCode::SUCCESS);
        }
        output::note(record.complaint());
        Ok(ExitCode::FAILURE)
    }
}
