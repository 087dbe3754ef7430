//! One attempt.

use std::sync::Arc;

use genai::chat::ChatRequest;
use offshoot_core::WallClock;
use offshoot_loop::PartialText;

use crate::answer::{self, Answer, Reader};
use crate::client::Line;
use crate::fault::Faults;
use crate::retry::Failure;
use crate::watch::Watch;
use crate::{ApiKey, LlmSettings, Provider};

/// The stream that carries an answer may have so many times the answer's bytes.
const FRAMING: usize = 16;

/// What every attempt of a request has in common.
pub(crate) struct Attempt<'a> {
    pub(crate) line: &'a Line,
    pub(crate) provider: Provider,
    pub(crate) key: Option<&'a ApiKey>,
    pub(crate) settings: &'a LlmSettings,
    pub(crate) clock: &'a dyn WallClock,
    pub(crate) request: &'a ChatRequest,
    pub(crate) partial: &'a PartialText,
}

impl Attempt<'_> {
    /// Sends the request and reads the answer. Dropping the future closes the connection; what had
    /// arrived of the text stays in `partial`.
    pub(crate) async fn make(&self) -> Result<Answer, Failure> {
        // What had arrived of an earlier attempt was nobody's yet.
        drop(self.partial.take());
        let max_bytes = self.settings.max_answer_bytes;
        let faults = Faults {
            key: self.key,
            clock: self.clock,
            idle: self.settings.idle_timeout,
            max_bytes,
        };
        let watch = Arc::new(Watch::new(self.provider, max_bytes.saturating_mul(FRAMING)));
        let mut options = self.line.options();
        options.raw_frame_sink = Some(watch.clone());
        let begun = self
            .line
            .client
            .exec_chat_stream(self.line.target(), self.request.clone(), Some(&options))
            .await;
        let stream = begun.map_err(|error| answer::not_begun(&faults, error))?;
        let reader = Reader {
            provider: self.provider,
            watch: &watch,
            partial: self.partial,
            faults: &faults,
            idle: self.settings.idle_timeout,
            max_bytes,
        };
        reader.read(stream.stream).await
    }
}
