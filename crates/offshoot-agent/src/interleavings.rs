//! The real transitions under a model checker: random schedules of the threads that meet at one agent.
//!
//! Each taking of the agent's lock, each hand-out of an event and each poll of a step is a point where
//! the schedule may switch (see `sync`). A thread of the model stands for each drive. Timers never
//! fire.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use futures::FutureExt;
use futures::future::BoxFuture;
use shuttle::future::block_on;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::{self, JoinHandle};

use crate::sync::{model, point};
use crate::{
    Agent, AgentHost, AgentKit, AgentSettings, AgentSpec, CancelCause, Delivered, DriverError,
    Event, EventRecord, MemoryStore, Message, MessageId, Pending, Projection, Prompt, SendError,
    Source, Status, StepContext, StepOutcome, ToolSet, TurnDriver,
};

const SCHEDULES: usize = 1000;

/// Steps that take a poll or two, end when they are told to, and sometimes want another one.
#[derive(Default)]
struct Steps {
    active: AtomicUsize,
}

impl TurnDriver for Steps {
    fn step<'a>(
        &'a self,
        context: &'a StepContext,
    ) -> BoxFuture<'a, Result<StepOutcome, DriverError>> {
        async move {
            assert_eq!(self.active.fetch_add(1, Ordering::SeqCst), 0, "one drive");
            let mut left = thread_rng().gen_range(0..3);
            let mut cancelled = std::pin::pin!(context.cancelled());
            std::future::poll_fn(|cx| {
                point();
                if cancelled.as_mut().poll(cx).is_ready() || left == 0 {
                    return Poll::Ready(());
                }
                left -= 1;
                cx.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
            self.active.fetch_sub(1, Ordering::SeqCst);
            Ok(if thread_rng().gen_range(0..4) == 0 {
                StepOutcome::Continue
            } else {
                StepOutcome::Completed
            })
        }
        .boxed()
    }
}

type Log = Arc<Mutex<Vec<EventRecord>>>;
type Sent = Result<Delivered, SendError>;

struct World {
    agent: Agent,
    seen: Log,
    _observer: crate::ObserverGuard,
}

impl World {
    fn new() -> Self {
        let settings = AgentSettings {
            max_steps_per_turn: 3,
            ..AgentSettings::default()
        };
        let host = AgentHost::new(Arc::new(MemoryStore::default()), settings);
        let seen = Log::default();
        let told = Arc::clone(&seen);
        let observer = host.hub.observe(Arc::new(move |record: &EventRecord| {
            told.lock().unwrap().push(record.clone());
            // An observer takes its time.
            point();
        }));
        let kit = AgentKit {
            driver: Arc::new(Steps::default()),
            tools: ToolSet::default(),
            prompt: Prompt::default(),
        };
        let agent = Agent::create(&host, None, AgentSpec::root(kit))
            .unwrap()
            .into_agent();
        agent.start();
        Self {
            agent,
            seen,
            _observer: observer,
        }
    }

    fn thread<R: Send + 'static>(
        &self,
        act: impl FnOnce(Agent) -> R + Send + 'static,
    ) -> JoinHandle<R> {
        let agent = self.agent.clone();
        thread::spawn(move || act(agent))
    }

    /// Sends one message with each verb, in an order of the schedule's own.
    fn sender(&self, name: &'static str) -> JoinHandle<Vec<Sent>> {
        self.thread(move |agent| {
            let mut sent = Vec::new();
            for n in 0..3 {
                let message = message(&format!("{name}{n}"));
                sent.push(match thread_rng().gen_range(0..4) {
                    0 => agent.followup(message),
                    1 => agent.steer(message),
                    2 => agent.inject(message),
                    _ => agent.notify(message, true),
                });
            }
            sent
        })
    }

    fn cancel(&self, pending: Pending) -> JoinHandle<()> {
        self.thread(move |agent| {
            agent.cancel(CancelCause::Parent, pending);
        })
    }

    /// As the scope's end does it.
    fn dispose(&self, pending: Pending) -> JoinHandle<()> {
        self.thread(move |agent| {
            agent.begin_close(pending);
            block_on(agent.let_go()).unwrap();
            assert_eq!(agent.status(), Status::Closed);
        })
    }

    /// Waits for idle and finds that no turn is open.
    fn waiter(&self) -> JoinHandle<()> {
        self.thread(|agent| {
            block_on(agent.idle());
        })
    }

    /// What became of each message, when all threads have ended and the agent is idle.
    fn end(self, sent: Vec<Sent>) -> End {
        block_on(self.agent.idle());
        block_on(self.agent.host().hub.drained());
        let host = self.agent.host();
        let log = host.store.read(self.agent.id()).unwrap();
        let folded = Projection::of(&log);
        self.agent.with_projection(|live| {
            assert_eq!(live.inbox(), folded.inbox(), "accepted means appended");
            assert_eq!(live.history(), folded.history());
        });
        assert!(folded.open_turn().is_none(), "idle, and no turn is open");
        let seen = self.seen.lock().unwrap();
        let seqs: Vec<_> = seen.iter().filter_map(|record| record.seq).collect();
        assert_eq!(seqs, (0..log.len() as u64).collect::<Vec<_>>());
        let statuses: Vec<_> = seen
            .iter()
            .filter_map(|record| match record.event {
                Event::AgentStatus { status } => Some(status),
                _ => None,
            })
            .collect();
        assert!(
            statuses.windows(2).all(|two| two[0] != two[1]),
            "{statuses:?}"
        );
        if let Some(last) = statuses.last() {
            assert_eq!(*last, self.agent.status(), "the last news is the truth");
        }
        let mut fates: HashMap<MessageId, Fate> = HashMap::new();
        for stored in &log {
            let (id, fate) = match &stored.event {
                Event::MessageUser { message, .. } => (&message.id, Fate::Read),
                Event::InboxDiscarded { message_id, .. } => (message_id, Fate::Discarded),
                _ => continue,
            };
            let before = fates.insert(id.clone(), fate);
            assert_eq!(before, None, "{id} has two fates");
        }
        for entry in folded.inbox().entries() {
            let before = fates.insert(entry.message.id.clone(), Fate::Waits);
            assert_eq!(before, None, "{} has two fates", entry.message.id);
        }
        let accepted = sent.iter().flatten().count();
        assert_eq!(fates.len(), accepted, "each accepted message has a fate");
        for delivered in sent.iter().flatten() {
            assert!(fates.contains_key(&delivered.message_id));
        }
        let stranded = folded.inbox().has_waking();
        End { fates, stranded }
    }
}

