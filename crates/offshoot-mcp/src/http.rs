//! The server as streamable HTTP, for loopback unless it is told otherwise.
//!
//! - Who asks is known by a bearer token; without tokens, which only loopback may do, everybody who gets
//!   through is one. Each has sessions that nobody else can see.
//! - A session is a connection. A client of the newer generation has no session: all its requests
//!   are one connection, that of its token.
//! - `Host` and `Origin` are checked, so that a page in a browser cannot get at a server on loopback.

mod host;
mod tokens;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::model::ServerJsonRpcMessage;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower_service::Service as _;

use crate::connection::Connection;
use crate::handler::{Handler, Sessions};
use crate::message;
use crate::server::McpServer;
pub use host::check_host;
pub use tokens::{Tokens, TokensError};

/// The path of the endpoint.
const PATH: &str = "/mcp";
/// The largest request, in bytes.
const MAX_BODY: usize = 4 * 1024 * 1024;
/// Connections of the transport at once; more wait to be accepted.
const MAX_SOCKETS: usize = 256;
/// Sessions of one token at once.
const MAX_SESSIONS: usize = 64;
/// How long a client may take to send its request.
const READ_LIMIT: Duration = Duration::from_secs(30);
/// How long what is too large anyway is read on.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);
/// How long a session lives without a message of its client or for it.
const SESSION_IDLE: Duration = Duration::from_secs(3600);
/// How long streams may take to end with the server.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What a client is told that calls the server by another name.
const STRANGE_NAME: &str = "Host and Origin have to be names of this server; a further name has to be \
given to it when it is started";

/// Who may use a server over HTTP.
#[derive(Clone, Debug, Default)]
pub struct HttpSettings {
    /// The tokens that are let in. None at all is for loopback only.
    pub tokens: Tokens,
    /// Names, besides the address itself, by which clients may call the server; see [`check_host`].
    pub hosts: Vec<String>,
}

