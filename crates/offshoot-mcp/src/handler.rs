//! The requests of the protocol, answered over one connection.

#![expect(
    deprecated,
    reason = "log messages are what the older generation of clients can ask for"
)]

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use offshoot_agent::{Tool, ToolOutput};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CreateTaskResult, CustomRequest,
    CustomResult, ErrorCode, GetTaskParams, GetTaskResult, Implementation, InitializeRequestParams,
    InitializeResult, ListToolsResult, PaginatedRequestParams, ProtocolVersion, ServerCapabilities,
    ServerConfig, ServerResult, SetLevelRequestParams, ToolAnnotations, UpdateTaskParams,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};
use serde_json::Value;

use crate::announce::SinkGuard;
use crate::call::{self, Progress};
use crate::connection::{Connection, OwnerError};
use crate::server::Shared;

/// Too much at once. The code is one of those that are left to servers.
const BUSY: ErrorCode = ErrorCode(-32000);

const WITH_SUBAGENTS: &str = "Work in the background, and subagents. A command or a subagent that runs \
in the background goes on while you work: you get its id at once. When something of yours ends, or a \
subagent writes to you, a line that begins with [notice] is added to the next result of any of these \
tools. task_output reads a task, and waits for its end with wait: true; task_list shows your tasks, \
list_agents your subagents. Everything ends with this connection.";

const WITHOUT_SUBAGENTS: &str = "Work in the background. A command that runs in the background goes on \
while you work: you get its id at once. When something of yours ends, a line that begins with [notice] \
is added to the next result of any of these tools. task_output reads a task, and waits for its end with \
wait: true; task_list shows your tasks. Everything ends with this connection.";

/// The tool without which there are no subagents to speak of.
const LIST_AGENTS: &str = "list_agents";

/// A tool as clients are told about it.
pub(crate) fn listed(tool: &dyn Tool) -> rmcp::model::Tool {
    let schema = tool.input_schema().as_object().cloned().unwrap_or_default();
    let (name, description) = (tool.name().to_owned(), tool.description().to_owned());
    let effects = tool.effects();
    let annotations = ToolAnnotations::from_raw(
        None,
        Some(effects.is_read_only()),
        Some(effects.is_destructive()),
        Some(effects.is_idempotent()),
        Some(effects.is_open_world()),
    );
    rmcp::model::Tool::new(name, description, schema).with_annotations(annotations)
}

/// The connections of sessions over HTTP, by the id of the session. One that has called no tool has
/// nothing to end, and is not here.
pub(crate) type Sessions = Arc<Mutex<HashMap<String, Weak<Connection>>>>;

/// Answers requests. One serves a whole session, or a single request of a client without one.
pub(crate) struct Handler {
    /// Whose the requests are, before there is a session.
    shared: Arc<Connection>,
    /// Of a session of its own.
    own: OnceLock<Arc<Connection>>,
    sessions: Sessions,
}

impl Handler {
    /// Everything is one connection's.
    pub(crate) fn over(connection: Arc<Connection>) -> Self {
        let own = OnceLock::new();
        let _ = own.set(Arc::clone(&connection));
        Self {
            shared: connection,
            own,
            sessions: Sessions::default(),
        }
    }

    /// A session that begins is a connection of its own, and is known in `sessions` from its first call
    /// on; requests without a session are `shared`'s.
    pub(crate) fn beside(shared: Arc<Connection>, sessions: Sessions) -> Self {
        Self {
            shared,
            own: OnceLock::new(),
            sessions,
        }
    }

    /// Lets whoever ends the session of a call find its connection.
    fn enter_session(&self, context: &RequestContext<RoleServer>) {
        let Some(own) = self.own.get() else { return };
        let parts = context.extensions.get::<http::request::Parts>();
        let id = parts.and_then(|parts| parts.headers.get("mcp-session-id")?.to_str().ok());
        if let Some(id) = id {
            let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            if !sessions.contains_key(id) {
                sessions.retain(|_, connection| connection.strong_count() > 0);
                sessions.insert(id.to_owned(), Arc::downgrade(own));
            }
        }
    }

    fn connection(&self) -> &Arc<Connection> {
        self.own.get().unwrap_or(&self.shared)
    }

