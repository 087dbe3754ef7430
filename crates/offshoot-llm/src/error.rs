//! Why a request failed.

use std::time::Duration;

/// A request to a model failed. Texts of the provider are one bounded line without the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The request could not be made.
    #[error("the request could not be made: {0}")]
    Invalid(String),
    /// The provider does not accept the key (401, 403).
    #[error("the key was refused ({status}): {message}")]
    Unauthorized {
        /// The status.
        status: u16,
        /// What the provider says.
        message: String,
    },
    /// The provider does not accept the request, or does not have the model.
    #[error("the request was refused ({status}): {message}")]
    Rejected {
        /// The status.
        status: u16,
        /// What the provider says.
        message: String,
    },
    /// Too many requests (429).
    #[error("too many requests: {message}{}", after(*.retry_after))]
    RateLimited {
        /// What the provider says.
        message: String,
        /// When it may be tried again, if the provider says.
        retry_after: Option<Duration>,
    },
    /// The account has no more credit.
    #[error("the account's quota is used up: {0}")]
    Quota(String),
    /// The provider fails or is overloaded (5xx, or an error in the stream).
    #[error("the provider failed: {0}")]
    Unavailable(String),
    /// There is no connection to be had.
    #[error("no connection: {0}")]
    Connect(String),
    /// The connection was lost, or the stream ended before the answer did.
    #[error("the answer was cut: {0}")]
    Cut(String),
    /// The provider was silent for too long.
    #[error("the provider was silent for {} s", .0.as_secs_f64())]
    Silent(Duration),
    /// The request took too long in all.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Deadline(Duration),
    /// The answer is larger than allowed.
    #[error("the answer has more than {0} bytes")]
    TooLarge(usize),
    /// The answer is not what the format says.
    #[error("the answer makes no sense: {0}")]
    Malformed(String),
}

impl RequestError {
    /// The stable name of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid_request",
            Self::Unauthorized { .. } => "unauthorized",
            Self::Rejected { .. } => "rejected",
            Self::RateLimited { .. } => "rate_limited",
            Self::Quota(_) => "quota",
            Self::Unavailable(_) => "unavailable",
            Self::Connect(_) => "connect",
            Self::Cut(_) => "cut",
            Self::Silent(_) => "silent",
            Self::Deadline(_) => "deadline",
            Self::TooLarge(_) => "too_large",
            Self::Malformed(_) => "malformed",
        }
    }
}

fn after(wait: Option<Duration>) -> String {
    match wait {
        Some(wait) => format!("; to be tried again in {} s", wait.as_secs_f64().ceil()),
        None => String::new(),
    }
}
