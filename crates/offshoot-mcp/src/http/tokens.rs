//! Bearer tokens: each is somebody of its own.

use std::fmt;

use http::HeaderValue;

/// The shortest token, in bytes: one that can be guessed is none.
const MIN_BYTES: usize = 16;

/// A list of tokens that cannot be used. Says where, and never what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokensError {
    /// There is none.
    #[error("there is no token: expected one a line")]
    Empty,
    /// One is too short.
    #[error("the token in line {line} is too short: expected at least {MIN_BYTES} characters")]
    TooShort {
        /// Its line, from 1.
        line: usize,
    },
    /// One has characters that cannot be sent.
    #[error("the token in line {line} has other characters than visible ASCII")]
    BadCharacter {
        /// Its line, from 1.
        line: usize,
    },
    /// One is there twice.
    #[error("the token in line {line} is there twice")]
    Twice {
        /// The line of the second one, from 1.
        line: usize,
    },
}

/// The tokens that are let in. Its `Debug` does not show them.
#[derive(Clone, Default)]
pub struct Tokens(Vec<String>);

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

impl Tokens {
    /// Reads tokens, one a line; empty lines and those that begin with `#` are skipped.
    ///
    /// ```
    /// use offshoot_mcp::Tokens;
    /// let tokens = Tokens::parse("# of the build server\n0123456789abcdef\n").unwrap();
    /// assert_eq!(format!("{tokens:?}"), "Tokens(1)");
    /// assert!(Tokens::parse("short").is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// [`TokensError`] with the line that is wrong.
    pub fn parse(text: &str) -> Result<Self, TokensError> {
        let mut tokens: Vec<String> = Vec::new();
        for (line, token) in (1..).zip(text.lines().map(str::trim)) {
            if token.is_empty() || token.starts_with('#') {
                continue;
            }
            if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(TokensError::BadCharacter { line });
            }
            if token.len() < MIN_BYTES {
                return Err(TokensError::TooShort { line });
            }
            if tokens.iter().any(|old| old == token) {
                return Err(TokensError::Twice { line });
            }
            tokens.push(token.to_owned());
        }
        match tokens.is_empty() {
            true => Err(TokensError::Empty),
            false => Ok(Self(tokens)),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Which token a header has. Looks at all of them, and at all of each, whatever it finds.
    pub(crate) fn position(&self, header: &HeaderValue) -> Option<usize> {
        let (scheme, token) = header.to_str().ok()?.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let token = token.trim().as_bytes();
        let mut found = None;
        for (at, known) in self.0.iter().enumerate() {
            let same_length = known.len() == token.len();
            let bytes = known.bytes().zip(token.iter().chain(std::iter::repeat(&0)));
            let differences = bytes.fold(0, |all, (a, b)| all | (a ^ b));
            if same_length && differences == 0 {
                found = Some(at);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_matched_with_whole_tokens() {
        let tokens = Tokens::parse("aaaaaaaaaaaaaaaa\n\nbbbbbbbbbbbbbbbb\n").unwrap();
        let position = |header| tokens.position(&HeaderValue::from_static(header));
        assert_eq!(position("Bearer bbbbbbbbbbbbbbbb"), Some(1));
        assert_eq!(position("bearer  aaaaaaaaaaaaaaaa"), Some(0));
        assert_eq!(position("Bearer aaaaaaaaaaaaaaa"), None);
        assert_eq!(position("Bearer aaaaaaaaaaaaaaaaa"), None);
        assert_eq!(position("Bearer"), None);
        assert_eq!(position("Basic aaaaaaaaaaaaaaaa"), None);
    }

    #[test]
    fn a_bad_list_is_told_by_its_line_alone() {
        let twice = "aaaaaaaaaaaaaaaa\naaaaaaaaaaaaaaaa";
        let cases = [
            ("", TokensError::Empty),
            ("# none", TokensError::Empty),
            ("\nshort", TokensError::TooShort { line: 2 }),
            (
                "aaaaaaaaaaaaaaaa bbbb",
                TokensError::BadCharacter { line: 1 },
            ),
            (twice, TokensError::Twice { line: 2 }),
        ];
        for (text, expected) in cases {
            assert_eq!(Tokens::parse(text).map(|_| ()), Err(expected), "{text}");
        }
    }
}
