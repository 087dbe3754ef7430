//! A server over a pair of streams in memory, on a clock of its own.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use offshoot_agent::{
    AgentHost, AgentKit, AgentSettings, DriverError, Effects, Event, EventRecord, MemoryStore,
    ObserverGuard, Prompt, StepContext, StepOutcome, Tool, ToolCall, ToolOutput, ToolSet,
    TurnDriver,
};
use offshoot_mcp::{McpServer, McpSettings, ServerParts};
use offshoot_task::{TaskConfig, TaskRegistry};
use offshoot_tools::schema::Variant;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

struct NoDriver;

impl TurnDriver for NoDriver {
    fn step<'a>(&'a self, _: &'a StepContext) -> BoxFuture<'a, Result<StepOutcome, DriverError>> {
        Box::pin(async { Err(DriverError::new("nothing is started here")) })
    }
}

/// A tool whose calls end when they are cancelled, or never.
struct Waits {
    deaf: bool,
    schema: Value,
}

impl Tool for Waits {
    fn name(&self) -> &str {
        if self.deaf { "deaf" } else { "waits" }
    }

    fn description(&self) -> &str {
        "Waits."
    }

    fn input_schema(&self) -> &Value {
        &self.schema
    }

    fn effects(&self) -> Effects {
        match self.deaf {
            true => Effects::STOPS_OWN,
            false => Effects::READS,
        }
    }

    fn call(&self, call: ToolCall) -> BoxFuture<'_, ToolOutput> {
        Box::pin(async move {
            if self.deaf {
                // Whatever the owner of the call does, its closing waits for this.
                let never = std::future::pending::<Result<(), String>>;
                let _hook = call.agent.scope().on_close("deaf", never);
                std::future::pending::<()>().await;
            }
            call.cancel.cancelled().await;
            ToolOutput::text("it was cancelled")
        })
    }
}

struct Client {
    read: BufReader<ReadHalf<DuplexStream>>,
    write: WriteHalf<DuplexStream>,
    served: JoinHandle<()>,
    next: u64,
    /// What the sessions say of tasks.
    said: Arc<Mutex<Vec<String>>>,
    _observer: ObserverGuard,
}

impl Client {
    fn of(settings: McpSettings) -> Self {
        let tool = |deaf| {
            Arc::new(Waits {
                deaf,
                schema: json!({"type": "object"}),
            })
        };
        let tools: [Arc<dyn Tool>; 2] = [tool(false), tool(true)];
        let agents = AgentSettings {
            cancel_grace: Duration::from_secs(1),
            ..AgentSettings::default()
        };
        let parts = ServerParts {
            host: AgentHost::new(Arc::new(MemoryStore::default()), agents),
            kit: AgentKit {
                driver: Arc::new(NoDriver),
                tools: ToolSet::new(tools),
                prompt: Prompt::new([]),
            },
            tasks: TaskRegistry::new(TaskConfig::default()),
        };
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        let observer = parts
            .host
            .hub
            .observe(Arc::new(move |record: &EventRecord| {
                if let Event::Extension(event) = &record.event {
                    let reported = event.fields.get("reported").is_some_and(|it| it == true);
                    let kind = format!("{}{}", event.kind, if reported { " reported" } else { "" });
                    heard.lock().unwrap().push(kind);
                }
            }));
        let server = McpServer::new(parts, settings);
        let (near, far) = tokio::io::duplex(1 << 16);
        let (read, write) = tokio::io::split(far);
        let served = async move {
            server
                .serve(read, write, None, CancellationToken::new())
                .await
                .unwrap();
        };
        let (near_read, near_write) = tokio::io::split(near);
        Self {
            read: BufReader::new(near_read),
            write: near_write,
            served: tokio::spawn(served),
            next: 0,
            said,
            _observer: observer,
        }
    }

    fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }

    async fn send(&mut self, method: &str, mut params: Value) -> u64 {
        self.next += 1;
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "memory", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities":
                {"extensions": {"io.modelcontextprotocol/tasks": {}}},
        });
        let id = self.next;
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.write
            .write_all(format!("{message}\n").as_bytes())
            .await
            .unwrap();
        id
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        loop {
            let mut line = String::new();
            assert!(self.read.read_line(&mut line).await.unwrap() > 0, "the end");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id {
                return message["result"].clone();
            }
        }
    }

    async fn call(&mut self, name: &str) -> Value {
        let params = json!({"name": name, "arguments": {}});
        self.ask("tools/call", params).await
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_tasks_have_a_limit_of_their_own() {
    let mut client = Client::of(McpSettings {
        as_tasks: vec!["waits".to_owned()],
        max_call_tasks: 2,
        ..McpSettings::default()
    });
    let first = client.call("waits").await;
    assert_eq!(first["resultType"], "task", "{first}");
    // On the record by the time that its id is known.
    assert_eq!(client.said(), ["task/started"]);
    let second = client.call("waits").await;
    assert_ne!(first["taskId"], second["taskId"]);
    let refused = client.call("waits").await;
    assert_eq!(refused["isError"], true, "{refused}");
    assert_eq!(refused["_meta"]["offshoot/code"], "LIMIT_REACHED");
    let words = refused["content"][0]["text"].as_str().unwrap();
    assert!(
        words.contains("2 calls of this client run as tasks"),
        "{words}"
    );
    let id = json!({"taskId": first["taskId"]});
    client.ask("tasks/cancel", id.clone()).await;
    while client.ask("tasks/get", id.clone()).await["status"] == "working" {}
    assert_eq!(client.ask("tasks/get", id).await["status"], "cancelled");
    let said = ["task/started", "task/started", "task/settled reported"];
    assert_eq!(client.said(), said);
    let third = client.call("waits").await;
    assert_eq!(third["resultType"], "task", "{third}");
}

#[tokio::test(start_paused = true)]
async fn tools_are_listed_as_they_declare_themselves() {
    let mut client = Client::of(McpSettings::default());
    let listed = client.ask("tools/list", json!({})).await;
    let expected = [false, true].map(|deaf| {
        let schema = json!({"type": "object"});
        Variant::Mcp.describe(&Waits { deaf, schema })
    });
    assert_eq!(listed["tools"], json!(expected));
    assert_eq!(expected[0]["annotations"]["readOnlyHint"], true);
    assert_eq!(expected[1]["annotations"]["readOnlyHint"], false);
    // Without subagents there is no word of them.
    let told = client.ask("server/discover", json!({})).await;
    let words = told["instructions"].as_str().unwrap();
    assert!(
        words.contains("background") && !words.contains("agent"),
        "{words}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_connection_is_bounded_whatever_is_below_it() {
    let settings = McpSettings {
        drain: Duration::from_millis(500),
        close_limit: Duration::from_millis(1200),
        ..McpSettings::default()
    };
    for unanswered in ["waits", "deaf"] {
        let mut client = Client::of(settings.clone());
        let call = json!({"name": unanswered, "arguments": {}});
        client.send("tools/call", call).await;
        // The call has begun when a later message is answered.
        client.ask("tools/list", json!({})).await;
        let began = Instant::now();
        client.write.shutdown().await.unwrap();
        client.served.await.unwrap();
        let took = began.elapsed();
        match unanswered {
            "waits" => assert_eq!(took, settings.drain),
            _ => assert_eq!(took, settings.drain + settings.close_limit),
        }
    }
}
