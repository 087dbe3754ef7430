//! Tools in the loop: when they run alone, how long they may take, what a stop and a broken log do.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use offshoot_agent::{
    AgentId, AppendError, CancelCause, Deadline, Event, EventRecord, Flushed, MemoryStore, Message,
    OpenedSession, Pending, Prompt, SessionLog, SessionStore, StoreError, StoredEvent, Tool,
    ToolCall, ToolOutput, ToolSet, TurnEndReason, Visit,
};
use offshoot_loop::LoopSettings;
use serde_json::{Value, json};
use support::{Listed, Said, World, calls};
use tokio::time::Instant;

type Work = dyn Fn(ToolCall) -> BoxFuture<'static, ToolOutput> + Send + Sync;
type Classify = dyn Fn(&Value) -> bool + Send + Sync;

/// A tool of closures.
struct Probe {
    name: &'static str,
    schema: Value,
    parallel: Box<Classify>,
    deadline: Deadline,
    work: Box<Work>,
}

impl Probe {
    fn new(
        name: &'static str,
        work: impl Fn(ToolCall) -> BoxFuture<'static, ToolOutput> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            schema: json!({"type": "object"}),
            parallel: Box::new(|_| true),
            deadline: Deadline::Setting,
            work: Box::new(work),
        }
    }

    fn sleeps(name: &'static str, millis: u64) -> Self {
        Self::new(name, move |_| {
            Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(millis)).await;
                ToolOutput::text("slept")
            })
        })
    }

    fn hangs(name: &'static str) -> Self {
        Self::new(name, |_| Box::pin(std::future::pending()))
    }

    /// Returns when it is told to stop.
    fn listens(name: &'static str) -> Self {
        Self::new(name, |call| {
            Box::pin(async move {
                call.cancel.cancelled().await;
                ToolOutput::text("as far as it got")
            })
        })
    }

    fn parallel(mut self, classify: impl Fn(&Value) -> bool + Send + Sync + 'static) -> Self {
        self.parallel = Box::new(classify);
        self
    }

    fn deadline(mut self, deadline: Deadline) -> Self {
        self.deadline = deadline;
        self
    }
}

impl Tool for Probe {
    fn name(&self) -> &str {
        self.name
    }

    fn description(&self) -> &'static str {
        "a probe"
    }

    fn input_schema(&self) -> &Value {
        &self.schema
    }

    fn is_parallel_safe(&self, args: &Value) -> bool {
        (self.parallel)(args)
    }

    fn deadline(&self) -> Deadline {
        self.deadline
    }

    fn call(&self, call: ToolCall) -> BoxFuture<'_, ToolOutput> {
        (self.work)(call)
    }
}

fn settings() -> LoopSettings {
    LoopSettings {
        tool_timeout: Some(Duration::from_secs(60)),
        ..LoopSettings::default()
    }
}

fn listed(replies: impl IntoIterator<Item = Said>) -> Listed {
    Listed {
        replies: Mutex::new(replies.into_iter().collect()),
        ..Listed::default()
    }
}

fn over<const N: usize>(
    replies: [Said; 1],
    tools: [Probe; N],
    store: Arc<dyn SessionStore>,
) -> World {
    let tools = tools.map(|tool| Arc::new(tool) as Arc<dyn Tool>);
    let (model, tools) = (listed(replies), ToolSet::new(tools));
    World::of(model, settings(), tools, Prompt::default(), store)
}

fn world<const N: usize>(replies: [Said; 1], tools: [Probe; N]) -> World {
    over(replies, tools, Arc::new(MemoryStore::default()))
}

fn none() -> Value {
    json!({})
}

#[tokio::test(start_paused = true)]
async fn a_call_beyond_its_deadline_is_stopped_and_its_siblings_are_not() {
    let own = Deadline::After(Duration::from_secs(2));
    let tools = [
        Probe::hangs("deaf"),
        Probe::listens("polite"),
        Probe::hangs("short").deadline(own),
        Probe::sleeps("long", 1_000_000).deadline(Deadline::Never),
    ];
    let asked = calls([
        ("a", "deaf", none()),
        ("b", "polite", none()),
        ("c", "short", none()),
        ("d", "long", none()),
    ]);
    let world = world([asked], tools);
    let begun = Instant::now();
    assert_eq!(world.turn().await, TurnEndReason::Completed);
    assert_eq!(begun.elapsed().as_secs(), 1000, "one sets its own bounds");
    assert_eq!(
        world.trace()[4..],
        [
            "result a DEADLINE_EXCEEDED",
            "result b DEADLINE_EXCEEDED",
            "result c DEADLINE_EXCEEDED",
            "result d ok",
            "say done Stop",
        ]
    );
    let texts = world.results();
    assert!(
        texts[0].contains("the tool deaf did not return within 60s"),
        "{}",
        texts[0]
    );
    assert_eq!(texts[1], "as far as it got", "what it says is kept");
    assert!(texts[2].contains("within 2s"), "{}", texts[2]);
}

