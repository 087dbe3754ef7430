//! What looks like a secret: by the name of a variable, and by what is in its value.
//!
//! Both are guesses about variables that nobody chose. They err so that what commands cannot do without
//! (`PATH` and other lists of folders) is never taken for a secret.

/// Parts of names that hold secrets.
const NAME: &[&str] = &[
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
const NAME_END: &[&str] = &["_KEY", "_PAT", "_PASS", "_PWD", "_DSN"];

/// What Bundler has such a name for that is not the account at a host.
const BUNDLE_SETTINGS: &[&str] = &["BUILD__", "LOCAL__", "MIRROR__"];

/// Parts of the names of settings *in* a value. Fewer than of variables: filters of logs and options of
/// programs have names of many kinds.
const SETTING: &[&str] = &[
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "APIKEY",
    "API_KEY",
    "ACCESSKEY",
    "ACCESS_KEY",
    "ACCOUNTKEY",
    "PRIVATE_KEY",
    "COOKIE",
    "EXTRAHEADER",
    "SIGNATURE",
];

/// Endings of the names of settings that hold secrets.
const SETTING_END: &[&str] = &["AUTHORIZATION", "CREDENTIAL", "CREDENTIALS", "_AUTH"];

/// Endings of the names of settings that say where a secret is, and not what.
const SETTING_PLACE: &[&str] = &["FILE", "PATH", "DIR", "HELPER", "PROVIDER", "STORE"];

/// Values of settings that are no secrets, whatever the setting.
const PLAIN: &[&str] = &[
    "true", "false", "yes", "no", "on", "off", "none", "null", "trace", "debug", "info", "warn",
    "error",
];

/// How the tokens of well-known services begin, and what comes after that.
const TOKENS: &[(&str, Rest)] = &[
    ("ghp_", Rest::Alphanumeric(16)),
    ("gho_", Rest::Alphanumeric(16)),
    ("ghu_", Rest::Alphanumeric(16)),
    ("ghs_", Rest::Alphanumeric(16)),
    ("ghr_", Rest::Alphanumeric(16)),
    ("github_pat_", Rest::Alphanumeric(16)),
    ("glpat-", Rest::Dashed(16)),
    ("gldt-", Rest::Dashed(16)),
    ("glrt-", Rest::Dashed(16)),
    ("glptt-", Rest::Dashed(16)),
    ("glcbt-", Rest::Dashed(16)),
    ("gloas-", Rest::Dashed(16)),
    ("ATATT3x", Rest::Dashed(16)),
    ("xoxa-", Rest::Dashed(16)),
    ("xoxb-", Rest::Dashed(16)),
    ("xoxp-", Rest::Dashed(16)),
    ("xoxr-", Rest::Dashed(16)),
    ("xoxs-", Rest::Dashed(16)),
    ("xapp-", Rest::Dashed(16)),
    ("npm_", Rest::Alphanumeric(30)),
    ("pypi-AgE", Rest::Dashed(16)),
    ("rubygems_", Rest::Alphanumeric(30)),
    ("dckr_pat_", Rest::Dashed(16)),
    ("sk-ant-", Rest::Dashed(16)),
    ("sk-proj-", Rest::Dashed(32)),
    ("sk-svcacct-", Rest::Dashed(32)),
    ("sk-or-v1-", Rest::Alphanumeric(32)),
    ("sk-", Rest::Alphanumeric(32)),
    ("sk_live_", Rest::Alphanumeric(16)),
    ("sk_test_", Rest::Alphanumeric(16)),
    ("rk_live_", Rest::Alphanumeric(16)),
    ("hf_", Rest::Alphanumeric(30)),
    ("gsk_", Rest::Alphanumeric(30)),
    ("AIza", Rest::Dashed(30)),
    ("ya29.", Rest::Dashed(20)),
    ("AKIA", Rest::Alphanumeric(16)),
    ("ASIA", Rest::Alphanumeric(16)),
    ("dop_v1_", Rest::Alphanumeric(32)),
    ("dapi", Rest::Alphanumeric(32)),
    ("hvs.", Rest::Dashed(20)),
    ("SG.", Rest::Dashed(16)),
    // A JSON web token: `{"` in base64.
    ("eyJ", Rest::Dashed(20)),
];

/// The characters of a token after its beginning, and how many there are at least.
#[derive(Clone, Copy)]
enum Rest {
    Alphanumeric(usize),
    /// Also `-` and `_`.
    Dashed(usize),
}

/// Whether a variable of this name probably holds a secret.
///
/// Beside the names that say so (`…TOKEN…`, `…_KEY`) these are the accounts that Bundler has for hosts,
/// such as `BUNDLE_GEMS__EXAMPLE__COM`.
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
    let names_host = || {
        name.strip_prefix("BUNDLE_").is_some_and(|rest| {
            // A dot of the host's name.
            rest.contains("__") && !BUNDLE_SETTINGS.iter().any(|one| rest.starts_with(one))
        })
    };
    NAME.iter().any(|part| name.contains(part))
        || NAME_END.iter().any(|end| name.ends_with(end))
        || names_auth()
        || names_host()
}

