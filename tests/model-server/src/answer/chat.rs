//! Chat completions.

use serde_json::{Value, json};

use super::{Answer, Frames, data};
use crate::script::Finish;

fn reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::ToolCalls => "tool_calls",
        Finish::MaxTokens => "length",
        Finish::Refusal => "content_filter",
    }
}

fn usage(answer: &Answer) -> Value {
    let usage = answer.usage;
    json!({
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
    })
}

pub(super) fn frames(answer: &Answer) -> Frames {
    let chunk = |choices: Value| {
        json!({
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": answer.model,
            "choices": choices,
        })
    };
    let delta = |delta: Value, finish: Value| {
        data(&chunk(
            json!([{"index": 0, "delta": delta, "finish_reason": finish}]),
        ))
    };
    let mut frames = vec![delta(
        json!({"role": "assistant", "content": ""}),
        Value::Null,
    )];
    if let Some(reasoning) = &answer.reasoning {
        frames.push(delta(json!({"reasoning_content": reasoning}), Value::Null));
    }
    for piece in answer.pieces(&answer.text) {
        frames.push(delta(json!({"content": piece}), Value::Null));
    }
    let begin = |(index, call): (usize, &super::FilledCall)| {
        let function = json!({"name": call.name, "arguments": ""});
        let call = json!({"index": index, "id": call.id, "type": "function", "function": function});
        delta(json!({"tool_calls": [call]}), Value::Null)
    };
    frames.extend(answer.calls.iter().enumerate().map(begin));
    for (index, piece) in answer.argument_pieces() {
        let call = json!({"index": index, "function": {"arguments": piece}});
        frames.push(delta(json!({"tool_calls": [call]}), Value::Null));
    }
    frames.push(delta(json!({}), json!(reason(answer.finish))));
    let mut last = chunk(json!([]));
    last["usage"] = usage(answer);
    frames.push(data(&last));
    frames.push("data: [DONE]\n\n".to_owned());
    Frames { frames, end: 1 }
}

pub(super) fn whole(answer: &Answer) -> Value {
    let mut message = json!({"role": "assistant", "content": answer.text});
    if !answer.calls.is_empty() {
        let call = |call: &super::FilledCall| {
            let function = json!({"name": call.name, "arguments": call.arguments});
            json!({"id": call.id, "type": "function", "function": function})
        };
        message["tool_calls"] = answer.calls.iter().map(call).collect();
    }
    json!({
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": answer.model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason(answer.finish)}],
        "usage": usage(answer),
    })
}
