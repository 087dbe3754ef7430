//! Which model, of which provider, and where.

use std::fmt;
use std::str::FromStr;

use genai::adapter::AdapterKind;
use reqwest::Url;

/// Who serves a model, and in which wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Provider {
    /// OpenAI, chat completions.
    OpenAi,
    /// OpenAI, responses.
    OpenAiResponses,
    /// Anthropic, messages.
    Anthropic,
    /// Google, `generateContent`.
    Gemini,
    /// DeepSeek, chat completions.
    DeepSeek,
    /// Ollama on this machine or another.
    Ollama,
    /// Any endpoint that speaks chat completions; it has no address of its own.
    OpenAiCompatible,
}

impl Provider {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::OpenAi,
        Self::OpenAiResponses,
        Self::Anthropic,
        Self::Gemini,
        Self::DeepSeek,
        Self::Ollama,
        Self::OpenAiCompatible,
    ];

    /// The name in a route.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::OpenAiResponses => "openai-responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::DeepSeek => "deepseek",
            Self::Ollama => "ollama",
            Self::OpenAiCompatible => "openai-compatible",
        }
    }

    /// The environment variable of the key; `None` when there is no key.
    #[must_use]
    pub fn key_variable(self) -> Option<&'static str> {
        match self {
            Self::OpenAi | Self::OpenAiResponses => Some("OPENAI_API_KEY"),
            Self::Anthropic => Some("ANTHROPIC_API_KEY"),
            Self::Gemini => Some("GEMINI_API_KEY"),
            Self::DeepSeek => Some("DEEPSEEK_API_KEY"),
            Self::Ollama => None,
            Self::OpenAiCompatible => Some("OPENAI_COMPATIBLE_API_KEY"),
        }
    }

    /// Whether nothing can be asked without a key.
    #[must_use]
    pub fn requires_key(self) -> bool {
        !matches!(self, Self::Ollama | Self::OpenAiCompatible)
    }

    /// Where it is, when the route does not say; `None` when there is no such place.
    #[must_use]
    pub fn base_url(self) -> Option<&'static str> {
        match self {
            Self::OpenAi | Self::OpenAiResponses => Some("https://api.openai.com/v1/"),
            Self::Anthropic => Some("https://api.anthropic.com/v1/"),
            Self::Gemini => Some("https://generativelanguage.googleapis.com/v1beta/"),
            Self::DeepSeek => Some("https://api.deepseek.com/v1/"),
            Self::Ollama => Some("http://localhost:11434/"),
            Self::OpenAiCompatible => None,
        }
    }

    pub(crate) fn adapter(self) -> AdapterKind {
        match self {
            Self::OpenAi | Self::OpenAiCompatible => AdapterKind::OpenAI,
            Self::OpenAiResponses => AdapterKind::OpenAIResp,
            Self::Anthropic => AdapterKind::Anthropic,
            Self::Gemini => AdapterKind::Gemini,
            Self::DeepSeek => AdapterKind::DeepSeek,
            Self::Ollama => AdapterKind::Ollama,
        }
    }

    pub(crate) fn speaks_chat_completions(self) -> bool {
        matches!(self, Self::OpenAi | Self::OpenAiCompatible | Self::DeepSeek)
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A route that names no model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// It is not of the form.
    #[error("expected PROVIDER/MODEL, such as openai/gpt-5, not `{0}`")]
    Form(String),
    /// There is no such provider.
    #[error("unknown provider `{name}`; expected one of {}", names())]
    Provider {
        /// What was asked for.
        name: String,
    },
    /// The address is none.
    #[error("base URL: {0}; expected http://HOST or https://HOST with the path up to the version")]
    BaseUrl(&'static str),
    /// The provider has no address of its own.
    #[error("{0} has no address of its own: expected a base URL, such as http://localhost:8000/v1")]
    NoBaseUrl(Provider),
}

impl RouteError {
    /// The stable name of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Form(_) => "bad_route",
            Self::Provider { .. } => "unknown_provider",
            Self::BaseUrl(_) => "bad_base_url",
            Self::NoBaseUrl(_) => "missing_base_url",
        }
    }
}

fn names() -> String {
    Provider::ALL.map(Provider::name).join(", ")
}

/// A model, and where it is. Its text form is `PROVIDER/MODEL`; what follows the first `/` is the
/// provider's own name of the model, with more of them or not.
///
/// ```
/// use offshoot_llm::{Provider, Route};
///
/// let route: Route = "openai-compatible/meta/llama-4".parse()?;
/// assert_eq!((route.provider(), route.model()), (Provider::OpenAiCompatible, "meta/llama-4"));
/// let route = route.with_base_url("http://127.0.0.1:8000/v1")?;
/// assert_eq!(route.base_url()?, "http://127.0.0.1:8000/v1/");
/// # Ok::<(), offshoot_llm::RouteError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    provider: Provider,
    model: String,
    base_url: Option<Url>,
}

