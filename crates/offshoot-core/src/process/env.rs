//! Which environment variables a command sees.
//!
//! Commands are written by a model and their output is read by it: what a command sees may leave.

mod secret;

use std::collections::BTreeMap;
use std::ffi::OsString;

pub use secret::looks_secret;
pub(crate) use secret::secrets_in;

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

#[derive(Clone, Debug, PartialEq, Eq)]
enum Base {
    Listed,
    All,
    Nothing,
}

/// Which variables of this process a command sees.
///
/// The default is a list of names that commands commonly need (`PATH`, `HOME`, the locale, the
/// settings of build tools), without those that look like secrets: by their names (`…TOKEN…`, `…_KEY`, …),
/// or by what is in their values, such as a URL with a password, an authorization header or the token of a
/// well-known service. What is withheld for this is in the log, at the level `debug`, by its name.
///
/// ```
/// use offshoot_core::process::EnvPolicy;
/// let policy = EnvPolicy::default().allow("MY_TOOL_*").allow("DEPLOY_TOKEN").deny("LD_*");
/// assert!(policy.admits("PATH"));
/// assert!(policy.admits("MY_TOOL_HOME") && !policy.admits("MY_TOOL_TOKEN"));
/// assert!(policy.admits("DEPLOY_TOKEN"), "named in full");
/// assert!(!policy.admits("LD_LIBRARY_PATH") && !policy.admits("OTHER"));
/// assert!(policy.admits_value("HTTPS_PROXY", "http://proxy:3128"));
/// assert!(!policy.admits_value("HTTPS_PROXY", "http://me:password@proxy:3128"));
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

impl EnvPolicy {
    const fn of(base: Base) -> Self {
        Self {
            base,
            allowed: Vec::new(),
            denied: Vec::new(),
        }
    }

    /// Every variable that does not look like a secret.
    #[must_use]
    pub const fn all() -> Self {
        Self::of(Base::All)
    }

    /// No variable at all, not even `PATH`.
    #[must_use]
    pub const fn nothing() -> Self {
        Self::of(Base::Nothing)
    }

    /// Also admits `name`, or, when it ends in `*`, every name that begins so. What looks like a secret,
    /// by its name or its value, is admitted only when its name is given in full.
    #[must_use]
    pub fn allow(mut self, name: impl Into<String>) -> Self {
        self.allowed.push(name.into());
        self
    }

    /// Also admits each of these, as [`allow`](Self::allow) does.
    #[must_use]
    pub fn allow_each<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> Self {
        names.into_iter().fold(self, Self::allow)
    }

    /// Never admits `name`, or, when it ends in `*`, any name that begins so. Beats everything else.
    #[must_use]
    pub fn deny(mut self, name: impl Into<String>) -> Self {
        self.denied.push(name.into());
        self
    }

    /// Whether a command may see the variable `name`; its value can still
    /// [speak against it](Self::admits_value).
    #[must_use]
    pub fn admits(&self, name: &str) -> bool {
        self.lists(name) && (self.names(name) || !looks_secret(name))
    }

    /// Whether a command sees the variable `name` when it has this value.
    ///
    /// The settings that Git has in several variables (`GIT_CONFIG_COUNT`, `GIT_CONFIG_KEY_0`, …) are seen
    /// together or not at all: Git runs no command with a part of them.
    #[must_use]
    pub fn admits_value(&self, name: &str, value: &str) -> bool {
        self.admits(name) && (self.names(name) || secrets_in(name, value).is_empty())
    }

    /// Whether a name is given in full.
    fn names(&self, name: &str) -> bool {
        self.allowed.iter().any(|allowed| allowed == name)
    }

    /// Whether a name is wanted, were it not for secrets.
    fn lists(&self, name: &str) -> bool {
        if self.denied.iter().any(|pattern| matches(pattern, name)) {
            return false;
        }
        let listed = match self.base {
            Base::All => true,
            Base::Listed => COMMON.iter().any(|pattern| matches(pattern, name)),
            Base::Nothing => false,
        };
        listed || self.allowed.iter().any(|pattern| matches(pattern, name))
    }

