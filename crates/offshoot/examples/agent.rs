//! An agent with a model, a tool of its own, delegation and durable sessions.
//!
//! The model here is a few rules, so that the example runs without a key: it delegates once, and answers
//! from the notice that tells it how its subagent ended.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use offshoot::agent::HistoryItem::{ToolResult, User};
use offshoot::{Config, Runtime, call, model, say, tool};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rules = model(async |request| {
        let child = request.agent.depth() > 0;
        Ok(match request.history.last() {
            Some(ToolResult(result)) if child => say(format!("It is {}.", result.text)),
            Some(User(_)) if child => call("today", json!({})),
            Some(User(notice)) if notice.source.kind == "settled" => say(notice.to_text()),
            Some(User(_)) => call(
                "subagent",
                json!({ "description": "day", "prompt": "Which?" }),
            ),
            _ => say("I have asked; meanwhile I go on."),
        })
    });
    let runtime = Runtime::builder(Config::default())
        .sessions_in(std::env::temp_dir().join("offshoot-example"))?
        .tool(tool("today", "Tell which day it is.", async |_| {
            Ok("a Tuesday".to_owned())
        }))
        .model(rules);
    println!("{}", runtime.ask("Which day is it?").await?);
    Ok(())
}
