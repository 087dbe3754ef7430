//! Delegation tools whose children ask another model.
//!
//! Which one is in the name of the children's provider, `spawn:PROVIDER/MODEL`, and so in their sessions:
//! it is known after a restart, and everybody can see it.

use std::sync::Arc;

use futures::future::BoxFuture;
use offshoot_agent::{Agent, StoredEvent};
use offshoot_inprocess::{Fork, Spawn};
use offshoot_subagent::{Capabilities, Provider, ProviderError, Run, RunRequest};

use crate::config::{Config, SubagentConfig};

/// The name of the provider that an entry's children have.
pub(crate) fn provider_name(entry: &SubagentConfig) -> String {
    match &entry.model {
        Some(model) => format!("{}:{model}", entry.provider),
        None => entry.provider.clone(),
    }
}

/// The providers of the entries with a model of their own, each once.
pub(crate) fn providers(config: &Config) -> Vec<Arc<dyn Provider>> {
    let mut providers: Vec<Arc<dyn Provider>> = Vec::new();
    for entry in config.subagent.iter().filter(|entry| entry.model.is_some()) {
        let inner: Arc<dyn Provider> = match entry.provider.as_str() {
            "spawn" => Arc::new(Spawn),
            "fork" => Arc::new(Fork),
            _ => continue,
        };
        let name = provider_name(entry);
        if !providers.iter().any(|known| known.name() == name) {
            providers.push(Arc::new(Named { inner, name }));
        }
    }
    providers
}

/// What `known` says to the model in the session of the agent, else in that of its nearest ancestor.
#[cfg_attr(not(feature = "llm"), expect(dead_code, reason = "only models ask"))]
pub(crate) fn nearest<'a, T>(
    agent: &Agent,
    known: impl Fn(&str) -> Option<&'a T>,
) -> Option<&'a T> {
    let mut agent = agent.clone();
    loop {
        let found = agent.with_projection(|projection| {
            let provider = projection.start()?.extra("provider")?;
            let (_, model) = provider.split_once(':')?;
            known(model)
        });
        if found.is_some() {
            return found;
        }
        // A parent outlives its resident children.
        agent = agent.host().agents.get(agent.parent_id()?)?;
    }
}

/// A provider under another name.
struct Named {
    inner: Arc<dyn Provider>,
    name: String,
}

impl Provider for Named {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn start(&self, request: RunRequest) -> BoxFuture<'_, Result<Box<dyn Run>, ProviderError>> {
        self.inner.start(request)
    }

    fn seed<'a>(
        &'a self,
        parent: &'a Agent,
    ) -> BoxFuture<'a, Result<Option<Vec<StoredEvent>>, ProviderError>> {
        self.inner.seed(parent)
    }
}