/// The parts of a variable's value that look like secrets, whatever its name.
pub(crate) fn secrets_in<'a>(name: &str, value: &'a str) -> Vec<&'a str> {
    let accounts = value
        .match_indices("://")
        .filter_map(|(at, _)| of_url(value, at));
    let settings = value
        .match_indices(['=', ':'])
        .filter_map(|(at, _)| of_setting(value, at));
    let mut found: Vec<_> = accounts.chain(settings).chain(tokens(value)).collect();
    found.extend(bare_account(name, value));
    found.extend(of_channel(name, value));
    // With something that is no text of one line, such as a key in a block, all of it.
    if value.contains("PRIVATE KEY-----") || value.split_whitespace().any(|word| word == "sshpass")
    {
        found.push(value);
    }
    found
}

/// A word up to a blank, a quote or an end of a setting.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| c.is_whitespace() || "'\"`,;&<>".contains(c));
    &text[..end.unwrap_or(text.len())]
}

/// The password in a URL whose `://` is at `at`, or its user where a user alone is a secret: everywhere but
/// for a login by SSH.
fn of_url(value: &str, at: usize) -> Option<&str> {
    let scheme_from = value[..at].rfind(|c: char| !c.is_ascii_alphanumeric() && !"+.-".contains(c));
    let scheme = &value[scheme_from.map_or(0, |before| before + 1)..at];
    let rest = &value[at + 3..];
    let end = rest.find(|c: char| c.is_whitespace() || "/?#'\"".contains(c));
    let authority = &rest[..end.unwrap_or(rest.len())];
    let Some((account, _host)) = authority.rsplit_once('@') else {
        // A password with a `/` in it that was not written as `%2F`.
        let (_, port) = authority.rsplit_once(':')?;
        let no_port = !port.ends_with(']') && port.contains(|c: char| c.is_ascii_alphabetic());
        let word = rest.split_whitespace().next()?;
        return (no_port && word.contains('@')).then_some(word);
    };
    let login = scheme == "ssh" || scheme.ends_with("+ssh") || scheme == "sftp" || scheme == "git";
    let (user, password) = account.split_once(':').unwrap_or((account, ""));
    let secret = if password.is_empty() && !login {
        user
    } else {
        password
    };
    (!secret.is_empty()).then_some(secret)
}

