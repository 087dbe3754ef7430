//! When a run ends: at rest by itself, or because somebody or something ends it.

use std::os::fd::AsFd as _;
use std::time::Duration;

use offshoot::agent::{Agent, CancelCause, Pending, Status};
use offshoot::config::Config;
use tokio::io::Interest;
use tokio::net::unix::pipe;

use super::host::Host;
use super::signals::{Request, Signals};
use crate::output;
use crate::output::json::JsonLines;

/// How long a run may take.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// In all.
    pub(crate) timeout: Option<Duration>,
    /// After the root became idle.
    pub(crate) linger: Option<Duration>,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It is at rest, or its root is closing.
    Rest,
    /// Something lived too long after the root became idle.
    Linger,
    /// It took too long.
    Timeout,
    /// Somebody wants it to end.
    Signal,
    /// Nobody reads the events any more.
    StdoutClosed,
}

/// Waits for the end of a run. The first Ctrl-C cancels the root's turn and the run goes on to its
/// rest; the second one ends it.
pub(super) async fn until_end(
    host: &Host,
    root: &Agent,
    limits: &Limits,
    signals: &mut Signals,
    lines: Option<&JsonLines>,
    say: impl Fn(&str),
) -> End {
    let mut interrupted = false;
    let at_rest = at_rest(host, root);
    let timeout = after(limits.timeout);
    let linger = lingers(root, limits.linger);
    let unread = unread(lines);
    let mut work = std::pin::pin!(async {
        tokio::select! {
            biased;
            () = at_rest => End::Rest,
            () = unread => End::StdoutClosed,
            () = timeout => End::Timeout,
            () = linger => End::Linger,
        }
    });
    loop {
        let request = tokio::select! {
            biased;
            request = signals.next() => request,
            end = &mut work => return end,
        };
        if request == Request::Terminate || interrupted {
            return End::Signal;
        }
        interrupted = true;
        root.cancel(CancelCause::User, Pending::Keep);
        say("cancelled; Ctrl-C again closes everything");
    }
}

/// How often an idle root looks at what is below it, which changes without it.
const LOOK: Duration = Duration::from_millis(50);

/// Waits until the root is idle and nothing that it started goes on by itself, or it is closing.
async fn quiet(host: &Host, root: &Agent) {
    loop {
        let epoch = root.epoch();
        let ending = matches!(root.status(), Status::Closing | Status::Closed);
        if ending || host.runtime().subagents().is_at_rest(root) {
            return;
        }
        let idle = root.status() == Status::Idle;
        tokio::select! {
            () = root.changed_since(epoch) => {}
            () = root.rest() => {}
            () = tokio::time::sleep(LOOK), if idle => {}
        }
    }
}

/// "A run ends when the root is idle and its scope has no holds"; messages that an interrupt has parked
/// do not keep it, nor does the child that is there for them.
async fn at_rest(host: &Host, root: &Agent) {
    let events = host.runtime().events();
    loop {
        quiet(host, root).await;
        let epoch = root.epoch();
        // Whoever sees the events may still have an answer to them, such as a followup at idle.
        events.drained().await;
        host.not_busy().await;
        let ending = matches!(root.status(), Status::Closing | Status::Closed);
        let rests = host.runtime().subagents().is_at_rest(root) && root.epoch() == epoch;
        if (rests || ending) && events.is_drained() && !host.is_busy() {
            return;
        }
    }
}

async fn after(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
}

/// Waits until the root has been idle for so long.
async fn lingers(root: &Agent, limit: Option<Duration>) {
    loop {
        root.idle().await;
        tokio::select! {
            () = after(limit) => return,
            () = runs(root) => {}
        }
    }
}

async fn runs(root: &Agent) {
    loop {
        let epoch = root.epoch();
        if root.status() == Status::Running {
            return;
        }
        root.changed_since(epoch).await;
    }
}

/// Waits until nobody reads the JSON lines: a write failed, or the pipe's other end was closed.
async fn unread(lines: Option<&JsonLines>) {
    let Some(lines) = lines else {
        return std::future::pending().await;
    };
    tokio::select! {
        () = lines.broken() => {}
        () = hung_up() => {}
    }
}

/// Waits until the reader of stdout is gone, which nobody would notice before the next event. A file
/// cannot be watched and has no reader.
async fn hung_up() {
    let stdout = std::io::stdout();
    // Registered as it is: the thread that writes relies on its writes blocking.
    let watched = stdout
        .as_fd()
        .try_clone_to_owned()
        .and_then(pipe::Sender::from_owned_fd_unchecked);
    let Ok(watched) = watched else {
        return std::future::pending().await;
    };
    // An error here, like an error on the pipe, means that nobody can read.
    let _ = watched.ready(Interest::ERROR).await;
}

/// How long a tree may take to close: a level has the teardown grace.
pub(crate) fn closing_limit(config: &Config) -> Duration {
    let grace = Duration::from_millis(config.tasks.teardown_grace_ms);
    let levels = config.limits.max_depth.saturating_add(1);
    grace
        .saturating_mul(levels)
        .saturating_mul(2)
        .saturating_add(Duration::from_secs(5))
}

/// Ends the tree. Bounded: a level has the teardown grace, and what is deaf even to that is left.
pub(super) async fn close(host: &Host, root: &Agent, config: &Config) {
    let limit = closing_limit(config);
    let closing = async {
        host.runtime().close(root).await;
        host.not_busy().await;
        host.runtime().events().drained().await;
    };
    if tokio::time::timeout(limit, closing).await.is_err() {
        output::note("some work did not end in time and was left");
    }
}
