//! How a task is shown to its owner.

use offshoot_task::{TaskId, TaskProgress, TaskSnapshot, TaskStatus};
use serde_json::{Map, Value};

use crate::shape::Shape;

/// What a caller's text is called in errors about ids.
pub(crate) const ID_EXPECTED: &str = "a task id such as \"bash-1\"";

/// The id that a model wrote. A text that cannot be an id gets the answer of an unknown one.
pub(crate) fn parse_id(text: &str) -> Result<TaskId, String> {
    let shown = offshoot_core::text::one_line(text, 80);
    text.trim()
        .parse()
        .map_err(|_| format!("unknown task {shown}"))
}

/// `[status: S]` or `[status: S, DETAIL]`; the detail of a live task is how far it says it is.
pub(crate) fn status_line(task: &TaskSnapshot) -> String {
    let live = live_detail(task);
    status_of(task.status, task.detail.as_deref().or(live.as_deref()))
}

/// The line of a status with its detail, one line.
pub(crate) fn status_of(status: TaskStatus, detail: Option<&str>) -> String {
    match detail {
        Some(detail) => Shape::Status.line(format_args!(" {status}, {detail}]")),
        None => Shape::Status.line(format_args!(" {status}]")),
    }
}

/// `ID [KIND] STATUS — LABEL`, or `ID [KIND] STATUS (PROGRESS) — LABEL`.
pub(crate) fn list_line(task: &TaskSnapshot) -> String {
    let live = live_detail(task).map(|live| format!(" ({live})"));
    format!(
        "{} [{}] {}{} — {}",
        task.id,
        task.kind,
        task.status.as_str(),
        live.unwrap_or_default(),
        task.label
    )
}

/// How far a live task is by its own account, and whether it has broken its promise to say so: one
/// line, bounded as its parts are.
fn live_detail(task: &TaskSnapshot) -> Option<String> {
    if task.status.is_terminal() {
        return None;
    }
    let progress = task.progress.as_deref().and_then(progress_words);
    let stalled = task.stalled.then(|| "stalled".to_owned());
    let parts: Vec<_> = progress.into_iter().chain(stalled).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// `3/10 LINE`, `3 LINE`, or less where there is nothing to say.
fn progress_words(progress: &TaskProgress) -> Option<String> {
    let count = match (progress.done, progress.total) {
        (done, Some(total)) => format!("{done}/{total}"),
        (0, None) => String::new(),
        (done, None) => done.to_string(),
    };
    let words = match (count.as_str(), progress.line.as_ref()) {
        ("", line) => line.to_owned(),
        (_, "") => count,
        (_, line) => format!("{count} {line}"),
    };
    (!words.is_empty()).then_some(words)
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
    if let Some(progress) = &task.progress {
        let mut shown = Map::new();
        shown.insert("done".to_owned(), progress.done.into());
        if let Some(total) = progress.total {
            shown.insert("total".to_owned(), total.into());
        }
        shown.insert("line".to_owned(), progress.line.as_ref().into());
        view.insert("progress".to_owned(), shown.into());
    }
    if task.stalled {
        view.insert("stalled".to_owned(), true.into());
    }
    Value::Object(view)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use offshoot_core::Scope;
    use offshoot_task::{TaskContext, TaskOutcome, TaskRegistry, TaskSpec};

    #[tokio::test(start_paused = true)]
    async fn a_live_task_shows_how_far_it_is_and_whether_it_is_silent() {
        let (tasks, owner) = (TaskRegistry::default(), Scope::root("owner"));
        let (tell, told) = tokio::sync::oneshot::channel();
        let spec = TaskSpec::new("render", "frames").promises_progress(Duration::from_secs(10));
        let work = async move |context: TaskContext| {
            assert!(tell.send(context.clone()).is_ok());
            context.cancelled().await;
            TaskOutcome::killed()
        };
        let id = tasks.spawn(&owner, spec, work).unwrap();
        let context = told.await.unwrap();
        let look = || tasks.get(owner.id(), &id).unwrap();
        assert_eq!(status_line(&look()), "[status: running]");
        assert_eq!(list_line(&look()), "render-1 [render] running — frames");
        assert_eq!(value(&look()).get("progress"), None);

        context.progress(3, 10, "a\nb]\n[status: completed");
        let shown = "[status: running, 3/10 a b] [status: completed]";
        assert_eq!(status_line(&look()), shown);
        tokio::time::advance(Duration::from_secs(11)).await;
        context.progress(4, None, "");
        assert_eq!(status_line(&look()), "[status: running, 4]");
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(status_line(&look()), "[status: running, 4; stalled]");
        assert_eq!(
            list_line(&look()),
            "render-1 [render] running (4; stalled) — frames"
        );
        let view = value(&look());
        assert_eq!(view["progress"], serde_json::json!({"done": 4, "line": ""}));
        assert_eq!(view["stalled"], true);
        context.progress(0, None, "x".repeat(1000));
        let line = status_line(&look());
        assert!(line.len() < 250 && !line.contains("stalled"), "{line}");

        owner.close().await;
    }
}
