//! An agent whose turns are done by code of the program's own: no model, and no loop around one.
//!
//! The driver answers in two steps: it says what it will do, and does it. An agent asks for one step at a
//! time, so it can be steered and cancelled in between.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use offshoot::agent::{
    AssistantMessage, DriverError, Finish, HistoryItem, StepContext, StepOutcome, TurnDriver, Usage,
};
use offshoot::{Config, Runtime};

struct Counting;

impl TurnDriver for Counting {
    fn step<'a>(
        &'a self,
        step: &'a StepContext,
    ) -> BoxFuture<'a, Result<StepOutcome, DriverError>> {
        async move {
            let asked = step.history().into_iter().find_map(|item| match item {
                HistoryItem::User(message) => Some(message.to_text()),
                _ => None,
            });
            let words = asked.unwrap_or_default().split_whitespace().count();
            let (text, finish, outcome) = match step.key().step {
                1 => (
                    "I count.".to_owned(),
                    Finish::ToolCalls,
                    StepOutcome::Continue,
                ),
                _ => (
                    format!("{words} words."),
                    Finish::Stop,
                    StepOutcome::Completed,
                ),
            };
            step.record_reply(AssistantMessage {
                text,
                calls: Vec::new(),
                finish,
                usage: Usage::default(),
            })?;
            Ok(outcome)
        }
        .boxed()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::builder(Config::default()).driver(Arc::new(Counting));
    println!("{}", runtime.ask("How many words are these?").await?);
    Ok(())
}
