//! One package of a registry, installed with that registry's ordinary client.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::cache::{self, Failure, Place};

/// The registry that a package is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Registry {
    Npm,
    Pip,
}

/// A package at an exact version, perhaps with others at theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Package {
    registry: Registry,
    name: &'static str,
    version: &'static str,
    with: &'static [(&'static str, &'static str)],
}

impl Package {
    /// A package for node.
    #[must_use]
    pub const fn npm(name: &'static str, version: &'static str) -> Self {
        Self {
            registry: Registry::Npm,
            name,
            version,
            with: &[],
        }
    }

    /// A package for Python, in an environment of its own.
    #[must_use]
    pub const fn pip(name: &'static str, version: &'static str) -> Self {
        Self {
            registry: Registry::Pip,
            name,
            version,
            with: &[],
        }
    }

    /// Installs others with it, in the same folder.
    #[must_use]
    pub const fn with(mut self, others: &'static [(&'static str, &'static str)]) -> Self {
        self.with = others;
        self
    }

    /// The installed package: installed by the first test that asks, found by the others.
    ///
    /// `None`, with a line on stderr, when its registry cannot be reached: the test is then skipped.
    /// With `OFFSHOOT_PEERS_REQUIRED=1` that is a failure too.
    ///
    /// # Panics
    ///
    /// When it cannot be installed for any other reason; the message has the client's own words.
    #[must_use]
    pub fn ready(self) -> Option<Installed> {
        match self.install() {
            Ok(installed) => Some(installed),
            Err(Failure::Unreachable(why)) => {
                let required = std::env::var_os("OFFSHOOT_PEERS_REQUIRED").is_some();
                assert!(!required, "{}: {why}", self.line());
                cache::complain(&format!("SKIPPED: {} cannot be had: {why}", self.line()));
                None
            }
            Err(Failure::Broken(why)) => panic!("{} cannot be installed: {why}", self.line()),
        }
    }

    fn line(self) -> String {
        let (name, version) = (self.name, self.version);
        match self.registry {
            Registry::Npm => format!("npm {name}@{version}"),
            Registry::Pip => format!("pip {name}=={version}"),
        }
    }

    /// The folder's name has everything that is in it.
    fn folder_name(self) -> String {
        let mut name = self.line();
        for (other, version) in self.with {
            name.push_str(&format!(" {other}@{version}"));
        }
        name.replace(['/', ' ', '@', '='], "_")
    }

    fn install(self) -> Result<Installed, Failure> {
        let place = Place::of(&self.folder_name())?;
        let root = place.filled(|folder| match self.registry {
            Registry::Npm => self.npm_install(folder),
            Registry::Pip => self.pip_install(folder),
        })?;
        Ok(Installed {
            registry: self.registry,
            root,
        })
    }

    fn npm_install(self, folder: &Path) -> Result<(), Failure> {
        let mut install = Command::new("npm");
        install.args(["install", "--no-audit", "--no-fund", "--save-exact"]);
        install.args(["--prefer-offline", "--fetch-retries=1", "--loglevel=error"]);
        install.arg("--prefix").arg(folder);
        for (name, version) in [(self.name, self.version)].iter().chain(self.with) {
            install.arg(format!("{name}@{version}"));
        }
        done(&mut install)
    }

    fn pip_install(self, folder: &Path) -> Result<(), Failure> {
        done(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
        let mut install = Command::new(folder.join("bin/python"));
        install.args(["-m", "pip", "install", "--quiet", "--no-input"]);
        install.args(["--disable-pip-version-check", "--retries", "1"]);
        for (name, version) in [(self.name, self.version)].iter().chain(self.with) {
            install.arg(format!("{name}=={version}"));
        }
        done(&mut install)
    }
}

fn done(command: &mut Command) -> Result<(), Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::Broken(format!("`{program}` does not start: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(judge(&program, &output))
}

/// How the clients say that they did not get through to their registry.
const UNREACHABLE: [&str; 12] = [
    "ENOTFOUND",
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ECONNRESET",
    "ETIMEDOUT",
    "ENETUNREACH",
    "EHOSTUNREACH",
    "ERR_SOCKET_TIMEOUT",
    "NewConnectionError",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "Temporary failure in name resolution",
];

fn judge(program: &str, output: &Output) -> Failure {
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let tail: String = said.chars().rev().take(2_000).collect();
    let tail: String = tail.chars().rev().collect();
    let why = format!("`{program}`: {}: {}", output.status, tail.trim());
    match UNREACHABLE.iter().any(|sign| said.contains(sign)) {
        true => Failure::Unreachable(why),
        false => Failure::Broken(why),
    }
}

/// An installed package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    registry: Registry,
    root: PathBuf,
}

impl Installed {
    /// A program that the package brings.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs().join(name)
    }

    /// The folder of its programs, for a `PATH`.
    #[must_use]
    pub fn programs(&self) -> PathBuf {
        match self.registry {
            Registry::Npm => self.root.join("node_modules/.bin"),
            Registry::Pip => self.root.join("bin"),
        }
    }

    /// A file that it brings: below `node_modules`, or below the Python environment.
    #[must_use]
    pub fn file(&self, path: &str) -> PathBuf {
        match self.registry {
            Registry::Npm => self.root.join("node_modules").join(path),
            Registry::Pip => self.root.join(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn judged(stderr: &str) -> Failure {
        let output = Output {
            status: std::process::ExitStatus::from_raw(256),
            stdout: Vec::new(),
            stderr: stderr.into(),
        };
        judge("npm", &output)
    }

    #[test]
    fn only_a_registry_out_of_reach_is_a_reason_to_skip() {
        let offline = judged("npm error code EAI_AGAIN\nnpm error getaddrinfo");
        assert!(matches!(offline, Failure::Unreachable(_)), "{offline}");
        let wrong = judged("npm error code ETARGET\nnpm error notarget No matching version");
        assert!(matches!(wrong, Failure::Broken(_)), "{wrong}");
    }
}
