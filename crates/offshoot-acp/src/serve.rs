//! The agent role: root agents of this runtime as sessions of a client such as an editor.
//!
//! A session is a root agent. A prompt is a message to it; it is answered when the agent is at rest: idle,
//! and nothing that it started is alive. So the turns that the notices of its children start belong to
//! the prompt, too. A prompt that comes meanwhile is read at the agent's next step, and both are
//! answered at the same rest.

mod content;
mod session;
mod show;

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_client_protocol::{
    Agent as AgentRole, Builder, Client, ConnectionTo, Dispatch, Error, Lines, on_receive_dispatch,
};
use futures::future::{BoxFuture, join_all};
use offshoot_agent::{Agent, AgentId};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::wire::Wire;
use session::Session;

/// The sessions of one client.
const MAX_SESSIONS: usize = 100;

/// How long one message of a client may be.
const MAX_LINE: usize = 32 * 1024 * 1024;

/// How long the last messages may take to be written when the connection ends.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What a session stands on.
pub struct Opened {
    /// Its agent: a root, which runs.
    pub agent: Agent,
    /// Ends what the agent has started, on behalf of the user who cancelled its prompt: it must not
    /// start the agent again.
    pub stop: Box<dyn Fn() + Send + Sync>,
    /// Ends the agent with everything below it, within the teardown grace. What it keeps alive is
    /// dropped with it.
    pub close: Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened")
            .field("agent", &self.agent.id())
            .finish_non_exhaustive()
    }
}

/// What makes the agents of sessions.
///
/// # Implementing
///
/// Called on the task that reads the client's messages: must not block for long. An error is told to
/// the client as it is.
pub trait Sessions: Send + Sync + 'static {
    /// A new agent that works in `cwd`, which is an absolute path of a folder.
    ///
    /// # Errors
    ///
    /// Why there is none.
    fn create(&self, cwd: &Path) -> Result<Opened, String>;

    /// The agent of a stored session.
    ///
    /// # Errors
    ///
    /// Why there is none.
    fn load(&self, id: &AgentId, cwd: &Path) -> Result<Opened, String>;

    /// Whether sessions are stored.
    fn can_load(&self) -> bool;
}

/// Serves one client, until its input ends, `stop` is cancelled or the connection fails; then every
/// session is closed.
///
/// Dropping the future leaves the sessions open: cancel `stop` instead.
///
/// # Errors
///
/// When the connection failed: the client wrote a message that is too long, or reads nothing.
pub async fn serve(
    sessions: Arc<dyn Sessions>,
    input: impl AsyncRead + Unpin + Send + 'static,
    output: impl AsyncWrite + Unpin + Send + 'static,
    stop: CancellationToken,
) -> io::Result<()> {
    let wire = Wire::default();
    let server = Server(Arc::new(Inner {
        sessions,
        open: Mutex::default(),
        wire: wire.clone(),
    }));
    let lines = Lines::new(
        Box::pin(wire.outgoing(output)),
        Box::pin(wire.incoming_calls(input, MAX_LINE)),
    );
    let handler = server.clone();
    let builder = Builder::new(AgentRole)
        .name("offshoot")
        .on_receive_dispatch(
            async move |message, client: ConnectionTo<Client>| {
                handler.handle(message, &client).await
            },
            on_receive_dispatch!(),
        );
    let ended = CancellationToken::new();
    let overrun = wire.clone();
    let connection = {
        let ended = ended.clone();
        builder.connect_with(lines, async move |client| {
            tokio::select! {
                () = client.incoming_closed() => {}
                () = stop.cancelled() => {}
                () = overrun.overrun() => {}
            }
            ended.cancel();
            Ok(())
        })
    };
    let late = async {
        ended.cancelled().await;
        tokio::time::sleep(LAST_WORDS).await;
    };
    let result = tokio::select! {
        result = connection => result,
        // It does not read what is left.
        () = late => Ok(()),
    };
    server.close_all().await;
    match (wire.take_fault(), result) {
        (Some(fault), _) => Err(io::Error::other(fault.to_string())),
        (None, Err(error)) => Err(io::Error::other(error.to_string())),
        (None, Ok(())) => Ok(()),
    }
}

#[derive(Clone)]
struct Server(Arc<Inner>);

struct Inner {
    sessions: Arc<dyn Sessions>,
    open: Mutex<HashMap<String, Session>>,
    wire: Wire,
}

