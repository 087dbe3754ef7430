//! Messages.

use serde_json::{Value, json};

use super::{Answer, Frames, event};
use crate::script::Finish;

fn reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "end_turn",
        Finish::ToolCalls => "tool_use",
        Finish::MaxTokens => "max_tokens",
        Finish::Refusal => "refusal",
    }
}

pub(super) fn whole(answer: &Answer) -> Value {
    let mut content = Vec::new();
    if !answer.text.is_empty() {
        content.push(json!({"type": "text", "text": answer.text}));
    }
    for call in &answer.calls {
        content.push(
            json!({"type": "tool_use", "id": call.id, "name": call.name, "input": call.object()}),
        );
    }
    json!({
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": reason(answer.finish),
        "stop_sequence": null,
        "usage": {"input_tokens": answer.usage.input, "output_tokens": answer.usage.output},
    })
}

pub(super) fn frames(answer: &Answer) -> Frames {
    let mut begun = whole(answer);
    begun["content"] = json!([]);
    begun["stop_reason"] = Value::Null;
    begun["usage"]["output_tokens"] = json!(1);
    let mut frames = vec![
        json!({"type": "message_start", "message": begun}),
        json!({"type": "ping"}),
    ];
    let mut index = 0;
    let mut block = |start: Value, deltas: Vec<Value>| {
        frames.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        for delta in deltas {
            frames.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        frames.push(json!({"type": "content_block_stop", "index": index}));
        index += 1;
    };
    if !answer.text.is_empty() {
        let deltas = answer.pieces(&answer.text).into_iter();
        let deltas = deltas.map(|piece| json!({"type": "text_delta", "text": piece}));
        block(json!({"type": "text", "text": ""}), deltas.collect());
    }
    for call in &answer.calls {
        let start = json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}});
        let deltas = answer.pieces(&call.arguments).into_iter();
        let deltas = deltas.map(|piece| json!({"type": "input_json_delta", "partial_json": piece}));
        block(start, deltas.collect());
    }
    frames.push(json!({
        "type": "message_delta",
        "delta": {"stop_reason": reason(answer.finish), "stop_sequence": null},
        "usage": {"output_tokens": answer.usage.output},
    }));
    frames.push(json!({"type": "message_stop"}));
    Frames {
        frames: frames.iter().map(event).collect(),
        end: 2,
    }
}
