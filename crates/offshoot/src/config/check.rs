//! What the values of a configuration say about each other.

mod programs;
mod texts;

use std::collections::{BTreeMap, BTreeSet};

use offshoot_subagent::ANSWER_TOOL;
use offshoot_task::TaskConfig;

use super::children::{BackgroundMode, SubagentConfig, ToolFilter};
use super::error::ConfigErrorKind;
use super::{BUILT_IN_TOOLS, Config};
#[cfg(feature = "process")]
pub(crate) use programs::exit_code;
pub(super) use programs::missing_folder;

/// The longest name that every model's interface takes.
const MAX_TOOL_NAME: usize = 64;

/// The built-in tool that a configuration can switch off.
const BASH: &str = "bash";

/// A fault whose source is not known yet: the latest that sets any of the keys.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) kind: ConfigErrorKind,
    pub(super) keys: Vec<String>,
    pub(super) what: String,
}

impl Fault {
    fn at(key: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            kind: ConfigErrorKind::Value,
            keys: vec![key.into()],
            what: what.into(),
        }
    }

    fn contradiction(keys: Vec<String>, what: impl Into<String>) -> Self {
        Self {
            kind: ConfigErrorKind::Contradiction,
            keys,
            what: what.into(),
        }
    }
}

/// Checks a configuration for a program that adds these tools of its own.
pub(super) fn config(config: &Config, own_tools: &[String]) -> Result<(), Fault> {
    for name in &config.tools.bash.env_allow {
        texts::variable_name(name, "tools.bash.env_allow")?;
    }
    waits(config)?;
    graces(config)?;
    models(config)?;
    let providers = programs::providers(config)?;
    let mut tools: BTreeMap<&str, String> = BUILT_IN_TOOLS
        .map(|name| (name, "a built-in tool".to_owned()))
        .into();
    tools.insert(ANSWER_TOOL, "the tool of structured answers".to_owned());
    for (i, entry) in config.subagent.iter().enumerate() {
        let place = format!("subagent[{i}]");
        tool_name(&entry.tool_name, &place)?;
        if let Some(first) = tools.insert(&entry.tool_name, place.clone()) {
            let what = format!("two tools of one name, `{}` is {first}", entry.tool_name);
            let key = format!("{place}.tool_name");
            return Err(Fault::contradiction(vec![key], what));
        }
        programs::provider(entry, &providers, &place)?;
        output_schema(entry, &place)?;
    }
    // No filter can name it: it is never inherited.
    tools.remove(ANSWER_TOOL);
    let own_tools = own_tools.iter().map(String::as_str);
    let tools: BTreeSet<&str> = tools.into_keys().chain(own_tools).collect();
    for (i, entry) in config.subagent.iter().enumerate() {
        if let Some(filter) = &entry.tool_filter {
            let place = format!("subagent[{i}].tool_filter");
            tool_filter(filter, &place)?;
            filtered_tools(filter, &place, &tools, config.tools.bash.enabled)?;
        }
    }
    Ok(())
}

fn waits(config: &Config) -> Result<(), Fault> {
    let wait = config.tools.task_output.wait_timeout_ms;
    let cap = config.tools.task_output.max_wait_timeout_ms;
    if wait <= cap {
        return Ok(());
    }
    let keys = ["wait_timeout_ms", "max_wait_timeout_ms"];
    let keys = keys.map(|key| format!("tools.task_output.{key}"));
    let what =
        format!("expected wait_timeout_ms ({wait}) to be at most max_wait_timeout_ms ({cap})");
    Err(Fault::contradiction(keys.into(), what))
}

/// A child that is a task is disposed before its task is told to have ended.
fn graces(config: &Config) -> Result<(), Fault> {
    let limits = &config.limits;
    let (stop, dispose) = (
        limits.subagent_stop_grace_ms,
        limits.subagent_dispose_grace_ms,
    );
    let Some(kill) = TaskConfig::default().kill_grace else {
        return Ok(());
    };
    if u128::from(stop) + u128::from(dispose) < kill.as_millis() {
        return Ok(());
    }
    let keys = ["subagent_stop_grace_ms", "subagent_dispose_grace_ms"];
    let what = format!(
        "expected subagent_stop_grace_ms ({stop}) and subagent_dispose_grace_ms ({dispose}) to be together less than \
         the {} ms after which a killed task is dropped",
        kill.as_millis()
    );
    let keys = keys.map(|key| format!("limits.{key}"));
    Err(Fault::contradiction(keys.into(), what))
}

