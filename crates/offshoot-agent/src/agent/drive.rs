//! The drive: runs the turns of an agent, one after the other, until nothing runnable waits.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use futures::FutureExt;
use offshoot_core::text;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::state::{Inner, Phase, State};
use super::{Agent, CancelCause, Pending};
use crate::{
    AppendError, DriverError, Event, StepContext, StepKey, StepOutcome, Target, TurnEndReason,
};

/// How a turn ended.
struct End {
    reason: TurnEndReason,
    error: Option<String>,
}

impl End {
    fn new(reason: TurnEndReason) -> Self {
        Self {
            reason,
            error: None,
        }
    }

    fn error(message: impl Into<String>) -> Self {
        Self {
            reason: TurnEndReason::Error,
            error: Some(message.into()),
        }
    }
}

/// Runs the turn that was opened for it, and those that follow, until the agent is idle.
pub(super) async fn drive(mut driven: Driven) {
    while let Some(agent) = &driven.0 {
        let end = run_turn(agent).await;
        if !agent.commit(|state, inner| finish_turn(agent, state, inner, end)) {
            driven.0 = None;
        }
    }
}

/// An agent whose phase is Running on behalf of a drive. A drive that is dropped before its end (its
/// runtime shuts down, or is gone when it is spawned) must not leave a running agent behind.
pub(super) struct Driven(pub(super) Option<Agent>);

impl Drop for Driven {
    fn drop(&mut self) {
        let Some(agent) = self.0.take() else { return };
        agent.commit(|state, inner| {
            let _ = state.repair(inner);
            state.phase = Phase::Idle;
            if state.closing.is_none() {
                state.announce_status(inner);
            }
        });
    }
}

/// Ends the turn, and in the same critical section decides what is next: the next turn, or idle.
/// Returns whether another turn was opened.
fn finish_turn(agent: &Agent, state: &mut State, inner: &Arc<Inner>, end: End) -> bool {
    state.follow_scope(inner);
    let (aborted, cause, latched) = match state.running() {
        Some(running) => (
            running.cancel.is_cancelled(),
            running.cause,
            std::mem::take(&mut running.latched),
        ),
        None => (false, None, Vec::new()),
    };
    let ordinary = end.reason.is_ordinary() && !aborted;
    if let Err(error) = append_end(state, inner, end, aborted.then_some(cause).flatten()) {
        tracing::error!(agent = %inner.id, %error, "the end of a turn could not be written");
    }
    let inbox = state.projection.inbox();
    let waits = if ordinary {
        !inbox.is_empty()
    } else {
        latched.iter().any(|id| inbox.contains(id))
    };
    // A log that cannot be written opens no turn: what waits stays parked.
    let may = state.closing.is_none() && state.projection.open_turn().is_none();
    if waits && may && state.open_next_turn(inner) {
        return true;
    }
    state.phase = Phase::Idle;
    if state.closing.is_none() {
        state.announce_status(inner);
    }
    tracing::debug!(agent = %agent.id(), "idle");
    false
}

fn append_end(
    state: &mut State,
    inner: &Inner,
    end: End,
    aborted: Option<CancelCause>,
) -> Result<(), AppendError> {
    let Some(open) = state.projection.open_turn() else {
        return Ok(());
    };
    let turn = open.turn;
    let mut events = state
        .projection
        .close_step(|dispatched| match (aborted, dispatched) {
            (Some(_), true) => ("ABORTED", "the call was aborted"),
            (Some(_), false) => (
                "ABORTED_BEFORE_DISPATCH",
                "the call was aborted before it started",
            ),
            (None, _) => (
                "NOT_ANSWERED",
                "the step ended before this call was answered",
            ),
        });
    if let Some(cause) = state.running().and_then(|running| running.discard) {
        events.extend(
            state
                .projection
                .inbox()
                .claimed()
                .map(|entry| Event::InboxDiscarded {
                    message_id: entry.message.id.clone(),
                    cause: cause.as_str().to_owned(),
                }),
        );
    }
    events.push(match aborted {
        Some(cause) => Event::TurnEnd {
            turn,
            reason: TurnEndReason::Aborted,
            cause: Some(cause.as_str().to_owned()),
            error: None,
        },
        None => Event::TurnEnd {
            turn,
            reason: end.reason,
            cause: None,
            error: end.error,
        },
    });
    state.append(inner, events)
}

