//! A driver that plays a list of acts for each label.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use offshoot_agent::{
    Agent, AssistantMessage, DriverError, Finish, StepContext, StepOutcome, TurnDriver, Usage,
};
use tokio_util::sync::CancellationToken;

/// Opens once; who waits goes on, also who comes later.
#[derive(Clone, Debug, Default)]
pub struct Gate(CancellationToken);

impl Gate {
    pub fn open(&self) {
        self.0.cancel();
    }

    pub async fn opened(&self) {
        self.0.cancelled().await;
    }
}

type Work = Box<dyn FnOnce(Agent) -> BoxFuture<'static, ()> + Send>;

/// What an agent does in one step.
pub enum Act {
    Say(&'static str),
    /// Says it, and asks for another step.
    GoOn(&'static str),
    MaxTokens(&'static str),
    Refuse,
    Fail(&'static str),
    Panic(&'static str),
    /// Ends only when it is cancelled.
    Hang,
    /// Does not end though it is cancelled.
    Deaf,
    /// Opens the first gate, waits for the second, then acts.
    At(Gate, Gate, Box<Act>),
    /// Does some work first.
    Do(Work, Box<Act>),
}

impl Act {
    pub fn at(arrived: &Gate, gate: &Gate, act: Act) -> Self {
        Self::At(arrived.clone(), gate.clone(), Box::new(act))
    }

    pub fn after(gate: &Gate, act: Act) -> Self {
        Self::At(Gate::default(), gate.clone(), Box::new(act))
    }

    pub fn work<F>(work: impl FnOnce(Agent) -> F + Send + 'static, act: Act) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::Do(Box::new(move |agent| Box::pin(work(agent))), Box::new(act))
    }
}

/// Plays. A label without a list, or whose list is over, says "done".
#[derive(Default)]
pub struct Cast(Mutex<HashMap<String, VecDeque<Act>>>);

impl Cast {
    pub fn plays(&self, label: &str, acts: impl IntoIterator<Item = Act>) {
        let mut lists = self.0.lock().unwrap();
        lists.entry(label.to_owned()).or_default().extend(acts);
    }

    fn next(&self, label: &str) -> Act {
        let mut lists = self.0.lock().unwrap();
        let next = lists.get_mut(label).and_then(VecDeque::pop_front);
        next.unwrap_or(Act::Say("done"))
    }
}

fn say(context: &StepContext, text: &str, finish: Finish) -> Result<(), DriverError> {
    Ok(context.record_reply(AssistantMessage {
        text: text.to_owned(),
        calls: Vec::new(),
        finish,
        usage: Usage {
            input: 10,
            output: text.len() as u64,
        },
    })?)
}

fn act(context: &StepContext, it: Act) -> BoxFuture<'_, Result<StepOutcome, DriverError>> {
    Box::pin(async move {
        match it {
            Act::Say(text) => {
                say(context, text, Finish::Stop)?;
                Ok(StepOutcome::Completed)
            }
            Act::GoOn(text) => {
                say(context, text, Finish::ToolCalls)?;
                Ok(StepOutcome::Continue)
            }
            Act::MaxTokens(text) => {
                say(context, text, Finish::MaxTokens)?;
                Ok(StepOutcome::MaxTokens)
            }
            Act::Refuse => Ok(StepOutcome::Refusal),
            Act::Fail(error) => Err(DriverError::new(error)),
            Act::Panic(message) => panic!("{message}"),
            Act::Hang => {
                context.cancelled().await;
                Ok(StepOutcome::Completed)
            }
            Act::Deaf => std::future::pending().await,
            Act::At(arrived, gate, then) => {
                arrived.open();
                tokio::select! {
                    () = context.cancelled() => return Ok(StepOutcome::Completed),
                    () = gate.opened() => {}
                }
                act(context, *then).await
            }
            Act::Do(work, then) => {
                work(context.agent().clone()).await;
                act(context, *then).await
            }
        }
    })
}

impl TurnDriver for Cast {
    fn step<'a>(
        &'a self,
        context: &'a StepContext,
    ) -> BoxFuture<'a, Result<StepOutcome, DriverError>> {
        act(context, self.next(context.agent().label()))
    }
}
