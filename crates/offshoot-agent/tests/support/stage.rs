//! The driver: each step waits on the stage until the test says how it goes on.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use offshoot_agent::{
    AssistantMessage, CallId, CallRequest, DriverError, Event, Finish, StepContext, StepOutcome,
    ToolResultRecord, TurnDriver, Usage,
};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::soon;

/// What a step does when its turn is cancelled before the test released it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It returns at once.
    Polite,
    /// It goes on until it is released.
    Deaf,
}

enum Act {
    Return(Result<StepOutcome, DriverError>),
    Panic,
}

/// A driver whose steps the test releases.
pub struct ScriptDriver {
    manner: Manner,
    steps: mpsc::UnboundedSender<Step>,
    active: AtomicUsize,
    most: AtomicUsize,
    dropped: AtomicUsize,
}

impl ScriptDriver {
    /// The greatest number of steps that ran at one time.
    pub fn most_at_once(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    /// How many steps were dropped before they returned.
    pub fn dropped(&self) -> usize {
        self.dropped.load(Ordering::SeqCst)
    }
}

struct Active<'a>(&'a ScriptDriver, bool);

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::SeqCst);
        if !self.1 {
            self.0.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl TurnDriver for ScriptDriver {
    fn step<'a>(
        &'a self,
        context: &'a StepContext,
    ) -> BoxFuture<'a, Result<StepOutcome, DriverError>> {
        async move {
            let now = self.active.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            let mut active = Active(self, false);
            let (release, released) = oneshot::channel();
            let step = Step {
                context: context.clone(),
                release,
            };
            if self.steps.send(step).is_err() {
                active.1 = true;
                return Ok(StepOutcome::Completed);
            }
            let cancelled = async {
                match self.manner {
                    Manner::Polite => context.cancelled().await,
                    Manner::Deaf => std::future::pending().await,
                }
            };
            let act = tokio::select! {
                biased;
                act = released => act.unwrap_or(Act::Return(Ok(StepOutcome::Completed))),
                () = cancelled => Act::Return(Ok(StepOutcome::Completed)),
            };
            active.1 = true;
            match act {
                Act::Return(result) => result,
                Act::Panic => panic!("the script says so"),
            }
        }
        .boxed()
    }
}

/// Where steps appear.
pub struct Stage(mpsc::UnboundedReceiver<Step>);

pub fn stage(manner: Manner) -> (ScriptDriver, Stage) {
    let (steps, stage) = mpsc::unbounded_channel();
    let driver = ScriptDriver {
        manner,
        steps,
        active: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
        dropped: AtomicUsize::new(0),
    };
    (driver, Stage(stage))
}

impl Stage {
    /// The next step that began.
    pub async fn next(&mut self) -> Step {
        soon("the next step", self.0.recv())
            .await
            .expect("the driver lives as long as the world")
    }

    /// A step that has begun already.
    pub fn ready(&mut self) -> Option<Step> {
        self.0.try_recv().ok()
    }
}

/// A step that waits. Dropping it completes the step.
pub struct Step {
    pub context: StepContext,
    release: oneshot::Sender<Act>,
}

impl Step {
    fn act(self, act: Act) {
        // A step that a cancellation ended already needs no release.
        let _ = self.release.send(act);
    }

    pub fn end(self, result: Result<StepOutcome, DriverError>) {
        self.act(Act::Return(result));
    }

    pub fn complete(self) {
        self.end(Ok(StepOutcome::Completed));
    }

    pub fn go_on(self) {
        self.end(Ok(StepOutcome::Continue));
    }

    pub fn fail(self) {
        self.end(Err(DriverError::new("the model is away")));
    }

    pub fn panic(self) {
        self.act(Act::Panic);
    }

    /// The coordinates, as `turn/step`.
    pub fn at(&self) -> String {
        format!("{}/{}", self.context.key().turn, self.context.key().step)
    }

    /// The messages that entered with this step, by name.
    pub fn read(&self) -> Vec<String> {
        let agent = self.context.agent();
        let log = agent.host().store.read(agent.id()).expect("the log");
        let key = self.context.key();
        log.iter()
            .filter_map(|stored| match &stored.event {
                Event::MessageUser {
                    turn,
                    step,
                    message,
                } if (*turn, *step) == (key.turn, key.step) => Some(message.id.to_string()),
                _ => None,
            })
            .collect()
    }

    pub fn say(&self, text: &str, calls: &[&str]) {
        let finish = if calls.is_empty() {
            Finish::Stop
        } else {
            Finish::ToolCalls
        };
        self.context
            .record_reply(reply(text, calls, finish))
            .expect("a reply");
    }

    pub fn call(&self, id: &str) {
        self.context.record_call(&call(id)).expect("a call");
    }

    pub fn answer(&self, id: &str) {
        self.context.record_result(result(id)).expect("a result");
    }
}

pub fn reply(text: &str, calls: &[&str], finish: Finish) -> AssistantMessage {
    AssistantMessage {
        text: text.to_owned(),
        calls: calls.iter().map(|id| call(id)).collect(),
        finish,
        usage: Usage {
            input: 10,
            output: text.len() as u64,
        },
    }
}

pub fn call(id: &str) -> CallRequest {
    CallRequest {
        id: CallId(id.to_owned()),
        name: "probe".to_owned(),
        args: json!({}),
    }
}

pub fn result(id: &str) -> ToolResultRecord {
    ToolResultRecord {
        call_id: CallId(id.to_owned()),
        text: format!("result of {id}"),
        value: None,
        is_error: false,
        code: None,
    }
}
