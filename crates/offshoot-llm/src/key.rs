//! Keys, which nobody sees.

use std::fmt;

use crate::Provider;

/// What stands in the place of a key in any text.
const HIDDEN: &str = "[key]";

/// A key. Its `Debug` text does not have it.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// A key that the program has from elsewhere than the environment.
    ///
    /// # Errors
    ///
    /// [`KeyError::Unusable`] when it cannot be sent in a header.
    pub fn new(key: impl Into<String>) -> Result<Self, KeyError> {
        let key: String = key.into();
        let key = key.trim();
        if key.is_empty() || !key.bytes().all(|byte| (0x21..=0x7e).contains(&byte)) {
            return Err(KeyError::Unusable("the key"));
        }
        Ok(Self(key.to_owned()))
    }

    /// Reads the provider's variable. `None` when there is no key and none is needed.
    ///
    /// # Errors
    ///
    /// [`KeyError`], which names the variable.
    pub fn from_env(provider: Provider) -> Result<Option<Self>, KeyError> {
        Self::find(provider, |variable| std::env::var_os(variable))
    }

    fn find(
        provider: Provider,
        read: impl Fn(&str) -> Option<std::ffi::OsString>,
    ) -> Result<Option<Self>, KeyError> {
        let Some(variable) = provider.key_variable() else {
            return Ok(None);
        };
        let value = read(variable).filter(|value| !value.is_empty());
        match value {
            None if provider.requires_key() => Err(KeyError::Missing { provider, variable }),
            None => Ok(None),
            Some(value) => {
                let value = value.into_string();
                let value = value.map_err(|_| KeyError::Unusable(variable))?;
                let key = Self::new(value).map_err(|_| KeyError::Unusable(variable))?;
                Ok(Some(key))
            }
        }
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// `text` without the key.
    pub(crate) fn hide(&self, text: &str) -> String {
        text.replace(&self.0, HIDDEN)
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// There is no key that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The variable is not set, or empty.
    #[error("no key for {provider}: expected the environment variable {variable}")]
    Missing {
        /// For whom.
        provider: Provider,
        /// The variable.
        variable: &'static str,
    },
    /// It cannot be sent: empty, or with characters that a header may not have.
    #[error("{0} is no key: expected printable ASCII without spaces")]
    Unusable(&'static str),
}

impl KeyError {
    /// The stable name of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "missing_key",
            Self::Unusable(_) => "bad_key",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_key_names_its_variable() {
        let none = |_: &str| None;
        for provider in Provider::ALL {
            let found = ApiKey::find(provider, none);
            if provider.requires_key() {
                let error = found.unwrap_err();
                assert_eq!(error.code(), "missing_key");
                let variable = provider.key_variable().unwrap();
                assert!(error.to_string().contains(variable), "{error}");
            } else {
                assert_eq!(found, Ok(None));
            }
        }
    }

    #[test]
    fn a_key_is_trimmed_checked_and_hidden() {
        let found = |value: &'static str| {
            ApiKey::find(Provider::OpenAi, move |name| {
                assert_eq!(name, "OPENAI_API_KEY");
                Some(value.into())
            })
        };
        let key = found(" sk-secret\n").unwrap().unwrap();
        assert_eq!(key.reveal(), "sk-secret");
        assert_eq!(format!("{key:?}"), "[key]");
        assert_eq!(
            key.hide("bad key sk-secret, again sk-secret."),
            "bad key [key], again [key]."
        );
        for bad in ["sk secret", "sk-\u{e9}", " \t"] {
            let error = found(bad).unwrap_err();
            assert_eq!(error.code(), "bad_key");
            assert!(!error.to_string().contains("sk"), "{error}");
        }
        assert_eq!(found("").unwrap_err().code(), "missing_key");
    }
}
