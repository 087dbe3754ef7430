//! `api/chat`: lines of JSON.

use serde_json::{Value, json};

use super::{Answer, Frames};
use crate::script::Finish;

fn response(answer: &Answer, message: Value, last: bool) -> Value {
    let mut response = json!({
        "model": answer.model,
        "created_at": "2026-01-01T00:00:00Z",
        "message": message,
        "done": last,
    });
    if last {
        response["done_reason"] = json!(match answer.finish {
            Finish::MaxTokens => "length",
            _ => "stop",
        });
        response["prompt_eval_count"] = json!(answer.usage.input);
        response["eval_count"] = json!(answer.usage.output);
    }
    response
}

fn calls(answer: &Answer) -> Value {
    let call = |call: &super::FilledCall| json!({"function": {"name": call.name, "arguments": call.object()}});
    answer.calls.iter().map(call).collect()
}

pub(super) fn whole(answer: &Answer) -> Value {
    let mut message = json!({"role": "assistant", "content": answer.text});
    if !answer.calls.is_empty() {
        message["tool_calls"] = calls(answer);
    }
    response(answer, message, true)
}

pub(super) fn frames(answer: &Answer) -> Frames {
    let says = |text: &str| json!({"role": "assistant", "content": text});
    let mut frames: Vec<Value> = answer
        .pieces(&answer.text)
        .iter()
        .map(|piece| response(answer, says(piece), false))
        .collect();
    if !answer.calls.is_empty() {
        let mut message = says("");
        message["tool_calls"] = calls(answer);
        frames.push(response(answer, message, false));
    }
    frames.push(response(answer, says(""), true));
    Frames {
        frames: frames.iter().map(|frame| format!("{frame}\n")).collect(),
        end: 1,
    }
}