/// Dropping what hangs may panic in its turn.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "dropped");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_panics_when_it_is_dropped_stops_nobody() {
    let bomb = Probe::new("bomb", |_| {
        Box::pin(async {
            let _bomb = Bomb;
            std::future::pending().await
        })
    });
    let eager = Probe::new("eager", |_| panic!("before the first await"));
    let asked = calls([
        ("a", "bomb", none()),
        ("b", "eager", none()),
        ("c", "nap", none()),
    ]);
    let world = world([asked], [bomb, eager, Probe::sleeps("nap", 10)]);
    assert_eq!(world.turn().await, TurnEndReason::Completed);
    assert_eq!(
        world.trace()[3..],
        [
            "result a TOOL_PANICKED",
            "result b TOOL_PANICKED",
            "result c ok",
            "say done Stop",
        ]
    );
    assert_eq!(
        world.turn().await,
        TurnEndReason::Completed,
        "and the agent lives"
    );
}

/// A181, A182: a barrier that changes what a later tool is; the later calls are asked anew.
#[tokio::test(start_paused = true)]
async fn a182_a_barrier_may_make_what_follows_exclusive() {
    let strict = Arc::new(AtomicBool::new(false));
    let (asked, set) = (Arc::clone(&strict), Arc::clone(&strict));
    let barrier = Probe::new("barrier", move |_| {
        set.store(true, Ordering::SeqCst);
        Box::pin(async { ToolOutput::text("set") })
    });
    let tools = [
        barrier.parallel(|_| false),
        Probe::sleeps("nap", 10).parallel(move |_| !asked.load(Ordering::SeqCst)),
    ];
    let asked = calls([
        ("a", "nap", none()),
        ("b", "nap", none()),
        ("c", "barrier", none()),
        ("d", "nap", none()),
        ("e", "nap", none()),
    ]);
    let world = world([asked], tools);
    let begun = Instant::now();
    world.turn().await;
    assert_eq!(
        begun.elapsed().as_millis(),
        30,
        "two together, then one by one"
    );
    assert_eq!(
        world.trace()[..10],
        [
            "call a",
            "call b",
            "result a ok",
            "result b ok",
            "call c",
            "result c ok",
            "call d",
            "result d ok",
            "call e",
            "result e ok",
        ]
    );
}

/// A183: what is running ends before a call that has become exclusive begins.
#[tokio::test(start_paused = true)]
async fn a183_a_result_may_make_the_next_call_exclusive() {
    let strict = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&strict);
    let tools = [
        Probe::sleeps("brief", 10),
        Probe::sleeps("long", 50),
        Probe::sleeps("next", 10).parallel(move |_| !asked.load(Ordering::SeqCst)),
    ];
    let calls = calls([
        ("a", "brief", none()),
        ("b", "long", none()),
        ("c", "next", none()),
    ]);
    let tools = tools.map(|tool| Arc::new(tool) as Arc<dyn Tool>);
    let settings = LoopSettings {
        max_parallel_tools: 2.try_into().unwrap(),
        ..settings()
    };
    let store = Arc::new(MemoryStore::default());
    let world = World::of(
        listed([calls]),
        settings,
        ToolSet::new(tools),
        Prompt::default(),
        store,
    );
    let _guard = world
        .agent
        .host()
        .hub
        .observe(Arc::new(move |record: &EventRecord| {
            if matches!(&record.event, Event::ToolResult { result, .. } if result.call_id.0 == "a")
            {
                strict.store(true, Ordering::SeqCst);
            }
        }));
    world.turn().await;
    assert_eq!(
        world.trace()[..6],
        [
            "call a",
            "call b",
            "result a ok",
            "result b ok",
            "call c",
            "result c ok"
        ],
        "c would have begun when a ended"
    );
}

/// A186: there is no such setting.
#[test]
fn a186_no_calls_at_once_is_not_a_number_of_calls() {
    assert!(std::num::NonZeroUsize::try_from(0).is_err());
    assert_eq!(LoopSettings::default().max_parallel_tools.get(), 10);
}

