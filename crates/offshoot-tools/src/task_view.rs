//! How a task is shown to its owner.

use offshoot_task::{TaskId, TaskSnapshot};
use serde_json::{Map, Value};

/// What a caller's text is called in errors about ids.
pub(crate) const ID_EXPECTED: &str = "a task id such as \"bash-1\"";

/// The id that a model wrote. A text that cannot be an id gets the answer of an unknown one.
pub(crate) fn parse_id(text: &str) -> Result<TaskId, String> {
    let shown = offshoot_core::text::one_line(text, 80);
    text.trim()
        .parse()
        .map_err(|_| format!("unknown task {shown}"))
}

/// `[status: S]` or `[status: S, DETAIL]`.
pub(crate) fn status_line(task: &TaskSnapshot) -> String {
    match &task.detail {
        Some(detail) => format!("[status: {}, {detail}]", task.status.as_str()),
        None => format!("[status: {}]", task.status.as_str()),
    }
}

/// `ID [KIND] STATUS — LABEL`.
pub(crate) fn list_line(task: &TaskSnapshot) -> String {
    format!(
        "{} [{}] {} — {}",
        task.id,
        task.kind,
        task.status.as_str(),
        task.label
    )
}

/// What programs see of a task.
pub(crate) fn value(task: &TaskSnapshot) -> Value {
    let mut view = Map::new();
    view.insert("id".to_owned(), task.id.to_string().into());
    view.insert("kind".to_owned(), task.kind.as_ref().into());
    view.insert("label".to_owned(), task.label.as_ref().into());
    view.insert("status".to_owned(), task.status.as_str().into());
    view.insert("started_at".to_owned(), task.started_at.as_millis().into());
    let elapsed = u64::try_from(task.elapsed.as_millis()).unwrap_or(u64::MAX);
    view.insert("elapsed_ms".to_owned(), elapsed.into());
    if let Some(detail) = &task.detail {
        view.insert("detail".to_owned(), detail.as_ref().into());
    }
    if let Some(finished) = task.finished_at {
        view.insert("finished_at".to_owned(), finished.as_millis().into());
    }
    Value::Object(view)
}
