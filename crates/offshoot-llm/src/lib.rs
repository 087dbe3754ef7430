//! Real models for the stock turn driver.
//!
//! An [`LlmModel`] is a [`Model`](offshoot_loop::Model) that asks one model of one provider over HTTP,
//! by the client crate `genai`. A [`Route`] says which; the key comes from the environment.
//!
//! ```no_run
//! use offshoot_llm::{LlmModel, LlmSettings, Route};
//!
//! let route: Route = "anthropic/claude-sonnet-4-5".parse()?;
//! let model = LlmModel::from_env(route, LlmSettings::default())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What it answers for, so that the loop above need not:
//!
//! - **The end.** A reply is returned only when the provider said that it is whole; a stream that is cut
//!   is an error, never a short answer.
//! - **Bounds.** A request has a deadline, a stream may not be silent for long, and an answer has a
//!   largest size ([`LlmSettings`]).
//! - **Retries.** Too many requests, an overloaded provider and a lost connection are tried again a
//!   bounded number of times ([`RetrySettings`]). What had arrived of a lost answer is taken back first:
//!   it is in no log yet, and none of its calls has run, so that asking again repeats nothing.
//! - **Cancellation.** Dropping the future closes the connection, whether it waits for the head of the
//!   answer, reads it, or waits before a retry.
//! - **Keys.** A key is in no log, event, error or `Debug` text, also when a provider repeats it.

mod answer;
mod ask;
mod client;
mod convert;
mod error;
mod fault;
mod key;
mod model;
mod recall;
mod retry;
mod route;
mod settings;
mod watch;

pub use error::RequestError;
pub use key::{ApiKey, KeyError};
pub use model::{LlmModel, SetupError};
pub use route::{Provider, Route, RouteError};
pub use settings::{LlmSettings, RetrySettings};
