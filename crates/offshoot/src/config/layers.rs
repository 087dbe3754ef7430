//! Sources over defaults: merged as JSON, read once, checked, and every fault traced to its source.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::error::{ConfigError, ConfigErrorKind};
use super::file::read_text;
use super::source::{Change, Source, named};
use super::{Config, check, set};

/// Keys that hold arrays of tables.
const ENTRIES: [&str; 3] = ["subagent", "acp", "process"];

/// What `serde` says, and what the author of a configuration calls it.
const TOML_NAMES: [(&str, &str); 5] = [
    ("unknown field", "unknown key"),
    ("missing field", "missing key"),
    ("type: sequence", "type: array"),
    ("type: map", "type: table"),
    ("expected a sequence", "expected an array"),
];

/// The sources of a configuration, each over those before it: a file, then a script's `config`, then
/// overrides. Tables go over tables key by key; anything else, arrays too, replaces what is below.
///
/// ```
/// use offshoot::config::ConfigLayers;
///
/// let config = ConfigLayers::new()
///     .toml("a.toml", "[limits]\nmax_depth = 1\n")?
///     .script("a.json", serde_json::json!({"notices": {"delivery": "quiet"}}))
///     .set("limits.max_depth=2")?
///     .build()?;
/// assert_eq!(config.limits.max_depth, 2);
///
/// let error = ConfigLayers::new().set("limits.depth=2")?.build().unwrap_err();
/// assert!(error.to_string().starts_with("--set: limits.depth: unknown key `depth`"));
/// # Ok::<(), offshoot::config::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "sources do nothing until `build` is called"]
pub struct ConfigLayers {
    sources: Vec<Source>,
    own_tools: Vec<String>,
    folder: Option<PathBuf>,
}

impl ConfigLayers {
    /// The defaults alone.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says that the program adds a tool of this name to the built-in ones, so that a tool filter may
    /// name it.
    pub fn tool(mut self, name: impl Into<String>) -> Self {
        self.own_tools.push(name.into());
        self
    }

