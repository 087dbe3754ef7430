//! What went wrong, in our words, and whether it may pass.

use std::error::Error as _;
use std::time::Duration;

use genai::Error;
use jiff::fmt::rfc2822;
use offshoot_core::WallClock;
use offshoot_core::text;
use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::retry::{Again, Failure};
use crate::watch::StreamFault;
use crate::{ApiKey, RequestError};

/// The longest text of a provider that goes into an error, in bytes.
const MAX_MESSAGE: usize = 500;

/// Reads faults of one route.
pub(crate) struct Faults<'a> {
    pub(crate) key: Option<&'a ApiKey>,
    pub(crate) clock: &'a dyn WallClock,
    pub(crate) idle: Duration,
    pub(crate) max_bytes: usize,
}

impl Faults<'_> {
    /// One bounded line without the key.
    fn line(&self, text: &str) -> String {
        let hidden = match self.key {
            Some(key) => key.hide(text),
            None => text.to_owned(),
        };
        text::one_line(&hidden, MAX_MESSAGE)
    }

    pub(crate) fn silent(&self) -> Failure {
        Failure::passing(RequestError::Silent(self.idle))
    }

    pub(crate) fn too_large(&self) -> Failure {
        Failure::last(RequestError::TooLarge(self.max_bytes))
    }

    pub(crate) fn cut(&self) -> Failure {
        Failure::passing(RequestError::Cut(
            "the stream ended before the answer did".to_owned(),
        ))
    }

    pub(crate) fn stream(&self, fault: &StreamFault) -> Failure {
        match fault {
            StreamFault::TooLarge => self.too_large(),
            StreamFault::Malformed(what) => {
                Failure::last(RequestError::Malformed((*what).to_owned()))
            }
        }
    }

    /// An error object in a stream.
    pub(crate) fn reported(&self, body: &Value) -> Failure {
        let inner = body.get("error").unwrap_or(body);
        let message = self.line(&message_of(inner));
        let names = ["type", "code", "status"];
        let kind: Vec<String> = names
            .iter()
            .filter_map(|name| inner.get(name))
            .map(|value| match value {
                Value::String(text) => text.to_lowercase(),
                other => other.to_string(),
            })
            .collect();
        let is = |words: &[&str]| {
            kind.iter()
                .any(|kind| words.iter().any(|w| kind.contains(w)))
        };
        if is(&["insufficient_quota"]) {
            Failure::last(RequestError::Quota(message))
        } else if is(&["rate_limit", "resource_exhausted", "429"]) {
            let retry_after = retry_delay(inner);
            Failure {
                error: RequestError::RateLimited {
                    message,
                    retry_after,
                },
                again: Again::After(retry_after),
            }
        } else if is(&[
            "overloaded",
            "server_error",
            "api_error",
            "internal",
            "unavailable",
            "timeout",
            "50",
            "529",
        ]) {
            Failure::passing(RequestError::Unavailable(message))
        } else {
            let status = inner.get("code").and_then(Value::as_u64);
            let status = status.and_then(|status| u16::try_from(status).ok());
            Failure::last(RequestError::Rejected {
                status: status.unwrap_or(200),
                message,
            })
        }
    }

    /// An error of the client crate.
    pub(crate) fn of(&self, error: Error) -> Failure {
        match error {
            Error::WebStream { error, .. } => self.of_stream(error),
            Error::HttpError {
                status,
                body,
                headers,
                ..
            } => self.of_status(status.as_u16(), &body, &headers),
            Error::ChatResponse { body, .. } => self.reported(&body),
            Error::StreamParse { .. }
            | Error::JsonValueExt(_)
            | Error::SerdeJson(_)
            | Error::InvalidJsonResponseElement { .. }
            | Error::NoChatResponse { .. }
            | Error::ChatResponseGeneration { .. } => {
                let what = "a part of it is not what was expected";
                Failure::last(RequestError::Malformed(what.to_owned()))
            }
            other => Failure::last(RequestError::Invalid(self.line(&other.to_string()))),
        }
    }

    fn of_stream(&self, error: genai::BoxError) -> Failure {
        let error = match error.downcast::<Error>() {
            Ok(error) => return self.of(*error),
            Err(error) => error,
        };
        let error = match error.downcast::<reqwest::Error>() {
            // An address may have a secret in its query.
            Ok(error) => error.without_url(),
            Err(_) => {
                let what = "it is not UTF-8";
                return Failure::last(RequestError::Malformed(what.to_owned()));
            }
        };
        let words = self.line(&chain(&error));
        if error.is_connect() {
            let error = RequestError::Connect(words);
            let again = Again::Once;
            Failure { error, again }
        } else if error.is_builder() {
            Failure::last(RequestError::Invalid(words))
        } else {
            Failure::passing(RequestError::Cut(words))
        }
    }

    fn of_status(&self, status: u16, body: &str, headers: &HeaderMap) -> Failure {
        let parsed: Option<Value> = serde_json::from_str(body).ok();
        // Some send a list with the error in it.
        let parsed = parsed.map(|body| body.get(0).cloned().unwrap_or(body));
        let inner = parsed
            .as_ref()
            .map(|body| body.get("error").unwrap_or(body));
        let message = match inner {
            Some(inner) => message_of(inner),
            None => text::head(body, 4 * MAX_MESSAGE).to_owned(),
        };
        let message = self.line(&message);
        let message = if message.is_empty() {
            format!("status {status}")
        } else {
            message
        };
        match status {
            401 | 403 => Failure::last(RequestError::Unauthorized { status, message }),
            402 => Failure::last(RequestError::Quota(message)),
            429 if body.contains("insufficient_quota") => {
                Failure::last(RequestError::Quota(message))
            }
            429 => {
                let asked = retry_after(headers, self.clock);
                let retry_after = asked.or_else(|| inner.and_then(retry_delay));
                Failure {
                    error: RequestError::RateLimited {
                        message,
                        retry_after,
                    },
                    again: Again::After(retry_after),
                }
            }
            408 | 500 | 502..=504 | 506..=599 => Failure {
                error: RequestError::Unavailable(format!("{message} ({status})")),
                again: Again::After(retry_after(headers, self.clock)),
            },
            300..=399 => Failure::last(RequestError::Rejected {
                status,
                message: "it answers with a redirect, which is not followed".to_owned(),
            }),
            _ => Failure::last(RequestError::Rejected { status, message }),
        }
    }
}

