//! A stream as one reply.

use std::time::Duration;

use futures::StreamExt as _;
use genai::chat::{ChatStream, ChatStreamEvent, StopReason, StreamEnd, ToolCall};
use offshoot_agent::{CallId, CallRequest, Finish, Usage};
use offshoot_loop::{ModelReply, PartialText};
use serde_json::Value;

use crate::fault::Faults;
use crate::retry::Failure;
use crate::watch::{self, Watch};
use crate::{Provider, RequestError};

/// A reply, with what the provider wants to have back with its calls.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) reply: ModelReply,
    pub(crate) reasoning: String,
    /// The signatures of each call of the reply, in their order.
    pub(crate) signatures: Vec<Vec<String>>,
}

/// Reads one stream.
pub(crate) struct Reader<'a> {
    pub(crate) provider: Provider,
    pub(crate) watch: &'a Watch,
    pub(crate) partial: &'a PartialText,
    pub(crate) faults: &'a Faults<'a>,
    pub(crate) idle: Duration,
    pub(crate) max_bytes: usize,
}

impl Reader<'_> {
    /// Reads to the end that the provider says. Dropping the future closes the connection.
    pub(crate) async fn read(&self, mut stream: ChatStream) -> Result<Answer, Failure> {
        let mut text = String::new();
        let mut reasoning = String::new();
        loop {
            let event = tokio::select! {
                biased;
                fault = self.watch.broken() => return Err(self.faults.stream(&fault)),
                event = self.next(&mut stream) => event?,
            };
            // The event may come of the frame that broke the stream.
            if let Some(fault) = self.watch.fault() {
                return Err(self.faults.stream(&fault));
            }
            let arguments = match event {
                None => return Err(self.faults.cut()),
                Some(Err(error)) => return Err(self.failed(error)),
                Some(Ok(ChatStreamEvent::Chunk(chunk))) => {
                    self.partial.push(&chunk.content);
                    text.push_str(&chunk.content);
                    0
                }
                Some(Ok(ChatStreamEvent::ReasoningChunk(chunk))) => {
                    reasoning.push_str(&chunk.content);
                    0
                }
                // With what came before, except of chat completions.
                Some(Ok(ChatStreamEvent::ToolCallChunk(chunk))) => {
                    match chunk.tool_call.fn_arguments.as_str() {
                        Some(arguments) => arguments.len(),
                        None => 0,
                    }
                }
                Some(Ok(ChatStreamEvent::End(end))) => return self.finish(text, reasoning, end),
                Some(Ok(_)) => 0,
            };
            let arguments = arguments.max(self.watch.argument_bytes());
            if text.len() + reasoning.len() + arguments > self.max_bytes {
                return Err(self.faults.too_large());
            }
        }
    }

    /// The next event; a failure when nothing at all arrives for too long.
    async fn next(
        &self,
        stream: &mut ChatStream,
    ) -> Result<Option<genai::Result<ChatStreamEvent>>, Failure> {
        let mut frames = self.watch.frames();
        loop {
            match tokio::time::timeout(self.idle, stream.next()).await {
                Ok(event) => return Ok(event),
                Err(_) => {
                    // Frames without an event are a sign of life too.
                    let now = self.watch.frames();
                    if now == frames {
                        return Err(self.faults.silent());
                    }
                    frames = now;
                }
            }
        }
    }

    fn failed(&self, error: genai::Error) -> Failure {
        match self.watch.failure() {
            Some(body) => self.faults.reported(&body),
            None => self.faults.of(error),
        }
    }

    fn finish(&self, text: String, reasoning: String, end: StreamEnd) -> Result<Answer, Failure> {
        let usage = end
            .captured_usage
            .as_ref()
            .map_or(Usage::default(), |usage| {
                let tokens = |count: Option<i32>| u64::try_from(count.unwrap_or(0)).unwrap_or(0);
                Usage {
                    input: tokens(usage.prompt_tokens),
                    output: tokens(usage.completion_tokens),
                }
            });
        let stop = end.captured_stop_reason.clone();
        let chat = self.provider.speaks_chat_completions();
        if stop.is_none() && !chat {
            // The crate makes an end of its own when the stream has none.
            return Err(self.faults.cut());
        }
        let (calls, signatures) = if chat {
            let calls = self.watch.take_calls();
            let none = vec![Vec::new(); calls.len()];
            (calls, none)
        } else {
            let calls = end.captured_into_tool_calls().unwrap_or_default();
            calls.into_iter().map(call).unzip()
        };
        let refusal = self.watch.refusal();
        let is_empty = text.trim().is_empty() && calls.is_empty();
        let finish = match stop {
            _ if refusal.is_some() => Finish::Refusal,
            Some(StopReason::MaxTokens(_)) => Finish::MaxTokens,
            Some(StopReason::ContentFilter(_)) => Finish::Refusal,
            Some(StopReason::Other(reason)) if is_empty => {
                let message = format!("it ended without an answer: {reason}");
                return Err(self.faults.reported(&Value::String(message)));
            }
            _ if calls.is_empty() => Finish::Stop,
            _ => Finish::ToolCalls,
        };
        let text = match refusal {
            Some(words) if text.trim().is_empty() => words,
            _ => text,
        };
        let reply = ModelReply {
            text,
            calls,
            finish,
            usage,
        };
        Ok(Answer {
            reply,
            reasoning,
            signatures,
        })
    }
}

fn call(call: ToolCall) -> (CallRequest, Vec<String>) {
    let args = match call.fn_arguments {
        Value::String(text) => watch::arguments(text),
        args => args,
    };
    let request = CallRequest {
        id: CallId(call.call_id),
        name: call.fn_name,
        args,
    };
    (request, call.thought_signatures.unwrap_or_default())
}

/// A request that cannot even be begun.
pub(crate) fn not_begun(faults: &Faults<'_>, error: genai::Error) -> Failure {
    let failure = faults.of(error);
    match failure.error {
        RequestError::Malformed(_) => Failure::last(RequestError::Invalid(
            "a part of it cannot be written".to_owned(),
        )),
        _ => failure,
    }
}