/// The value of a setting with the name of a secret, whose `=` or `:` is at `at`: `password=…`,
/// `Authorization: …`, `"token": "…"`.
fn of_setting(value: &str, at: usize) -> Option<&str> {
    let quotes = ['\'', '"'];
    let (before, after) = (&value[..at], &value[at + 1..]);
    let before = before.trim_end();
    let bare = before.trim_end_matches(quotes);
    let from = bare.rfind(|c: char| !c.is_ascii_alphanumeric() && !"_.-".contains(c));
    let setting = bare[from.map_or(0, |before| before + 1)..]
        .to_ascii_uppercase()
        .replace('-', "_");
    let header = setting.ends_with("AUTHORIZATION");
    // Folders and modules have colons between them as well.
    let colon = value.as_bytes()[at] == b':';
    let blank = after.starts_with(|c: char| c.is_whitespace() || quotes.contains(&c));
    if colon && !blank && (!header || after.starts_with([':', '/'])) {
        return None;
    }
    let named = header
        || SETTING.iter().any(|part| setting.contains(part))
        || SETTING_END.iter().any(|end| setting.ends_with(end));
    if !named || SETTING_PLACE.iter().any(|end| setting.ends_with(end)) {
        return None;
    }
    let text = after.trim_start().trim_start_matches(quotes);
    // A header has a scheme first: `Basic …`.
    let text = if header || setting.contains("EXTRAHEADER") {
        let end = text.find(|c: char| c == '\n' || quotes.contains(&c));
        text[..end.unwrap_or(text.len())].trim()
    } else {
        word(text)
    };
    let plain = text.is_empty()
        || text.starts_with('$')
        || PLAIN.iter().any(|plain| text.eq_ignore_ascii_case(plain))
        || text.bytes().all(|byte| byte.is_ascii_digit());
    (!plain).then_some(text)
}

/// The tokens of well-known services, and whatever says that it bears one.
fn tokens(value: &str) -> impl Iterator<Item = &str> {
    let begins = |at: usize| !value[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
    let known = TOKENS.iter().flat_map(move |(prefix, rest)| {
        value.match_indices(prefix).filter_map(move |(at, _)| {
            let after = &value[at + prefix.len()..];
            let (least, dashed) = match *rest {
                Rest::Alphanumeric(least) => (least, false),
                Rest::Dashed(least) => (least, true),
            };
            let its = |c: char| c.is_ascii_alphanumeric() || dashed && matches!(c, '-' | '_');
            let length = after.find(|c| !its(c)).unwrap_or(after.len());
            (begins(at) && length >= least).then(|| word(&value[at..]))
        })
    });
    let schemes = ["bearer ", "Bearer ", "BEARER "];
    let borne = schemes.into_iter().flat_map(move |scheme| {
        value.match_indices(scheme).filter_map(move |(at, _)| {
            let token = word(value[at + scheme.len()..].trim_start());
            (begins(at) && token.len() >= 8).then_some(token)
        })
    });
    known.chain(borne)
}

/// The password of a proxy that is given without a scheme: `user:password@host:port`.
fn bare_account<'a>(name: &str, value: &'a str) -> Option<&'a str> {
    if !name.to_ascii_uppercase().contains("PROXY") || value.contains("://") {
        return None;
    }
    let (account, _host) = value.rsplit_once('@')?;
    Some(account.split_once(':').map_or(account, |(_, after)| after)).filter(|it| !it.is_empty())
}

