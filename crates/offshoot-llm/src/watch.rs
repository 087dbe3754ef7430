//! What the frames of a stream say beside what the client crate makes of them.
//!
//! The crate's normalised events leave things out that matter here: which of several calls an argument
//! piece belongs to, words of refusal, an error's own code, a frame that was skipped because it made no
//! sense, and that bytes arrive at all. The watch sees each frame before the crate reads it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use genai::chat::{ChatFrameSink, FrameCtx, RawFrameRef};
use offshoot_agent::{CallId, CallRequest};
use serde_json::Value;
use tokio::sync::Notify;

use crate::Provider;

/// The most calls of one answer.
const MAX_CALLS: usize = 128;

/// What is wrong with a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StreamFault {
    TooLarge,
    Malformed(&'static str),
}

#[derive(Debug)]
struct PartialCall {
    /// Its number in the answer, as the provider counts.
    index: u64,
    id: String,
    name: String,
    arguments: String,
}

#[derive(Debug, Default)]
struct Seen {
    frames: u64,
    bytes: usize,
    calls: Vec<PartialCall>,
    refusal: String,
    filtered: bool,
    failure: Option<Value>,
    fault: Option<StreamFault>,
}

/// Watches one stream.
#[derive(Debug)]
pub(crate) struct Watch {
    provider: Provider,
    max_bytes: usize,
    seen: Mutex<Seen>,
    broken: Notify,
}

