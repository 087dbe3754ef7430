//! A running agent and the connection to it.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_client_protocol::{
    Agent, Builder, Client as ClientRole, ConnectionTo, Error, Lines, UntypedMessage,
    is_connection_terminated, is_incoming_transport_closed, on_receive_dispatch,
};
use offshoot_core::process::{EnvPolicy, Program, ProgramOutcome, ProgramRun, TailText};
use offshoot_core::text;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::client::Client;
use crate::wire::Wire;
use crate::{AcpError, AcpSettings, Stage};

/// How much of the standard error a diagnostic has.
const STDERR_TAIL: usize = 1024;

/// How long an agent that has exited may have left something to read, and one that has closed its
/// output may take to exit.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// One agent: its processes and both ends of the protocol. Dropping it kills the processes.
pub(crate) struct Peer {
    program: Program,
    env: EnvPolicy,
    running: ProgramRun,
    exit: Option<ProgramOutcome>,
    pub(crate) client: Client,
    wire: Wire,
    to_agent: ConnectionTo<Agent>,
    connection: AbortOnDropHandle<()>,
    stderr: Arc<Mutex<TailText>>,
    /// Ends by itself with the pipe.
    _reader: AbortOnDropHandle<()>,
}

impl Peer {
    /// Starts the agent for a parent at this depth, and connects to it. Nothing was said yet.
    ///
    /// Dropping the future leaves nothing running.
    pub(crate) async fn start(settings: &AcpSettings, parent: u32) -> Result<Self, AcpError> {
        let folder = settings.folder().map_err(AcpError::Folder)?;
        let program = settings.program(parent);
        let mut running = ProgramRun::spawn(&program, &settings.run)?;
        let ended = || AcpError::Ended(Stage::Initialize);
        let stdin = running.take_stdin().ok_or_else(ended)?;
        let stdout = running.take_stdout().ok_or_else(ended)?;
        let stderr = Arc::new(Mutex::new(TailText::new(4 * STDERR_TAIL)));
        let reader = tokio::spawn(keep(running.take_stderr(), Arc::clone(&stderr)));
        let wire = Wire::default();
        let client = Client::new(settings, folder, wire.clone());
        let lines = Lines::new(
            Box::pin(wire.outgoing(stdin)),
            Box::pin(wire.incoming(stdout, settings)),
        );
        let handler = client.clone();
        let builder = Builder::new(ClientRole)
            .name("offshoot")
            .on_receive_dispatch(
                async move |message, _| handler.handle(message).await,
                on_receive_dispatch!(),
            );
        let (opened, to_agent) = oneshot::channel();
        let connection = tokio::spawn(async move {
            let connected = builder.connect_with(lines, async move |to_agent| {
                let _ = opened.send(to_agent.clone());
                to_agent.incoming_closed().await;
                Ok(())
            });
            if let Err(error) = connected.await {
                tracing::debug!(%error, "the connection to an agent ended");
            }
        });
        Ok(Self {
            to_agent: to_agent.await.map_err(|_| ended())?,
            connection: AbortOnDropHandle::new(connection),
            program,
            env: settings.run.env.clone(),
            running,
            exit: None,
            client,
            wire,
            stderr,
            _reader: AbortOnDropHandle::new(reader),
        })
    }

    /// Asks the agent, and waits for its answer or for its end.
    ///
    /// Dropping the future tells the agent that the answer is not wanted any more.
    pub(crate) async fn ask(&mut self, stage: Stage, params: Value) -> Result<Value, AcpError> {
        let message = UntypedMessage {
            method: stage.to_string(),
            params,
        };
        let mut answer = pin!(self.to_agent.send_request(message).block_task());
        let answer = tokio::select! {
            biased;
            answer = &mut answer => Some(answer),
            exit = self.running.wait(), if self.exit.is_none() => {
                self.exit = Some(exit);
                // What it said last may still be in the pipe.
                timeout(LAST_WORDS, answer).await.ok()
            }
        };
        match answer {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(error)) if !is_end(&error) => Err(AcpError::Refused {
                stage,
                code: error.code.into(),
                message: text::one_line(&error.message, 400),
            }),
            _ => {
                if self.exit.is_none() {
                    self.exit = timeout(LAST_WORDS, self.running.wait()).await.ok();
                }
                Err(self.wire.take_fault().unwrap_or(AcpError::Ended(stage)))
            }
        }
    }

    pub(crate) fn to_agent(&self) -> ConnectionTo<Agent> {
        self.to_agent.clone()
    }

    /// One bounded line with everything that is known about a failure.
    pub(crate) fn diagnostic(&self, why: &str) -> String {
        let exit = self.exit.map(|exit| exit.to_string());
        let garbage = self
            .wire
            .garbage()
            .map(|line| format!("not a message: `{line}`"));
        let redacted = |text: &str| self.program.redacted(text, &self.env);
        let stderr = {
            let stderr = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
            redacted(stderr.text())
        };
        let stderr = text::one_line(text::tail(&stderr, STDERR_TAIL), STDERR_TAIL);
        let stderr = (!stderr.is_empty()).then(|| format!("stderr: {stderr}"));
        let parts = [Some(why.to_owned()), exit, garbage, stderr];
        // What it answered may have them as well.
        redacted(&parts.into_iter().flatten().collect::<Vec<_>>().join("; "))
    }

    /// Ends the agent: its standard input is closed, and what has not exited in `grace` is stopped with
    /// everything that it started. False when something could not be killed.
    ///
    /// Dropping the future kills what is left.
    pub(crate) async fn end(&mut self, grace: Duration) -> bool {
        // The connection has the agent's standard input.
        self.connection.abort();
        let _ = (&mut self.connection).await;
        let exit = match timeout(grace, self.running.wait()).await {
            Ok(exit) => exit,
            Err(_) => self.running.stop().await,
        };
        self.exit = Some(exit);
        exit.group_gone
    }
}

/// Tells the agent something, as far as it still listens.
pub(crate) fn tell(to_agent: &ConnectionTo<Agent>, method: &str, params: Value) {
    let message = UntypedMessage {
        method: method.to_owned(),
        params,
    };
    if let Err(error) = to_agent.send_notification(message) {
        tracing::debug!(method, %error, "an agent could not be told");
    }
}

/// Whether it is the end of the connection, and nothing that the agent said.
fn is_end(error: &Error) -> bool {
    is_incoming_transport_closed(error) || is_connection_terminated(error)
}

async fn keep(stderr: Option<ChildStderr>, tail: Arc<Mutex<TailText>>) {
    let Some(mut stderr) = stderr else { return };
    let mut chunk = [0; 4096];
    while let Ok(read) = stderr.read(&mut chunk).await
        && read > 0
    {
        tail.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(&chunk[..read]);
    }
}