type Answer = Result<Value, Error>;

fn invalid(what: impl std::fmt::Display) -> Error {
    let mut error = Error::invalid_params();
    error.message = what.to_string();
    error
}

impl Server {
    fn open(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        // Nothing that can panic half way runs under this lock.
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn handle(&self, message: Dispatch, client: &ConnectionTo<Client>) -> Result<(), Error> {
        match message {
            Dispatch::Request(request, responder) => {
                self.0.wire.asked();
                let (method, params) = request.into_parts();
                if method != "session/prompt" {
                    let answer = self.answer(&method, &params, client).await;
                    return responder.respond_with_result(answer);
                }
                match self.prompt(&params) {
                    // Not here: the next message, such as a cancel, must be read meanwhile.
                    Ok(turn) => {
                        client.spawn(async move { responder.respond_with_result(turn.await) })
                    }
                    Err(error) => responder.respond_with_error(error),
                }
            }
            Dispatch::Notification(notification) => {
                if notification.method() == "session/cancel"
                    && let Ok(session) = self.session(notification.params())
                {
                    session.cancel();
                }
                Ok(())
            }
            Dispatch::Response(result, router) => router.route_with_result(result),
        }
    }

    async fn answer(&self, method: &str, params: &Value, client: &ConnectionTo<Client>) -> Answer {
        match method {
            "initialize" => Ok(json!({
                "protocolVersion": 1,
                "agentCapabilities": {
                    "loadSession": self.0.sessions.can_load(),
                    "promptCapabilities": {
                        "image": false, "audio": false, "embeddedContext": true,
                    },
                },
                "agentInfo": { "name": "offshoot", "version": env!("CARGO_PKG_VERSION") },
                "authMethods": [],
            })),
            "session/new" => {
                let opened = self.0.sessions.create(&folder(params)?).map_err(invalid)?;
                let id = self.enter(opened, client).await?;
                Ok(json!({ "sessionId": id }))
            }
            "session/load" if self.0.sessions.can_load() => {
                let folder = folder(params)?;
                let text = session_id(params)?;
                let id: AgentId = text.parse().map_err(invalid)?;
                if self.open().contains_key(text) {
                    return Err(invalid("the session is open"));
                }
                let opened = self.0.sessions.load(&id, &folder).map_err(invalid)?;
                let id = self.enter(opened, client).await?;
                if let Some(session) = self.open().get(&id).cloned() {
                    session.replay();
                }
                Ok(json!({}))
            }
            _ => Err(Error::method_not_found()),
        }
    }

    /// Keeps a session, unless there are too many.
    async fn enter(&self, opened: Opened, client: &ConnectionTo<Client>) -> Result<String, Error> {
        let id = opened.agent.id().to_string();
        let session = Session::new(opened, client.clone(), self.0.wire.clone());
        let full = {
            let mut open = self.open();
            if open.len() < MAX_SESSIONS {
                open.insert(id.clone(), session);
                return Ok(id);
            }
            session
        };
        full.close().await;
        Err(invalid(format_args!("{MAX_SESSIONS} sessions are open")))
    }

    fn session(&self, params: &Value) -> Result<Session, Error> {
        let id = session_id(params)?;
        let session = self.open().get(id).cloned();
        session.ok_or_else(|| invalid("no such session"))
    }

    fn prompt(&self, params: &Value) -> Result<impl Future<Output = Answer> + Send + use<>, Error> {
        let session = self.session(params)?;
        let text = content::prompt(params).map_err(invalid)?;
        session.prompt(text)
    }

    async fn close_all(&self) {
        let sessions: Vec<Session> = self.open().drain().map(|(_, session)| session).collect();
        join_all(sessions.iter().map(Session::close)).await;
    }
}

fn session_id(params: &Value) -> Result<&str, Error> {
    let id = params.get("sessionId").and_then(Value::as_str);
    id.ok_or_else(|| invalid("expected `sessionId`"))
}

fn folder(params: &Value) -> Result<PathBuf, Error> {
    let path = params.get("cwd").and_then(Value::as_str);
    let path = PathBuf::from(path.ok_or_else(|| invalid("expected `cwd`, a folder"))?);
    if path.is_absolute() && path.is_dir() {
        return Ok(path);
    }
    let path = path.display();
    Err(invalid(format_args!(
        "cwd: {path}: expected the absolute path of a folder"
    )))
}
