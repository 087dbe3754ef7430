//! The handle of a live agent: its identity, its inbox, its lifecycle.
//!
//! How a message is accepted is in `accept`, how turns run in `drive`, how an agent ends in `close`.

mod accept;
mod calls;
mod close;
mod drive;
mod handle;
mod idle;
mod open;
mod state;
mod wait;

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, MutexGuard, Weak};
use std::time::Duration;

use offshoot_core::{Scope, WallClock};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::EventRule;
use crate::machine::Record;
use crate::sync;
use crate::{
    AgentId, AgentRegistry, AppendError, Event, EventHub, Flushed, Projection, Prompt,
    SessionStore, StoreError, StoredEvent, Subscription, ToolSet, TurnDriver, Usage,
};
use state::{Inner, Roused, State};
use wait::{Until, Wait};

pub use accept::{Delivered, Placement, Resumed, SendError};
pub use calls::{CallState, OpenCall};
pub use close::Pending;
pub use handle::AgentHandle;
pub use idle::Idle;
pub use open::{AgentSpec, OpenError};

/// What an agent is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// No turn runs.
    Idle,
    /// Turns run.
    Running,
    /// It is ending: nothing is accepted but notices of the runtime, quietly.
    Closing,
    /// It has ended.
    Closed,
}

/// Who cancels a turn. The first cause of a turn wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CancelCause {
    /// A human: notices are delivered quietly until the human's next message.
    User,
    /// The agent that delegated to this one.
    Parent,
    /// An interrupt of the current work, by an ancestor or a human.
    Interrupt,
    /// The agent is ending.
    Disposed,
}

impl CancelCause {
    /// The name in events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Parent => "parent",
            Self::Interrupt => "interrupt",
            Self::Disposed => "disposed",
        }
    }
}

/// Limits and times of agents.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// The longest chain of automatic wakes: a notice of a greater generation is delivered quietly.
    /// Default 100; with 0 only notices of the generation 0 wake.
    pub max_wake_chain: u64,
    /// How many steps a turn may take; one that owes more then ends with
    /// [`TurnEndReason::StepLimit`](crate::TurnEndReason::StepLimit). Default 200; 0 is as 1.
    pub max_steps_per_turn: u64,
    /// How many steps a turn that has done its work goes on for messages of the next step while a
    /// followup waits: so many later the followup has its turn, whoever steers. Default 8; with 0 it has
    /// its turn when the work is done.
    pub max_steered_steps: u64,
    /// How long a cancelled step may take to return before it is dropped. Default 5 s; while the agent
    /// closes at most 50 s.
    pub cancel_grace: Duration,
    /// How many messages may wait in an inbox, in both lists together, before users and agents are
    /// refused; notices of the runtime are always accepted, and so is what opens a turn, since that reads
    /// some of it. Default 10 000.
    pub inbox_capacity: usize,
    /// How many events are kept for a subscriber that does not take them. Default 4 096.
    pub event_buffer: NonZeroUsize,
    /// Whether an agent that goes on with a stored session begins with what waits in it and may wake.
    /// Otherwise it waits for a message that wakes: one of a user or an agent, or a notice that comes
    /// after [`Agent::start`]. What it is told before that, of its last process, is none. Default true.
    pub auto_wake: bool,
}

/// Events that are kept for a subscriber, unless the settings say otherwise.
const EVENT_BUFFER: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

impl Default for AgentSettings {
    fn default() -> Self {
        Self {
            max_wake_chain: 100,
            max_steps_per_turn: 200,
            max_steered_steps: 8,
            cancel_grace: Duration::from_secs(5),
            inbox_capacity: 10_000,
            event_buffer: EVENT_BUFFER,
            auto_wake: true,
        }
    }
}

/// What an agent works with; a child begins with its parent's.
#[derive(Clone)]
pub struct AgentKit {
    /// Does the steps.
    pub driver: Arc<dyn TurnDriver>,
    /// The visible tools.
    pub tools: ToolSet,
    /// The system prompt.
    pub prompt: Prompt,
}

impl fmt::Debug for AgentKit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentKit")
            .field("tools", &self.tools)
            .finish_non_exhaustive()
    }
}