/// The token in the address of a conda channel: `https://host/t/TOKEN/channel`.
fn of_channel<'a>(name: &str, value: &'a str) -> Option<&'a str> {
    let (_, after) = value
        .split_once("/t/")
        .filter(|_| name.starts_with("CONDA") && value.contains("://"))?;
    after.split('/').next().filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_in_urls_are_secrets_and_logins_are_not() {
        let found = |value| secrets_in("PIP_INDEX_URL", value);
        for (value, secret) in [
            ("https://me:s3cret@host.example/simple", "s3cret"),
            ("https://me:p%40ss@host", "p%40ss"),
            ("https://me:p@ss@host:8080/", "p@ss"),
            ("https://t0ken@host/simple", "t0ken"),
            ("https://t0ken:@host/simple", "t0ken"),
            ("socks5h://me:pw@host", "pw"),
            ("redis://:pw@host/0", "pw"),
            ("sparse+https://me:pw@host/index/", "pw"),
            ("ssh://me:pw@host", "pw"),
            ("https://one.example,https://me:pw@two.example,direct", "pw"),
            ("https://one.example|https://me:pw@two.example", "pw"),
            ("internal=https://me:pw@host/simple", "pw"),
            ("'https://me:pw@host/'", "pw"),
            ("http://me:pa/ss@host", "me:pa/ss@host"),
        ] {
            assert!(
                found(value).contains(&secret),
                "{value}: {:?}",
                found(value)
            );
        }
        for value in [
            "https://host:8080/a:b@c",
            "https://proxy.example.org,direct",
            "http://[2001:db8::1]:8080/x@y",
            "http://[2001:db8::a]/x@y",
            "ssh://git@host/path",
            "git+ssh://git@host/path",
            "https://esm.example/react@18.2.0",
            "http://@host",
            "unix:///run/docker.sock",
        ] {
            assert_eq!(found(value), [] as [&str; 0], "{value}");
        }
        let proxy = |value| secrets_in("https_proxy", value);
        assert_eq!(proxy("me:pw@proxy:3128"), ["pw"]);
        assert_eq!(proxy("t0ken@proxy:3128"), ["t0ken"]);
        assert_eq!(proxy("proxy:3128"), [] as [&str; 0]);
        let conda = secrets_in("CONDA_CHANNEL_ALIAS", "https://host/t/tk-123/main");
        assert_eq!(conda, ["tk-123"]);
    }

    #[test]
    fn settings_in_a_value_are_secrets_by_their_names() {
        for (value, secret) in [
            ("access-tokens = github.com=ghp_x", "github.com=ghp_x"),
            (
                "experimental-features = flakes\naccess-tokens = a=b c=d",
                "a=b",
            ),
            ("AUTHORIZATION: basic eDp5", "basic eDp5"),
            ("authorization:Basic eDp5", "Basic eDp5"),
            ("PRIVATE-TOKEN: abc", "abc"),
            ("-Xmx1g -Dhttp.proxyPassword=abc -Dx=y", "abc"),
            ("{\"token\": \"abc\", \"x\": 1}", "abc"),
            ("host=x password=abc dbname=y", "abc"),
            ("AccountName=x;AccountKey=abc==;", "abc=="),
            ("https://host/feed?token=abc&x=y", "abc"),
            ("'http.extraheader=X-Any: abc'", "X-Any: abc"),
            ("x Bearer abcdefgh", "abcdefgh"),
            ("sshpass -p abc ssh", "sshpass -p abc ssh"),
        ] {
            let found = secrets_in("ANY", value);
            assert!(found.contains(&secret), "{value}: {found:?}");
        }
        for value in [
            "/opt/secret-tool/bin:/home/me/.token:/usr/bin",
            "offshoot_token=debug,my_secret::inner=trace,session=info,warn",
            "-Dtoken=$TOKEN",
            "ssh -o PasswordAuthentication=no -i /home/me/.ssh/id",
            "--max-tokens=4096 --token-file=/run/x",
            "-L/opt/x -Wl,-rpath=/opt/token",
            "!f() { echo username=x; echo password=$PW; }; f",
            "credential.helper=store",
        ] {
            assert_eq!(secrets_in("ANY", value), [] as [&str; 0], "{value}");
        }
    }

    #[test]
    fn tokens_of_services_are_known_by_their_beginnings() {
        let filler = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8";
        for prefix in [
            "ghp_", "glpat-", "npm_", "hf_", "sk-ant-", "xoxb-", "sk-", "AKIA",
        ] {
            let token = format!("{prefix}{filler}");
            for value in [token.clone(), format!("me:{token}"), format!("x={token} y")] {
                let found = secrets_in("ANY", &value);
                assert!(found.contains(&token.as_str()), "{value}: {found:?}");
            }
        }
        for value in [
            "/home/me/sk-learn-env-python3-11/bin:/opt/npm_global_packages_v1/bin",
            "/nix/store/a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6-ghp_tools/bin:/xAKIAa1B2c3D4e5F6g7H8",
        ] {
            assert_eq!(secrets_in("PATH", value), [] as [&str; 0], "{value}");
        }
    }
}