/// The names of models mean something, and one name means one model.
fn models(config: &Config) -> Result<(), Fault> {
    if let Some(url) = &config.model.base_url {
        texts::address(url, "model.base_url")?;
    }
    for (i, entry) in config.subagent.iter().enumerate() {
        let keys = |other: usize| {
            let keys = [i, other].map(|i| format!("subagent[{i}].base_url"));
            keys.to_vec()
        };
        if let Some(url) = &entry.base_url {
            texts::address(url, &format!("subagent[{i}].base_url"))?;
        }
        if entry.base_url.is_some() && entry.model.is_none() {
            let what = "an address without a model: expected `model` too";
            return Err(Fault::contradiction(keys(i), what));
        }
        let before = config.subagent[..i].iter();
        let twin = |other: &&SubagentConfig| other.model.is_some() && other.model == entry.model;
        let twin = before.enumerate().find(|(_, other)| twin(other));
        if let Some((other, twin)) = twin
            && twin.base_url != entry.base_url
        {
            let what = "one model in two places: expected the same base_url";
            return Err(Fault::contradiction(keys(other), what));
        }
    }
    #[cfg(feature = "llm")]
    if let Some((key, what)) = crate::models::fault(config) {
        return Err(Fault::at(key, what));
    }
    Ok(())
}

fn tool_name(name: &str, place: &str) -> Result<(), Fault> {
    let usual = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.len() <= MAX_TOOL_NAME && name.chars().all(usual) {
        return Ok(());
    }
    let what = format!("expected 1 to {MAX_TOOL_NAME} letters, digits, `_` and `-`, not `{name}`");
    Err(Fault::at(format!("{place}.tool_name"), what))
}

/// A structured answer is that of a run that ends with its turn.
fn output_schema(entry: &SubagentConfig, place: &str) -> Result<(), Fault> {
    let continues =
        entry.enable_run_in_background && entry.background_mode == BackgroundMode::Continuable;
    if entry.output_schema.is_none() || !continues {
        return Ok(());
    }
    let keys = ["output_schema", "background_mode"].map(|key| format!("{place}.{key}"));
    let what = "a continuable child has no one answer for output_schema: expected background_mode = \"one-shot\"";
    Err(Fault::contradiction(keys.into(), what))
}

fn tool_filter(filter: &ToolFilter, place: &str) -> Result<(), Fault> {
    let lists = [("allow", &filter.allow), ("deny", &filter.deny)];
    if lists.iter().all(|(_, list)| list.is_none()) {
        let what = "empty tool filter, expected `allow`, `deny` or both";
        return Err(Fault::at(place, what));
    }
    for (key, list) in lists {
        let Some(list) = list else { continue };
        if list.is_empty() {
            let what = "empty tool filter, expected the name of a tool";
            return Err(Fault::at(format!("{place}.{key}"), what));
        }
        if let Some(i) = list.iter().position(|name| name.trim().is_empty()) {
            return Err(Fault::at(
                format!("{place}.{key}[{i}]"),
                "expected the name of a tool",
            ));
        }
    }
    Ok(())
}

/// What a filter names is there, and is not both allowed and denied: a mistyped name would let a child
/// have what it was to be kept from.
fn filtered_tools(
    filter: &ToolFilter,
    place: &str,
    tools: &BTreeSet<&str>,
    has_bash: bool,
) -> Result<(), Fault> {
    for (key, list) in [("allow", &filter.allow), ("deny", &filter.deny)] {
        for (i, name) in list.iter().flatten().enumerate() {
            let what = if name == BASH && !has_bash {
                format!("there is no tool `{name}`: tools.bash.enabled is false")
            } else if !tools.contains(name.as_str()) {
                let known: Vec<String> = tools
                    .iter()
                    .filter(|tool| has_bash || **tool != BASH)
                    .map(|tool| format!("`{tool}`"))
                    .collect();
                format!(
                    "unknown tool `{name}`, expected one of {}",
                    known.join(", ")
                )
            } else {
                continue;
            };
            return Err(Fault {
                kind: ConfigErrorKind::UnknownTool,
                keys: vec![format!("{place}.{key}[{i}]")],
                what,
            });
        }
    }
    let allowed = filter.allow.as_deref().unwrap_or_default();
    let denied = filter.deny.iter().flatten();
    match denied.enumerate().find(|(_, name)| allowed.contains(name)) {
        None => Ok(()),
        Some((i, name)) => {
            let what = format!("`{name}` is in allow and in deny, expected it in one of them");
            let key = format!("{place}.deny[{i}]");
            Err(Fault::contradiction(vec![key], what))
        }
    }
}