    /// The admitted variables of this process. A name that is not text is not admitted.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (OsString, OsString)> + '_ {
        self.select(std::env::vars_os())
    }

    /// The admitted ones of `all`.
    fn select(
        &self,
        all: impl Iterator<Item = (OsString, OsString)>,
    ) -> impl Iterator<Item = (OsString, OsString)> {
        let texts = all.filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let mut wanted: BTreeMap<_, _> = texts.filter(|(name, _)| self.lists(name)).collect();
        let mut secret: Vec<_> = wanted
            .iter()
            .filter(|(name, value)| !self.admits_value(name, &value.to_string_lossy()))
            .map(|(name, _)| name.clone())
            .collect();
        if self.has_secret_git_setting(&wanted) {
            let whole = wanted.keys().filter(|name| is_git_setting(name));
            secret.extend(whole.filter(|name| !self.names(name)).cloned());
        }
        secret.sort_unstable();
        secret.dedup();
        if !secret.is_empty() {
            tracing::debug!(
                variables = secret.join(" "),
                "withheld from a command: by their names or values they hold secrets; \
                 one that is named in full in env_allow passes (tools.bash, process, acp)"
            );
        }
        for name in secret {
            wanted.remove(&name);
        }
        wanted.into_iter().map(|(name, value)| (name.into(), value))
    }

    /// Whether one of the settings that Git has in several variables holds a secret, in its value or in
    /// its own name (`url.https://user:password@host/.insteadOf`).
    fn has_secret_git_setting(&self, all: &BTreeMap<String, OsString>) -> bool {
        all.iter().any(|(name, value)| {
            let Some(n) = name.strip_prefix(GIT_VALUE) else {
                return false;
            };
            let key = format!("{GIT_KEY}{n}");
            let setting = all.get(&key).map(|key| key.to_string_lossy());
            let setting = setting.unwrap_or_default();
            let text = format!("{setting}={}", value.to_string_lossy());
            let passes = self.names(name) && self.names(&key);
            !passes && !secrets_in(name, &text).is_empty()
        })
    }
}

/// How the names begin of the variables that Git has its settings in, which come with
/// `GIT_CONFIG_COUNT`.
const GIT_KEY: &str = "GIT_CONFIG_KEY_";
const GIT_VALUE: &str = "GIT_CONFIG_VALUE_";

fn is_git_setting(name: &str) -> bool {
    name == "GIT_CONFIG_COUNT" || name.starts_with(GIT_KEY) || name.starts_with(GIT_VALUE)
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
        assert!(policy.admits("BUNDLE_BUILD__NOKOGIRI"));
        for name in [
            "BUNDLE_RUBYGEMS__PKG__GITHUB__COM",
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

    fn selected(policy: &EnvPolicy, all: &[(&str, &str)]) -> Vec<String> {
        let all = all.iter().map(|(name, value)| (name.into(), value.into()));
        let selected = policy.select(all);
        selected
            .map(|(name, _)| name.into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_value_with_a_secret_does_not_pass_unless_its_name_is_given_in_full() {
        let policy = EnvPolicy::default().allow("MINE_*");
        let carriers = [
            ("BUNDLE_RUBYGEMS__PKG__GITHUB__COM", "user:ghp_x"),
            ("CARGO_HTTP_PROXY", "me:pw@proxy:3128"),
            ("GIT_CONFIG_PARAMETERS", "'http.extraheader=X: y'"),
            ("GOPROXY", "https://me:pw@proxy.example,direct"),
            ("HTTPS_PROXY", "http://me:pw@proxy.example:3128"),
            ("MAVEN_OPTS", "-Dhttp.proxyPassword=pw"),
            ("MINE_URL", "https://me:pw@host"),
            ("NIX_CONFIG", "access-tokens = github.com=ghp_x"),
            ("PIP_INDEX_URL", "https://me:pw@pypi.example/simple"),
        ];
        assert_eq!(selected(&policy, &carriers), [] as [&str; 0]);
        assert_eq!(selected(&EnvPolicy::all(), &carriers), [] as [&str; 0]);
        for (name, value) in carriers {
            let named = policy.clone().allow(name);
            assert_eq!(selected(&named, &[(name, value)]), [name]);
            assert!(selected(&named.deny(name), &[(name, value)]).is_empty());
        }
        let plain = [
            ("GOPROXY", "https://proxy.example,direct"),
            ("HTTPS_PROXY", "http://proxy.example:3128"),
            ("NIX_CONFIG", "experimental-features = flakes"),
            ("PATH", "/opt/token/bin:/home/me@x/bin:/usr/bin"),
        ];
        assert_eq!(
            selected(&policy, &plain),
            ["GOPROXY", "HTTPS_PROXY", "NIX_CONFIG", "PATH"]
        );
    }

    #[test]
    fn the_settings_of_git_pass_together_or_not_at_all() {
        let policy = EnvPolicy::default();
        let with = |key, value| {
            [
                ("GIT_CONFIG_COUNT", "2"),
                ("GIT_CONFIG_KEY_0", "safe.directory"),
                ("GIT_CONFIG_KEY_1", key),
                ("GIT_CONFIG_VALUE_0", "*"),
                ("GIT_CONFIG_VALUE_1", value),
                ("GIT_EDITOR", "vi"),
            ]
        };
        assert_eq!(selected(&policy, &with("core.pager", "cat")).len(), 6);
        for (key, value) in [
            ("http.https://github.com/.extraheader", "X-Any: abc"),
            ("http.proxy", "http://me:pw@proxy"),
            ("url.https://me:pw@host/.insteadOf", "https://host/"),
            ("core.x", "AUTHORIZATION: basic eDp5"),
        ] {
            let all = with(key, value);
            assert_eq!(selected(&policy, &all), ["GIT_EDITOR"], "{key}");
            let named = policy.clone().allow("GIT_CONFIG_KEY_1");
            let named = named.allow("GIT_CONFIG_VALUE_1");
            assert_eq!(selected(&named, &all).len(), 6, "{key}");
        }
    }
}