/// A198: absent, no, and a classifier that fails all mean: alone.
#[tokio::test(start_paused = true)]
async fn a198_only_a_plain_yes_makes_a_call_parallel() {
    struct Silent(Probe);
    impl Tool for Silent {
        fn name(&self) -> &str {
            self.0.name
        }
        fn description(&self) -> &'static str {
            "says nothing about itself"
        }
        fn input_schema(&self) -> &Value {
            &self.0.schema
        }
        fn call(&self, call: ToolCall) -> BoxFuture<'_, ToolOutput> {
            self.0.call(call)
        }
    }
    let tools: [Arc<dyn Tool>; 3] = [
        Arc::new(Silent(Probe::sleeps("silent", 10))),
        Arc::new(Probe::sleeps("no", 10).parallel(|_| false)),
        Arc::new(Probe::sleeps("broken", 10).parallel(|_| panic!("what is that"))),
    ];
    for name in ["silent", "no", "broken"] {
        let asked = calls([("a", name, none()), ("b", name, none())]);
        let (tools, store) = (
            ToolSet::new(tools.clone()),
            Arc::new(MemoryStore::default()),
        );
        let world = World::of(listed([asked]), settings(), tools, Prompt::default(), store);
        world.turn().await;
        assert_eq!(
            world.trace()[..4],
            ["call a", "result a ok", "call b", "result b ok"],
            "{name}"
        );
    }
}

/// A141, A190: a stop when the reply is recorded; its calls are answered and never run.
#[tokio::test(start_paused = true)]
async fn a141_a190_a_cancel_at_the_reply_runs_no_call_and_answers_each() {
    let ran = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&ran);
    let tool = Probe::new("tool", move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { ToolOutput::text("ran") })
    });
    let world = world(
        [calls([("a", "tool", none()), ("b", "tool", none())])],
        [tool],
    );
    let agent = world.agent.clone();
    let _guard = world.agent.host().hub.observe(Arc::new(move |record: &EventRecord| {
        if matches!(&record.event, Event::MessageAssistant { message, .. } if !message.calls.is_empty()) {
            agent.cancel(CancelCause::User, Pending::Keep);
        }
    }));
    assert_eq!(world.turn().await, TurnEndReason::Aborted);
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    let paired = [
        "call a",
        "result a ABORTED_BEFORE_DISPATCH",
        "call b",
        "result b ABORTED_BEFORE_DISPATCH",
    ];
    assert_eq!(world.trace(), paired);
    assert_eq!(world.turn().await, TurnEndReason::Completed);
    let asked = world.model.asked.lock().unwrap();
    assert_eq!(
        asked[1].history.len(),
        5,
        "the next request has call and results"
    );
}

/// A148, A149: a stop or the end when a step begins; the model is not asked.
#[tokio::test(start_paused = true)]
async fn a148_a149_a_stop_at_the_beginning_of_a_step_asks_no_model() {
    for ends in [false, true] {
        let world = World::replies([]);
        let agent = world.agent.clone();
        let _guard = world
            .agent
            .host()
            .hub
            .observe(Arc::new(move |record: &EventRecord| {
                if matches!(record.event, Event::StepStart { .. }) {
                    if ends {
                        agent.begin_close(Pending::Keep);
                    } else {
                        agent.cancel(CancelCause::User, Pending::Keep);
                    }
                }
            }));
        assert_eq!(world.turn().await, TurnEndReason::Aborted);
        assert!(world.model.asked.lock().unwrap().is_empty(), "ends: {ends}");
        let cause = world.agent.with_projection(|p| p.facts().cause.clone());
        assert_eq!(
            cause.as_deref(),
            Some(if ends { "disposed" } else { "user" })
        );
        let balanced = world.agent.with_projection(|p| p.open_turn().is_none());
        assert!(balanced);
    }
}

/// What a call told before a sibling hung is recorded although that one is dropped.
#[tokio::test(start_paused = true)]
async fn an_answer_behind_a_call_that_hangs_is_kept_at_a_cancel() {
    let tools = [Probe::hangs("deaf"), Probe::sleeps("nap", 10)];
    let world = world(
        [calls([("a", "deaf", none()), ("b", "nap", none())])],
        tools,
    );
    world.agent.followup(Message::user("go")).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.agent.cancel(CancelCause::User, Pending::Keep);
    world.agent.idle().await;
    assert_eq!(
        world.trace(),
        ["call a", "call b", "result a ABORTED", "result b ABORTED"]
    );
    assert_eq!(world.results()[1], "slept", "what it said is there");
}

