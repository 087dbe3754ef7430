//! A runtime for one case, with one root and the provider behind the probe.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use offshoot_agent::{
    Agent, AgentHost, AgentKit, AgentSettings, AgentSpec, EventRecord, Extension, MemoryStore,
    ObserverGuard, Pending, Prompt, ToolSet,
};
use offshoot_subagent::{ChildRequest, OneShotResult, StartError, SubagentSettings, Subagents};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::actor::Actor;
use crate::probe::{Meddling, Notebook, Probe};
use crate::{Behaviour, Subject};

/// How long a case may wait for what has to come.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long after a case something may be left.
const LEFT: Duration = Duration::from_secs(10);

pub(crate) struct World<'a> {
    subject: &'a dyn Subject,
    pub(crate) behaviour: Behaviour,
    pub(crate) name: String,
    pub(crate) subagents: Subagents,
    pub(crate) root: Agent,
    pub(crate) notes: Notebook,
    /// What was recorded in the root's session, in order: kinds and run ids.
    records: Arc<Mutex<Vec<Extension>>>,
    _guard: ObserverGuard,
}

impl<'a> World<'a> {
    /// `None` when the subject has no such children.
    pub(crate) fn new(
        subject: &'a dyn Subject,
        behaviour: Behaviour,
        meddling: Meddling,
    ) -> Option<Self> {
        let provider = subject.provider(behaviour)?;
        let host = AgentHost::new(Arc::new(MemoryStore::default()), AgentSettings::default());
        let settings = SubagentSettings::default();
        let graces = (settings.stop_grace, settings.dispose_grace);
        let subagents = Subagents::new(host.clone(), settings);
        let notes = Notebook::default();
        let name = provider.name().to_owned();
        let probe = Probe::new(provider, meddling, notes.clone(), graces);
        if let Err(error) = subagents.register(Arc::new(probe)) {
            notes.fault(error.to_string());
        }
        let kit = AgentKit {
            driver: Arc::new(Actor(behaviour)),
            tools: ToolSet::default(),
            prompt: Prompt::default(),
        };
        let root = match Agent::create(&host, None, AgentSpec::root(kit)) {
            Ok(root) => root.into_agent(),
            Err(error) => panic!("a root in memory: {error}"),
        };
        root.start();
        let records: Arc<Mutex<Vec<Extension>>> = Arc::default();
        let (seen, of) = (Arc::clone(&records), root.id().clone());
        let guard = host.hub.observe(Arc::new(move |record: &EventRecord| {
            if let offshoot_agent::Event::Extension(event) = &record.event
                && record.session == of
            {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.push((**event).clone());
            }
        }));
        Some(Self {
            subject,
            behaviour,
            name,
            subagents,
            root,
            notes,
            records,
            _guard: guard,
        })
    }

    pub(crate) fn request(&self) -> ChildRequest {
        let (parent, prompt) = (self.root.clone(), self.behaviour.prompt());
        ChildRequest::new(parent, &self.name, self.behaviour.as_str(), prompt)
    }

    /// Runs a child to its end; a run that does not end is a fault.
    pub(crate) async fn run(
        &self,
        request: ChildRequest,
        cancel: CancellationToken,
    ) -> Option<Result<OneShotResult, StartError>> {
        let run = self.subagents.run(request, cancel);
        self.soon("the run to end", run).await
    }

    /// A run that goes on by itself.
    pub(crate) fn begin(
        &self,
        cancel: &CancellationToken,
    ) -> JoinHandle<Result<OneShotResult, StartError>> {
        let (service, request, cancel) = (self.subagents.clone(), self.request(), cancel.clone());
        tokio::spawn(async move { service.run(request, cancel).await })
    }

    /// Waits for what has to come; what does not is a fault.
    pub(crate) async fn soon<T>(&self, what: &str, work: impl Future<Output = T>) -> Option<T> {
        let output = tokio::time::timeout(PATIENCE, work).await.ok();
        if output.is_none() {
            self.notes
                .fault(format!("waited {PATIENCE:?} in vain for {what}"));
        }
        output
    }

    pub(crate) fn records(&self, kind: &str) -> Vec<Extension> {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records
            .iter()
            .filter(|it| it.kind == kind)
            .cloned()
            .collect()
    }

    /// Waits until `count` children were recorded as started.
    pub(crate) async fn started(&self, count: usize) -> bool {
        let started = |p: &offshoot_agent::Projection| {
            let started = p.extensions().filter(|it| it.kind == "subagent/started");
            (started.count() >= count).then_some(())
        };
        let started = self.root.until_projection(started);
        self.soon("the start of the child", started).await.is_some()
    }

    /// Ends the case, and says everything that was wrong.
    pub(crate) async fn end(self) -> Vec<String> {
        let released = self.root.scope().unheld();
        self.soon("the parent to be released", released).await;
        let close = self.root.close(Pending::Keep);
        self.soon("the end of the parent", close).await;
        let drained = self.subagents.host().hub.drained();
        self.soon("the events", drained).await;
        self.check_pairs();
        self.check_left().await;
        self.notes.faults()
    }

    /// Each run has one start and one end, in this order, of one child.
    fn check_pairs(&self) {
        let records = self
            .records
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut open: Vec<(String, String)> = Vec::new();
        let mut runs = Vec::new();
        for event in records {
            let of = |key: &str| event.field(key).unwrap_or_default().to_owned();
            let (run, child) = (of("run_id"), of("child"));
            match event.kind.as_str() {
                "subagent/started" => {
                    if runs.contains(&run) {
                        self.notes.fault(format!("run {run} started twice"));
                    }
                    runs.push(run.clone());
                    open.push((run, child));
                }
                "subagent/settled" => {
                    let at = open
                        .iter()
                        .position(|pair| *pair == (run.clone(), child.clone()));
                    match at {
                        Some(at) => drop(open.remove(at)),
                        None => self
                            .notes
                            .fault(format!("run {run} of {child} ended and had not started")),
                    }
                }
                _ => {}
            }
        }
        for (run, child) in open {
            self.notes
                .fault(format!("run {run} of {child} started and never ended"));
        }
    }

    /// Nothing is left of any child.
    async fn check_left(&self) {
        let left = || {
            let agents = self.subagents.host().agents.list();
            let agents = agents.iter().map(|agent| format!("agent {}", agent.id()));
            agents.chain(self.subject.left()).collect::<Vec<_>>()
        };
        let gone = async {
            // Ends outside the runtime announce themselves to nobody: they are looked for.
            while !left().is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(LEFT, gone).await.is_err() {
            for what in left() {
                self.notes
                    .fault(format!("{LEFT:?} after the end, {what} is left"));
            }
        }
    }
}
