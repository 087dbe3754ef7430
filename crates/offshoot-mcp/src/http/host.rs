//! Names by which clients call a server.

use std::net::IpAddr;

use offshoot_core::text::one_line;

use super::HttpError;

/// The longest name that there is.
const MAX_NAME: usize = 253;

/// Checks that a client can call a server by this name: a host name or an address, without scheme,
/// port and path. Any other would match no request.
///
/// # Errors
///
/// [`HttpError::BadHost`].
pub fn check_host(name: &str) -> Result<(), HttpError> {
    let bare = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .unwrap_or(name);
    if bare.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    let usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let labels = name.strip_suffix('.').unwrap_or(name).split('.');
    if name.len() <= MAX_NAME && name.chars().all(usual) && labels.into_iter().all(is_label) {
        return Ok(());
    }
    Err(HttpError::BadHost(one_line(name, 100)))
}

fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_request_can_have_is_refused() {
        for good in [
            "box",
            "box.example",
            "my_box-1",
            "box.example.",
            "10.0.0.1",
            "::1",
            "[::1]",
        ] {
            assert!(check_host(good).is_ok(), "{good}");
        }
        let long = "x".repeat(64);
        for bad in [
            "",
            " ",
            "a b",
            "a\nb",
            ".",
            "a..b",
            "http://box",
            "box:80",
            "box/x",
            "*",
            "*.example",
            "u@box",
            &long,
        ] {
            let error = check_host(bad).expect_err(bad).to_string();
            assert!(error.contains("expected a host name"), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
