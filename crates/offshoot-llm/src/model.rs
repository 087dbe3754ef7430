//! The model.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use offshoot_core::{SystemClock, WallClock};
use offshoot_loop::{Model, ModelError, ModelReply, ModelRequest};
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

use crate::answer::Answer;
use crate::ask::Attempt;
use crate::client::{Line, LineError};
use crate::convert::Asked;
use crate::recall::{Memory, Recall};
use crate::{ApiKey, KeyError, LlmSettings, Provider, RequestError, Route, RouteError, retry};

/// A model that is asked over HTTP. Clones share their connections.
#[derive(Clone)]
pub struct LlmModel(Arc<Inner>);

struct Inner {
    route: Route,
    key: Option<ApiKey>,
    settings: LlmSettings,
    line: Line,
    recall: Recall,
    clock: Arc<dyn WallClock>,
}

impl fmt::Debug for LlmModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LlmModel")
            .field("route", &self.0.route.to_string())
            .field("settings", &self.0.settings)
            .finish_non_exhaustive()
    }
}

/// A model cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The route leads nowhere.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// There is no key that can be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// There is no HTTP client to be had.
    #[error(transparent)]
    Client(RequestError),
}

impl SetupError {
    /// The stable name of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Route(error) => error.code(),
            Self::Key(error) => error.code(),
            Self::Client(error) => error.code(),
        }
    }
}

impl LlmModel {
    /// A model with the key of its provider's environment variable.
    ///
    /// # Errors
    ///
    /// [`SetupError`]: the variable is missing (it is named), or the route leads nowhere.
    pub fn from_env(route: Route, settings: LlmSettings) -> Result<Self, SetupError> {
        // A bad address is told before a missing key.
        route.base_url()?;
        let key = ApiKey::from_env(route.provider())?;
        Self::new(route, key, settings)
    }

    /// A model with this key.
    ///
    /// # Errors
    ///
    /// [`SetupError`]: the provider needs a key and there is none, or the route leads nowhere.
    pub fn new(
        route: Route,
        key: Option<ApiKey>,
        settings: LlmSettings,
    ) -> Result<Self, SetupError> {
        let provider = route.provider();
        if let (None, true, Some(variable)) =
            (&key, provider.requires_key(), provider.key_variable())
        {
            return Err(KeyError::Missing { provider, variable }.into());
        }
        let line = Line::new(&route, key.as_ref(), &settings).map_err(|error| match error {
            LineError::Route(error) => SetupError::Route(error),
            LineError::Client(error) => SetupError::Client(error),
        })?;
        Ok(Self(Arc::new(Inner {
            route,
            key,
            settings,
            line,
            recall: Recall::default(),
            clock: Arc::new(SystemClock),
        })))
    }

    /// Which model it is.
    #[must_use]
    pub fn route(&self) -> &Route {
        &self.0.route
    }

    /// Answers one request.
    ///
    /// Dropping the future closes the connection or ends the wait before a retry; what had arrived of
    /// the text stays in `request.partial`.
    ///
    /// # Errors
    ///
    /// [`RequestError`], after the retries of [`RetrySettings`](crate::RetrySettings).
    pub async fn ask(&self, request: &ModelRequest) -> Result<ModelReply, RequestError> {
        let inner = &*self.0;
        let provider = inner.route.provider();
        let asked = Asked {
            provider,
            agent: request.agent.id(),
            recall: &inner.recall,
        };
        let chat = asked.request(&request.system, &request.history, &request.tools);
        let attempt = Attempt {
            line: &inner.line,
            provider,
            key: inner.key.as_ref(),
            settings: &inner.settings,
            clock: &*inner.clock,
            request: &chat,
            partial: &request.partial,
        };
        // What the client crate logs has the provider's words, which may repeat the key.
        let quietly = || attempt.make().with_subscriber(NoSubscriber::new());
        let answering = retry::until_answered(&inner.settings.retry, quietly);
        let deadline = inner.settings.deadline;
        let answer = tokio::time::timeout(deadline, answering)
            .await
            .map_err(|_| RequestError::Deadline(deadline))??;
        Ok(inner.remember(request, answer))
    }
}

impl Inner {
    /// Keeps what the provider wants to have back, and gives the reply on.
    fn remember(&self, request: &ModelRequest, answer: Answer) -> ModelReply {
        let Answer {
            reply,
            reasoning,
            signatures,
        } = answer;
        let mut reasoning = Some(reasoning)
            .filter(|text| !text.is_empty() && self.route.provider() == Provider::DeepSeek);
        for (call, signatures) in reply.calls.iter().zip(signatures) {
            let memory = Memory {
                signatures,
                // It belongs to the reply: its first call has it.
                reasoning: reasoning.take(),
            };
            self.recall.keep(request.agent.id(), &call.id.0, memory);
        }
        reply
    }
}

impl Model for LlmModel {
    fn request(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelReply, ModelError>> {
        Box::pin(async move {
            self.ask(&request).await.map_err(|error| {
                tracing::warn!(model = %self.0.route, code = error.code(), "a model request failed");
                ModelError::new(format!("{}: {error}", self.0.route))
            })
        })
    }
}
