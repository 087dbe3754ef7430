//! Providers: what the entries of programs say, and what a delegation tool may say of them.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use offshoot_core::process::can_enter;

use super::super::Config;
use super::super::children::{BUILT_IN, BackgroundMode, SubagentConfig};
use super::super::error::ConfigErrorKind;
use super::super::programs::ProcessConfig;
use super::{Fault, texts};

/// What the entries of both kinds of programs have in common.
struct Entry<'a> {
    place: String,
    name: &'a str,
    command: &'a str,
    args: &'a [String],
    env: &'a BTreeMap<String, String>,
    env_allow: &'a [String],
    cwd: Option<&'a Path>,
}

fn entries(config: &Config) -> impl Iterator<Item = Entry<'_>> {
    let acp = config.acp.iter().enumerate().map(|(i, entry)| Entry {
        place: format!("acp[{i}]"),
        name: &entry.name,
        command: &entry.command,
        args: &entry.args,
        env: &entry.env,
        env_allow: &entry.env_allow,
        cwd: entry.cwd.as_deref(),
    });
    let process = config.process.iter().enumerate().map(|(i, entry)| Entry {
        place: format!("process[{i}]"),
        name: &entry.name,
        command: &entry.command,
        args: &entry.args,
        env: &entry.env,
        env_allow: &entry.env_allow,
        cwd: entry.cwd.as_deref(),
    });
    acp.chain(process)
}

/// The names of all providers, each with what defines it.
pub(super) fn providers(config: &Config) -> Result<BTreeMap<&str, String>, Fault> {
    let mut known: BTreeMap<&str, String> = BUILT_IN
        .map(|name| (name, "a built-in provider".to_owned()))
        .into();
    for entry in entries(config) {
        let place = &entry.place;
        texts::name(entry.name, &format!("{place}.name"))?;
        started_with(&entry)?;
        if let Some(first) = known.insert(entry.name, place.clone()) {
            let what = format!("two providers of one name, `{}` is {first}", entry.name);
            return Err(Fault::contradiction(vec![format!("{place}.name")], what));
        }
    }
    for (i, entry) in config.process.iter().enumerate() {
        answer(entry, &format!("process[{i}]"))?;
    }
    Ok(known)
}

/// What a system can start a program with.
fn started_with(entry: &Entry<'_>) -> Result<(), Fault> {
    let place = &entry.place;
    texts::not_blank(entry.command, &format!("{place}.command"))?;
    texts::argument(entry.command, &format!("{place}.command"))?;
    for (i, argument) in entry.args.iter().enumerate() {
        texts::argument(argument, &format!("{place}.args[{i}]"))?;
    }
    for (name, value) in entry.env {
        texts::variable(name, value, &format!("{place}.env"))?;
    }
    for pattern in entry.env_allow {
        texts::pattern(pattern, &format!("{place}.env_allow"))?;
    }
    match entry.cwd {
        Some(path) => texts::folder(path, &format!("{place}.cwd")),
        None => Ok(()),
    }
}

/// How what a program prints, and how it exits, is read.
fn answer(entry: &ProcessConfig, place: &str) -> Result<(), Fault> {
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
    let mut codes = entry.exit_codes.keys();
    match codes.find(|code| exit_code(code).is_none()) {
        None => Ok(()),
        Some(code) => {
            let what = format!("expected an exit code from 0 to 255, not `{code}`");
            Err(Fault::at(format!("{place}.exit_codes"), what))
        }
    }
}

/// An exit code as a key. There is one way to write each, so that no two keys mean the same.
pub(crate) fn exit_code(key: &str) -> Option<i32> {
    let code: u8 = key.parse().ok()?;
    (code.to_string() == key).then(|| code.into())
}

/// The first entry that a delegation tool uses and whose folder is not there: the key and why.
/// A relative one is seen from `base`; without one it is not looked for.
pub(in super::super) fn missing_folder(
    config: &Config,
    base: Option<&Path>,
) -> Option<(String, String)> {
    let used = |entry: &Entry<'_>| config.subagent.iter().any(|it| it.provider == entry.name);
    entries(config).filter(used).find_map(|entry| {
        let own = entry.cwd?;
        let path: PathBuf = match base {
            Some(base) => base.join(own),
            None if own.is_absolute() => own.to_owned(),
            None => return None,
        };
        let path_shown = path.display();
        let why = match can_enter(&path) {
            Ok(()) => return None,
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                format!("{path_shown} is no folder")
            }
            Err(error) => format!("{path_shown}: {error}"),
        };
        Some((
            format!("{}.cwd", entry.place),
            format!("{why}; expected a folder"),
        ))
    })
}

fn one_of(names: impl Iterator<Item = impl Display>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    format!(
        "one of {} (each acp and process entry adds its name)",
        names.join(", ")
    )
}

/// That the provider of a delegation tool is there, and can be what the entry says.
pub(super) fn provider(
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
            "unknown provider `{name}`, expected {}",
            one_of(known.keys())
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