fn message_of(error: &Value) -> String {
    let message = error.get("message").unwrap_or(error);
    match message {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// An error with its causes.
fn chain(error: &reqwest::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        words.push_str(": ");
        words.push_str(&next.to_string());
        cause = next.source();
    }
    words
}

/// `Retry-After` in seconds or as a date, or its form in milliseconds.
fn retry_after(headers: &HeaderMap, clock: &dyn WallClock) -> Option<Duration> {
    let read = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    if let Some(millis) = read("retry-after-ms").and_then(|text| text.parse::<f64>().ok()) {
        return Duration::try_from_secs_f64(millis / 1000.0).ok();
    }
    let text = read("retry-after")?;
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    let at = u64::try_from(date.as_millisecond()).ok()?;
    Some(Duration::from_millis(
        at.saturating_sub(clock.now().as_millis()),
    ))
}

/// The wait that an error object asks for: `details` with a `retryDelay` such as `"7s"`.
fn retry_delay(error: &Value) -> Option<Duration> {
    let details = error.get("details")?.as_array()?;
    let delay = details
        .iter()
        .find_map(|detail| detail["retryDelay"].as_str())?;
    let seconds: f64 = delay.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use offshoot_core::Timestamp;
    use serde_json::json;

    use super::*;

    struct Fixed;

    impl WallClock for Fixed {
        fn now(&self) -> Timestamp {
            // 2026-01-01T00:00:00Z
            Timestamp::from_millis(1_767_225_600_000)
        }
    }

    fn with<T>(f: impl FnOnce(&Faults<'_>) -> T) -> T {
        let key = ApiKey::new("sk-secret").unwrap();
        f(&Faults {
            key: Some(&key),
            clock: &Fixed,
            idle: Duration::from_secs(1),
            max_bytes: 1,
        })
    }

    fn status(status: u16, body: &str, headers: &[(&'static str, &str)]) -> Failure {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        with(|faults| faults.of_status(status, body, &map))
    }

    #[test]
    fn each_status_has_its_error() {
        let body = r#"{"error":{"message":"because"}}"#;
        let cases = [
            (400, "rejected", false),
            (401, "unauthorized", false),
            (402, "quota", false),
            (404, "rejected", false),
            (307, "rejected", false),
            (408, "unavailable", true),
            (429, "rate_limited", true),
            (500, "unavailable", true),
            (501, "rejected", false),
            (503, "unavailable", true),
            (529, "unavailable", true),
        ];
        for (code, expected, again) in cases {
            let failure = status(code, body, &[]);
            assert_eq!(failure.error.code(), expected, "{code}");
            assert_eq!(failure.again != Again::Never, again, "{code}");
            if code != 307 {
                assert!(failure.error.to_string().contains("because"), "{code}");
            }
        }
        let quota = status(
            429,
            r#"{"error":{"code":"insufficient_quota","message":"m"}}"#,
            &[],
        );
        assert_eq!((quota.error.code(), quota.again), ("quota", Again::Never));
    }

    #[test]
    fn retry_after_is_read_in_every_form() {
        let wait =
            |headers: &[(&'static str, &str)], body: &str| match status(429, body, headers).again {
                Again::After(wait) => wait.map(|wait| wait.as_millis()),
                other => panic!("{other:?}"),
            };
        assert_eq!(wait(&[("retry-after", "7")], ""), Some(7_000));
        assert_eq!(
            wait(&[("retry-after", "Thu, 01 Jan 2026 00:00:09 GMT")], ""),
            Some(9_000)
        );
        assert_eq!(
            wait(&[("retry-after", "Wed, 31 Dec 2025 00:00:00 GMT")], ""),
            Some(0)
        );
        assert_eq!(
            wait(&[("retry-after", "9"), ("retry-after-ms", "250")], ""),
            Some(250)
        );
        assert_eq!(wait(&[("retry-after", "soon")], ""), None);
        assert_eq!(wait(&[("retry-after", "-1")], ""), None);
        let body = json!([{"error": {"message": "m", "details": [{"retryDelay": "1.5s"}]}}]);
        assert_eq!(wait(&[], &body.to_string()), Some(1_500));
    }

    #[test]
    fn an_error_has_a_bounded_line_without_the_key() {
        let body =
            json!({"error": {"message": format!("bad key sk-secret\n{}", "x".repeat(9_000))}});
        let said = status(401, &body.to_string(), &[]).error.to_string();
        assert!(said.contains("bad key [key] x"), "{said}");
        assert!(said.len() < 600 && !said.contains("sk-secret"), "{said}");
        let page = status(502, "<html>sk-secret</html>", &[]).error.to_string();
        assert_eq!(page, "the provider failed: <html>[key]</html> (502)");
        assert_eq!(
            status(404, "", &[]).error.to_string(),
            "the request was refused (404): status 404"
        );
    }

    #[test]
    fn an_error_in_a_stream_may_pass_or_not() {
        let cases = [
            (
                json!({"type": "error", "error": {"type": "overloaded_error", "message": "m"}}),
                "unavailable",
                true,
            ),
            (
                json!({"type": "server_error", "message": "m"}),
                "unavailable",
                true,
            ),
            (
                json!({"code": 503, "status": "UNAVAILABLE", "message": "m"}),
                "unavailable",
                true,
            ),
            (
                json!({"code": "rate_limit_exceeded", "message": "m"}),
                "rate_limited",
                true,
            ),
            (
                json!({"type": "invalid_request_error", "message": "m"}),
                "rejected",
                false,
            ),
            (json!("what"), "rejected", false),
        ];
        for (body, code, again) in cases {
            let failure = with(|faults| faults.reported(&body));
            assert_eq!(failure.error.code(), code, "{body}");
            assert_eq!(failure.again != Again::Never, again, "{body}");
        }
    }
}