/// What all agents of one runtime share.
#[derive(Clone)]
pub struct AgentHost {
    /// Where sessions live.
    pub store: Arc<dyn SessionStore>,
    /// Where events go.
    pub hub: EventHub,
    /// The live agents.
    pub agents: AgentRegistry,
    /// The wall clock, for the times of events.
    pub clock: Arc<dyn WallClock>,
    /// Limits and times.
    pub settings: Arc<AgentSettings>,
    /// The types of events of crates above that a stored session may hold, when the program knows
    /// them all: a session with another one, not marked as ignorable, is not gone on with, since what
    /// it means would be lost, and no other one is recorded. Without it every type is taken as known.
    pub event_types: Option<Arc<BTreeSet<String>>>,
    /// What crates above ask of their own events in a stored session, and what sessions keep of them: one in
    /// which such an event cannot be is not gone on with. Set before there are agents: they go by the rules
    /// that they began with.
    pub event_rules: Arc<[Arc<dyn EventRule>]>,
}

impl AgentHost {
    /// A host over `store` with its own hub, the system clock and `settings`.
    #[must_use]
    pub fn new(store: Arc<dyn SessionStore>, settings: AgentSettings) -> Self {
        Self {
            store,
            hub: EventHub::default(),
            agents: AgentRegistry::default(),
            clock: Arc::new(offshoot_core::SystemClock),
            settings: Arc::new(settings),
            event_types: None,
            event_rules: Arc::default(),
        }
    }
}

impl AgentHost {
    /// Every event of every session from now on, for one subscriber that may be slow: what is kept for
    /// it is bounded by [`AgentSettings::event_buffer`].
    pub fn subscribe(&self) -> Subscription {
        self.hub.subscribe(self.settings.event_buffer)
    }

    /// The state of a session without events, as this host keeps it.
    pub(crate) fn projection(&self) -> Projection {
        Projection::under(Arc::clone(&self.event_rules))
    }

    /// The state that a session's log describes, as this host keeps it: with the folds of its
    /// [`event_rules`](Self::event_rules), while [`SessionStore::project`] keeps all events of crates above.
    /// Nothing is asked of the log; [`examine`](Self::examine) does that.
    ///
    /// # Errors
    ///
    /// As [`SessionStore::scan`].
    pub fn project(&self, id: &AgentId) -> Result<Projection, StoreError> {
        let mut projection = self.projection();
        self.store.scan(id, &mut |event| projection.apply(event))?;
        Ok(projection)
    }

    /// Whether a stored event of a crate above is one that this program understands, or need not.
    pub(crate) fn knows(&self, extension: &crate::Extension) -> bool {
        let known = self.event_types.as_ref();
        known.is_none_or(|known| known.contains(&extension.kind)) || extension.is_ignorable()
    }

    /// Appends events to a session that no agent is resident for, as `change` makes them from what
    /// the log says. What a dead process left open in it is closed on the record first. Returns how
    /// many events there were.
    ///
    /// # Errors
    ///
    /// The store's; nothing is appended then.
    pub fn amend(
        &self,
        id: &AgentId,
        change: impl FnOnce(&Projection) -> Vec<Event>,
    ) -> Result<usize, AppendError> {
        let (mut opened, mut projection) = open::folded(self, id)?;
        let first = projection.next_seq();
        let time = self.clock.now();
        let store = |seq, events: Vec<Event>| -> Vec<StoredEvent> {
            let numbered = (seq..).zip(events);
            let stored = numbered.map(|(seq, event)| StoredEvent { seq, time, event });
            stored.collect()
        };
        let mut stored = store(first, projection.repairs());
        for event in &stored {
            projection.apply(event);
        }
        stored.extend(store(projection.next_seq(), change(&projection)));
        if stored.is_empty() {
            return Ok(0);
        }
        for stored in &stored {
            crate::event::check(&stored.event).map_err(AppendError::Unstorable)?;
        }
        opened.log.append(first, &stored)?;
        let start = projection.start();
        let label = start
            .and_then(|start| start.label.clone())
            .unwrap_or_default();
        let depth = start.map_or(0, |start| start.depth);
        self.hub.enqueue_stored(id, &label.into(), depth, &stored);
        self.hub.dispatch();
        Ok(stored.len())
    }
}

