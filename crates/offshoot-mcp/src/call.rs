//! One call of a tool: contained, cancelled with its request, reporting progress, and its answer as a
//! result of the protocol.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, OptionFuture};
use offshoot_agent::{Agent, Tool, ToolCall, ToolOutput};
use offshoot_core::text;
use offshoot_tools::NOTICE_PREFIX;
use rmcp::model::{
    CallToolResult, ContentBlock, MetaObject, ProgressNotificationParam, ProgressToken,
};
use rmcp::service::{Peer, RequestContext, RoleServer, ServiceError};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use crate::connection::Connection;

/// Runs a tool; a panic is an error output.
pub(crate) async fn contained(tool: Arc<dyn Tool>, call: ToolCall) -> ToolOutput {
    let work = AssertUnwindSafe(async { tool.call(call).await });
    work.catch_unwind().await.unwrap_or_else(|panic| {
        let message = text::panic_message(&*panic);
        let name = tool.name();
        ToolOutput::error(
            "TOOL_PANICKED",
            format!("the tool {name} panicked: {message}"),
        )
    })
}

/// Runs a call that its caller waits for. When the request is cancelled, or the connection ends, the
/// tool is told, and has `grace` to return. `None` when it did not.
pub(crate) async fn waited_for<T>(
    work: impl Future<Output = T>,
    cancel: &CancellationToken,
    context: &RequestContext<RoleServer>,
    mut progress: Progress,
    grace: Duration,
) -> Option<T> {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            output = &mut work => return Some(output),
            () = context.ct.cancelled() => cancel.cancel(),
            () = cancel.cancelled() => {}
            () = progress.next() => continue,
        }
        return tokio::time::timeout(grace, work).await.ok();
    }
}

/// Reports to a caller that asked for it that its call still runs.
pub(crate) struct Progress(Option<Reports>);

struct Reports {
    peer: Peer<RoleServer>,
    token: ProgressToken,
    name: String,
    began: Instant,
    ticks: tokio::time::Interval,
    sending: Option<BoxFuture<'static, Result<(), ServiceError>>>,
}

impl Progress {
    pub(crate) fn of(context: &RequestContext<RoleServer>, name: &str, every: Duration) -> Self {
        let began = Instant::now();
        Self(context.meta.get_progress_token().map(|token| {
            let mut ticks = interval_at(began + every, every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            Reports {
                peer: context.peer.clone(),
                token,
                name: name.to_owned(),
                began,
                ticks,
                sending: None,
            }
        }))
    }

    /// Completes when a report was due, or was sent. Dropping it loses none.
    async fn next(&mut self) {
        let Some(reports) = &mut self.0 else {
            return std::future::pending().await;
        };
        let sending: OptionFuture<_> = reports.sending.as_mut().into();
        tokio::select! {
            Some(_) = sending => reports.sending = None,
            _ = reports.ticks.tick() => {
                // A client that does not read is not sent more.
                if reports.sending.is_none() {
                    reports.sending = Some(reports.report());
                }
            }
        }
    }
}

impl Reports {
    fn report(&self) -> BoxFuture<'static, Result<(), ServiceError>> {
        let seconds = self.began.elapsed().as_secs_f64();
        let words = format!("{} has been running for {seconds:.0} s", self.name);
        let param = ProgressNotificationParam::new(self.token.clone(), seconds);
        let param = param.with_message(words);
        let peer = self.peer.clone();
        async move { peer.notify_progress(param).await }.boxed()
    }
}

/// The result of a call whose output is handed over now: the output counts as seen, and the notices
/// that wait go with it.
pub(crate) fn delivered(
    connection: &Connection,
    agent: &Agent,
    mut output: ToolOutput,
) -> CallToolResult {
    // First what this output tells: it makes some notices needless.
    if let Some(commit) = output.take_commit() {
        commit();
    }
    let mut result = result(&output);
    let notices = connection.shown.take(agent);
    let texts = notices.texts().iter();
    let blocks = texts.map(|text| ContentBlock::text(format!("{NOTICE_PREFIX} {text}")));
    result.content.extend(blocks);
    notices.deliver();
    result
}

/// An output in the words of the protocol.
pub(crate) fn result(output: &ToolOutput) -> CallToolResult {
    let content = vec![ContentBlock::text(output.text.as_str())];
    let mut result = match output.is_error {
        true => CallToolResult::error(content),
        false => CallToolResult::success(content),
    };
    result.meta = meta(output);
    result
}

/// What a program may want of an output, besides its text. There is no structured content: some clients
/// show a model that instead of the text, and the text is what is written for models.
fn meta(output: &ToolOutput) -> Option<MetaObject> {
    let mut meta = MetaObject::new();
    if let Some(code) = &output.code {
        meta.insert("offshoot/code".to_owned(), code.as_str().into());
    }
    for key in ["kind", "task_id", "agent_id", "status", "outcome"] {
        let value = output.value.as_ref().and_then(|value| {
            // What tells of one task has it below.
            let task = || {
                value
                    .get("task")?
                    .get(key.strip_prefix("task_").unwrap_or(key))
            };
            value.get(key).or_else(task)
        });
        if let Some(value) = value.filter(|value| value.is_string()) {
            meta.insert(format!("offshoot/{key}"), value.clone());
        }
    }
    (!meta.is_empty()).then_some(meta)
}
