//! An answer in the words of each format: frames of a stream, or one body.

mod chat;
mod gemini;
mod messages;
mod ollama;
mod responses;

use serde_json::{Value, json};

use crate::conversation::{Conversation, Format};
use crate::script::{Finish, Rule, Usage};

/// An answer with everything filled in.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) model: String,
    pub(crate) text: String,
    pub(crate) reasoning: Option<String>,
    pub(crate) signature: Option<String>,
    pub(crate) calls: Vec<FilledCall>,
    pub(crate) finish: Finish,
    pub(crate) usage: Usage,
    pub(crate) piece: usize,
    pub(crate) interleave: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct FilledCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
    pub(crate) namespace: Option<String>,
}

impl FilledCall {
    /// The arguments for formats that have them as an object.
    fn object(&self) -> Value {
        serde_json::from_str(&self.arguments).unwrap_or_else(|_| json!(self.arguments))
    }
}

/// A stream: its frames, and how many of the last ones are its end.
pub(crate) struct Frames {
    pub(crate) frames: Vec<String>,
    pub(crate) end: usize,
}

impl Answer {
    /// What `rule` answers to the `number`-th request of the server.
    pub(crate) fn fill(
        rule: &Rule,
        conversation: &Conversation,
        body: &Value,
        number: usize,
    ) -> Self {
        let fill = |text: &str| expand(text, conversation);
        let calls = rule.calls.iter().enumerate().map(|(i, call)| FilledCall {
            id: call
                .id
                .clone()
                .unwrap_or_else(|| format!("call_{number}_{}", i + 1)),
            name: call.name.clone(),
            // In JSON the inserted text has to be escaped.
            arguments: match &call.raw_args {
                Some(raw) => fill(raw),
                None => fill_json(call.args.as_ref(), conversation),
            },
            namespace: call.namespace.clone(),
        });
        Self {
            model: body["model"].as_str().unwrap_or("scripted").to_owned(),
            text: fill(&rule.text),
            reasoning: rule.reasoning.clone(),
            signature: rule.signature.clone(),
            calls: calls.collect(),
            finish: rule.finish_or_default(),
            usage: rule.usage,
            piece: rule.piece.unwrap_or(16).max(1),
            interleave: rule.interleave,
        }
    }

    pub(crate) fn frames(&self, format: Format) -> Frames {
        match format {
            Format::Chat => chat::frames(self),
            Format::Responses => responses::frames(self),
            Format::Messages => messages::frames(self),
            Format::Gemini => gemini::frames(self),
            Format::Ollama => ollama::frames(self),
        }
    }

    pub(crate) fn whole(&self, format: Format) -> Value {
        match format {
            Format::Chat => chat::whole(self),
            Format::Responses => responses::whole(self),
            Format::Messages => messages::whole(self),
            Format::Gemini => gemini::whole(self),
            Format::Ollama => ollama::whole(self),
        }
    }

    fn pieces(&self, text: &str) -> Vec<String> {
        let characters: Vec<char> = text.chars().collect();
        characters
            .chunks(self.piece)
            .map(|piece| piece.iter().collect())
            .collect()
    }

    /// The argument pieces of the calls as (call, piece), one call after the other or in turns.
    fn argument_pieces(&self) -> Vec<(usize, String)> {
        let of_calls: Vec<Vec<String>> = self
            .calls
            .iter()
            .map(|call| self.pieces(&call.arguments))
            .collect();
        let mut all = Vec::new();
        if self.interleave {
            let longest = of_calls.iter().map(Vec::len).max().unwrap_or(0);
            for n in 0..longest {
                for (call, pieces) in of_calls.iter().enumerate() {
                    all.extend(pieces.get(n).map(|piece| (call, piece.clone())));
                }
            }
        } else {
            for (call, pieces) in of_calls.into_iter().enumerate() {
                all.extend(pieces.into_iter().map(|piece| (call, piece)));
            }
        }
        all
    }
}

/// One frame of text, for a text without end.
pub(crate) fn text_frame(format: Format, text: &str) -> String {
    let answer = Answer {
        model: "scripted".to_owned(),
        text: text.to_owned(),
        reasoning: None,
        signature: None,
        calls: Vec::new(),
        finish: Finish::Stop,
        usage: Usage::default(),
        piece: usize::MAX,
        interleave: false,
    };
    let frames = answer.frames(format).frames;
    let has_text = |frame: &&String| frame.contains(text);
    frames.iter().find(has_text).cloned().unwrap_or_default()
}

/// An error in the middle of a stream.
pub(crate) fn error_frame(format: Format) -> String {
    match format {
        Format::Chat | Format::Gemini => data(
            &json!({"error": {"code": 500, "message": "scripted failure", "type": "server_error"}}),
        ),
        Format::Responses => {
            event(&json!({"type": "error", "code": "server_error", "message": "scripted failure"}))
        }
        Format::Messages => event(
            &json!({"type": "error", "error": {"type": "overloaded_error", "message": "scripted failure"}}),
        ),
        Format::Ollama => format!("{}\n", json!({"error": "scripted failure"})),
    }
}

/// A frame of data alone.
fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// A frame with its type as the event's name.
fn event(value: &Value) -> String {
    let name = value["type"].as_str().unwrap_or_default();
    format!("event: {name}\ndata: {value}\n\n")
}

fn fill_json(args: Option<&Value>, conversation: &Conversation) -> String {
    fn walk(value: &mut Value, conversation: &Conversation) {
        match value {
            Value::String(text) => *text = expand(text, conversation),
            Value::Array(items) => items.iter_mut().for_each(|v| walk(v, conversation)),
            Value::Object(object) => object.values_mut().for_each(|v| walk(v, conversation)),
            _ => {}
        }
    }
    let mut args = args.cloned().unwrap_or_else(|| json!({}));
    walk(&mut args, conversation);
    args.to_string()
}

fn expand(text: &str, conversation: &Conversation) -> String {
    let result = conversation.results.last().map_or("", String::as_str);
    let mut filled = text.replace("${user}", &conversation.last_user);
    filled = filled.replace("${result}", result);
    while let Some((before, rest)) = filled.split_once("${result|") {
        let Some((place, after)) = rest.split_once('}') else {
            break;
        };
        let (from, to) = place.split_once('|').unwrap_or((place, ""));
        let tail = result.split_once(from).map_or("", |(_, tail)| tail);
        let found = if to.is_empty() {
            tail
        } else {
            tail.split_once(to).map_or(tail, |(found, _)| found)
        };
        filled = format!("{before}{found}{after}");
    }
    filled
}
