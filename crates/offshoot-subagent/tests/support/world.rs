//! A runtime with a cast, a recorder of its events, and work that is not tasks.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use offshoot_agent::{
    Agent, AgentHost, AgentId, AgentKit, AgentSettings, AgentSpec, Event, EventRecord, Extension,
    MemoryStore, Message, ObserverGuard, Pending, Prompt, SessionStore, Status, ToolSet,
};
use offshoot_core::Hold;
use offshoot_inprocess::{Fork, Spawn};
use offshoot_subagent::{
    ChildHost, ChildRequest, LiveWork, LocalHost, RunRule, Started, SubagentSettings, Subagents,
};

use super::{Act, Cast, Far, Odd, Recorded, Recording, soon};

/// Work that agents have going: holds by agent, dropped when it is stopped.
#[derive(Default)]
pub struct FakeWork {
    holds: Mutex<HashMap<AgentId, Vec<(String, Hold)>>>,
    pub recovered: Mutex<Vec<AgentId>>,
}

impl FakeWork {
    pub fn begin(&self, agent: &Agent, name: &str) {
        let hold = agent.scope().hold().unwrap();
        let mut holds = self.holds.lock().unwrap();
        let works = holds.entry(agent.id().clone()).or_default();
        works.push((name.to_owned(), hold));
    }

    pub fn end(&self, agent: &AgentId) {
        let ended = self.holds.lock().unwrap().remove(agent);
        drop(ended);
    }
}

impl LiveWork for FakeWork {
    fn describe(&self, agent: &Agent) -> Vec<String> {
        let holds = self.holds.lock().unwrap();
        let works = holds.get(agent.id()).into_iter().flatten();
        works.map(|(name, _)| name.clone()).collect()
    }

    fn stop(&self, agent: &Agent, _: offshoot_subagent::Interrupter, _: &str) {
        self.end(agent.id());
    }

    fn was_alive(&self, _: &offshoot_agent::Projection) -> bool {
        false
    }

    fn recover(&self, agent: &Agent) {
        self.recovered.lock().unwrap().push(agent.id().clone());
    }
}

/// Whether the children of this program's tests live far away.
const FAR: bool = matches!(env!("CARGO_CRATE_NAME").as_bytes(), b"far");

pub struct World {
    pub host: AgentHost,
    pub subagents: Subagents,
    pub far: Option<Far>,
    /// The last residency of each agent.
    born: Arc<Mutex<HashMap<AgentId, Agent>>>,
    pub cast: Arc<Cast>,
    pub work: Arc<FakeWork>,
    pub events: Arc<Mutex<Vec<EventRecord>>>,
    _guard: ObserverGuard,
}

impl World {
    pub fn new() -> Self {
        Self::with(SubagentSettings::default())
    }

    pub fn with(settings: SubagentSettings) -> Self {
        Self::over(Arc::new(MemoryStore::default()), settings)
    }

    pub fn over(store: Arc<dyn SessionStore>, settings: SubagentSettings) -> Self {
        Self::made_of(store, settings, AgentSettings::default())
    }

    pub fn made_of(
        store: Arc<dyn SessionStore>,
        settings: SubagentSettings,
        agents: AgentSettings,
    ) -> Self {
        let mut far = None;
        let world = Self::hosted(store, settings, agents, |home| match FAR {
            true => Arc::new(far.insert(Far::new(home, 1)).clone()),
            false => Arc::new(home),
        });
        Self { far, ..world }
    }

    /// Its children live where `place` says.
    pub fn hosted(
        store: Arc<dyn SessionStore>,
        settings: SubagentSettings,
        agents: AgentSettings,
        place: impl FnOnce(LocalHost) -> Arc<dyn ChildHost>,
    ) -> Self {
        let mut host = AgentHost::new(store, agents);
        host.event_rules = Arc::new([Arc::new(RunRule), Arc::new(Recording)]);
        let subagents = Subagents::hosted(host.clone(), settings, place);
        subagents.register(Arc::new(Spawn)).unwrap();
        subagents.register(Arc::new(Fork)).unwrap();
        let work = Arc::new(FakeWork::default());
        subagents.set_live_work(Arc::clone(&work) as Arc<dyn LiveWork>);
        let events: Arc<Mutex<Vec<EventRecord>>> = Arc::default();
        let born: Arc<Mutex<HashMap<AgentId, Agent>>> = Arc::default();
        let (seen, known, agents) = (Arc::clone(&events), Arc::clone(&born), host.agents.clone());
        let guard = host.hub.observe(Arc::new(move |record: &EventRecord| {
            seen.lock().unwrap().push(record.clone());
            if let Event::SessionStart(_) = record.event
                && let Some(agent) = agents.get(&record.session)
            {
                known.lock().unwrap().insert(record.session.clone(), agent);
            }
        }));
        Self {
            host,
            subagents,
            far: None,
            born,
            cast: Arc::default(),
            work,
            events,
            _guard: guard,
        }
    }

    pub fn odd(&self, odd: &Odd) {
        self.subagents.register(Arc::new(odd.clone())).unwrap();
    }

    pub fn kit(&self) -> AgentKit {
        AgentKit {
            driver: self.cast.clone(),
            tools: ToolSet::default(),
            prompt: Prompt::default(),
        }
    }

    pub fn root(&self) -> Agent {
        let root = Agent::create(&self.host, None, AgentSpec::root(self.kit()))
            .unwrap()
            .into_agent();
        root.start();
        root
    }

