//! An agent with a model, a tool of its own, delegation and durable sessions.
//!
//! The model here is a few lines of Rust, so that the example runs without a key: it delegates once,
//! and answers from the notice that tells it how its subagent ended.

use std::error::Error;
use std::sync::Arc;

use futures::future::BoxFuture;
use offshoot::Runtime;
use offshoot::agent::{
    CallId, CallRequest, Finish, HistoryItem, JsonlStore, Message, Tool, ToolCall, ToolOutput,
    Usage,
};
use offshoot::config::Config;
use offshoot::driver::{Model, ModelError, ModelReply, ModelRequest};
use serde_json::{Value, json};

/// A tool of the program's own.
struct Today(Value);

impl Tool for Today {
    fn name(&self) -> &str {
        "today"
    }

    fn description(&self) -> &str {
        "Tell which day it is."
    }

    fn input_schema(&self) -> &Value {
        &self.0
    }

    fn call(&self, _: ToolCall) -> BoxFuture<'_, ToolOutput> {
        Box::pin(async { ToolOutput::text("a Tuesday") })
    }
}

/// A model of the program's own.
struct Rules;

impl Model for Rules {
    fn request(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelReply, ModelError>> {
        Box::pin(async move {
            let is_child = request.agent.parent_id().is_some();
            Ok(match request.history.last() {
                Some(HistoryItem::User(message)) if message.source.kind == "settled" => {
                    say(&format!("My subagent says:\n{}", message.to_text()))
                }
                Some(HistoryItem::User(_)) if is_child => call("today", json!({})),
                Some(HistoryItem::User(message)) => {
                    let prompt = message.to_text();
                    call(
                        "subagent",
                        json!({ "description": "the day", "prompt": prompt }),
                    )
                }
                Some(HistoryItem::ToolResult(result)) if is_child => {
                    say(&format!("It is {}.", result.text))
                }
                _ => say("I have asked; meanwhile I go on."),
            })
        })
    }
}

fn say(text: &str) -> ModelReply {
    let usage = Usage::default();
    ModelReply {
        text: text.to_owned(),
        calls: Vec::new(),
        finish: Finish::Stop,
        usage,
    }
}

fn call(name: &str, args: Value) -> ModelReply {
    let call = CallRequest {
        id: CallId("c1".to_owned()),
        name: name.to_owned(),
        args,
    };
    ModelReply {
        calls: vec![call],
        finish: Finish::ToolCalls,
        ..say("")
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("offshoot-example-{}", std::process::id()));
    let no_arguments = json!({ "type": "object", "properties": {} });
    let runtime = Runtime::builder(Config::default())
        .store(Arc::new(JsonlStore::open_folder(&folder)?))
        .tool(Arc::new(Today(no_arguments)))
        .model(Arc::new(Rules));
    let root = runtime.create_root()?;
    root.followup(Message::user("Which day is it?"))?;
    root.rest().await;
    let answer = root.with_projection(|session| session.facts().text.clone());
    runtime.close(&root).await;
    std::fs::remove_dir_all(&folder)?;
    let told = answer.contains("It is a Tuesday.");
    #[expect(clippy::print_stdout, reason = "an example shows what it does")]
    {
        println!("{answer}");
    }
    if told {
        Ok(())
    } else {
        Err("the subagent's answer did not arrive".into())
    }
}
