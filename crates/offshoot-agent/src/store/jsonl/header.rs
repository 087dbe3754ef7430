//! The first line of a log file: what the file is, and where the session's own events begin.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::corrupt;
use crate::{AgentId, StoreError};

const FORMAT: &str = "offshoot-session";
const VERSION: u32 = 1;

/// A longer first line is none.
pub(super) const MOST_BYTES: u64 = 64 * 1024;

/// The first line.
#[derive(Serialize, Deserialize)]
pub(super) struct Header {
    format: String,
    version: u32,
    pub(super) session: AgentId,
    /// How many events at the beginning are another session's.
    #[serde(default)]
    pub(super) inherited: u64,
    /// Says whether the other fields are as they were written. Logs of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    check: Option<String>,
}

impl Header {
    fn of(id: &AgentId, inherited: u64) -> Self {
        let mut header = Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            session: id.clone(),
            inherited,
            check: None,
        };
        header.check = Some(header.sum());
        header
    }

    pub(super) fn line(id: &AgentId, inherited: u64) -> Vec<u8> {
        let mut line = serde_json::to_vec(&Self::of(id, inherited)).unwrap_or_default();
        line.push(b'\n');
        line
    }

    /// FNV-1a: two texts of which only one byte differs never have the same sum.
    fn sum(&self) -> String {
        let Self {
            format,
            version,
            session,
            inherited,
            check: _,
        } = self;
        let text = format!("{format} {version} {session} {inherited}");
        let sum = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        format!("{sum:016x}")
    }

    /// Whether the header is known to be as it was written.
    pub(super) fn is_checked(&self) -> bool {
        self.check.is_some()
    }

    /// Reads the header of a session's file.
    ///
    /// One that names another session is refused: the file was copied or renamed, and its session is
    /// perhaps there twice.
    pub(super) fn parse(path: &Path, line: &[u8], id: &AgentId) -> Result<Self, StoreError> {
        // The version first: another one may have other fields.
        #[derive(Deserialize)]
        struct Version {
            format: String,
            version: u32,
        }
        let malformed = |error| corrupt(path, 1, format!("expected a session header: {error}"));
        let Version { format, version } = serde_json::from_slice(line).map_err(malformed)?;
        if format != FORMAT || version != VERSION {
            let what = format!(
                "expected format {FORMAT} version {VERSION}, found {format} version {version}"
            );
            return Err(corrupt(path, 1, what));
        }
        let header: Self = serde_json::from_slice(line).map_err(malformed)?;
        if header.session != *id {
            let what = format!("expected the session {id}, found {}", header.session);
            return Err(corrupt(path, 1, what));
        }
        if header
            .check
            .as_ref()
            .is_some_and(|check| *check != header.sum())
        {
            let what = format!(
                "the header is damaged: its check does not fit the session {id} with {} inherited events",
                header.inherited
            );
            return Err(corrupt(path, 1, what));
        }
        Ok(header)
    }

    /// Whether a file without a whole line is one whose header was cut while it was written.
    pub(super) fn is_beginning(bytes: &[u8], id: &AgentId) -> bool {
        let line = Self::line(id, 0);
        let digits = |bytes: &[u8]| {
            bytes
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count()
        };
        let Some(number) = line.windows(2).rposition(|pair| pair == b"0,") else {
            return false;
        };
        let (before, found) = (&line[..number], bytes.get(..number));
        let Some(found) = found else {
            return line.starts_with(bytes);
        };
        let rest = &bytes[number..];
        let rest = &rest[digits(rest)..];
        let after: &[u8] = b",\"check\":\"";
        let hex = rest.strip_prefix(after).unwrap_or_default();
        let end = hex
            .iter()
            .take_while(|byte| byte.is_ascii_hexdigit())
            .count();
        let is_end = match rest.strip_prefix(after) {
            None => after.starts_with(rest) || rest == b"}",
            Some(_) => end <= 16 && b"\"}".starts_with(&hex[end..]),
        };
        found == before && is_end
    }
}
