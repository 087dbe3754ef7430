//! The service that owns delegation in one runtime.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use offshoot_agent::{Agent, AgentHost, AgentId, Extension, OpenError, Projection, StoreError};

use crate::ground::Ground;
use crate::limit::TreeLimit;
use crate::open::OpenFault;
use crate::owed::OwedSettlements;
use crate::resident::Resident;
use crate::{Capabilities, ChildHost, HostError, LocalHost, Provider, RegisterError, StartError};

/// Limits and times of delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubagentSettings {
    /// The depth of the deepest child; a root is 0. 0 forbids delegation. Default 3.
    pub max_depth: u32,
    /// How many children of one tree may be live at once. Default 64.
    pub max_live_children: usize,
    /// How long a child may be quiet and wait before its parent is told, once. Default 30 s.
    pub waiting_after: Duration,
    /// How long a one-shot run, or its start, may take to end after it was cancelled before it is
    /// dropped. Default 10 s. With `dispose_grace` it should be less than the time after which a
    /// killed task is dropped (30 s), so that a run is disposed before its task is told to have ended.
    pub stop_grace: Duration,
    /// How long the disposal of a one-shot run may take before it is dropped. Default 15 s.
    pub dispose_grace: Duration,
    /// How long the one-shot runs of a parent that closes may take to end and to be disposed, in all,
    /// before they are dropped. Default 5 s.
    pub close_grace: Duration,
}

impl Default for SubagentSettings {
    fn default() -> Self {
        Self {
            max_depth: 3,
            max_live_children: 64,
            waiting_after: Duration::from_secs(30),
            stop_grace: Duration::from_secs(10),
            dispose_grace: Duration::from_secs(15),
            close_grace: Duration::from_secs(5),
        }
    }
}

/// Who interrupts an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupter {
    /// The model of an ancestor.
    Model,
    /// A human, or the host.
    Human,
}

/// What agents start besides subagents, for a crate that knows such work.
///
/// # Implementing
///
/// Called without locks held; must not block.
pub trait LiveWork: Send + Sync + 'static {
    /// What of it is alive, each as one line.
    fn describe(&self, agent: &Agent) -> Vec<String>;

    /// Asks all of it to stop, on behalf of `by`. What stops on an interrupt must not wake the agent.
    fn stop(&self, agent: &Agent, by: Interrupter, reason: &str);

    /// Whether a session that nobody is resident for says that some of it had not ended.
    fn was_alive(&self, session: &Projection) -> bool;

    /// The ends, as events, of what was alive by a session that nobody will ever go on with. By default
    /// nothing was.
    fn lost(&self, _session: &Projection) -> Vec<Extension> {
        Vec::new()
    }

    /// Tells a resumed agent of ends that its session has and of which it was not told. Comes before
    /// anything else is said to it: what is owed is known by the last that the session has. By default
    /// nothing is owed.
    fn retell(&self, _agent: &Agent) {}

    /// Tells a resumed agent, before it runs, of what was alive when its last process ended.
    fn recover(&self, agent: &Agent);
}

pub(crate) struct Inner {
    pub(crate) host: AgentHost,
    pub(crate) settings: SubagentSettings,
    pub(crate) limit: TreeLimit,
    /// In the order of registration.
    providers: Mutex<Vec<(String, Arc<dyn Provider>)>>,
    pub(crate) ground: Arc<Ground>,
    residents: Mutex<HashMap<AgentId, Arc<Resident>>>,
    children: Arc<dyn ChildHost>,
    pub(crate) owed: OwedSettlements,
    pub(crate) damaged: Damaged,
}

/// Children whose sessions were found damaged when they were to be resumed. A listing reads no more of a
/// session than its beginning.
#[derive(Default)]
pub(crate) struct Damaged(Mutex<HashSet<AgentId>>);

impl Damaged {
    fn all(&self) -> MutexGuard<'_, HashSet<AgentId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn has(&self, child: &AgentId) -> bool {
        self.all().contains(child)
    }

    /// What was found when it was to be opened.
    pub(crate) fn note<T>(&self, child: &AgentId, opened: &Result<T, OpenFault>) {
        match opened {
            Ok(_) => drop(self.all().remove(child)),
            Err(OpenFault::Host(HostError::Open(OpenError::Store(
                StoreError::Corrupt { .. } | StoreError::UnknownEvent { .. },
            )))) => drop(self.all().insert(child.clone())),
            Err(_) => {}
        }
    }
}

/// Delegation in one runtime. Cloning gives another handle to the same service.
#[derive(Clone)]
pub struct Subagents(pub(crate) Arc<Inner>);

impl fmt::Debug for Subagents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subagents")
            .field("settings", &self.0.settings)
            .field("resident", &self.residents().len())
            .finish_non_exhaustive()
    }
}

impl Subagents {
    /// A service without providers, whose continuable children live in this process.
    #[must_use]
    pub fn new(host: AgentHost, settings: SubagentSettings) -> Self {
        Self::hosted(host, settings, |local| Arc::new(local))
    }