struct End {
    fates: HashMap<MessageId, Fate>,
    /// Whether a message that may wake waits although nothing runs.
    stranded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Read,
    Discarded,
    Waits,
}

fn message(name: &str) -> Message {
    let mut message = Message::text(Source::new("task", 0), name);
    message.id = name.parse().unwrap();
    message
}

fn joined(senders: Vec<JoinHandle<Vec<Sent>>>) -> Vec<Sent> {
    senders
        .into_iter()
        .flat_map(|sender| sender.join().unwrap())
        .collect()
}

fn explore(scenario: impl Fn() + Send + Sync + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _inside = runtime.enter();
    let _running = model::Running::new();
    shuttle::check_random(scenario, SCHEDULES);
}

#[test]
fn no_wake_falls_between_the_last_look_and_the_rest() {
    explore(|| {
        let world = World::new();
        let senders = vec![world.sender("a"), world.sender("b")];
        let waiter = world.waiter();
        let sent = joined(senders);
        waiter.join().unwrap();
        assert!(sent.iter().all(Result::is_ok), "{sent:?}");
        let end = world.end(sent);
        assert!(!end.stranded, "{:?}", end.fates);
        assert!(!end.fates.values().any(|fate| *fate == Fate::Discarded));
    });
}

#[test]
fn a_cancel_that_keeps_meets_senders_and_a_retiring_turn() {
    explore(|| {
        let world = World::new();
        let senders = vec![world.sender("a"), world.sender("b")];
        let others = [world.cancel(Pending::Keep), world.waiter()];
        let sent = joined(senders);
        for other in others {
            other.join().unwrap();
        }
        assert!(sent.iter().all(Result::is_ok), "{sent:?}");
        let end = world.end(sent);
        assert!(!end.fates.values().any(|fate| *fate == Fate::Discarded));
    });
}

#[test]
fn a_cancel_that_discards_leaves_each_message_one_fate() {
    explore(|| {
        let world = World::new();
        let senders = vec![world.sender("a"), world.sender("b")];
        let others = [world.cancel(Pending::Discard), world.cancel(Pending::Keep)];
        let sent = joined(senders);
        for other in others {
            other.join().unwrap();
        }
        assert!(sent.iter().all(Result::is_ok), "{sent:?}");
        world.end(sent);
    });
}

#[test]
fn the_end_meets_senders_cancels_and_a_retiring_turn() {
    explore(|| {
        let world = World::new();
        let senders = vec![world.sender("a"), world.sender("b")];
        let keep = thread_rng().r#gen();
        let pending = if keep {
            Pending::Keep
        } else {
            Pending::Discard
        };
        let others = [
            world.dispose(pending),
            world.cancel(Pending::Keep),
            world.waiter(),
        ];
        let sent = joined(senders);
        for other in others {
            other.join().unwrap();
        }
        for refusal in sent.iter().filter_map(|sent| sent.as_ref().err()) {
            assert!(
                matches!(refusal, SendError::Closing | SendError::Closed),
                "{refusal:?}"
            );
        }
        let end = world.end(sent);
        if !keep {
            assert!(!end.fates.values().any(|fate| *fate == Fate::Waits));
        }
    });
}

#[test]
fn an_end_and_a_settling_are_one_end() {
    explore(|| {
        let world = World::new();
        let senders = vec![world.sender("a")];
        let settling = world.thread(|agent| agent.close_if_settled());
        let other = world.thread(|agent| agent.begin_close(Pending::Keep));
        let end = world.dispose(Pending::Keep);
        let sent = joined(senders);
        let began = [settling.join().unwrap(), other.join().unwrap()];
        assert!(began.iter().filter(|began| **began).count() <= 1);
        end.join().unwrap();
        world.end(sent);
    });
}
