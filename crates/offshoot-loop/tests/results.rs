//! What a tool is told of its call, and what its answer does to the turn.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use offshoot_agent::{
    Agent, AgentHost, AgentKit, AgentSettings, AgentSpec, DriverError, Event, EventRecord, Finish,
    HistoryItem, MemoryStore, Message, Prompt, StepContext, StepKey, StepOutcome, Tool, ToolCall,
    ToolOutput, ToolSet, TurnDriver, TurnEndReason,
};
use offshoot_loop::{LoopSettings, ModelLoop};
use serde_json::{Value, json};
use support::{Listed, Said, World, calls, says};

/// A tool that answers at once.
struct Answers<F> {
    name: &'static str,
    schema: Value,
    answer: F,
}

fn answers(
    name: &'static str,
    answer: impl Fn(ToolCall) -> ToolOutput + Send + Sync + 'static,
) -> Arc<dyn Tool> {
    let schema = json!({"type": "object"});
    Arc::new(Answers {
        name,
        schema,
        answer,
    })
}

impl<F: Fn(ToolCall) -> ToolOutput + Send + Sync + 'static> Tool for Answers<F> {
    fn name(&self) -> &str {
        self.name
    }

    fn description(&self) -> &'static str {
        "answers at once"
    }

    fn input_schema(&self) -> &Value {
        &self.schema
    }

    fn is_parallel_safe(&self, _: &Value) -> bool {
        true
    }

    fn call(&self, call: ToolCall) -> BoxFuture<'_, ToolOutput> {
        Box::pin(async { (self.answer)(call) })
    }
}

fn listed(replies: impl IntoIterator<Item = Said>) -> Listed {
    Listed {
        replies: Mutex::new(replies.into_iter().collect()),
        ..Listed::default()
    }
}

fn world(
    replies: impl IntoIterator<Item = Said>,
    tools: impl IntoIterator<Item = Arc<dyn Tool>>,
) -> World {
    World::of(
        listed(replies),
        LoopSettings::default(),
        ToolSet::new(tools),
        Prompt::default(),
        Arc::new(MemoryStore::default()),
    )
}

/// What a tool does once its result is in the log is as contained as its call.
#[tokio::test(start_paused = true)]
async fn a_panic_after_a_result_stops_nobody() {
    let bad = answers("bad", |_| {
        ToolOutput::text("recorded").on_commit(|| panic!("after the result"))
    });
    let done: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&done);
    let good = answers("good", move |call| {
        let (told, id) = (Arc::clone(&told), call.call_id.to_string());
        ToolOutput::text("well").on_commit(move || told.lock().unwrap().push(id))
    });
    let asked = calls([
        ("a", "good", json!({})),
        ("b", "bad", json!({})),
        ("c", "good", json!({})),
    ]);
    let world = world([asked], [bad, good]);
    assert_eq!(world.turn().await, TurnEndReason::Completed);
    let trace = world.trace();
    assert_eq!(
        trace[3..],
        ["result a ok", "result b ok", "result c ok", "say done Stop"]
    );
    assert_eq!(*done.lock().unwrap(), ["a", "c"]);
}

/// A79, A80: one request, the result in the log; what has arrived for the next step meanwhile is answered
/// in the same turn.
#[tokio::test(start_paused = true)]
async fn a_tool_that_ends_the_turn_leaves_nobody_unheard() {
    for (steered, requests) in [(false, 1), (true, 2)] {
        let last = answers("last", move |call| {
            if steered {
                call.agent.steer(Message::user("wait")).unwrap();
            }
            ToolOutput::text("that was all").ending_turn()
        });
        let asked = calls([("a", "last", json!({}))]);
        let world = world([asked, Ok(says("heard"))], [last]);
        assert_eq!(world.turn().await, TurnEndReason::Completed);
        assert_eq!(world.model.asked.lock().unwrap().len(), requests);
        assert_eq!(world.agent.with_projection(|p| p.turn()), 1);
        let heard = steered.then_some("say heard Stop".to_owned());
        let expected = ["call a".to_owned(), "result a ok".to_owned()];
        let expected: Vec<_> = expected.into_iter().chain(heard).collect();
        assert_eq!(world.trace(), expected);
        let waits = world.agent.with_projection(|p| p.inbox().len());
        assert_eq!(waits, 0);
    }
}

