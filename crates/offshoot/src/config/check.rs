//! What the values of a configuration say about each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use offshoot_subagent::ANSWER_TOOL;
use offshoot_task::TaskConfig;

use super::children::{BUILT_IN, BackgroundMode, SubagentConfig, ToolFilter};
use super::error::ConfigErrorKind;
use super::programs::ProcessConfig;
use super::{BUILT_IN_TOOLS, Config};

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
    waits(config)?;
    graces(config)?;
    models(config)?;
    let providers = providers(config)?;
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
        provider(entry, &providers, &place)?;
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
    for (i, entry) in config.subagent.iter().enumerate() {
        let keys = |other: usize| {
            let keys = [i, other].map(|i| format!("subagent[{i}].base_url"));
            keys.to_vec()
        };
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

/// The names of all providers, each with what defines it.
fn providers(config: &Config) -> Result<BTreeMap<&str, String>, Fault> {
    let acp = config.acp.iter().enumerate();
    let acp = acp.map(|(i, e)| (format!("acp[{i}]"), &e.name, &e.command));
    let process = config.process.iter().enumerate();
    let process = process.map(|(i, e)| (format!("process[{i}]"), &e.name, &e.command));

    let mut known: BTreeMap<&str, String> = BUILT_IN
        .map(|name| (name, "a built-in provider".to_owned()))
        .into();
    for (place, name, command) in acp.chain(process) {
        for (key, value) in [("name", name), ("command", command)] {
            if value.trim().is_empty() {
                return Err(Fault::at(
                    format!("{place}.{key}"),
                    "expected a text that is not empty",
                ));
            }
        }
        if let Some(first) = known.insert(name, place.clone()) {
            let what = format!("two providers of one name, `{name}` is {first}");
            return Err(Fault::contradiction(vec![format!("{place}.name")], what));
        }
    }
    for (i, entry) in config.process.iter().enumerate() {
        program(entry, &format!("process[{i}]"))?;
    }
    for (i, entry) in config.acp.iter().enumerate() {
        variables(&entry.env, &format!("acp[{i}]"))?;
        allowed(&entry.env_allow, &format!("acp[{i}]"))?;
        folder(entry.cwd.as_deref(), &format!("acp[{i}]"))?;
    }
    Ok(known)
}

fn program(entry: &ProcessConfig, place: &str) -> Result<(), Fault> {
    variables(&entry.env, place)?;
    allowed(&entry.env_allow, place)?;
    folder(entry.cwd.as_deref(), place)?;
    let paths = [
        ("answer", &entry.answer),
        ("input_tokens", &entry.input_tokens),
        ("output_tokens", &entry.output_tokens),
    ];
    for (key, path) in paths {
        let fields = path.iter().flat_map(|path| path.split('.'));
        if fields.map(str::trim).any(str::is_empty) {
            let what = "expected names of fields with dots between";
            return Err(Fault::at(format!("{place}.{key}"), what));
        }
    }
    match entry
        .exit_codes
        .keys()
        .find(|code| exit_code(code).is_none())
    {
        None => Ok(()),
        Some(code) => {
            let what = format!("expected an exit code from 0 to 255, not `{code}`");
            Err(Fault::at(format!("{place}.exit_codes"), what))
        }
    }
}

/// An exit code as a key.
pub(crate) fn exit_code(key: &str) -> Option<i32> {
    key.parse::<u8>().ok().map(i32::from)
}

fn variables(env: &BTreeMap<String, String>, place: &str) -> Result<(), Fault> {
    let bad = |name: &&String| name.is_empty() || name.contains(['=', '\0']);
    match env.keys().find(bad) {
        None => Ok(()),
        Some(name) => {
            let what = format!(
                "expected the name of a variable, not `{}`",
                name.escape_debug()
            );
            Err(Fault::at(format!("{place}.env"), what))
        }
    }
}

/// Names of variables, or beginnings of names. `*` alone would name nothing.
fn allowed(names: &[String], place: &str) -> Result<(), Fault> {
    let bad = |pattern: &&String| {
        let name = pattern.strip_suffix('*').unwrap_or(pattern);
        name.is_empty() || name.contains(['=', '\0', '*']) || name.contains(char::is_whitespace)
    };
    match names.iter().find(bad) {
        None => Ok(()),
        Some(name) => {
            let what = format!(
                "expected the name of a variable, or the beginning of one and `*`, not `{}`",
                name.escape_debug()
            );
            Err(Fault::at(format!("{place}.env_allow"), what))
        }
    }
}

fn folder(cwd: Option<&Path>, place: &str) -> Result<(), Fault> {
    match cwd {
        Some(path) if path.as_os_str().is_empty() => {
            let what = "expected a folder, not an empty text";
            Err(Fault::at(format!("{place}.cwd"), what))
        }
        _ => Ok(()),
    }
}

fn tool_name(name: &str, place: &str) -> Result<(), Fault> {
    let usual = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.len() <= MAX_TOOL_NAME && name.chars().all(usual) {
        return Ok(());
    }
    let what = format!("expected 1 to {MAX_TOOL_NAME} letters, digits, `_` and `-`, not `{name}`");
    Err(Fault::at(format!("{place}.tool_name"), what))
}

fn provider(
    entry: &SubagentConfig,
    known: &BTreeMap<&str, String>,
    place: &str,
) -> Result<(), Fault> {
    let name = entry.provider.as_str();
    if BUILT_IN.contains(&name) {
        return Ok(());
    }
    if known.contains_key(name) {
        return external(entry, place);
    }
    Err(Fault {
        kind: ConfigErrorKind::UnknownProvider,
        keys: vec![format!("{place}.provider")],
        what: format!(
            "unknown provider `{name}`, expected `spawn`, `fork` or the name of an acp or process entry"
        ),
    })
}

/// What only an agent of this program can be.
fn external(entry: &SubagentConfig, place: &str) -> Result<(), Fault> {
    let name = &entry.provider;
    let fault = |key: &str, what: String| {
        let keys = vec![format!("{place}.{key}"), format!("{place}.provider")];
        Err(Fault::contradiction(keys, what))
    };
    let continues =
        entry.enable_run_in_background && entry.background_mode == BackgroundMode::Continuable;
    if continues {
        let what = format!(
            "`{name}` is another program, whose runs end with their turn: expected background_mode = \"one-shot\""
        );
        return fault("background_mode", what);
    }
    if entry.model.is_some() {
        let what = format!("`{name}` is another program with a model of its own");
        return fault("model", what);
    }
    if entry.persona.is_some() {
        return fault(
            "persona",
            format!("`{name}` is another program and takes no persona"),
        );
    }
    if entry.tool_filter.is_some() {
        let what =
            format!("`{name}` is another program with tools of its own, which cannot be filtered");
        return fault("tool_filter", what);
    }
    if entry.output_schema.is_some() {
        let what = format!("`{name}` is another program and takes no output_schema");
        return fault("output_schema", what);
    }
    Ok(())
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
