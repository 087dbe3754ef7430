//! What a script's host knows while a run goes on: which children there are, which inputs are due.
//!
//! It is called from gates and from the event stream, on the thread that opened or committed. No lock
//! of its own is held while an input is performed.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use offshoot::Runtime;
use offshoot::agent::{Agent, AgentId, Event, EventObserver, EventRecord, Extension, Status};
use offshoot::driver::script::{At, Gates, Input, Target};
use tokio::sync::watch;

use crate::output::json::JsonLines;

/// A child that was started, whether it is resident or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Child {
    pub(super) id: AgentId,
    pub(super) label: String,
}

#[derive(Default)]
struct State {
    /// Every child, in the order of their starts.
    children: Vec<Child>,
    sessions: HashSet<AgentId>,
    /// Inputs that have happened: each happens once.
    fired: HashSet<usize>,
    /// Inputs that were due before there was a root.
    early: Vec<usize>,
    /// Messages that are under way, each with the inputs that come after: they happen in the order of
    /// the list, though a child has to be resumed first.
    under_way: Vec<UnderWay>,
}

/// A message whose child has to be resumed first.
struct UnderWay {
    child: AgentId,
    /// The input that sent it.
    index: usize,
    /// Those that come after it: at the same place, or for the same child.
    behind: Vec<usize>,
}

/// The host of one run.
pub(crate) struct Host {
    runtime: Runtime,
    gates: Gates,
    inputs: Vec<Input>,
    root: OnceLock<Agent>,
    state: Mutex<State>,
    /// Inputs that were begun and are not delivered or refused yet.
    under_way: watch::Sender<usize>,
    lines: Option<Arc<JsonLines>>,
}

impl Host {
    pub(super) fn new(
        runtime: Runtime,
        gates: Gates,
        inputs: Vec<Input>,
        lines: Option<Arc<JsonLines>>,
    ) -> Arc<Self> {
        let host = Arc::new(Self {
            runtime,
            gates,
            inputs,
            root: OnceLock::new(),
            state: Mutex::default(),
            under_way: watch::Sender::new(0),
            lines,
        });
        for (index, input) in host.inputs.iter().enumerate() {
            if let At::Gate(gate) = &input.at {
                let at_gate = Arc::clone(&host);
                host.gates.on_open(gate, move || at_gate.due(index));
            }
        }
        host
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub(super) fn gates(&self) -> &Gates {
        &self.gates
    }

    pub(super) fn input(&self, index: usize) -> &Input {
        &self.inputs[index]
    }

    pub(super) fn lines(&self) -> Option<&JsonLines> {
        self.lines.as_deref()
    }

    /// The root agent; absent only before [`begin`](Self::begin).
    pub(super) fn root(&self) -> Option<&Agent> {
        self.root.get()
    }

    /// From here on inputs happen.
    pub(super) fn begin(self: &Arc<Self>, root: &Agent) {
        // A resumed root knows children of earlier processes; ids are in the order of time.
        let mut before: Vec<Child> = self
            .runtime
            .subagents()
            .list(root, true)
            .into_iter()
            .map(|listed| Child {
                id: listed.id,
                label: listed.label,
            })
            .collect();
        before.sort_by(|a, b| a.id.cmp(&b.id));
        let early = {
            let mut state = self.state();
            before.append(&mut state.children);
            state.children = before;
            let _ = self.root.set(root.clone());
            std::mem::take(&mut state.early)
        };
        for index in early {
            self.perform(index);
        }
    }

    /// How many sessions there were in this run.
    pub(super) fn sessions(&self) -> usize {
        self.state().sessions.len()
    }

    /// The newest child that `target` means.
    pub(super) fn newest(&self, target: &Target) -> Option<Child> {
        let state = self.state();
        let meant = |child: &&Child| target.matches_child(&child.label);
        state.children.iter().rev().find(meant).cloned()
    }

    /// An input's moment has come. Each input happens once.
    fn due(self: &Arc<Self>, index: usize) {
        {
            let mut state = self.state();
            if !state.fired.insert(index) {
                return;
            }
            if self.root.get().is_none() {
                state.early.push(index);
                return;
            }
        }
        self.perform(index);
    }

    /// The message of input `index` to this child is under way: what comes next, for the child or at the
    /// same place, waits.
    pub(super) fn under_way_to(&self, child: &AgentId, index: usize) {
        self.state().under_way.push(UnderWay {
            child: child.clone(),
            index,
            behind: Vec::new(),
        });
    }

    /// Whether an input has to wait for a message that is under way: to its child, or of an input before
    /// it at its place. It then happens after that.
    pub(super) fn is_behind(&self, child: Option<&AgentId>, index: usize) -> bool {
        let at = |other: usize| self.inputs[other].at == self.inputs[index].at;
        let mut state = self.state();
        let before = state.under_way.iter_mut().find(|message| {
            child == Some(&message.child)
                || at(message.index)
                || message.behind.iter().any(|waits| at(*waits))
        });
        before.map(|message| message.behind.push(index)).is_some()
    }

    /// The message of input `index` has arrived, or was refused: what waited for it happens, up to the
    /// next message that is under way.
    pub(super) fn arrived(self: &Arc<Self>, index: usize) {
        let waited = {
            let mut state = self.state();
            let at = state
                .under_way
                .iter()
                .position(|message| message.index == index);
            at.map(|at| state.under_way.remove(at).behind)
        };
        for index in waited.into_iter().flatten() {
            self.perform(index);
        }
    }

    /// Says on the record that an input changed nothing, and why.
    pub(super) fn refused(&self, index: usize, reason: &str) {
        let Some(root) = self.root() else { return };
        let event = Extension::new("input/refused")
            .with("index", index)
            .with("reason", reason);
        self.runtime.events().announce(EventRecord {
            session: root.id().clone(),
            label: root.label().into(),
            depth: root.depth(),
            seq: None,
            time: self.runtime.host().clock.now(),
            event: event.into(),
        });
    }

    /// Says that an input is under way, until the guard is dropped.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.under_way.send_modify(|count| *count += 1);
        Busy(Arc::clone(self))
    }