impl fmt::Debug for AgentHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentHost")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// A live agent: one residency of a session. Cloning gives another handle to the same one; two
/// residencies of one session are different agents.
#[derive(Clone)]
pub struct Agent(Arc<Inner>);

impl PartialEq for Agent {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Agent {}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("id", &self.0.id)
            .field("label", &self.0.label)
            .finish()
    }
}

/// A handle that does not keep the agent in memory.
#[derive(Clone, Debug)]
pub struct WeakAgent(Weak<Inner>);

impl WeakAgent {
    /// The agent, while something keeps it.
    #[must_use]
    pub fn upgrade(&self) -> Option<Agent> {
        self.0.upgrade().map(Agent)
    }
}

impl Agent {
    /// The agent's address, and its session's id.
    #[must_use]
    pub fn id(&self) -> &AgentId {
        &self.0.id
    }

    /// What the agent is called.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.0.label
    }

    /// How deep the agent is: 0 for a root.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.0.depth
    }

    /// The session that delegated to this one.
    #[must_use]
    pub fn parent_id(&self) -> Option<&AgentId> {
        self.0.parent.as_ref()
    }

    /// The owner of everything that the agent starts.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.0.scope
    }

    /// What the agent works with.
    #[must_use]
    pub fn kit(&self) -> &AgentKit {
        &self.0.kit
    }

    /// What the agent shares with the others of its runtime.
    #[must_use]
    pub fn host(&self) -> &AgentHost {
        &self.0.host
    }

    /// A handle that does not keep the agent in memory.
    #[must_use]
    pub fn downgrade(&self) -> WeakAgent {
        WeakAgent(Arc::downgrade(&self.0))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        sync::lock(&self.0.state)
    }

    /// What tells a turn of the agent to stop.
    pub(crate) fn signal(&self, turn: u64) -> CancellationToken {
        self.lock().signal(turn)
    }

    /// Reads the agent's state. `read` runs under the agent's lock: it must be short and must not
    /// call any agent.
    pub fn with_projection<R>(&self, read: impl FnOnce(&Projection) -> R) -> R {
        read(self.lock().projection())
    }

    /// What the agent is doing.
    #[must_use]
    pub fn status(&self) -> Status {
        match self.lock().machine.status() {
            Status::Idle | Status::Running if self.0.scope.is_closing() => Status::Closing,
            status => status,
        }
    }

    /// The turn that runs and its generation.
    #[must_use]
    pub fn current_turn(&self) -> Option<(u64, u64)> {
        self.with_projection(|p| p.open_turn().map(|open| (open.turn, open.generation)))
    }

    /// Why the log refused what was last refused, such as a full disk; stays when later appends succeed.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// How many bytes of a torn last line were cut off when the session was opened again.
    #[must_use]
    pub fn torn_bytes(&self) -> u64 {
        self.0.torn_bytes
    }

    /// Whether the agent began to close while it had something left to do: a turn ran, or something
    /// that it had started was alive.
    #[must_use]
    pub fn was_cut_short(&self) -> bool {
        self.lock().machine.was_cut_short()
    }

    /// Tokens of this residency: its own, and with those that ended below it.
    #[must_use]
    pub fn usage(&self) -> (Usage, Usage) {
        let state = self.lock();
        let own = state.projection().facts().usage;
        let mut total = own;
        total += state.subtree;
        (own, total)
    }

    /// Makes everything that was accepted up to now survive a loss of power, and returns when it does:
    /// it blocks as long as the disk takes. Says whether it does; a log in memory cannot.
    ///
    /// The death of the process needs no flush: what was accepted survives it.
    ///
    /// # Errors
    ///
    /// [`StoreError`] of the medium, or [`StoreError::NotFound`] after the agent has closed.
    pub fn flush(&self) -> Result<Flushed, StoreError> {
        let mut state = self.lock();
        let log = state.log.as_mut();
        let log = log.ok_or_else(|| StoreError::NotFound(self.0.id.clone()))?;
        log.flush()
    }

    /// How long this residency has lasted on the runtime's clock, from its beginning to its end or
    /// until now: by itself, and with the residencies that ended below it. It is a sum: agents that
    /// ran at the same time count each.
    #[must_use]
    pub fn wall(&self) -> (Duration, Duration) {
        let state = self.lock();
        let ended = state.ending.as_ref().and_then(|ending| ending.ended);
        let until = ended.unwrap_or_else(Instant::now);
        let own = until.saturating_duration_since(self.0.began);
        (own, own.saturating_add(state.subtree_wall))
    }

    /// Adds what an agent below and its subtree used, and how long they took.
    pub fn add_subtree_usage(&self, usage: Usage, wall: Duration) {
        let mut state = self.lock();
        state.subtree += usage;
        state.subtree_wall = state.subtree_wall.saturating_add(wall);
    }

    /// Appends an event of a crate above to the session.
    ///
    /// # Errors
    ///
    /// [`SendError::Closed`] after the agent has closed; [`SendError::Log`] when the log cannot be
    /// written, or not give the event back: it is of one of this crate's families of types, of a type that
    /// [`AgentHost::event_types`] does not name, has a field `type`, or is nested deeper than 100.
    pub fn record(&self, extension: crate::Extension) -> Result<(), SendError> {
        self.record_in_step(extension.into())
    }

    pub(crate) fn record_in_step(&self, event: Event) -> Result<(), SendError> {
        self.commit(|state, inner| {
            let (recorded, appended) = state.run(inner, Record(event));
            recorded?;
            Ok(appended?)
        })
    }

    /// Runs `change` under the lock, then hands out what it committed and wakes who waits.
    pub(crate) fn commit<R>(&self, change: impl FnOnce(&mut State, &Arc<Inner>) -> R) -> R {
        let (result, roused, woken) = {
            let mut state = self.lock();
            state.epoch += 1;
            let result = change(&mut state, &self.0);
            let rested = !state.machine.is_running();
            (result, state.rouse(), state.waiters.take(rested))
        };
        match roused {
            Roused::Nobody => {}
            Roused::Parked(drive) => drive.wake(),
            Roused::New => drive::spawn(self),
        }
        self.0.host.hub.dispatch();
        woken.wake();
        result
    }

    /// Waits until `done` holds of the agent's state. `done` runs under the agent's lock.
    fn until<R>(&self, done: impl FnMut(&State) -> Option<R>) -> impl Future<Output = R> {
        Wait::new(self, Until::Changed, done)
    }

    /// A number that grows with every change of the agent's state; see
    /// [`changed_since`](Self::changed_since).
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    /// Waits until the agent's state changed after [`epoch`](Self::epoch) returned `epoch`. Dropping
    /// the future has no effect. The state of an agent that has closed need not change any more.
    pub async fn changed_since(&self, epoch: u64) {
        self.until(|state| (state.epoch != epoch).then_some(()))
            .await;
    }

    /// Waits until something that is not passive waits for the agent's next step. Dropping the future has
    /// no effect. It does not end with the agent: wait for [`closing`](Self::closing) beside it, or inside
    /// a tool for the call's cancellation.
    pub async fn next_step_arrival(&self) {
        self.until(|state| state.projection().inbox().has_next_step().then_some(()))
            .await;
    }

    /// Waits until the agent's state changes to one of which `done` holds. Dropping the future has
    /// no effect. `done` runs under the agent's lock: it must be short and not call any agent. The wait does
    /// not end with the agent: have [`closing`](Self::closing) beside it.
    pub async fn until_projection<R>(&self, mut done: impl FnMut(&Projection) -> Option<R>) -> R {
        self.until(|state| done(state.projection())).await
    }

    /// Whether the agent is idle and nothing that it started is alive. Parked messages do not count.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        // A notice is accepted before the hold of what it tells is released, and acceptance takes
        // this lock: an idle agent without holds therefore has no notice on its way.
        let state = self.lock();
        state.machine.status() == Status::Idle && self.0.scope.holds() == 0
    }

    /// Waits until the agent is at rest, or closing. Dropping the future has no effect.
    pub async fn rest(&self) {
        loop {
            let epoch = self.epoch();
            if self.is_at_rest() || matches!(self.status(), Status::Closing | Status::Closed) {
                return;
            }
            let changed = self.changed_since(epoch);
            if self.0.scope.holds() > 0 {
                tokio::select! {
                    () = changed => {}
                    () = self.0.scope.unheld() => {}
                }
            } else {
                changed.await;
            }
        }
    }
}