impl Watch {
    pub(crate) fn new(provider: Provider, max_bytes: usize) -> Self {
        Self {
            provider,
            max_bytes,
            seen: Mutex::default(),
            broken: Notify::new(),
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something is wrong with the stream.
    pub(crate) async fn broken(&self) -> StreamFault {
        loop {
            if let Some(fault) = self.fault() {
                return fault;
            }
            // A permit is kept for who comes late.
            self.broken.notified().await;
        }
    }

    pub(crate) fn fault(&self) -> Option<StreamFault> {
        self.seen().fault.clone()
    }

    /// How many frames arrived, comments too.
    pub(crate) fn frames(&self) -> u64 {
        self.seen().frames
    }

    /// Whether any of an answer arrived that only the frames have.
    pub(crate) fn argument_bytes(&self) -> usize {
        self.seen().calls.iter().map(|c| c.arguments.len()).sum()
    }

    /// The calls of a stream of chat completions, in the provider's order.
    pub(crate) fn take_calls(&self) -> Vec<CallRequest> {
        let mut calls = std::mem::take(&mut self.seen().calls);
        calls.sort_by_key(|call| call.index);
        let request = |call: PartialCall| CallRequest {
            id: CallId(call.id),
            name: call.name,
            args: arguments(call.arguments),
        };
        calls.into_iter().map(request).collect()
    }

    /// What the model says instead of an answer, when it declines; empty when it does so without words.
    pub(crate) fn refusal(&self) -> Option<String> {
        let seen = self.seen();
        (seen.filtered || !seen.refusal.is_empty()).then(|| seen.refusal.clone())
    }

    /// The error object of a stream that says that it failed.
    pub(crate) fn failure(&self) -> Option<Value> {
        self.seen().failure.clone()
    }
}

/// Argument text as JSON, or as it is when it is none.
pub(crate) fn arguments(text: String) -> Value {
    if text.trim().is_empty() {
        return Value::Object(serde_json::Map::new());
    }
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

impl ChatFrameSink for Watch {
    fn on_frame(&self, _: &FrameCtx, frame: RawFrameRef<'_>) {
        let mut seen = self.seen();
        seen.frames += 1;
        seen.bytes = seen.bytes.saturating_add(frame.data.len());
        if seen.bytes > self.max_bytes {
            seen.break_with(StreamFault::TooLarge);
        } else {
            match self.provider {
                provider if provider.speaks_chat_completions() => seen.chat(frame.data),
                Provider::OpenAiResponses => seen.responses(frame.data),
                _ => {}
            }
        }
        let is_broken = seen.fault.is_some();
        drop(seen);
        if is_broken {
            self.broken.notify_one();
        }
    }
}

impl Seen {
    fn break_with(&mut self, fault: StreamFault) {
        self.fault.get_or_insert(fault);
    }

    fn parse(&mut self, data: &str) -> Option<Value> {
        if data.is_empty() || data == "[DONE]" {
            return None;
        }
        let parsed = serde_json::from_str(data).ok();
        if parsed.is_none() {
            self.break_with(StreamFault::Malformed("a part of it is no JSON"));
        }
        parsed
    }

    fn chat(&mut self, data: &str) {
        let Some(chunk) = self.parse(data) else {
            return;
        };
        let delta = &chunk["choices"][0]["delta"];
        if let Some(words) = delta["refusal"].as_str() {
            self.refusal.push_str(words);
        }
        for piece in delta["tool_calls"].as_array().into_iter().flatten() {
            self.call_piece(piece);
        }
    }

    fn call_piece(&mut self, piece: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let id = text(&piece["id"]);
        let next = self.calls.iter().map(|call| call.index + 1).max();
        let next = next.unwrap_or(0);
        let known = |index: u64| move |call: &PartialCall| call.index == index;
        // Some endpoints do not number the calls: a new id is a new call, else it is the last one's.
        let position = match piece["index"].as_u64() {
            Some(index) => self.calls.iter().position(known(index)),
            None if id.is_empty() => self.calls.len().checked_sub(1),
            None => self.calls.iter().position(|call| call.id == id),
        };
        let position = match position {
            Some(position) => position,
            None if self.calls.len() >= MAX_CALLS => {
                self.break_with(StreamFault::Malformed("it has more than 128 calls"));
                return;
            }
            None => {
                self.calls.push(PartialCall {
                    index: piece["index"].as_u64().unwrap_or(next).min(u64::MAX - 1),
                    id: String::new(),
                    name: String::new(),
                    arguments: String::new(),
                });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[position];
        if call.id.is_empty() {
            call.id = id;
        }
        let function = &piece["function"];
        if call.name.is_empty() {
            call.name = text(&function["name"]);
        }
        match &function["arguments"] {
            Value::String(arguments) => call.arguments.push_str(arguments),
            Value::Null => {}
            whole => call.arguments = whole.to_string(),
        }
    }

    fn responses(&mut self, data: &str) {
        let Some(event) = self.parse(data) else {
            return;
        };
        match event["type"].as_str().unwrap_or_default() {
            "response.refusal.delta" => {
                self.refusal
                    .push_str(event["delta"].as_str().unwrap_or_default());
            }
            "response.incomplete" => {
                let reason = &event["response"]["incomplete_details"]["reason"];
                self.filtered |= reason == "content_filter";
            }
            "response.failed" => self.failure = Some(event["response"]["error"].clone()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn seen(chunks: &[Value]) -> Seen {
        let mut seen = Seen::default();
        for calls in chunks {
            let chunk = json!({"choices": [{"index": 0, "delta": {"tool_calls": calls}}]});
            seen.chat(&chunk.to_string());
        }
        seen
    }

    fn calls(seen: Seen) -> Vec<(String, String, Value)> {
        let watch = Watch::new(Provider::OpenAi, 0);
        *watch.seen() = seen;
        let calls = watch.take_calls().into_iter();
        calls
            .map(|call| (call.id.0, call.name, call.args))
            .collect()
    }

    fn of(id: &str, name: &str, args: Value) -> (String, String, Value) {
        (id.to_owned(), name.to_owned(), args)
    }

    #[test]
    fn pieces_go_to_their_calls_by_number() {
        let found = calls(seen(&[
            json!([{"index": 1, "id": "b", "function": {"name": "g", "arguments": "{\"x\""}}]),
            json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}]),
            json!([{"index": 1, "function": {"arguments": ":1}"}}, {"index": 0, "function": {"arguments": "{}"}}]),
        ]));
        assert_eq!(
            found,
            [of("a", "f", json!({})), of("b", "g", json!({"x": 1}))]
        );
    }

    #[test]
    fn calls_without_numbers_are_told_apart_by_id() {
        let found = calls(seen(&[
            json!([{"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}]),
            json!([{"id": "b", "function": {"name": "g", "arguments": "{\"y\":"}}]),
            json!([{"function": {"arguments": "2}"}}]),
        ]));
        assert_eq!(
            found,
            [of("a", "f", json!({"x": 1})), of("b", "g", json!({"y": 2}))]
        );
    }

    #[test]
    fn an_absurd_number_costs_nothing() {
        let found = calls(seen(&[
            json!([{"index": 4_000_000_000_u64, "id": "a", "function": {"name": "f"}}]),
        ]));
        assert_eq!(found, [of("a", "f", json!({}))]);
        let last = json!([{"index": u64::MAX, "id": "a"}, {"id": "b"}]);
        assert_eq!(seen(&[last]).calls.len(), 2);
    }

    #[test]
    fn too_many_calls_break_the_stream() {
        let many: Vec<Value> = (0..200)
            .map(|n| json!({"index": n, "id": n.to_string()}))
            .collect();
        let seen = seen(&[json!(many)]);
        assert_eq!(seen.calls.len(), MAX_CALLS);
        assert!(matches!(seen.fault, Some(StreamFault::Malformed(_))));
    }

    #[test]
    fn arguments_that_are_no_json_stay_text() {
        assert_eq!(arguments("{\"a\":".to_owned()), json!("{\"a\":"));
        assert_eq!(arguments(" ".to_owned()), json!({}));
    }
}