    fn server(&self) -> &Shared {
        &self.shared.server().0
    }

    /// What a client's model is told besides the tools themselves.
    fn instructions(&self) -> &'static str {
        match self.server().parts.kit.tools.get(LIST_AGENTS) {
            Some(_) => WITH_SUBAGENTS,
            None => WITHOUT_SUBAGENTS,
        }
    }

    /// Only the newer generation knows what the answer means.
    fn may_be_a_task(&self, name: &str, context: &RequestContext<RoleServer>) -> bool {
        let declared = context.client_capabilities();
        let declared = declared.is_some_and(|capabilities| capabilities.supports_tasks());
        let names = &self.server().settings.as_tasks;
        declared && is_modern(context) && names.iter().any(|one| one == name)
    }

    async fn call(
        &self,
        name: &str,
        args: Value,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let shared = self.server();
        let Some(tool) = shared.parts.kit.tools.get(name) else {
            let names: Vec<_> = shared.parts.kit.tools.iter().map(|t| t.name()).collect();
            let name = offshoot_core::text::one_line(name, 100);
            let message = format!("unknown tool `{name}`; the tools are: {}", names.join(", "));
            return Err(ErrorData::invalid_params(message, None));
        };
        let connection = self.connection();
        let limit = shared.settings.max_calls;
        let _place = connection.place().ok_or_else(|| {
            let message = format!("{limit} calls run already, which is the limit; wait for one");
            ErrorData::new(BUSY, message, None)
        })?;
        self.enter_session(&context);
        let agent = connection.owner().await.map_err(no_owner)?;
        let _sink = self.sink(&context);
        let call = connection.call(&agent, args);
        let cancel = call.cancel.clone();
        let grace = shared.parts.host.settings.cancel_grace;
        let progress = Progress::of(&context, name, shared.settings.progress_every);
        let tool = Arc::clone(tool);
        let output = if self.may_be_a_task(name, &context) {
            let tasks = &shared.calls;
            let started = match connection.carried.start(tasks, tool, call) {
                Ok(started) => started,
                Err(error) => {
                    let refused = tasks.refusal(&error);
                    return Ok(call::delivered(connection, &agent, refused).into());
                }
            };
            let work = async {
                tokio::select! {
                    () = started.ended() => {}
                    () = tokio::time::sleep(shared.settings.task_after) => return None,
                }
                Some(started.take())
            };
            match call::waited_for(work, &cancel, &context, progress, grace).await {
                Some(None) => {
                    return Ok(CreateTaskResult::new(started.handle(tasks, &agent)?).into());
                }
                ended => {
                    connection.carried.forget(&started);
                    ended.flatten().flatten()
                }
            }
        } else {
            let work = call::contained(tool, call);
            call::waited_for(work, &cancel, &context, progress, grace).await
        };
        if context.ct.is_cancelled() {
            // Nobody reads it: what it tells counts as not told.
            return Err(ErrorData::internal_error("the call was cancelled", None));
        }
        let output = output.unwrap_or_else(|| {
            ToolOutput::error("ABORTED", "the call was stopped and did not end in time")
        });
        Ok(call::delivered(connection, &agent, output).into())
    }

    /// A client of the newer generation asks for log messages with each call.
    fn sink(&self, context: &RequestContext<RoleServer>) -> Option<SinkGuard> {
        let level = context.meta.log_level()?;
        self.connection().announcer().add(&context.peer, level)
    }
}

/// Whether the request is of the generation that has neither sessions nor a handshake.
fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    let version = context.protocol_version();
    version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

fn unknown_method(method: &str) -> ErrorData {
    let method = offshoot_core::text::one_line(method, 100);
    let message: Cow<'static, str> = format!("unknown method `{method}`").into();
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, message, None)
}

