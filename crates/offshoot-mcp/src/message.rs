//! A message of a client, or what is wrong with it.

use rmcp::ErrorData;
use rmcp::model::{ClientJsonRpcMessage, RequestId};
use serde_json::Value;

/// What is no message, and whom to tell.
pub(crate) struct Fault {
    pub(crate) id: Option<RequestId>,
    // In a box: it is much larger than what a line mostly comes to.
    pub(crate) error: Box<ErrorData>,
}

impl Fault {
    pub(crate) fn new(error: ErrorData) -> Self {
        Self {
            id: None,
            error: Box::new(error),
        }
    }
}

/// The message that a line, or the body of a request, is.
pub(crate) fn parse(line: &[u8]) -> Result<ClientJsonRpcMessage, Fault> {
    let value: Value = serde_json::from_slice(line).map_err(|error| {
        // Where, and never what: it may have something secret.
        let (kind, column) = (error.classify(), error.column());
        let message = format!("the message is not JSON ({kind:?} error at column {column})");
        Fault::new(ErrorData::parse_error(message, None))
    })?;
    let wrong = |id, message: &'static str| Fault {
        id,
        error: Box::new(ErrorData::invalid_request(message, None)),
    };
    let Some(object) = value.as_object() else {
        let message = "expected one JSON-RPC message, as an object; batches are not supported";
        return Err(wrong(None, message));
    };
    let id = object.get("id").cloned();
    let id: Option<RequestId> = id.and_then(|id| serde_json::from_value(id).ok());
    if object.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(wrong(id, "expected \"jsonrpc\": \"2.0\""));
    }
    if object.contains_key("id") && id.is_none() && object.contains_key("method") {
        return Err(wrong(None, "expected an id that is a text or an integer"));
    }
    serde_json::from_value(value).map_err(|_| {
        wrong(
            id,
            "expected a JSON-RPC request, notification, response or error",
        )
    })
}
