//! The agent role: root agents of this runtime as sessions of a client such as an editor.
//!
//! A session is a root agent. A prompt is a message to it; it is answered when the agent is at rest: idle,
//! and nothing that it started is alive. So the turns that the notices of its children start belong to
//! the prompt, too. A prompt that comes meanwhile is read at the agent's next step, and both are
//! answered at the same rest.

mod calls;
mod content;
mod offered;
mod session;
mod show;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_client_protocol::{
    Agent as AgentRole, Builder, Channel, Client, ConnectionTo, Dispatch, Error,
    on_receive_dispatch,
};
use futures::future::{BoxFuture, join_all};
use offshoot_agent::{Agent, AgentId};
use offshoot_core::process::can_enter;
use offshoot_core::text::one_line;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use calls::Calls;
pub use offered::UnusedServers;
use session::Session;

/// The sessions of one client that may be open at once.
const MAX_SESSIONS: usize = 100;

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

    /// What a client is told that wants to load a session when sessions are not stored.
    fn not_stored(&self) -> String {
        "the sessions of this agent are not stored".to_owned()
    }

    /// Told of the MCP servers that the client wanted a session to use; none is. The client has them in
    /// the answer's `_meta`. By default the log says it.
    fn unused(&self, servers: &UnusedServers) {
        tracing::warn!(%servers, "the client's MCP servers are not used");
    }
}

/// Serves one client, until its input ends, `stop` is cancelled or the connection fails; then every
/// session is closed.
///
/// A line of the client that is no message, or has more than 32 MiB, is answered with an error and
/// changes nothing else; so is a request before `initialize`, one whose id is that of a request that is
/// not answered yet, and a session beyond the hundredth that is open.
///
/// Dropping the future leaves the sessions open: cancel `stop` instead.
///
/// # Errors
///
/// When one of the streams failed, or the client does not read what it is sent. A client that has gone, or
/// reads no more, is no error: the end of the input, a broken pipe, a connection that was reset.
pub async fn serve(
    sessions: Arc<dyn Sessions>,
    input: impl AsyncRead + Unpin + Send + 'static,
    output: impl AsyncWrite + Unpin + Send + 'static,
    stop: CancellationToken,
) -> io::Result<()> {
    let calls = Calls::new();
    let server = Server(Arc::new(Inner {
        sessions,
        open: Mutex::default(),
        calls: calls.clone(),
        begun: AtomicBool::new(false),
    }));
    let handler = server.clone();
    let builder = Builder::new(AgentRole)
        .name("offshoot")
        .on_receive_dispatch(
            async move |message, client: ConnectionTo<Client>| {
                handler.handle(message, &client).await
            },
            on_receive_dispatch!(),
        );
    let (near, far) = Channel::duplex();
    let (answers, asked) = far.into_parts();
    let (faulty, faults) = Calls::faults();
    let ended = CancellationToken::new();
    let reading = async {
        tokio::select! {
            read = calls.read(input, asked, faulty) => read,
            () = ended.cancelled() => Ok(()),
        }
    };
    let writing = calls.write(output, answers, faults);
    let (over, deaf) = (ended.clone(), calls.clone());
    let connection = builder.connect_with(near, async move |client| {
        tokio::select! {
            () = client.incoming_closed() => {}
            () = stop.cancelled() => {}
            () = deaf.deaf() => {}
        }
        over.cancel();
        Ok(())
    });
    let connection = async {
        let served = connection.await;
        ended.cancel();
        served.map_err(|error| io::Error::other(error.message))
    };
    let late = async {
        ended.cancelled().await;
        tokio::time::sleep(LAST_WORDS).await;
    };
    let talk = async {
        let (read, served, written) = tokio::join!(reading, connection, writing);
        unless_gone(written).and(unless_gone(read)).and(served)
    };
    let result = tokio::select! {
        result = talk => result,
        // It does not read what is left.
        () = late => Ok(()),
    };
    server.close_all().await;
    match calls.overrun() {
        Some(waiting) => {
            let words = format!("the client does not read: {waiting} messages wait for it");
            Err(io::Error::other(words))
        }
        None => result,
    }
}

/// A client that reads no more has gone, as one that has closed its side.
fn unless_gone(ended: io::Result<()>) -> io::Result<()> {
    let gone = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
    match ended {
        Err(error) if gone.contains(&error.kind()) => Ok(()),
        other => other,
    }
}

#[derive(Clone)]
struct Server(Arc<Inner>);

struct Inner {
    sessions: Arc<dyn Sessions>,
    open: Mutex<HashMap<String, Session>>,
    calls: Calls,
    /// The client has said `initialize`.
    begun: AtomicBool,
}

type Answer = Result<Value, Error>;

