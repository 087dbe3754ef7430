//! What a run stands on, read and checked before anything starts: script, configuration, folders.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use offshoot::agent::{JsonlStore, SyncPolicy};
use offshoot::config::{Config, ConfigLayers, read_text};
use offshoot::core::process::can_enter;
use offshoot::core::text::one_line;
use offshoot::driver::Model;
use offshoot::driver::script::Script;
use offshoot::models::{self, ModelsError};
use offshoot::subagent::DEPTH_VARIABLE;

use crate::args::ConfigArgs;
use crate::fault::Fault;

/// Clients kill a server that does not end within two seconds: tasks get less than that to end.
const TEARDOWN_MS: u64 = 1_000;

/// Lets a server end before its client kills it.
pub(crate) fn end_in_time(config: &mut Config) {
    let grace = &mut config.tasks.teardown_grace_ms;
    *grace = (*grace).min(TEARDOWN_MS);
}

/// Reads a script file.
pub(crate) fn script(path: &Path) -> Result<Script, Fault> {
    let name = path.display().to_string();
    let text = read_text(path).map_err(|error| {
        Fault::usage(format_args!(
            "{name}: cannot be read: {error}; expected a script (JSON)"
        ))
    })?;
    if text.trim().is_empty() {
        return Err(Fault::usage(format_args!(
            "{name}: the file is empty; expected a script (JSON)"
        )));
    }
    Script::parse(&text, &name).map_err(Fault::usage)
}

/// The configuration: defaults, then the file, then the script's own, then the overrides.
/// `folder` is where commands will run, when that is known: the folders of programs are looked for
/// there.
pub(crate) fn config(
    args: &ConfigArgs,
    script: Option<(&Path, &Script)>,
    folder: Option<&Path>,
) -> Result<Config, Fault> {
    let layered = || {
        let mut layers = ConfigLayers::new();
        if let Some(folder) = folder {
            layers = layers.run_in(folder);
        }
        if let Some(path) = &args.config {
            layers = layers.file(path)?;
        }
        if let Some((path, script)) = script {
            layers = layers.script(&path.display().to_string(), script.config.clone());
        }
        for assignment in &args.set {
            layers = layers.set(assignment)?;
        }
        layers.build_available()
    };
    layered().map_err(Fault::usage)
}

/// How deep this program runs below another runtime that has started it as a subagent.
pub(crate) fn depth() -> Result<u32, Fault> {
    let Some(text) = std::env::var_os(DEPTH_VARIABLE) else {
        return Ok(0);
    };
    let depth = text.to_str().and_then(|text| text.parse().ok());
    depth.ok_or_else(|| {
        let text = one_line(&text.to_string_lossy(), 60);
        Fault::usage(format_args!(
            "{DEPTH_VARIABLE}: expected a whole number, not `{text}`: a runtime sets it for the programs that it \
             starts; unset it to be at the top"
        ))
    })
}

/// The model of a run: what the options say, else what the configuration says.
pub(crate) fn model(
    config: &mut Config,
    name: Option<&str>,
    base_url: Option<&str>,
) -> Result<Arc<dyn Model>, Fault> {
    if let Some(name) = name {
        config.model.name = Some(name.to_owned());
        // The address in a file is that of the model in the file: another's key does not go there.
        config.model.base_url = None;
    }
    if config.model.name.is_none() {
        return Err(Fault::usage(match base_url {
            Some(_) => "--base-url: expected --model PROVIDER/MODEL too",
            None => {
                "no model: choose one with --script FILE (a script, without a key) or --model PROVIDER/MODEL"
            }
        }));
    }
    if let Some(url) = base_url {
        config.model.base_url = Some(url.to_owned());
    }
    models::from_config(config).map_err(|error| match &error {
        ModelsError::Setup { key, error } if key == "model.name" && name.is_some() => {
            Fault::usage(format_args!("--model: {error}"))
        }
        ModelsError::Setup { key, error }
            if key == "model.base_url" && (base_url.is_some() || name.is_some()) =>
        {
            Fault::usage(format_args!("--base-url: {error}"))
        }
        _ => Fault::usage(error),
    })
}

/// The folder that commands run in, absolute.
pub(crate) fn cwd(path: Option<&Path>) -> Result<Option<PathBuf>, Fault> {
    let Some(path) = path else { return Ok(None) };
    let fault = |what: &dyn std::fmt::Display| {
        let path = path.display();
        Fault::usage(format_args!("--cwd: {path}: {what}; expected a folder"))
    };
    let folder = path.canonicalize().map_err(|error| fault(&error))?;
    match can_enter(&folder) {
        Ok(()) => Ok(Some(folder)),
        Err(error) if error.kind() == ErrorKind::NotADirectory => Err(fault(&"not a folder")),
        Err(error) => Err(fault(&error)),
    }
}

/// Where relative paths of programs begin: the folder of the option, else the current one.
pub(crate) fn base(cwd: Option<&Path>) -> &Path {
    cwd.unwrap_or(Path::new(""))
}

/// The store of a run: made when it is not there, and written to once to see that it can be.
pub(crate) fn store(path: &Path, sync: SyncPolicy) -> Result<Arc<JsonlStore>, Fault> {
    let store = JsonlStore::open_folder(path).map_err(|error| {
        Fault::usage(format_args!(
            "--store: {error}; expected a folder that can be written to"
        ))
    })?;
    Ok(Arc::new(store.sync(sync)))
}
