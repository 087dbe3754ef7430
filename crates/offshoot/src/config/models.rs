//! Which models are asked.

use serde::{Deserialize, Serialize};

use super::number;

/// The table `model`: what agents ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ModelConfig {
    /// The model, as `PROVIDER/MODEL`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where it is; the provider's own address when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The most tokens that an answer may have; the provider's own bound when absent.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "number::maybe_tokens"
    )]
    pub max_output_tokens: Option<std::num::NonZeroU32>,
    /// How long a request may take in all, with its retries.
    #[serde(deserialize_with = "number::positive")]
    pub deadline_ms: u64,
    /// How long the provider may be silent.
    #[serde(deserialize_with = "number::positive")]
    pub idle_timeout_ms: u64,
    /// How often a request that failed for a passing reason is sent again.
    #[serde(deserialize_with = "number::whole")]
    pub max_retries: u32,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            name: None,
            base_url: None,
            max_output_tokens: None,
            deadline_ms: 600_000,
            idle_timeout_ms: 120_000,
            max_retries: 4,
        }
    }
}