/// A server that cannot be let out like this.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// It would be open to everybody.
    #[error("{0} is not a loopback address: expected a bearer token")]
    TokenNeeded(SocketAddr),
    /// It would answer to any name.
    #[error("{0} stands for any address: expected the host names that clients use")]
    HostsNeeded(SocketAddr),
    /// No client can call it by this name.
    #[error(
        "`{0}` can be nobody's name: expected a host name or an address, without scheme, port and path"
    )]
    BadHost(String),
    /// The listener is broken.
    #[error(transparent)]
    Io(#[from] io::Error),
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Everything behind one token.
struct Principal {
    service: StreamableHttpService<Handler, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    /// What the sessions have started.
    connections: Sessions,
    connection: Arc<Connection>,
}

struct Front {
    tokens: Tokens,
    principals: Vec<Principal>,
}

impl McpServer {
    /// Serves clients at `/mcp` until `stop` is cancelled; then everything that they started is stopped
    /// before this returns.
    ///
    /// # Errors
    ///
    /// [`HttpError`] before anything is served, and when the listener fails.
    pub async fn serve_http(
        &self,
        listener: TcpListener,
        settings: HttpSettings,
        stop: CancellationToken,
    ) -> Result<(), HttpError> {
        let address = listener.local_addr()?;
        if !address.ip().is_loopback() && settings.tokens.is_empty() {
            return Err(HttpError::TokenNeeded(address));
        }
        if address.ip().is_unspecified() && settings.hosts.is_empty() {
            return Err(HttpError::HostsNeeded(address));
        }
        settings
            .hosts
            .iter()
            .try_for_each(|name| check_host(name))?;
        let front = Arc::new(self.front(address, &settings, &stop));
        let mut sockets = JoinSet::new();
        let places = Arc::new(Semaphore::new(MAX_SOCKETS));
        loop {
            let place = Arc::clone(&places).acquire_owned();
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = async { (place.await, listener.accept().await) } => accepted,
                Some(_) = sockets.join_next() => continue,
            };
            match accepted {
                (Ok(place), Ok((socket, _))) => {
                    let front = Arc::clone(&front);
                    let stop = stop.clone();
                    sockets.spawn(async move {
                        front.serve(socket, stop).await;
                        drop(place);
                    });
                }
                (_, Err(error)) => {
                    // Mostly too many open files: it passes.
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                (Err(_), _) => break,
            }
        }
        drop(listener);
        let ended = async { while sockets.join_next().await.is_some() {} };
        let closed = futures::future::join_all(front.principals.iter().map(|p| p.close()));
        let ended = tokio::time::timeout(LAST_WORDS, ended);
        let (_, _, ()) = tokio::join!(ended, closed, self.0.close_all());
        sockets.shutdown().await;
        Ok(())
    }

    fn front(
        &self,
        address: SocketAddr,
        settings: &HttpSettings,
        stop: &CancellationToken,
    ) -> Front {
        let count = settings.tokens.len().max(1);
        let principals = (0..count).map(|_| self.principal(address, &settings.hosts, stop));
        Front {
            tokens: settings.tokens.clone(),
            principals: principals.collect(),
        }
    }

    fn principal(
        &self,
        address: SocketAddr,
        hosts: &[String],
        stop: &CancellationToken,
    ) -> Principal {
        let connection = Connection::new(self.clone(), None);
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(SESSION_IDLE);
        let sessions = Arc::new(sessions);
        let (names, origins) = allowed(address.ip(), hosts);
        let config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(names)
            .with_allowed_origins(origins)
            .enforce_origin_validation()
            .with_max_request_body_bytes(MAX_BODY)
            .with_cancellation_token(stop.clone());
        let shared = Arc::clone(&connection);
        let connections = Sessions::default();
        let known = Arc::clone(&connections);
        let handler = move || Ok(Handler::beside(Arc::clone(&shared), Arc::clone(&known)));
        Principal {
            service: StreamableHttpService::new(handler, Arc::clone(&sessions), config),
            sessions,
            connections,
            connection,
        }
    }
}

/// The names in `Host`, and the origins of pages, that are let through.
fn allowed(ip: IpAddr, hosts: &[String]) -> (Vec<String>, Vec<String>) {
    let mut names = hosts.to_vec();
    if ip.is_loopback() {
        names.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
    }
    if !ip.is_unspecified() {
        names.push(ip.to_string());
    }
    let origins = names.iter().flat_map(|name| {
        let name = match name.parse() {
            Ok(IpAddr::V6(ip)) => format!("[{ip}]"),
            _ => name.clone(),
        };
        [format!("http://{name}:*"), format!("https://{name}:*")]
    });
    let origins = origins.collect();
    (names, origins)
}

impl Principal {
    async fn close(&self) {
        // The sessions end with the server's token, which their handlers see.
        let sessions: Vec<_> = self
            .sessions
            .sessions
            .read()
            .await
            .values()
            .cloned()
            .collect();
        for session in sessions {
            let _ = session.close().await;
        }
        self.connection
            .server()
            .0
            .end(self.connection.close())
            .await;
    }
}

impl Front {
    async fn serve(self: Arc<Self>, socket: TcpStream, stop: CancellationToken) {
        let _ = socket.set_nodelay(true);
        let answers = hyper::service::service_fn(move |request| {
            let front = Arc::clone(&self);
            async move { Ok::<_, Infallible>(front.answer(request).await) }
        });
        let mut serving = std::pin::pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(READ_LIMIT)
                .serve_connection(TokioIo::new(socket), answers)
        );
        let served = tokio::select! {
            served = &mut serving => served,
            () = stop.cancelled() => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        };
        if let Err(error) = served {
            tracing::debug!(%error, "a client went");
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let Some(principal) = self.principal(request.headers()) else {
            let mut answer = plain(
                StatusCode::UNAUTHORIZED,
                "expected a bearer token that is known here",
            );
            let scheme = header::HeaderValue::from_static("Bearer");
            answer
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
            return answer;
        };
        if request.uri().path() != PATH {
            return plain(StatusCode::NOT_FOUND, "expected the path /mcp");
        }
        let hosts = request.headers().get_all(header::HOST);
        if hosts.iter().nth(1).is_some() {
            // One of them would be checked, and another may be meant by what is in between.
            return plain(StatusCode::BAD_REQUEST, "expected one Host header");
        }
        let too_large = || {
            let words = format!("expected at most {MAX_BODY} bytes");
            plain(StatusCode::PAYLOAD_TOO_LARGE, words)
        };
        let (parts, mut body) = request.into_parts();
        if body.size_hint().lower() > MAX_BODY as u64 {
            // Who is still sending would not read the answer.
            let _ = tokio::time::timeout(DRAIN_LIMIT, drain(&mut body)).await;
            return too_large();
        }
        let body = Limited::new(body, MAX_BODY).collect();
        let body = match tokio::time::timeout(READ_LIMIT, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                return too_large();
            }
            Ok(Err(_)) => return plain(StatusCode::BAD_REQUEST, "the request was cut"),
            Err(_) => return plain(StatusCode::REQUEST_TIMEOUT, "the request took too long"),
        };
        if parts.method == Method::POST && principal.is_full().await && begins_session(&body) {
            let words = format!("expected at most {MAX_SESSIONS} sessions at once; end one");
            return plain(StatusCode::SERVICE_UNAVAILABLE, words);
        }
        if parts.method == Method::DELETE {
            return principal.end_session(parts, body).await;
        }
        let is_json = parts.method == Method::POST && is_json(&parts.headers);
        let request = Request::from_parts(parts, Full::new(body.clone()));
        let answer = principal.answer(request).await;
        if answer.status() == StatusCode::FORBIDDEN {
            return plain(StatusCode::FORBIDDEN, STRANGE_NAME);
        }
        if is_json
            && answer.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE
            && let Err(fault) = message::parse(&body)
        {
            // It was JSON by its name alone.
            return malformed(fault);
        }
        answer
    }

    fn principal(&self, headers: &http::HeaderMap) -> Option<&Principal> {
        let at = match self.tokens.is_empty() {
            true => 0,
            false => self.tokens.position(headers.get(header::AUTHORIZATION)?)?,
        };
        self.principals.get(at)
    }
}