    /// A root that a later process goes on with.
    pub fn resume_root(&self, id: &AgentId) -> Agent {
        let kit = self.kit();
        let root = Agent::resume(&self.host, None, id, serde_json::Map::new(), kit)
            .unwrap()
            .into_agent();
        self.subagents.recover(&root);
        root.start();
        root
    }

    /// Starts a child that plays the acts.
    pub async fn child(
        &self,
        parent: &Agent,
        label: &str,
        acts: impl IntoIterator<Item = Act>,
    ) -> (Started, Agent) {
        self.cast.plays(label, acts);
        let started = self.subagents.start(request(parent, label)).await.unwrap();
        let child = self.born(&started.child);
        (started, child)
    }

    /// Keeps no agent in memory that is not live.
    pub fn forget(&self) {
        self.born.lock().unwrap().clear();
    }

    /// The last residency of an agent, though it may be over.
    pub fn born(&self, id: &AgentId) -> Agent {
        let born = self.born.lock().unwrap();
        born.get(id).cloned().expect("an agent that was resident")
    }

    /// Waits until this child's run has settled in its parent's log.
    pub async fn settled(&self, parent: &Agent, started: &Started) -> Extension {
        let run = started.run_id.to_string();
        soon(
            "a settlement",
            parent.until_projection(|p| {
                let recorded = p.fold::<Recorded>();
                let mut recorded = recorded.0.iter();
                recorded
                    .find(|e| e.kind == "subagent/settled" && e.field("run_id") == Some(&run))
                    .cloned()
            }),
        )
        .await
    }

    /// Every event so far, as `label type`, with what matters of it.
    pub fn trace(&self) -> Vec<String> {
        let events = self.events.lock().unwrap();
        events
            .iter()
            .map(|record| format!("{} {}", record.label, describe(&record.event)))
            .collect()
    }

    /// Where the first event of this description is.
    pub fn position(&self, line: &str) -> usize {
        let trace = self.trace();
        let at = trace.iter().position(|other| other == line);
        at.unwrap_or_else(|| panic!("no {line:?} in {trace:#?}"))
    }

    pub fn count(&self, line: &str) -> usize {
        self.trace().iter().filter(|other| *other == line).count()
    }

    /// Messages of one kind of source that were accepted by an agent, as text.
    pub fn accepted(&self, agent: &AgentId, kind: &str) -> Vec<Message> {
        let events = self.events.lock().unwrap();
        events
            .iter()
            .filter(|record| record.session == *agent)
            .filter_map(|record| match &record.event {
                Event::InboxInserted { message, .. } if message.source.kind == kind => {
                    Some(offshoot_agent::Message::clone(message))
                }
                _ => None,
            })
            .collect()
    }

    pub fn extensions(&self, agent: &AgentId, kind: &str) -> Vec<Extension> {
        let events = self.events.lock().unwrap();
        events
            .iter()
            .filter(|record| record.session == *agent)
            .filter_map(|record| match &record.event {
                Event::Extension(event) if event.kind == kind => Some((**event).clone()),
                _ => None,
            })
            .collect()
    }

    pub async fn until_idle_and_waiting(&self, agent: &Agent) {
        soon("a quiet child", async {
            loop {
                let epoch = agent.epoch();
                if agent.status() == Status::Idle && agent.with_projection(|p| p.turn()) > 0 {
                    return;
                }
                agent.changed_since(epoch).await;
            }
        })
        .await;
    }

    /// Closes a root; nothing is left of its tree.
    pub async fn close(&self, root: &Agent) {
        soon("the end", root.close(Pending::Keep)).await;
        soon("the stream", self.host.hub.drained()).await;
        assert_eq!(root.scope().holds(), 0, "holds are left");
        let mut live = self.host.agents.list();
        live.retain(|agent| agent.depth() > 0 || agent == root);
        assert!(live.is_empty(), "{live:?}");
        if let Some(far) = &self.far {
            far.check();
        }
    }
}

fn describe(event: &Event) -> String {
    let value = serde_json::to_value(event).unwrap();
    let kind = value["type"].as_str().unwrap_or_default();
    match event {
        Event::SessionStart(start) if start.resumed => format!("{kind} resumed"),
        Event::InboxInserted { message, wake, .. } => {
            let quiet = if *wake { "" } else { " quiet" };
            format!("{kind} {}{quiet}", message.source.kind)
        }
        Event::InboxDiscarded { cause, .. } => format!("{kind} {cause}"),
        Event::TurnStart { turn, .. } => format!("{kind} {turn}"),
        Event::StepStart { turn, step } => format!("{kind} {turn}/{step}"),
        Event::TurnEnd { turn, reason, .. } => format!("{kind} {turn} {reason:?}"),
        Event::MessageUser { message, .. } => format!("{kind} {}", message.source.kind),
        Event::AgentStatus { status } => format!("{kind} {status:?}"),
        Event::Extension(event) => match event.field("outcome") {
            Some(outcome) => format!("{} {} {outcome}", event.kind, label_of(event)),
            None => format!("{} {}", event.kind, label_of(event)),
        },
        _ => kind.to_owned(),
    }
}

fn label_of(event: &Extension) -> &str {
    event.field("label").unwrap_or_default()
}

pub fn request(parent: &Agent, label: &str) -> ChildRequest {
    ChildRequest::new(
        parent.clone(),
        "spawn",
        label,
        format!("the task of {label}"),
    )
}

/// What an agent runs at.
pub fn runs_at(agent: &Agent) -> (Status, usize) {
    (agent.status(), agent.scope().holds())
}