    /// A service without providers, whose continuable children live where `place` says. It is given the
    /// host of this process, to use it or to stand before it.
    #[must_use]
    pub fn hosted(
        host: AgentHost,
        settings: SubagentSettings,
        place: impl FnOnce(LocalHost) -> Arc<dyn ChildHost>,
    ) -> Self {
        let ground = Arc::new(Ground::new(host.clone(), settings));
        Self(Arc::new(Inner {
            host,
            settings,
            limit: TreeLimit::new(settings.max_live_children),
            providers: Mutex::default(),
            children: place(LocalHost::new(Arc::clone(&ground))),
            ground,
            residents: Mutex::default(),
            owed: OwedSettlements::default(),
            damaged: Damaged::default(),
        }))
    }

    /// The limits and times.
    #[must_use]
    pub fn settings(&self) -> &SubagentSettings {
        &self.0.settings
    }

    /// What the agents of this runtime share.
    #[must_use]
    pub fn host(&self) -> &AgentHost {
        &self.0.host
    }

    /// Says what agents start besides subagents. Only the first call counts.
    pub fn set_live_work(&self, work: Arc<dyn LiveWork>) {
        self.0.ground.set_work(work);
    }

    /// Where continuable children live.
    pub(crate) fn children(&self) -> &dyn ChildHost {
        self.0.children.as_ref()
    }

    /// Whether an agent is idle and nothing that it started goes on by itself. A child that is resident
    /// only because an interrupt has parked its messages does not: it waits for somebody to write to it.
    #[must_use]
    pub fn is_at_rest(&self, agent: &Agent) -> bool {
        self.0.ground.is_at_rest(agent)
    }

    /// What an agent has started and is alive, each as one line.
    pub(crate) fn alive_below(&self, agent: &Agent) -> Vec<String> {
        self.0.ground.alive_below(agent)
    }

    fn registered(&self) -> MutexGuard<'_, Vec<(String, Arc<dyn Provider>)>> {
        self.0
            .providers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a provider under its name.
    ///
    /// # Errors
    ///
    /// [`RegisterError`]; nothing has changed then.
    pub fn register(&self, provider: Arc<dyn Provider>) -> Result<(), RegisterError> {
        let name = provider.name().to_owned();
        if name.trim().is_empty() {
            return Err(RegisterError::NoName);
        }
        let mut providers = self.registered();
        if providers.iter().any(|(taken, _)| *taken == name) {
            return Err(RegisterError::Duplicate(name));
        }
        providers.push((name, provider));
        Ok(())
    }

    /// Takes a provider out: nothing new is started with it, and its name is free. Runs that it has
    /// started go on; its continuable children stay listed, and are resumed without it. False when
    /// there is none of this name.
    pub fn unregister(&self, name: &str) -> bool {
        let taken = {
            let mut providers = self.registered();
            let at = providers.iter().position(|(known, _)| known == name);
            at.map(|at| providers.remove(at))
        };
        // The provider is dropped here, without the lock.
        taken.is_some()
    }

    /// The names of the providers, in the order in which they were registered.
    #[must_use]
    pub fn providers(&self) -> Vec<String> {
        let providers = self.registered();
        providers.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The capabilities of the provider of this name.
    #[must_use]
    pub fn capabilities(&self, provider: &str) -> Option<Capabilities> {
        self.provider(provider)
            .ok()
            .map(|provider| provider.capabilities())
    }

    pub(crate) fn provider(&self, name: &str) -> Result<Arc<dyn Provider>, StartError> {
        let providers = self.registered();
        let known = providers.iter().find(|(known, _)| known == name);
        known
            .map(|(_, provider)| Arc::clone(provider))
            .ok_or_else(|| StartError::NoProvider(name.to_owned()))
    }

    fn residents(&self) -> MutexGuard<'_, HashMap<AgentId, Arc<Resident>>> {
        self.0
            .residents
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn resident(&self, child: &AgentId) -> Option<Arc<Resident>> {
        self.residents().get(child).cloned()
    }

    /// False when the child is resident, or is being made so.
    pub(crate) fn enter(&self, resident: &Arc<Resident>) -> bool {
        match self.residents().entry(resident.child().clone()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(vacant) => {
                vacant.insert(Arc::clone(resident));
                true
            }
        }
    }

    pub(crate) fn leave(&self, resident: &Arc<Resident>) {
        let mut residents = self.residents();
        if let Entry::Occupied(entry) = residents.entry(resident.child().clone())
            && Arc::ptr_eq(entry.get(), resident)
        {
            entry.remove();
        }
    }

    /// Whether a child at `depth` may be started.
    pub(crate) fn check_depth(&self, parent: &Agent) -> Result<(), StartError> {
        let max_depth = self.0.settings.max_depth;
        let depth = parent.depth().saturating_add(1);
        if depth > max_depth {
            return Err(StartError::TooDeep { depth, max_depth });
        }
        Ok(())
    }
}