/// The request itself is all right, and not now.
fn refused(what: impl std::fmt::Display) -> Error {
    let mut error = Error::invalid_request();
    error.message = what.to_string();
    error
}

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
        self.0.calls.handled();
        match message {
            Dispatch::Request(request, responder) => {
                self.0.calls.queued();
                let (method, params) = request.into_parts();
                // Not here: the next message, such as a cancel, must be read meanwhile.
                match self.long(&method, &params) {
                    Some(Ok(work)) => {
                        client.spawn(async move { responder.respond_with_result(work.await) })
                    }
                    Some(Err(error)) => responder.respond_with_error(error),
                    None => responder.respond_with_result(self.answer(&method, &params, client)),
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

    /// The requests that are answered later; `None` when it is another one.
    fn long(
        &self,
        method: &str,
        params: &Value,
    ) -> Option<Result<BoxFuture<'static, Answer>, Error>> {
        if !self.0.begun.load(Ordering::Relaxed) {
            return None;
        }
        match method {
            "session/prompt" => Some(self.prompt(params)),
            "session/close" => Some(self.close(params)),
            _ => None,
        }
    }

    fn answer(&self, method: &str, params: &Value, client: &ConnectionTo<Client>) -> Answer {
        if method == "initialize" {
            return self.initialize(params);
        }
        if !self.0.begun.load(Ordering::Relaxed) {
            return Err(refused("expected `initialize` first"));
        }
        match method {
            "session/new" => {
                let folder = folder(params)?;
                self.has_room()?;
                let opened = self.0.sessions.create(&folder).map_err(invalid)?;
                let session = self.enter(opened, client);
                Ok(self.with_unused(params, json!({ "sessionId": session.id() })))
            }
            "session/load" if self.0.sessions.can_load() => {
                let folder = folder(params)?;
                let text = session_id(params)?;
                let id: AgentId = text.parse().map_err(invalid)?;
                if self.open().contains_key(text) {
                    return Err(invalid("the session is open"));
                }
                self.has_room()?;
                let opened = self.0.sessions.load(&id, &folder).map_err(invalid)?;
                self.enter(opened, client).replay();
                Ok(self.with_unused(params, json!({})))
            }
            "session/load" => {
                let mut error = Error::method_not_found();
                error.message = format!("session/load: {}", self.0.sessions.not_stored());
                Err(error)
            }
            _ => Err(Error::method_not_found()),
        }
    }

    /// The answer to a request for a session, with the offered servers that it does not use.
    fn with_unused(&self, params: &Value, mut answer: Value) -> Value {
        if let Some(unused) = UnusedServers::of(params) {
            self.0.sessions.unused(&unused);
            answer["_meta"] = unused.meta();
        }
        answer
    }

    fn initialize(&self, params: &Value) -> Answer {
        if params
            .get("protocolVersion")
            .and_then(Value::as_u64)
            .is_none()
        {
            return Err(invalid("expected `protocolVersion`, a number"));
        }
        self.0.begun.store(true, Ordering::Relaxed);
        Ok(json!({
            // The only one that is spoken: who speaks no older one than another may go.
            "protocolVersion": 1,
            "agentCapabilities": {
                "loadSession": self.0.sessions.can_load(),
                "promptCapabilities": {
                    "image": false, "audio": false, "embeddedContext": true,
                },
                "mcpCapabilities": { "http": false, "sse": false },
                "sessionCapabilities": { "close": {} },
            },
            "agentInfo": { "name": "offshoot", "version": env!("CARGO_PKG_VERSION") },
            "authMethods": [],
        }))
    }

    /// One that is closing still counts.
    fn has_room(&self) -> Result<(), Error> {
        if self.open().len() < MAX_SESSIONS {
            return Ok(());
        }
        let limit = MAX_SESSIONS;
        Err(refused(format_args!(
            "{limit} sessions are open, which is the limit: close one with session/close"
        )))
    }

    fn enter(&self, opened: Opened, client: &ConnectionTo<Client>) -> Session {
        let session = Session::new(opened, client.clone(), self.0.calls.clone());
        let id = session.id().to_owned();
        self.open().insert(id, session.clone());
        session
    }

    fn session(&self, params: &Value) -> Result<Session, Error> {
        let id = session_id(params)?;
        let session = self.open().get(id).cloned();
        let session = session.filter(|session| !session.is_closing());
        session.ok_or_else(|| invalid("no such session"))
    }

    fn prompt(&self, params: &Value) -> Result<BoxFuture<'static, Answer>, Error> {
        let session = self.session(params)?;
        let text = content::prompt(params).map_err(invalid)?;
        Ok(Box::pin(session.prompt(text)?))
    }

    /// Ends a session like a cancel, and lets it go.
    fn close(&self, params: &Value) -> Result<BoxFuture<'static, Answer>, Error> {
        let session = self.session(params)?;
        session.cancel();
        let closed = session.close();
        let server = self.clone();
        Ok(Box::pin(async move {
            closed.await;
            server.open().remove(session.id());
            Ok(json!({}))
        }))
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
    let why = match can_enter(&path) {
        Ok(()) if path.is_absolute() => return Ok(path),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => format!("{error}; "),
        _ => String::new(),
    };
    let path = one_line(&path.to_string_lossy(), 200);
    Err(invalid(format_args!(
        "cwd: {path}: {why}expected the absolute path of a folder"
    )))
}