impl Route {
    /// Who serves the model.
    #[must_use]
    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// What the provider calls the model.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The same model somewhere else.
    ///
    /// # Errors
    ///
    /// [`RouteError::BaseUrl`] when it is no plain HTTP address. One with a user or a password is
    /// refused: secrets come from the environment.
    pub fn with_base_url(mut self, url: &str) -> Result<Self, RouteError> {
        let mut url = Url::parse(url.trim()).map_err(|_| RouteError::BaseUrl("it is no URL"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(RouteError::BaseUrl("its scheme is neither http nor https"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(RouteError::BaseUrl("it has a user or a password"));
        }
        if url.fragment().is_some() {
            return Err(RouteError::BaseUrl("it has a fragment"));
        }
        if !url.path().ends_with('/') {
            let path = format!("{}/", url.path());
            url.set_path(&path);
        }
        self.base_url = Some(url);
        Ok(self)
    }

    /// Where it is, with a `/` at the end of the path.
    ///
    /// # Errors
    ///
    /// [`RouteError::NoBaseUrl`] when neither the route nor the provider says.
    pub fn base_url(&self) -> Result<&str, RouteError> {
        let own = self.base_url.as_ref().map(Url::as_str);
        own.or(self.provider.base_url())
            .ok_or(RouteError::NoBaseUrl(self.provider))
    }

    /// Whether it is on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        match self.base_url.as_ref().map(Url::host_str) {
            Some(Some(host)) => {
                let host = host.trim_matches(['[', ']']);
                host == "localhost"
                    || host
                        .parse::<std::net::IpAddr>()
                        .is_ok_and(|address| address.is_loopback())
            }
            Some(None) => false,
            None => self.provider == Provider::Ollama,
        }
    }
}

impl FromStr for Route {
    type Err = RouteError;

    fn from_str(text: &str) -> Result<Self, RouteError> {
        let form = || RouteError::Form(offshoot_core::text::one_line(text, 100));
        let (provider, model) = text.trim().split_once('/').ok_or_else(form)?;
        let model = model.trim();
        if model.is_empty() || provider.is_empty() || model.chars().any(char::is_control) {
            return Err(form());
        }
        let known = Provider::ALL.into_iter().find(|p| p.name() == provider);
        let provider = known.ok_or_else(|| RouteError::Provider {
            name: offshoot_core::text::one_line(provider, 60),
        })?;
        Ok(Self {
            provider,
            model: model.to_owned(),
            base_url: None,
        })
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_a_provider_and_the_rest() {
        for provider in Provider::ALL {
            let route: Route = format!("{provider}/a/b:c").parse().unwrap();
            assert_eq!((route.provider(), route.model()), (provider, "a/b:c"));
            assert_eq!(route.to_string(), format!("{provider}/a/b:c"));
        }
    }

    #[test]
    fn what_is_no_route_is_said() {
        let code = |text: &str| text.parse::<Route>().unwrap_err().code();
        assert_eq!(code("gpt-5"), "bad_route");
        assert_eq!(code("openai/"), "bad_route");
        assert_eq!(code("/gpt-5"), "bad_route");
        assert_eq!(code("opnai/gpt-5"), "unknown_provider");
        let said = "opnai/x".parse::<Route>().unwrap_err().to_string();
        assert!(
            said.contains("openai, openai-responses, anthropic"),
            "{said}"
        );
    }

    #[test]
    fn a_base_url_is_plain_http() {
        let route: Route = "openai-compatible/m".parse().unwrap();
        assert_eq!(route.base_url().unwrap_err().code(), "missing_base_url");
        for bad in ["nowhere", "ftp://x/", "http://u:p@x/", "http://x/#a", ""] {
            let error = route.clone().with_base_url(bad).unwrap_err();
            assert_eq!(error.code(), "bad_base_url", "{bad}");
            assert!(!error.to_string().contains("u:p"), "{error}");
        }
        let here = route
            .clone()
            .with_base_url("http://[::1]:80/v1?a=b")
            .unwrap();
        assert_eq!(here.base_url().unwrap(), "http://[::1]/v1/?a=b");
        assert!(here.is_loopback());
        assert!(
            !route
                .with_base_url("https://x.example")
                .unwrap()
                .is_loopback()
        );
    }
}
