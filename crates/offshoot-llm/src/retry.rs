//! Trying again.

use std::future::Future;
use std::time::Duration;

use crate::{RequestError, RetrySettings};

/// A failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) error: RequestError,
    pub(crate) again: Again,
}

impl Failure {
    pub(crate) fn last(error: RequestError) -> Self {
        let again = Again::Never;
        Self { error, again }
    }

    pub(crate) fn passing(error: RequestError) -> Self {
        let again = Again::After(None);
        Self { error, again }
    }
}

/// Whether a failure may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// It will not.
    Never,
    /// It may, if only one more try is made.
    Once,
    /// It may, after this wait if the provider asks for one.
    After(Option<Duration>),
}

/// Makes attempts until one succeeds, fails for good, or there were enough; then the last failure is
/// the answer. Dropping the future drops the attempt or the wait.
pub(crate) async fn until_answered<T, F: Future<Output = Result<T, Failure>>>(
    settings: &RetrySettings,
    mut attempt: impl FnMut() -> F,
) -> Result<T, RequestError> {
    let mut retries = 0;
    loop {
        let failure = match attempt().await {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        let Some(wait) = wait(settings, retries, failure.again, fastrand::f64()) else {
            return Err(failure.error);
        };
        retries += 1;
        tracing::debug!(
            code = failure.error.code(),
            retries,
            wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            "a request is tried again"
        );
        tokio::time::sleep(wait).await;
    }
}

/// How long to wait before the next attempt, after `retries` of them; `None`: there is none. `chance`
/// is from 0 to 1.
fn wait(settings: &RetrySettings, retries: u32, again: Again, chance: f64) -> Option<Duration> {
    let most = match again {
        Again::Never => 0,
        Again::Once => settings.max_retries.min(1),
        Again::After(_) => settings.max_retries,
    };
    if retries >= most {
        return None;
    }
    let doubled = settings
        .first_wait
        .saturating_mul(2_u32.saturating_pow(retries));
    let own = doubled.min(settings.max_wait);
    let own = own.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0);
    match again {
        Again::After(Some(asked)) if asked > settings.max_retry_after => None,
        // Never before the provider's time; many clients do not come back at one moment.
        Again::After(Some(asked)) => Some(asked + own.min(Duration::from_secs(1))),
        _ => Some(own),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::time::Instant;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limited(retry_after: Option<Duration>) -> Failure {
        Failure {
            error: RequestError::RateLimited {
                message: "slow down".to_owned(),
                retry_after,
            },
            again: Again::After(retry_after),
        }
    }

    /// Fails as listed, then answers; the moments of the attempts in milliseconds.
    async fn play(failures: Vec<Failure>) -> (Result<&'static str, RequestError>, Vec<u128>) {
        let began = Instant::now();
        let moments = RefCell::new(Vec::new());
        let failures = RefCell::new(failures.into_iter());
        let answer = until_answered(&RetrySettings::default(), || {
            moments.borrow_mut().push(began.elapsed().as_millis());
            let next = failures.borrow_mut().next();
            async move { next.map_or(Ok("done"), Err) }
        })
        .await;
        (answer, moments.into_inner())
    }

    #[tokio::test(start_paused = true)]
    async fn waits_grow_and_are_bounded_in_number() {
        let (answer, moments) = play(vec![limited(None); 9]).await;
        assert_eq!(answer.unwrap_err().code(), "rate_limited");
        let waits: Vec<u128> = moments.windows(2).map(|two| two[1] - two[0]).collect();
        assert_eq!(waits.len(), 4);
        for (n, wait) in waits.into_iter().enumerate() {
            let whole = 500 << n;
            assert!((whole / 2..=whole + 1).contains(&wait), "{n}: {wait}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_providers_wait_is_kept() {
        let (answer, moments) = play(vec![limited(Some(7 * SECOND))]).await;
        assert_eq!(answer, Ok("done"));
        assert!((7_000..=8_001).contains(&moments[1]), "{moments:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_over_the_bound_is_not_waited() {
        let (answer, moments) = play(vec![limited(Some(61 * SECOND))]).await;
        let error = answer.unwrap_err();
        assert_eq!(moments, [0]);
        assert_eq!(
            error.to_string(),
            "too many requests: slow down; to be tried again in 61 s"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_pass_is_not_tried_again() {
        let refused = RequestError::Rejected {
            status: 400,
            message: "no".to_owned(),
        };
        let (answer, moments) = play(vec![Failure::last(refused.clone())]).await;
        assert_eq!((answer, moments.len()), (Err(refused), 1));
        let nobody = Failure {
            error: RequestError::Connect("refused".to_owned()),
            again: Again::Once,
        };
        let (answer, moments) = play(vec![nobody; 5]).await;
        assert_eq!((answer.unwrap_err().code(), moments.len()), ("connect", 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_wait_asks_nothing_more() {
        let attempts = RefCell::new(0);
        let settings = RetrySettings::default();
        let asking = until_answered::<(), _>(&settings, || {
            *attempts.borrow_mut() += 1;
            async { Err(limited(Some(30 * SECOND))) }
        });
        assert!(tokio::time::timeout(SECOND, asking).await.is_err());
        tokio::time::sleep(60 * SECOND).await;
        assert_eq!(attempts.into_inner(), 1);
    }

    #[test]
    fn the_longest_own_wait_is_bounded() {
        let settings = RetrySettings {
            max_retries: u32::MAX,
            ..RetrySettings::default()
        };
        let longest = wait(&settings, 1_000, Again::After(None), 1.0);
        assert_eq!(longest, Some(settings.max_wait));
    }
}
