//! The server: what all its connections share.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use offshoot_agent::{
    AgentHandle, AgentHost, AgentId, AgentKit, Event, EventRecord, ObserverGuard,
};
use offshoot_task::TaskRegistry;
use rmcp::service::{ServerInitializeError, serve_server_with_ct};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::connection::Connection;
use crate::handler::{self, Handler};
use crate::lines::Lines;
use crate::tasks::CallTasks;

/// What a server is made of.
#[derive(Clone, Debug)]
pub struct ServerParts {
    /// Where the connections' agents live.
    pub host: AgentHost,
    /// The tools that clients see; children begin with it.
    pub kit: AgentKit,
    /// The registry that the tools start tasks in.
    pub tasks: TaskRegistry,
}

/// How a server behaves.
#[derive(Clone, Debug)]
pub struct McpSettings {
    /// The version that clients are told.
    pub version: String,
    /// The tools whose long calls become tasks for clients that know tasks.
    pub as_tasks: Vec<String>,
    /// How long such a call may take before it becomes one. Default 1 s.
    pub task_after: Duration,
    /// How often a running call reports progress to a caller that asked for it. Default 1 s.
    pub progress_every: Duration,
    /// Calls of one connection that may run at once; more are refused. Default 64.
    pub max_calls: usize,
    /// Calls of one connection that may be tasks of the protocol at once; more are refused. They are
    /// no background tasks, and count as none. Default 256.
    pub max_call_tasks: usize,
    /// The longest line that is read, in bytes; a longer one is answered with an error. Default 4 MiB.
    pub max_line_bytes: usize,
    /// How long a connection whose client has closed its side goes on with the calls that are not
    /// answered yet. Default 500 ms.
    pub drain: Duration,
    /// How long the end of a connection is waited for after that, however deep the work below it is:
    /// should be a little more than the teardown grace of the tasks. Default 6 s.
    pub close_limit: Duration,
}

impl Default for McpSettings {
    fn default() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            as_tasks: Vec::new(),
            task_after: Duration::from_secs(1),
            progress_every: Duration::from_secs(1),
            max_calls: 64,
            max_call_tasks: 256,
            max_line_bytes: 4 * 1024 * 1024,
            drain: Duration::from_millis(500),
            close_limit: Duration::from_secs(6),
        }
    }
}

type Connections = Arc<Mutex<HashMap<AgentId, Weak<Connection>>>>;

pub(crate) struct Shared {
    pub(crate) parts: ServerParts,
    pub(crate) settings: McpSettings,
    pub(crate) tools: Vec<rmcp::model::Tool>,
    /// The calls that are tasks of the protocol.
    pub(crate) calls: CallTasks,
    /// Those whose agents were made: to tell them of notices.
    connections: Connections,
    _observer: ObserverGuard,
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, HashMap<AgentId, Weak<Connection>>> {
        lock(&self.connections)
    }

    pub(crate) fn enter(&self, id: &AgentId, connection: &Arc<Connection>) {
        let connection = Arc::downgrade(connection);
        self.connections().insert(id.clone(), connection);
    }

    pub(crate) fn leave(&self, id: &AgentId) {
        self.connections().remove(id);
    }

    /// Ends every connection that has an agent, all at once.
    pub(crate) async fn close_all(&self) {
        let open: Vec<_> = self
            .connections()
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        let closed = futures::future::join_all(open.iter().map(|connection| connection.close()));
        self.end(closed).await;
    }

    /// Waits for the end of something, and no longer than may be.
    pub(crate) async fn end(&self, closed: impl Future) {
        if tokio::time::timeout(self.settings.close_limit, closed)
            .await
            .is_err()
        {
            tracing::warn!("some work of a client did not end in time, and was left");
        }
    }
}

fn lock(connections: &Connections) -> MutexGuard<'_, HashMap<AgentId, Weak<Connection>>> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The delegation tools as a server. Cloning gives another handle to the same one.
#[derive(Clone)]
pub struct McpServer(pub(crate) Arc<Shared>);

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServer")
            .field("tools", &self.0.parts.kit.tools)
            .finish_non_exhaustive()
    }
}

impl McpServer {
    /// A server of these parts.
    #[must_use]
    pub fn new(parts: ServerParts, settings: McpSettings) -> Self {
        let tools = parts.kit.tools.iter();
        let tools = tools.map(|tool| handler::listed(tool.as_ref())).collect();
        let connections = Connections::default();
        let told = Arc::clone(&connections);
        let observer = parts
            .host
            .hub
            .observe(Arc::new(move |record: &EventRecord| {
                let Event::InboxInserted { message, .. } = &record.event else {
                    return;
                };
                let connection = lock(&told).get(&record.session).and_then(Weak::upgrade);
                if let Some(connection) = connection {
                    connection.announcer().tell(message);
                }
            }));
        let calls = CallTasks::new(
            settings.max_call_tasks,
            parts.host.settings.cancel_grace,
            parts.host.agents.clone(),
        );
        Self(Arc::new(Shared {
            parts,
            settings,
            tools,
            calls,
            connections,
            _observer: observer,
        }))
    }

    /// Serves one client over a pair of streams, a JSON-RPC message a line, until the client closes its
    /// side or `stop` is cancelled. `resumed` is the connection's agent when it goes on with a stored
    /// session; it must not have been started.
    ///
    /// Everything that the client started is stopped before this returns: within the drain and the
    /// close limit of the settings. What takes longer than that goes on ending in the background.
    /// Continuable children stay in the store.
    ///
    /// Dropping the future abandons the connection; its work then ends in the background.
    ///
    /// # Errors
    ///
    /// When one of the streams failed. A client that has gone, or reads no more, is no error: the end of
    /// the input, a broken pipe, a connection that was reset.
    pub async fn serve<R, W>(
        &self,
        read: R,
        write: W,
        resumed: Option<AgentHandle>,
        stop: CancellationToken,
    ) -> io::Result<()>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let connection = Connection::new(self.clone(), resumed);
        let lines = Lines::new(read, write, self.0.settings.max_line_bytes);
        let gone = lines.gone();
        let protocol = async {
            self.speak(&connection, &lines, &stop).await;
            gone.cancel();
        };
        let closing = async {
            tokio::select! {
                () = gone.cancelled() => {
                    // What was asked before the end is answered, if that does not take long.
                    let answered = lines.all_answered();
                    let _ = tokio::time::timeout(self.0.settings.drain, answered).await;
                }
                () = stop.cancelled() => {}
            }
            self.0.end(connection.close()).await;
        };
        tokio::join!(protocol, closing);
        lines.failure()
    }

    /// Runs the protocol to its end. A handshake that fails is one message that went wrong: the next
    /// one may be right.
    async fn speak<R, W>(
        &self,
        connection: &Arc<Connection>,
        lines: &Lines<R, W>,
        stop: &CancellationToken,
    ) where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        loop {
            let handler = Handler::over(Arc::clone(connection));
            let ended = stop.child_token();
            match serve_server_with_ct(handler, lines.clone(), ended).await {
                Ok(running) => {
                    if let Err(error) = running.waiting().await {
                        tracing::error!(%error, "the protocol ended");
                    }
                    return;
                }
                Err(
                    error @ (ServerInitializeError::ExpectedInitializeRequest(_)
                    | ServerInitializeError::InitializeFailed(_)
                    | ServerInitializeError::UnexpectedInitializeResponse(_)),
                ) => tracing::debug!(%error, "a handshake failed"),
                Err(error) => {
                    tracing::debug!(%error, "the client went before the handshake");
                    return;
                }
            }
        }
    }
}