    /// Says where a run's commands will run, so that [`build_available`](Self::build_available) can look
    /// for the relative folders of programs there.
    pub fn run_in(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Adds a TOML file. A schema file that it names by a relative path is beside it.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or is not TOML.
    pub fn file(self, path: &Path) -> Result<Self, ConfigError> {
        let origin = path.display().to_string();
        match read_text(path) {
            Ok(text) => {
                let mut value = set::toml_text(&origin, &text)?;
                beside(path, &mut value);
                Ok(self.with(&origin, "", Change::Merge(value)))
            }
            Err(error) => Err(ConfigError::new(
                ConfigErrorKind::Read,
                origin,
                "",
                format_args!("cannot be read: {error}"),
            )),
        }
    }

    /// Adds TOML text, which errors say is from `origin`.
    ///
    /// # Errors
    ///
    /// When it is not TOML.
    pub fn toml(self, origin: &str, text: &str) -> Result<Self, ConfigError> {
        let value = set::toml_text(origin, text)?;
        Ok(self.with(origin, "", Change::Merge(value)))
    }

    /// Adds JSON with the keys of the file, which errors say is from `origin`.
    pub fn json(self, origin: &str, value: Value) -> Self {
        self.with(origin, "", Change::Merge(value))
    }

    /// Adds the `config` of a script; errors name its keys as `config.…`.
    pub fn script(self, file_name: &str, config: Value) -> Self {
        self.with(file_name, "config", Change::Merge(config))
    }

    /// Adds an override `KEY=VALUE`: a dotted key (an entry of an array by its number, from 0), and a
    /// TOML value or else a plain text.
    ///
    /// # Errors
    ///
    /// When it is not of this form.
    pub fn set(self, assignment: &str) -> Result<Self, ConfigError> {
        const ORIGIN: &str = "--set";
        let (path, value) = set::assignment(ORIGIN, assignment)?;
        Ok(self.with(ORIGIN, "", Change::Set { path, value }))
    }

    fn with(mut self, origin: &str, prefix: &'static str, change: Change) -> Self {
        let origin = origin.to_owned();
        self.sources.push(Source {
            origin,
            prefix,
            change,
        });
        self
    }

    /// The configuration that the sources make. It may use providers that this build does not have:
    /// see [`build_available`](Self::build_available).
    ///
    /// # Errors
    ///
    /// The first fault: an unknown key, a wrong type, a value out of range, a contradiction.
    pub fn build(&self) -> Result<Config, ConfigError> {
        let value = self.merged()?;
        let config = serde_path_to_error::deserialize(value).map_err(|error| {
            let mut what = error.inner().to_string();
            for (name, ours) in TOML_NAMES {
                what = what.replace(name, ours);
            }
            let keys = [error.path().to_string()];
            self.error(ConfigErrorKind::Value, &keys, &what)
        })?;
        check::config(&config, &self.own_tools)
            .map_err(|f| self.error(f.kind, &f.keys, &f.what))?;
        Ok(config)
    }

    /// The configuration that the sources make, for a run in this build.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build), and when it uses a provider that is not available, or one whose `cwd`
    /// is no folder at this time. A relative `cwd` is looked for when [`run_in`](Self::run_in) says where;
    /// else its children's starts are what fails.
    pub fn build_available(&self) -> Result<Config, ConfigError> {
        let config = self.build()?;
        if let Some(missing) = config.unavailable_providers().into_iter().next() {
            let what = format!(
                "provider \"{}\" is not available in this build",
                missing.provider
            );
            let kind = ConfigErrorKind::UnavailableProvider;
            return Err(self.error(kind, &[missing.key], &what));
        }
        match check::missing_folder(&config, self.folder.as_deref()) {
            None => Ok(config),
            Some((key, what)) => Err(self.error(ConfigErrorKind::Folder, &[key], &what)),
        }
    }

    fn merged(&self) -> Result<Value, ConfigError> {
        let mut value = serde_json::to_value(Config::default())
            .map_err(|error| ConfigError::new(ConfigErrorKind::Value, "the defaults", "", error))?;
        for source in &self.sources {
            source.apply(&mut value)?;
        }
        // `serde` would take an array for a struct.
        for name in ENTRIES {
            let entries = value.get(name).and_then(Value::as_array);
            for (i, entry) in entries.into_iter().flatten().enumerate() {
                let filter = entry.get("tool_filter");
                let tables = [
                    (format!("{name}[{i}]"), Some(entry)),
                    (format!("{name}[{i}].tool_filter"), filter),
                ];
                for (key, table) in tables {
                    if let Some(other) = table.filter(|table| !table.is_object()) {
                        let what = format!("expected a table, not {}", named(other));
                        return Err(self.error(ConfigErrorKind::Value, &[key], &what));
                    }
                }
            }
        }
        self.read_schemas(&mut value)?;
        Ok(value)
    }

    /// Puts the schemas that are named by a file where the names are.
    fn read_schemas(&self, value: &mut Value) -> Result<(), ConfigError> {
        let entries = value.get_mut("subagent").and_then(Value::as_array_mut);
        for (i, entry) in entries.into_iter().flatten().enumerate() {
            let Some(schema) = entry.get_mut("output_schema") else {
                continue;
            };
            let Some(path) = schema.as_str() else {
                continue;
            };
            let key = [format!("subagent[{i}].output_schema")];
            let text = read_text(Path::new(path)).map_err(|error| {
                let what = format!("the schema file {path} cannot be read: {error}");
                self.error(ConfigErrorKind::Read, &key, &what)
            })?;
            *schema = serde_json::from_str(&text).map_err(|error| {
                let what = format!("the schema file {path} is not JSON: {error}");
                self.error(ConfigErrorKind::Syntax, &key, &what)
            })?;
        }
        Ok(())
    }

    /// A fault of these keys: it is at the one that the latest source with any of them says.
    fn error(&self, kind: ConfigErrorKind, keys: &[String], what: &str) -> ConfigError {
        let mut best: Option<(usize, &Source, &str)> = None;
        'sources: for source in self.sources.iter().rev() {
            for key in keys {
                let plain = key.replace('[', ".").replace(']', "");
                let path: Vec<&str> = plain.split('.').collect();
                let (depth, hides) = source.depth(&path);
                if depth > best.map_or(0, |(depth, ..)| depth) {
                    best = Some((depth, source, key));
                }
                if hides {
                    break 'sources;
                }
            }
        }
        match best {
            Some((_, source, key)) => source.error(kind, key, what),
            None => ConfigError::new(kind, "the configuration", keys.join(", "), what),
        }
    }
}

/// Makes the relative paths of schema files in a configuration file relative to its folder.
fn beside(file: &Path, value: &mut Value) {
    let folder = file.parent().unwrap_or(Path::new(""));
    let entries = value.get_mut("subagent").and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten() {
        let Some(schema) = entry.get_mut("output_schema") else {
            continue;
        };
        if let Some(path) = schema.as_str() {
            // An absolute path stays as it is.
            let path = folder.join(path).display().to_string();
            *schema = path.into();
        }
    }
}