/// A store whose logs refuse once they are told to.
struct Refusing(MemoryStore, Arc<AtomicBool>);

struct RefusingLog(Box<dyn SessionLog>, Arc<AtomicBool>);

impl SessionLog for RefusingLog {
    fn append(&mut self, at: u64, events: &[StoredEvent]) -> Result<(), AppendError> {
        if self.1.load(Ordering::SeqCst) {
            return Err(AppendError::Store(StoreError::Io {
                place: "the disk".to_owned(),
                error: std::io::Error::other("is full"),
            }));
        }
        self.0.append(at, events)
    }

    fn flush(&mut self) -> Result<Flushed, StoreError> {
        self.0.flush()
    }
}

impl SessionStore for Refusing {
    fn create(&self, id: &AgentId, inherited: u64) -> Result<Box<dyn SessionLog>, StoreError> {
        let log = self.0.create(id, inherited)?;
        Ok(Box::new(RefusingLog(log, Arc::clone(&self.1))))
    }

    fn open(&self, id: &AgentId, visit: Visit<'_>) -> Result<OpenedSession, StoreError> {
        self.0.open(id, visit)
    }

    fn scan(&self, id: &AgentId, visit: Visit<'_>) -> Result<(), StoreError> {
        self.0.scan(id, visit)
    }

    fn first(&self, id: &AgentId) -> Result<Option<StoredEvent>, StoreError> {
        self.0.first(id)
    }

    fn sessions(&self) -> Result<Vec<AgentId>, StoreError> {
        self.0.sessions()
    }
}

/// A193: a log that breaks while calls run: those have their end, nothing more starts.
#[tokio::test(start_paused = true)]
async fn a193_a_broken_log_ends_the_turn_after_the_calls_that_run() {
    let broken = Arc::new(AtomicBool::new(false));
    let store = Refusing(MemoryStore::default(), Arc::clone(&broken));
    let (ended, later) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counter, more, breaks) = (Arc::clone(&ended), Arc::clone(&later), Arc::clone(&broken));
    let work = Probe::new("work", move |_| {
        let counter = Arc::clone(&counter);
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            counter.fetch_add(1, Ordering::SeqCst);
            ToolOutput::text("done")
        })
    });
    let breaks = Probe::new("breaks", move |_| {
        breaks.store(true, Ordering::SeqCst);
        Box::pin(async { ToolOutput::text("broken") })
    });
    let after = Probe::new("after", move |_| {
        more.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { ToolOutput::text("after") })
    });
    let asked = calls([
        ("a", "breaks", none()),
        ("b", "work", none()),
        ("c", "work", none()),
        ("d", "after", none()),
    ]);
    let tools = [work, breaks, after.parallel(|_| false)];
    let world = over([asked], tools, Arc::new(store));
    world.agent.followup(Message::user("go")).unwrap();
    world.agent.idle().await;
    assert_eq!(
        ended.load(Ordering::SeqCst),
        2,
        "what had begun was not cut"
    );
    assert_eq!(later.load(Ordering::SeqCst), 0, "and nothing more began");
    assert!(world.agent.failure().unwrap().contains("is full"));
    broken.store(false, Ordering::SeqCst);
    assert_eq!(
        world.turn().await,
        TurnEndReason::Completed,
        "the disk has room again"
    );
    let trace = world.trace();
    assert_eq!(
        trace[3..],
        [
            "result a OUTCOME_UNKNOWN",
            "result b OUTCOME_UNKNOWN",
            "result c OUTCOME_UNKNOWN",
            "call d",
            "result d ABORTED_BEFORE_DISPATCH",
            "say done Stop",
        ]
    );
}

/// A97, A102: no section, no text; and each request goes on from the one before.
#[tokio::test(start_paused = true)]
async fn a97_a102_requests_without_a_prompt_extend_each_other() {
    let world = world([calls([("a", "nap", none())])], [Probe::sleeps("nap", 1)]);
    world.turn().await;
    world.turn().await;
    let asked = world.model.asked.lock().unwrap();
    assert_eq!(asked.len(), 3);
    assert!(asked.iter().all(|request| request.system.is_empty()));
    for two in asked.windows(2) {
        assert!(two[0].history.len() < two[1].history.len());
        assert_eq!(two[1].history[..two[0].history.len()], two[0].history[..]);
    }
}
