//! Responses.

use serde_json::{Value, json};

use super::{Answer, FilledCall, Frames, event};
use crate::script::Finish;

fn call_item(call: &FilledCall, arguments: &str, status: &str) -> Value {
    let mut item = json!({
        "type": "function_call",
        "id": format!("fc_{}", call.id),
        "call_id": call.id,
        "name": call.name,
        "arguments": arguments,
        "status": status,
    });
    if let Some(namespace) = &call.namespace {
        item["namespace"] = json!(namespace);
    }
    item
}

fn message_item(text: &str, status: &str) -> Value {
    let content = match status {
        "completed" => json!([{"type": "output_text", "text": text, "annotations": []}]),
        _ => json!([]),
    };
    json!({"type": "message", "id": "msg_1", "role": "assistant", "status": status, "content": content})
}

pub(super) fn whole(answer: &Answer) -> Value {
    let mut output = Vec::new();
    if !answer.text.is_empty() {
        output.push(message_item(&answer.text, "completed"));
    }
    let done = |call| call_item(call, &call.arguments, "completed");
    output.extend(answer.calls.iter().map(done));
    let (status, reason) = match answer.finish {
        Finish::Stop | Finish::ToolCalls => ("completed", Value::Null),
        Finish::MaxTokens => ("incomplete", json!({"reason": "max_output_tokens"})),
        Finish::Refusal => ("incomplete", json!({"reason": "content_filter"})),
    };
    let usage = answer.usage;
    json!({
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": status,
        "incomplete_details": reason,
        "error": null,
        "model": answer.model,
        "output": output,
        "usage": {
            "input_tokens": usage.input,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.input + usage.output,
        },
    })
}

pub(super) fn frames(answer: &Answer) -> Frames {
    let whole = whole(answer);
    let mut created = whole.clone();
    created["status"] = json!("in_progress");
    created["output"] = json!([]);
    created["usage"] = Value::Null;
    let mut frames = vec![json!({"type": "response.created", "response": created})];
    let mut index = 0;
    if !answer.text.is_empty() {
        let at = json!({"item_id": "msg_1", "output_index": 0, "content_index": 0});
        let with = |kind: &str, key: &str, value: Value| {
            let mut frame = json!({"type": kind});
            for (key, value) in at.as_object().into_iter().flatten() {
                frame[key] = value.clone();
            }
            frame[key] = value;
            frame
        };
        frames.push(json!({"type": "response.output_item.added", "output_index": 0, "item": message_item("", "in_progress")}));
        let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
        frames.push(with("response.content_part.added", "part", part("")));
        for piece in answer.pieces(&answer.text) {
            frames.push(with("response.output_text.delta", "delta", json!(piece)));
        }
        frames.push(with(
            "response.output_text.done",
            "text",
            json!(answer.text),
        ));
        frames.push(with(
            "response.content_part.done",
            "part",
            part(&answer.text),
        ));
        frames.push(json!({"type": "response.output_item.done", "output_index": 0, "item": message_item(&answer.text, "completed")}));
        index = 1;
    }
    for (n, call) in answer.calls.iter().enumerate() {
        frames.push(json!({"type": "response.output_item.added", "output_index": index + n, "item": call_item(call, "", "in_progress")}));
    }
    for (n, piece) in answer.argument_pieces() {
        let id = format!("fc_{}", answer.calls[n].id);
        frames.push(json!({"type": "response.function_call_arguments.delta", "item_id": id, "output_index": index + n, "delta": piece}));
    }
    for (n, call) in answer.calls.iter().enumerate() {
        let id = format!("fc_{}", call.id);
        frames.push(json!({"type": "response.function_call_arguments.done", "item_id": id, "output_index": index + n, "arguments": call.arguments}));
        frames.push(json!({"type": "response.output_item.done", "output_index": index + n, "item": call_item(call, &call.arguments, "completed")}));
    }
    let kind = match answer.finish {
        Finish::Stop | Finish::ToolCalls => "response.completed",
        Finish::MaxTokens | Finish::Refusal => "response.incomplete",
    };
    frames.push(json!({"type": kind, "response": whole}));
    let numbered = frames.into_iter().enumerate().map(|(n, mut frame)| {
        frame["sequence_number"] = json!(n);
        event(&frame)
    });
    Frames {
        frames: numbered.collect(),
        end: 1,
    }
}
