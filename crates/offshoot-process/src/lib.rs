//! Subagents that are command line programs: the prompt goes in, an answer comes out, the program ends.
//!
//! [`ProcessProvider`] starts the program that its [`ProcessSettings`] name, once a delegation. The
//! prompt is an argument or the standard input, the answer is the standard output or a field of the
//! JSON lines in it ([`FieldPath`]), and how the program exits says how the run ended.
//!
//! ```
//! use offshoot_process::{ProcessProvider, ProcessSettings};
//!
//! let mut settings = ProcessSettings::new("reviewer", "some-agent");
//! settings.args = ["exec", "--json", "--", "{prompt}"].map(str::to_owned).to_vec();
//! settings.answer = Some("item.text".parse()?);
//! let provider = ProcessProvider::new(settings);
//! # Ok::<(), offshoot_process::BadFieldPath>(())
//! ```
//!
//! A run is one-shot: the program's exit is its end, and whatever it left running is killed then. There
//! is no session to go on with, so the provider does not declare continuable children; nor does it
//! know the program's tools or its system prompt, so there is neither a tool filter nor a persona.

mod answer;
mod field;
mod run;
mod settings;

use std::sync::Arc;

use futures::future::BoxFuture;
use offshoot_subagent::{Capabilities, Provider, ProviderError, Run, RunRequest};

pub use field::{BadFieldPath, FieldPath};
pub use settings::{PROMPT, ProcessSettings};

/// Makes children that are runs of one program.
#[derive(Clone, Debug)]
pub struct ProcessProvider(Arc<ProcessSettings>);

impl ProcessProvider {
    /// A provider of this program.
    #[must_use]
    pub fn new(settings: ProcessSettings) -> Self {
        Self(Arc::new(settings))
    }

    /// How the program is run.
    #[must_use]
    pub fn settings(&self) -> &ProcessSettings {
        &self.0
    }
}

impl Provider for ProcessProvider {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn start(&self, request: RunRequest) -> BoxFuture<'_, Result<Box<dyn Run>, ProviderError>> {
        let settings = Arc::clone(&self.0);
        Box::pin(async move { run::start(&settings, request) })
    }
}