impl Principal {
    async fn answer(&self, request: Request<Full<Bytes>>) -> Answer {
        match self.service.clone().call(request).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        }
    }

    /// Ends a session, and with it everything that it has started, before it is answered.
    async fn end_session(&self, parts: http::request::Parts, body: Bytes) -> Answer {
        let id = parts.headers.get("mcp-session-id");
        let id = id.and_then(|id| id.to_str().ok()).map(str::to_owned);
        let open = match &id {
            Some(id) => self
                .sessions
                .sessions
                .read()
                .await
                .contains_key(id.as_str()),
            None => false,
        };
        let request = Request::from_parts(parts, Full::new(body));
        let mut answer = self.answer(request).await;
        let Some(id) = id.filter(|_| answer.status() == StatusCode::ACCEPTED) else {
            return answer;
        };
        if !open {
            return plain(
                StatusCode::NOT_FOUND,
                "expected the id of a session of this client",
            );
        }
        let connection = {
            let mut known = self
                .connections
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            known.remove(&id)
        };
        if let Some(connection) = connection.and_then(|it| it.upgrade()) {
            connection.server().0.end(connection.close()).await;
        }
        // Some clients take anything else for a failure.
        *answer.status_mut() = StatusCode::OK;
        answer
    }

    async fn is_full(&self) -> bool {
        self.sessions.sessions.read().await.len() >= MAX_SESSIONS
    }
}

/// Reads a body that nobody wants, as far as one may go.
async fn drain(body: &mut Incoming) {
    let mut left = 2 * MAX_BODY;
    while let Some(Ok(frame)) = body.frame().await {
        let read = frame.data_ref().map_or(0, Bytes::len);
        left = left.saturating_sub(read);
        if left == 0 {
            return;
        }
    }
}

fn begins_session(body: &[u8]) -> bool {
    let message: Option<Value> = serde_json::from_slice(body).ok();
    message.is_some_and(|message| message["method"] == "initialize")
}

fn is_json(headers: &http::HeaderMap) -> bool {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind
        .and_then(|kind| kind.split(';').next())
        .unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

/// A body that is no message.
fn malformed(fault: message::Fault) -> Answer {
    let error = ServerJsonRpcMessage::error(*fault.error, fault.id);
    let body = serde_json::to_vec(&error).unwrap_or_default();
    let mut answer = plain(StatusCode::BAD_REQUEST, body);
    let kind = header::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}

fn plain(status: StatusCode, words: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(words.into()).boxed());
    *answer.status_mut() = status;
    let kind = header::HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_server_are_let_through() {
        let (names, origins) = allowed([127, 0, 0, 1].into(), &[]);
        assert_eq!(names, ["localhost", "127.0.0.1", "::1", "127.0.0.1"]);
        assert!(
            origins.contains(&"http://[::1]:*".to_owned()),
            "{origins:?}"
        );
        let (names, origins) = allowed([0, 0, 0, 0].into(), &["box.example".to_owned()]);
        assert_eq!(names, ["box.example"]);
        assert_eq!(origins, ["http://box.example:*", "https://box.example:*"]);
    }
}
