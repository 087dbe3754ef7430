//! A scripted model server on loopback, for tests.
//!
//! It speaks chat completions, responses, messages, `generateContent` and Ollama's `api/chat`, streamed
//! or not, with or without faults. A [`Script`] says what it answers to what; a request is judged by its
//! last user text and the number of tool results after it, so that requests which a client makes on the
//! side (titles, routers) disturb nobody.
//!
//! It runs on a thread and a runtime of its own: a test may pause its clock, or be no asynchronous
//! program at all.
//!
//! ```
//! use offshoot_model_server::{ModelServer, Rule, Script};
//!
//! let server = ModelServer::start(Script::new([Rule::user("hello").text("hi")]));
//! assert!(server.url("/v1/").starts_with("http://127.0.0.1:"));
//! assert!(server.requests().is_empty());
//! ```

mod answer;
mod conversation;
mod http;
mod script;
mod serve;
mod state;

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub use conversation::{Conversation, Format};
pub use script::{Call, Fault, Finish, Rule, Script, Usage};
pub use state::{Ending, Request};

use state::State;

/// A running server. Dropping it ends it with all connections.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    state: Arc<State>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ModelServer {
    /// Starts one on a free port of 127.0.0.1.
    ///
    /// # Panics
    ///
    /// When there is no port or no thread to be had.
    #[must_use]
    pub fn start(script: Script) -> Self {
        Self::start_at(script, 0)
    }

    /// Starts one on this port of 127.0.0.1; 0 is a free one.
    ///
    /// # Panics
    ///
    /// When the port or a thread is not to be had.
    #[must_use]
    pub fn start_at(script: Script, port: u16) -> Self {
        let listener = std::net::TcpListener::bind(("127.0.0.1", port)).expect("a port");
        listener.set_nonblocking(true).expect("a listener");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State::new(script));
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::clone(&state);
        let thread = std::thread::Builder::new()
            .name("model-server".to_owned())
            .spawn(move || run(listener, shared, stopped))
            .expect("a thread");
        Self {
            address,
            state,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// A URL of the server with this path.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests so far, in the order of their arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.state.requests()
    }

    /// Opens a gate that rules wait for.
    pub fn open(&self, gate: &str) {
        self.state.open(gate);
    }

    /// Waits until `found` finds something in the requests. Dropping the future has no effect.
    pub async fn until<T>(&self, found: impl Fn(&[Request]) -> Option<T>) -> T {
        self.state.until_requests(found).await
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(listener: std::net::TcpListener, state: Arc<State>, stopped: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async move {
        let listener = TcpListener::from_std(listener).expect("a listener");
        let accepting = async {
            loop {
                if let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve::connection(Arc::clone(&state), stream));
                }
            }
        };
        tokio::select! {
            _ = stopped => {}
            () = accepting => {}
        }
    });
}