/// A driver that does each step again.
struct Twice(ModelLoop);

impl TurnDriver for Twice {
    fn step<'a>(
        &'a self,
        context: &'a StepContext,
    ) -> BoxFuture<'a, Result<StepOutcome, DriverError>> {
        Box::pin(async move {
            self.0.step(context).await?;
            self.0.step(context).await
        })
    }
}

/// The key of a call, beside its id, is what a tool knows a second attempt by.
#[tokio::test(start_paused = true)]
async fn a_tool_sees_the_key_of_its_step_the_same_for_each_attempt() {
    let seen: Arc<Mutex<Vec<(StepKey, String)>>> = Arc::default();
    let sees = Arc::clone(&seen);
    let look = answers("look", move |call| {
        let mut seen = sees.lock().unwrap();
        seen.push((call.key, call.call_id.to_string()));
        ToolOutput::text("seen")
    });
    let asks = |id: &str| calls([(id, "look", json!({}))]);
    let model = Arc::new(listed([
        asks("a"),
        asks("a"),
        asks("b"),
        asks("b"),
        Ok(says("done")),
    ]));
    let kit = AgentKit {
        driver: Arc::new(Twice(ModelLoop::new(
            Arc::clone(&model) as Arc<dyn offshoot_loop::Model>,
            LoopSettings::default(),
        ))),
        tools: ToolSet::new([look]),
        prompt: Prompt::default(),
    };
    let host = AgentHost::new(Arc::new(MemoryStore::default()), AgentSettings::default());
    let agent = Agent::create(&host, None, AgentSpec::root(kit)).unwrap();
    agent.start();
    agent.followup(Message::user("go")).unwrap();
    agent.idle().await;
    let key = |step| StepKey {
        session: agent.id().clone(),
        activation: 1,
        turn: 1,
        step,
        attempt: 0,
    };
    // The attempt is no part of what names a call.
    let seen: Vec<_> = seen
        .lock()
        .unwrap()
        .iter()
        .map(|(key, id)| {
            (
                StepKey {
                    attempt: 0,
                    ..key.clone()
                },
                id.clone(),
            )
        })
        .collect();
    let expected = [(1, "a"), (1, "a"), (2, "b"), (2, "b")];
    assert_eq!(seen, expected.map(|(step, id)| (key(step), id.to_owned())));
    let steps: Vec<_> = {
        let asked = model.asked.lock().unwrap();
        asked.iter().map(|request| request.key.step).collect()
    };
    assert_eq!(steps, [1, 1, 2, 2, 3, 3], "as the model's requests");
    assert!(agent.close(offshoot_agent::Pending::Keep).await.is_clean());
}

/// A270: a reply that ran out of tokens marks its turn, and takes no result from the model: what a later
/// reply of the turn calls is answered by another request.
#[tokio::test(start_paused = true)]
async fn a270_after_a_cut_reply_the_results_of_later_calls_are_still_shown() {
    let cut = Ok(offshoot_loop::ModelReply {
        finish: Finish::MaxTokens,
        ..says("half")
    });
    let look = answers("look", |_| ToolOutput::text("seen"));
    let asked = calls([("a", "look", json!({}))]);
    let world = world([cut, asked, Ok(says("whole"))], [look]);
    let target = world.agent.clone();
    let steered = AtomicBool::new(false);
    let _guard = world
        .agent
        .host()
        .hub
        .observe(Arc::new(move |record: &EventRecord| {
            let replied = matches!(record.event, Event::MessageAssistant { .. });
            if replied && !steered.swap(true, Ordering::SeqCst) {
                target.steer(Message::user("go on")).unwrap();
            }
        }));
    assert_eq!(world.turn().await, TurnEndReason::MaxTokens);
    assert_eq!(
        world.trace(),
        [
            "say half MaxTokens",
            "call a",
            "result a ok",
            "say whole Stop"
        ]
    );
    let asked = world.model.asked.lock().unwrap();
    let last = asked.last().unwrap().history.last().cloned();
    assert!(
        matches!(last, Some(HistoryItem::ToolResult(result)) if result.text == "seen"),
        "the last request ends with the result"
    );
    assert_eq!(world.agent.with_projection(|p| p.turn()), 1);
}