    pub(super) fn is_busy(&self) -> bool {
        *self.under_way.borrow() > 0
    }

    /// Waits until no input is under way. Dropping the future has no effect.
    pub(super) async fn not_busy(&self) {
        let mut under_way = self.under_way.subscribe();
        // The sender is this host's own: it cannot be gone.
        let _ = under_way.wait_for(|count| *count == 0).await;
    }

    /// What makes the host see the events of the run.
    pub(super) fn observer(self: &Arc<Self>) -> Arc<dyn EventObserver> {
        let host = Arc::clone(self);
        Arc::new(move |record: &EventRecord| host.see(record))
    }

    fn see(self: &Arc<Self>, record: &EventRecord) {
        match &record.event {
            Event::SessionStart(_) => {
                let mut state = self.state();
                let is_new = state.sessions.insert(record.session.clone());
                let known = |child: &Child| child.id == record.session;
                if record.depth > 0 && is_new && !state.children.iter().any(known) {
                    let label = record.label.to_string();
                    let id = record.session.clone();
                    state.children.push(Child { id, label });
                }
            }
            Event::AgentStatus {
                status: Status::Idle,
            } => self.all_due(|at| match at {
                At::Idle(Target::Root) => record.depth == 0,
                At::Idle(target) => record.depth > 0 && target.matches_child(&record.label),
                _ => false,
            }),
            Event::Extension(event) if event.kind == "subagent/settled" => {
                let label = event.field("label").unwrap_or_default();
                self.all_due(|at| matches!(at, At::Settled(target) if target.matches_child(label)));
            }
            _ => {}
        }
    }

    fn all_due(self: &Arc<Self>, is_now: impl Fn(&At) -> bool) {
        for (index, input) in self.inputs.iter().enumerate() {
            if is_now(&input.at) {
                self.due(index);
            }
        }
    }
}

/// Says that an input is under way.
#[must_use = "dropping it says that the input is done"]
pub(super) struct Busy(Arc<Host>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.under_way.send_modify(|count| *count -= 1);
    }
}
