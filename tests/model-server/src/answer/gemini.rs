//! `generateContent`.

use serde_json::{Value, json};

use super::{Answer, Frames, data};
use crate::script::Finish;

fn response(answer: &Answer, parts: Vec<Value>, last: bool) -> Value {
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    let mut usage =
        json!({"promptTokenCount": answer.usage.input, "totalTokenCount": answer.usage.input});
    if last {
        candidate["finishReason"] = json!(match answer.finish {
            Finish::Stop | Finish::ToolCalls => "STOP",
            Finish::MaxTokens => "MAX_TOKENS",
            Finish::Refusal => "SAFETY",
        });
        usage["candidatesTokenCount"] = json!(answer.usage.output);
        usage["totalTokenCount"] = json!(answer.usage.input + answer.usage.output);
    }
    json!({
        "candidates": [candidate],
        "usageMetadata": usage,
        "modelVersion": answer.model,
        "responseId": "r1",
    })
}

fn call_parts(answer: &Answer) -> Vec<Value> {
    answer
        .calls
        .iter()
        .map(|call| {
            let mut part = json!({"functionCall": {"name": call.name, "args": call.object()}});
            if let Some(signature) = &answer.signature {
                part["thoughtSignature"] = json!(signature);
            }
            part
        })
        .collect()
}

pub(super) fn whole(answer: &Answer) -> Value {
    let mut parts = Vec::new();
    if !answer.text.is_empty() {
        parts.push(json!({"text": answer.text}));
    }
    parts.extend(call_parts(answer));
    response(answer, parts, true)
}

pub(super) fn frames(answer: &Answer) -> Frames {
    let thought = |text: &String| json!({"text": text, "thought": true});
    let thoughts: Vec<Value> = answer.reasoning.iter().map(thought).collect();
    let mut frames = Vec::new();
    if !thoughts.is_empty() {
        frames.push(data(&response(answer, thoughts, false)));
    }
    let pieces = answer
        .pieces(&answer.text)
        .into_iter()
        .map(|piece| data(&response(answer, vec![json!({"text": piece})], false)));
    frames.extend(pieces);
    let calls = call_parts(answer);
    if !calls.is_empty() {
        frames.push(data(&response(answer, calls, false)));
    }
    frames.push(data(&response(answer, vec![json!({"text": ""})], true)));
    Frames { frames, end: 1 }
}
