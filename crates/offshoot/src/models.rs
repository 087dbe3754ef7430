//! The models that a configuration names, as one [`Model`].
//!
//! Every agent asks the one of the table `model`, but for the children of a delegation tool with a model
//! of its own, and what is below them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use offshoot_agent::Agent;
use offshoot_llm::{LlmModel, LlmSettings, RetrySettings, Route, RouteError, SetupError};
use offshoot_loop::{Model, ModelError, ModelReply, ModelRequest};

use crate::config::Config;
use crate::routed;

/// A model that a configuration names cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelsError {
    /// It names none.
    #[error("model.name: expected PROVIDER/MODEL")]
    NotNamed,
    /// One of them cannot be asked.
    #[error("{key}: {error}")]
    Setup {
        /// The key that names it.
        key: String,
        /// Why.
        error: SetupError,
    },
}

impl ModelsError {
    /// The stable name of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotNamed => "no_model",
            Self::Setup { error, .. } => error.code(),
        }
    }
}

/// The models of a configuration. Keys come from the environment.
///
/// # Errors
///
/// [`ModelsError`], which names the key of the configuration, and the variable when a key is missing.
///
/// ```
/// use offshoot::config::ConfigLayers;
///
/// let config = ConfigLayers::new().set("model.name=ollama/qwen3")?.build()?;
/// let model = offshoot::models::from_config(&config).expect("a model");
/// let runtime = offshoot::Runtime::builder(config).model(model);
/// # Ok::<(), offshoot::config::ConfigError>(())
/// ```
pub fn from_config(config: &Config) -> Result<Arc<dyn Model>, ModelsError> {
    let routes = routes(config).map_err(|(key, error)| ModelsError::Setup {
        key,
        error: error.into(),
    })?;
    let make = |key: &str, route: Route| {
        let made = LlmModel::from_env(route, settings(config));
        made.map_err(|error| {
            let key = match error {
                // What is missing is the key beside it.
                SetupError::Route(RouteError::NoBaseUrl(_)) => beside(key),
                _ => key.to_owned(),
            };
            ModelsError::Setup { key, error }
        })
    };
    let usual = routes.usual.ok_or(ModelsError::NotNamed)?;
    let usual = make("model.name", usual)?;
    let mut named = HashMap::new();
    for (key, name, route) in routes.named {
        named.insert(name, make(&key, route)?);
    }
    Ok(Arc::new(Models { usual, named }))
}

/// The key of the address that belongs to the key of a model's name.
fn beside(name: &str) -> String {
    let table = name.rsplit_once('.').map_or("", |(table, _)| table);
    format!("{table}.base_url")
}

fn settings(config: &Config) -> LlmSettings {
    let model = &config.model;
    LlmSettings {
        max_output_tokens: model.max_output_tokens.map(Into::into),
        deadline: Duration::from_millis(model.deadline_ms),
        idle_timeout: Duration::from_millis(model.idle_timeout_ms),
        retry: RetrySettings {
            max_retries: model.max_retries,
            ..RetrySettings::default()
        },
        ..LlmSettings::default()
    }
}

struct Routes {
    usual: Option<Route>,
    /// Those of delegation tools: the key, the model's name, the route.
    named: Vec<(String, String, Route)>,
}

/// What the names of models in a configuration mean.
fn routes(config: &Config) -> Result<Routes, (String, RouteError)> {
    let at = |key: &str| {
        let key = key.to_owned();
        move |error| (key, error)
    };
    let base_url = config.model.base_url.as_deref();
    let usual = match &config.model.name {
        None => None,
        Some(name) => {
            let route: Route = name.parse().map_err(at("model.name"))?;
            Some(match base_url {
                Some(url) => route.with_base_url(url).map_err(at("model.base_url"))?,
                None => route,
            })
        }
    };
    let mut named = Vec::new();
    for (i, entry) in config.subagent.iter().enumerate() {
        let Some(name) = &entry.model else { continue };
        let key = format!("subagent[{i}].model");
        let route: Route = name.parse().map_err(at(&key))?;
        let of_one = |usual: &Route| usual.provider() == route.provider();
        let url = match (&entry.base_url, &usual) {
            (Some(url), _) => Some(url.as_str()),
            // Where one model of a provider is, the others are.
            (None, Some(usual)) if of_one(usual) => base_url,
            _ => None,
        };
        let route = match url {
            Some(url) => {
                let key = format!("subagent[{i}].base_url");
                route.with_base_url(url).map_err(at(&key))?
            }
            None => route,
        };
        named.push((key, name.clone(), route));
    }
    Ok(Routes { usual, named })
}

/// The first name or address that means nothing: its key and why.
pub(crate) fn fault(config: &Config) -> Option<(String, String)> {
    let (key, error) = routes(config).err()?;
    Some((key, error.to_string()))
}

struct Models {
    usual: LlmModel,
    named: HashMap<String, LlmModel>,
}

impl Models {
    fn of(&self, agent: &Agent) -> &LlmModel {
        let known = |name: &str| self.named.get(name);
        if self.named.is_empty() {
            return &self.usual;
        }
        routed::nearest(agent, known).unwrap_or(&self.usual)
    }
}

impl Model for Models {
    fn request(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelReply, ModelError>> {
        self.of(&request.agent).request(request)
    }
}
