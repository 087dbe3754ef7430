//! The HTTP client and the target of its requests.

use std::sync::Arc;

use genai::chat::{CacheControl, ChatOptions};
use genai::resolver::{AuthData, Endpoint};
use genai::{Client, Headers, ModelIden, ServiceTarget};
use reqwest::redirect::Policy;
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls_platform_verifier::BuilderVerifierExt;

use crate::{ApiKey, LlmSettings, Provider, RequestError, Route, RouteError};

/// Where requests go, and by what.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) client: Client,
    target: ServiceTarget,
    options: ChatOptions,
}

/// A line cannot be made.
#[derive(Debug)]
pub(crate) enum LineError {
    Route(RouteError),
    Client(RequestError),
}

impl Line {
    pub(crate) fn new(
        route: &Route,
        key: Option<&ApiKey>,
        settings: &LlmSettings,
    ) -> Result<Self, LineError> {
        let base_url = route.base_url().map_err(LineError::Route)?;
        let fail = |error: String| LineError::Client(RequestError::Invalid(error));
        let tls = tls().map_err(|error| fail(error.to_string()))?;
        let mut http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .user_agent(concat!("offshoot/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(settings.connect_timeout)
            // A key goes nowhere but where it was sent to.
            .redirect(Policy::none())
            // What is counted is what was sent: nothing unpacks to a thousand times of it.
            .no_gzip();
        if route.is_loopback() {
            http = http.no_proxy();
        }
        let http = http
            .build()
            .map_err(|e| fail(e.without_url().to_string()))?;
        let client = Client::builder().with_reqwest(http).build();
        let client = client.map_err(|error| fail(error.to_string()))?;
        let auth = match key {
            Some(key) => AuthData::from_single(key.reveal()),
            None if route.provider() == Provider::Ollama => AuthData::None,
            // The crate would ask for a key.
            None => AuthData::RequestOverride {
                url: chat_url(base_url),
                headers: Headers::default(),
            },
        };
        // The crate takes what stands before `::` for a namespace of its own.
        let model = match route.model() {
            name if name.contains("::") => format!("model::{name}"),
            name => name.to_owned(),
        };
        Ok(Self {
            client,
            target: ServiceTarget {
                endpoint: Endpoint::from_owned(base_url),
                auth,
                model: ModelIden::new(route.provider().adapter(), model),
            },
            options: options(route.provider(), settings),
        })
    }

    pub(crate) fn target(&self) -> ServiceTarget {
        self.target.clone()
    }

    pub(crate) fn options(&self) -> ChatOptions {
        self.options.clone()
    }
}

/// TLS with the certificates that the system trusts, without a setting of the whole process.
fn tls() -> Result<ClientConfig, rustls::Error> {
    let mut tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_platform_verifier()?
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(tls)
}

fn chat_url(base_url: &str) -> String {
    match base_url.split_once('?') {
        Some((path, query)) => format!("{path}chat/completions?{query}"),
        None => format!("{base_url}chat/completions"),
    }
}

fn options(provider: Provider, settings: &LlmSettings) -> ChatOptions {
    let mut options = ChatOptions::default()
        .with_capture_usage(true)
        .with_capture_content(false)
        .with_capture_reasoning_content(false)
        // Of chat completions the watch puts the calls together.
        .with_capture_tool_calls(!provider.speaks_chat_completions());
    if let Some(most) = settings.max_output_tokens {
        options = options.with_max_tokens(most);
    }
    if provider == Provider::Anthropic {
        // An agent sends the same beginning again and again.
        options = options.with_cache_control(CacheControl::Ephemeral);
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_stays_behind_the_path() {
        assert_eq!(chat_url("http://x/v1/"), "http://x/v1/chat/completions");
        assert_eq!(
            chat_url("http://x/v1/?v=1"),
            "http://x/v1/chat/completions?v=1"
        );
    }
}
