//! Which environment variables a command sees.
//!
//! Commands are written by a model and their output is read by it: what a command sees may leave.

use std::ffi::OsString;

/// Names that commands commonly need. A trailing `*` stands for any ending.
const COMMON: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "PWD",
    "HOSTNAME",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "FORCE_COLOR",
    "COLUMNS",
    "LINES",
    "PAGER",
    "EDITOR",
    "VISUAL",
    "TMPDIR",
    "TMP",
    "TEMP",
    "XDG_*",
    "DISPLAY",
    "CI",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "PKG_CONFIG_*",
    "CC",
    "CXX",
    "AR",
    "LD",
    "CFLAGS",
    "CXXFLAGS",
    "CPPFLAGS",
    "LDFLAGS",
    "MAKEFLAGS",
    "CMAKE_*",
    "CARGO_*",
    "RUST*",
    "GOPATH",
    "GOROOT",
    "GOBIN",
    "GOCACHE",
    "GOFLAGS",
    "GOMODCACHE",
    "GOPROXY",
    "JAVA_HOME",
    "JDK_HOME",
    "MAVEN_*",
    "GRADLE_*",
    "ANDROID_*",
    "NODE_*",
    "NVM_*",
    "PNPM_HOME",
    "DENO_*",
    "BUN_*",
    "PYTHON*",
    "PIP_*",
    "VIRTUAL_ENV",
    "CONDA_*",
    "PYENV_*",
    "POETRY_*",
    "UV_*",
    "RUBY*",
    "GEM_*",
    "BUNDLE_*",
    "RBENV_*",
    "PHP*",
    "COMPOSER_*",
    "DOTNET_*",
    "NIX_*",
    "HOMEBREW_*",
    "SSL_CERT_*",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "DOCKER_HOST",
    "GIT_*",
];

/// Parts of names that hold secrets.
const SECRET: &[&str] = &[
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "APIKEY",
    "API_KEY",
    "ACCESS_KEY",
    "PRIVATE_KEY",
    "COOKIE",
    "SESSION",
    "BEARER",
    "SIGNING",
];

/// Endings of names that hold secrets.
const SECRET_END: &[&str] = &["_KEY", "_PAT", "_PASS", "_PWD", "_DSN"];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Base {
    Listed,
    All,
    Nothing,
}

/// Which variables of this process a command sees.
///
/// The default is a list of names that commands commonly need (`PATH`, `HOME`, the locale, the
/// settings of build tools), without those whose names look like secrets (`…TOKEN…`, `…_KEY`, …).
///
/// ```
/// use offshoot_core::process::EnvPolicy;
/// let policy = EnvPolicy::default().allow("MY_TOOL_*").allow("DEPLOY_TOKEN").deny("LD_*");
/// assert!(policy.admits("PATH"));
/// assert!(policy.admits("MY_TOOL_HOME") && !policy.admits("MY_TOOL_TOKEN"));
/// assert!(policy.admits("DEPLOY_TOKEN"), "named in full");
/// assert!(!policy.admits("LD_LIBRARY_PATH") && !policy.admits("OTHER"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvPolicy {
    base: Base,
    allowed: Vec<String>,
    denied: Vec<String>,
}

impl Default for EnvPolicy {
    fn default() -> Self {
        Self::of(Base::Listed)
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

/// Whether a variable of this name probably holds a secret.
#[must_use]
pub fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let names_auth = || {
        // Who wrote something is no secret: `GIT_AUTHOR_NAME`.
        let mut after = name
            .match_indices("AUTH")
            .map(|(at, auth)| &name[at + auth.len()..]);
        after.any(|rest| !rest.starts_with("OR") || rest.starts_with("ORI"))
    };
    SECRET.iter().any(|part| name.contains(part))
        || SECRET_END.iter().any(|end| name.ends_with(end))
        || names_auth()
}

impl EnvPolicy {
    const fn of(base: Base) -> Self {
        Self {
            base,
            allowed: Vec::new(),
            denied: Vec::new(),
        }
    }

    /// Every variable whose name does not look like a secret.
    #[must_use]
    pub const fn all() -> Self {
        Self::of(Base::All)
    }

    /// No variable at all, not even `PATH`.
    #[must_use]
    pub const fn nothing() -> Self {
        Self::of(Base::Nothing)
    }

    /// Also admits `name`, or, when it ends in `*`, every name that begins so. A name that looks
    /// like a secret is admitted only when it is given in full.
    #[must_use]
    pub fn allow(mut self, name: impl Into<String>) -> Self {
        self.allowed.push(name.into());
        self
    }

    /// Never admits `name`, or, when it ends in `*`, any name that begins so. Beats everything else.
    #[must_use]
    pub fn deny(mut self, name: impl Into<String>) -> Self {
        self.denied.push(name.into());
        self
    }

    /// Whether a command sees the variable `name`.
    #[must_use]
    pub fn admits(&self, name: &str) -> bool {
        if self.denied.iter().any(|pattern| matches(pattern, name)) {
            return false;
        }
        if self.allowed.iter().any(|allowed| allowed == name) {
            return true;
        }
        let listed = match self.base {
            Base::All => true,
            Base::Listed => COMMON.iter().any(|pattern| matches(pattern, name)),
            Base::Nothing => false,
        };
        let allowed = listed || self.allowed.iter().any(|pattern| matches(pattern, name));
        allowed && !looks_secret(name)
    }

    /// The admitted variables of this process. A name that is not text is not admitted.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (OsString, OsString)> + '_ {
        std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(|name| self.admits(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_do_not_pass_and_what_builds_need_does() {
        let policy = EnvPolicy::default();
        for name in [
            "PATH",
            "HOME",
            "LC_ALL",
            "CARGO_HOME",
            "RUSTUP_HOME",
            "VIRTUAL_ENV",
            "GIT_AUTHOR_NAME",
            "GIT_AUTHOR_EMAIL",
        ] {
            assert!(policy.admits(name), "{name}");
        }
        for name in [
            "OPENAI_API_KEY",
            "GIT_TOKEN",
            "CARGO_REGISTRY_TOKEN",
            "NODE_AUTH_TOKEN",
            "PIP_PASSWORD",
            "AWS_SECRET_ACCESS_KEY",
            "DATABASE_URL",
            "SSH_AUTH_SOCK",
            "GIT_AUTHORIZATION",
            "GIT_AUTHOR_AUTH",
            "npm_config__auth",
        ] {
            assert!(!policy.admits(name), "{name}");
        }
        assert!(EnvPolicy::all().admits("DATABASE_URL"));
        assert!(!EnvPolicy::all().admits("github_token"));
        assert!(!EnvPolicy::nothing().admits("PATH"));
    }
}