async fn run_turn(agent: &Agent) -> End {
    // A reply that ran out of tokens marks the whole turn, whatever later steps do.
    let mut outcome = TurnEndReason::Completed;
    for step in 1.. {
        let begun = agent.commit(|state, inner| begin_step(state, inner, step));
        let context = match begun {
            Ok(Some((key, generation, cancel))) => {
                StepContext::new(agent.clone(), key, generation, cancel)
            }
            Ok(None) => return End::new(TurnEndReason::Aborted),
            Err(error) => return End::error(error.to_string()),
        };
        let result = run_step(agent, &context).await;
        let result = match result {
            Some(result) => result,
            None => return End::new(TurnEndReason::Aborted),
        };
        let owed = match result {
            Err(error) => return End::error(error.message),
            Ok(StepOutcome::Refusal) => return End::new(TurnEndReason::Refusal),
            Ok(StepOutcome::Continue) => true,
            Ok(StepOutcome::Completed) => false,
            Ok(StepOutcome::MaxTokens) => {
                outcome = TurnEndReason::MaxTokens;
                false
            }
        };
        if !owed && !agent.with_projection(|p| p.inbox().has_next_step()) {
            return End::new(outcome);
        }
        if step >= agent.host().settings.max_steps_per_turn {
            return End::new(TurnEndReason::StepLimit);
        }
    }
    End::new(outcome)
}

type Begun = Option<(StepKey, u64, CancellationToken)>;

/// Ends the step before, claims what waits for this one, and begins it; `None` when the turn was
/// cancelled. All of it is one append.
fn begin_step(state: &mut State, inner: &Inner, step: u64) -> Result<Begun, AppendError> {
    state.follow_scope(inner);
    let Some(cancel) = state.running().map(|running| running.cancel.clone()) else {
        return Ok(None);
    };
    if cancel.is_cancelled() {
        return Ok(None);
    }
    let Some(open) = state.projection.open_turn() else {
        return Ok(None);
    };
    let (turn, generation) = (open.turn, open.generation);
    let mut events = state.projection.close_step(|_| {
        (
            "NOT_ANSWERED",
            "the step ended before this call was answered",
        )
    });
    let inbox = state.projection.inbox();
    let batch = if step > 1 {
        inbox.batch(Target::NextStep)
    } else {
        Vec::new()
    };
    events.reserve_exact(1 + inbox.claimed().count() + 2 * batch.len());
    events.extend(batch.iter().map(|entry| Event::InboxClaimed {
        message_id: entry.message.id.clone(),
        turn,
        step,
    }));
    events.push(Event::StepStart { turn, step });
    let entering = inbox.claimed().chain(batch.iter().copied());
    events.extend(entering.map(|entry| Event::MessageUser {
        turn,
        step,
        message: entry.message.clone(),
    }));
    state.append(inner, events)?;
    let session = inner.id.clone();
    let key = StepKey {
        session,
        activation: inner.activation,
        turn,
        step,
        attempt: 1,
    };
    Ok(Some((key, generation, cancel)))
}

/// Runs the driver on one step; `None` when it did not return within the grace after a cancel.
async fn run_step(
    agent: &Agent,
    context: &StepContext,
) -> Option<Result<StepOutcome, DriverError>> {
    let driver = Arc::clone(&agent.kit().driver);
    let span = tracing::info_span!(
        "step",
        agent = %agent.id(),
        turn = context.key().turn,
        step = context.key().step
    );
    // Made inside the future: a panic before the first await is the step's as well.
    let work = AssertUnwindSafe(async { driver.step(context).await })
        .catch_unwind()
        .instrument(span);
    let mut work = std::pin::pin!(Some(work));
    let mut going = work.as_mut().as_pin_mut()?;
    let result = match std::future::poll_fn(|cx| Poll::Ready(going.as_mut().poll(cx))).await {
        Poll::Ready(result) => Some(result),
        // Boxed, so that the drive stays small; a step that waits can afford it.
        Poll::Pending => Box::pin(wait_for(agent, context, going.as_mut())).await,
    };
    // What the step held is dropped here, and may panic in its turn.
    let dropped = std::panic::catch_unwind(AssertUnwindSafe(|| work.set(None)));
    let result = match (result?, dropped) {
        (Ok(result), Ok(())) => Ok(result),
        (Err(panic), _) | (_, Err(panic)) => Err(panic),
    };
    Some(result.unwrap_or_else(|panic| {
        let message = text::panic_message(&*panic);
        Err(DriverError::new(format!("the driver panicked: {message}")))
    }))
}

/// Waits for a step that did not return at once; `None` when it did not within the grace after a
/// cancel.
async fn wait_for<F: Future>(
    agent: &Agent,
    context: &StepContext,
    mut going: Pin<&mut F>,
) -> Option<F::Output> {
    let owner_closes = async {
        agent.scope().closing().await;
        agent.begin_close(Pending::Keep);
        std::future::pending::<()>().await;
    };
    let result = tokio::select! {
        biased;
        result = &mut going => Some(result),
        () = context.cancelled() => {
            let grace = agent.host().settings.cancel_grace;
            tokio::time::timeout(grace, &mut going).await.ok()
        }
        () = owner_closes => None,
    };
    if result.is_none() {
        tracing::warn!(agent = %agent.id(), "a cancelled step was dropped");
    }
    result
}
