//! A kind of subagent of the program's own: here one that shouts what it is asked.
//!
//! A provider starts a run and answers for it; when it ends, who is told and what it may cost is decided by
//! the service above it, the same way for every kind.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use offshoot::agent::AgentId;
use offshoot::agent::HistoryItem::{ToolResult, User};
use offshoot::config::{BackgroundMode, SubagentConfig};
use offshoot::subagent::{
    Capabilities, Outcome, Provider, ProviderError, Run, RunRequest, RunResult,
};
use offshoot::{Config, Runtime, call, model, say};
use serde_json::json;

struct Shout;

struct Shouting {
    child: AgentId,
    prompt: String,
}

impl Provider for Shout {
    fn name(&self) -> &'static str {
        "shout"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn start(&self, mut asked: RunRequest) -> BoxFuture<'_, Result<Box<dyn Run>, ProviderError>> {
        async move {
            let child = AgentId::fresh();
            asked.publish(&child)?;
            let prompt = asked.child.prompt;
            Ok(Box::new(Shouting { child, prompt }) as Box<dyn Run>)
        }
        .boxed()
    }
}

impl Run for Shouting {
    fn child(&self) -> &AgentId {
        &self.child
    }

    fn result(&mut self) -> BoxFuture<'_, Result<RunResult, ProviderError>> {
        let result = RunResult::new(Outcome::Completed, self.prompt.to_uppercase());
        async move { Ok(result) }.boxed()
    }

    fn dispose(self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>> {
        async { Ok(()) }.boxed()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rules = model(async |request| {
        Ok(match request.history.last() {
            Some(ToolResult(result)) => say(result.text.clone()),
            Some(User(asked)) => {
                let prompt = asked.to_text();
                call(
                    "subagent",
                    json!({ "description": "shout", "prompt": prompt }),
                )
            }
            _ => say(""),
        })
    });
    let mut config = Config::default();
    let mut entry = SubagentConfig::default();
    entry.provider = "shout".to_owned();
    entry.background_mode = BackgroundMode::OneShot;
    config.subagent = vec![entry];
    let runtime = Runtime::builder(config)
        .provider(Arc::new(Shout))
        .model(rules);
    println!("{}", runtime.ask("hello from below").await?);
    Ok(())
}
