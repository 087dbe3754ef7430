//! The bounds of a request.

use std::time::Duration;

/// The bounds of each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LlmSettings {
    /// The most tokens that an answer may have, as the provider is told. Absent: the provider's own
    /// bound (Anthropic, which has to be told one, is told the model's largest).
    pub max_output_tokens: Option<u32>,
    /// How long a request may take in all, with its retries. Default 10 min.
    pub deadline: Duration,
    /// How long the provider may be silent, before or in its answer. A comment that keeps the connection
    /// open is no silence. Default 2 min.
    pub idle_timeout: Duration,
    /// How long a connection may take. Default 20 s.
    pub connect_timeout: Duration,
    /// The most bytes of text, reasoning and arguments in one answer. Default 4 MiB. The stream that
    /// carries them may have 16 times as many.
    pub max_answer_bytes: usize,
    /// When and how often to try again.
    pub retry: RetrySettings,
}

impl Default for LlmSettings {
    fn default() -> Self {
        Self {
            max_output_tokens: None,
            deadline: Duration::from_secs(600),
            idle_timeout: Duration::from_secs(120),
            connect_timeout: Duration::from_secs(20),
            max_answer_bytes: 4 * 1024 * 1024,
            retry: RetrySettings::default(),
        }
    }
}

/// When and how often a failed request is sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetrySettings {
    /// How often, at most; a connection that could not be made at all is tried once more. Default 4.
    pub max_retries: u32,
    /// The wait before the first retry; it doubles with each. The real wait is random, between a half
    /// and the whole of it. Default 500 ms.
    pub first_wait: Duration,
    /// The longest wait that is not asked for by the provider. Default 20 s.
    pub max_wait: Duration,
    /// The longest wait that a provider may ask for (`Retry-After`). One that asks for more is not
    /// asked again: the request fails and says when to try. Default 60 s.
    pub max_retry_after: Duration,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            max_retries: 4,
            first_wait: Duration::from_millis(500),
            max_wait: Duration::from_secs(20),
            max_retry_after: Duration::from_secs(60),
        }
    }
}
