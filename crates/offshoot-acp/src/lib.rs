//! The Agent Client Protocol: external agents as subagents, and agents of this runtime for a client.
//!
//! [`AcpProvider`] starts the agent that its [`AcpSettings`] name, once a delegation: a process group of
//! its own that speaks the protocol on its standard input and output. It gets one prompt in one session;
//! the text that it streams is the answer; at the end its whole process tree is gone.
//!
//! ```
//! use offshoot_acp::{AcpProvider, AcpSettings, Permission};
//!
//! let mut settings = AcpSettings::new("peer", "some-agent");
//! settings.args = vec!["--acp".to_owned()];
//! settings.permission = Permission::Allow;
//! let provider = AcpProvider::new(settings);
//! ```
//!
//! The agent is not trusted: what it writes is read line by line within bounds, what it asks for is
//! answered by the settings alone, every wait has an end, and why it failed is said in one line with the
//! end of its standard error ([`AcpError`]).
//!
//! The other way round, [`serve`] lets a client such as an editor drive root agents of this runtime.
//!
//! A run is one-shot. A continuable child is a session of this runtime, whose log makes it again after
//! a crash; an external agent keeps its conversation to itself, and not every one can load it again.

mod client;
mod error;
mod files;
mod peer;
mod run;
mod serve;
mod settings;
mod turn;
mod wire;

use std::sync::Arc;

use futures::future::BoxFuture;
use offshoot_subagent::{Capabilities, Provider, ProviderError, Run, RunRequest};

pub use error::{AcpError, Stage};
pub use serve::{Opened, Sessions, UnusedServers, serve};
pub use settings::{AcpSettings, Files, Permission};

/// Makes children that are runs of one external agent.
#[derive(Clone, Debug)]
pub struct AcpProvider(Arc<AcpSettings>);

impl AcpProvider {
    /// A provider of this agent.
    #[must_use]
    pub fn new(settings: AcpSettings) -> Self {
        Self(Arc::new(settings))
    }

    /// How the agent is run.
    #[must_use]
    pub fn settings(&self) -> &AcpSettings {
        &self.0
    }
}

impl Provider for AcpProvider {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn start(&self, request: RunRequest) -> BoxFuture<'_, Result<Box<dyn Run>, ProviderError>> {
        Box::pin(run::start(Arc::clone(&self.0), request))
    }
}