fn no_owner(error: OwnerError) -> ErrorData {
    tracing::error!(%error, "a connection has no session");
    let message = match error {
        OwnerError::Closing => "the connection is closing",
        // What went wrong names places of this machine.
        OwnerError::Open(_) => {
            "the session of this connection cannot be opened; see the server's log"
        }
    };
    ErrorData::internal_error(message, None)
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_logging()
            .enable_tasks()
            .build();
        let version = self.server().settings.version.clone();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("offshoot", version))
            .with_instructions(self.instructions())
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let negotiated = self.negotiate_initialize(&request)?;
        context.peer.set_peer_info(request);
        self.own
            .get_or_init(|| Connection::new(self.shared.server().clone(), None));
        Ok(negotiated)
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if is_modern(&context) {
            return Err(unknown_method("logging/setLevel"));
        }
        let announcer = self.connection().announcer();
        announcer.clear();
        if let Some(sink) = announcer.add(&context.peer, request.level) {
            sink.forget();
        }
        Ok(())
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        if request.is_some_and(|request| request.cursor.is_some()) {
            let message = "unknown cursor: the tools are one page";
            return Err(ErrorData::invalid_params(message, None));
        }
        Ok(ListToolsResult::with_all_items(self.server().tools.clone()))
    }

    fn get_tool(&self, name: &str) -> Option<rmcp::model::Tool> {
        let tools = self.server().tools.iter();
        tools.into_iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let args = Value::Object(request.arguments.unwrap_or_default());
        self.call(&request.name, args, context).await
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let connection = self.connection();
        let (tasks, agent) = (&self.server().calls, connection.known_owner());
        let task = connection.carried.look(tasks, agent, &request.task_id)?;
        Ok(GetTaskResult::new(task))
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let connection = self.connection();
        let (tasks, agent) = (&self.server().calls, connection.known_owner());
        connection.carried.cancel(tasks, agent, &request.task_id)
    }

    /// No task asks its client for anything: an answer to nothing is taken and dropped.
    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let connection = self.connection();
        let (tasks, agent) = (&self.server().calls, connection.known_owner());
        connection.carried.check(tasks, agent, &request.task_id)
    }

    /// A method that is not known, or a known one whose parameters could not be read.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method.as_str();
        if method == "tools/call"
            && let Some((name, args)) = lenient(request.params.as_ref())
        {
            let response = self.call(&name, args, context).await?;
            let value = serde_json::to_value(ServerResult::from(response));
            let value = value.map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
            return Ok(CustomResult::new(value));
        }
        let expected = match method {
            "initialize" | "logging/setLevel" | "ping" if is_modern(&context) => {
                return Err(unknown_method(method));
            }
            "tools/call" => "name (a text) and arguments (an object)",
            "initialize" => "protocolVersion, capabilities and clientInfo",
            "logging/setLevel" => "level (one of debug, info, notice, warning, error, …)",
            "tasks/get" | "tasks/cancel" => "taskId (a text)",
            "tasks/update" => "taskId (a text) and inputResponses (an object)",
            "tools/list" | "server/discover" | "ping" => "an object, or nothing",
            _ => return Err(unknown_method(method)),
        };
        let message = format!("invalid parameters of {method}: expected {expected}");
        Err(ErrorData::invalid_params(message, None))
    }
}

/// Arguments that are an object in a JSON text are parsed once; nothing is the empty object.
fn lenient(params: Option<&Value>) -> Option<(String, Value)> {
    let params = params?.as_object()?;
    let name = params.get("name")?.as_str()?.to_owned();
    let args = match params.get("arguments") {
        None | Some(Value::Null) => Value::Object(serde_json::Map::new()),
        Some(Value::String(text)) if text.trim().is_empty() => {
            Value::Object(serde_json::Map::new())
        }
        Some(Value::String(text)) => serde_json::from_str(text).ok()?,
        Some(other) => other.clone(),
    };
    args.is_object().then_some((name, args))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_that_were_sent_as_a_text_are_parsed_once() {
        let object = json!({"command": "true"});
        for arguments in [json!(object.to_string()), object.clone()] {
            let params = json!({"name": "bash", "arguments": arguments});
            let read = lenient(Some(&params));
            assert_eq!(read, Some(("bash".to_owned(), object.clone())));
        }
        for arguments in [json!(5), json!([]), json!("5"), json!("{"), json!("\"{}\"")] {
            let params = json!({"name": "bash", "arguments": arguments});
            assert_eq!(lenient(Some(&params)), None, "{params}");
        }
        let params = json!({"name": "bash", "arguments": null});
        assert_eq!(lenient(Some(&params)), Some(("bash".to_owned(), json!({}))));
        assert_eq!(lenient(Some(&json!({"name": 5}))), None);
    }
}
