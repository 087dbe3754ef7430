//! Delegation: the tools that start children.

use std::collections::BTreeMap;

use offshoot_subagent::OutputSchema;
use serde::{Deserialize, Serialize};

use super::Config;

/// The providers that are always there.
pub(super) const BUILT_IN: [&str; 2] = ["spawn", "fork"];

/// An entry of `subagent`: one delegation tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct SubagentConfig {
    /// The name of the tool.
    pub tool_name: String,
    /// What makes the children: `spawn`, `fork`, or the name of an `acp` or `process` entry.
    pub provider: String,
    /// What a background child is.
    pub background_mode: BackgroundMode,
    /// Whether children may run in the background.
    pub enable_run_in_background: bool,
    /// The model that the children ask, as `PROVIDER/MODEL`; their parent's when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Where that model is; where the table `model` says when its provider is the same, else the
    /// provider's own address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Who the children are told to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persona: Option<String>,
    /// Which inherited tools the children see.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_filter: Option<ToolFilter>,
    /// What the answers of the children have to be: a JSON schema of an object, as a table, or the
    /// path of a JSON file that has it. Not for continuable children.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<OutputSchema>,
}

impl Default for SubagentConfig {
    fn default() -> Self {
        Self {
            tool_name: "subagent".to_owned(),
            provider: "spawn".to_owned(),
            background_mode: BackgroundMode::default(),
            enable_run_in_background: true,
            model: None,
            base_url: None,
            persona: None,
            tool_filter: None,
            output_schema: None,
        }
    }
}

/// What a child in the background is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackgroundMode {
    /// A durable session that can be messaged again; its parent gets a settlement notice.
    #[default]
    Continuable,
    /// A task of the parent; it ends with its turn.
    OneShot,
}

/// Which inherited tools a child sees: those in `allow` when it is there, without those in `deny`.
/// At least one of the lists is there, and none is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolFilter {
    /// The only tools that are seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// Tools that are not seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deny: Option<Vec<String>>,
}

/// A provider that a `subagent` entry uses and this build does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnavailableProvider {
    /// The key that names it, such as `subagent[0].provider`.
    pub key: String,
    /// Its name.
    pub provider: String,
}

impl Config {
    /// The providers that are used and cannot be, because this build was made without what runs them
    /// (the features `acp` and `process`). An entry that no `subagent` entry uses does no harm.
    #[must_use]
    pub fn unavailable_providers(&self) -> Vec<UnavailableProvider> {
        let acp = self
            .acp
            .iter()
            .map(|entry| (&entry.name, cfg!(feature = "acp")));
        let process = self.process.iter();
        let process = process.map(|entry| (&entry.name, cfg!(feature = "process")));
        let programs: BTreeMap<&String, bool> = acp.chain(process).collect();
        self.subagent
            .iter()
            .enumerate()
            .filter(|(_, entry)| programs.get(&entry.provider) == Some(&false))
            .map(|(i, entry)| UnavailableProvider {
                key: format!("subagent[{i}].provider"),
                provider: entry.provider.clone(),
            })
            .collect()
    }
}
