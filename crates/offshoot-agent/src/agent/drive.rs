//! The drive: runs the turns of an agent, one after the other, and rests while nothing runnable waits.

use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures::FutureExt;
use offshoot_core::text;
use tracing::{Instrument, Span};

use super::Agent;
use super::state::{Drive, Inner, State};
use crate::machine::{
    After, BeginStep, Begun, EndTurn, NextTurn, Repair, Rest, StepEnded, TurnEnded,
};
use crate::{StepContext, StepKey, TurnEndReason, sync};

/// Makes the drive of an agent whose first turn was opened.
pub(super) fn spawn(agent: &Agent) {
    let driven = Driven(Some(agent.clone()));
    sync::spawn(&agent.0.runtime, drive(driven));
}

/// Runs the turn that was opened for it, and those that follow, until the agent is idle; then waits for
/// the next one, until the agent has closed.
async fn drive(mut driven: Driven) {
    while let Some(agent) = &driven.0 {
        let span = tracing::info_span!(
            // What an agent does is not part of what its sender does.
            parent: None,
            "agent",
            agent = %agent.id(),
            label = %agent.label(),
            depth = agent.depth(),
        );
        // In a box of its own: an idle agent keeps a small task.
        let ended = Box::pin(run_turns(agent).instrument(span)).await;
        if ended.is_break() || next_turn(agent).await.is_break() {
            driven.0 = None;
        }
    }
}

/// Runs the turn that was opened, and those that follow. Breaks when there will be none any more.
async fn run_turns(agent: &Agent) -> ControlFlow<()> {
    let mut ended = None;
    let mut turn = Span::none();
    loop {
        let mut next = |cx: &mut Context<'_>| {
            agent.commit(|state, inner| go_on(state, inner, ended.take(), cx.waker()))
        };
        match std::future::poll_fn(|cx| Poll::Ready(next(cx))).await {
            Next::Step(begun) => {
                if begun.step == 1 {
                    let (number, generation) = (begun.turn, begun.generation);
                    turn = tracing::info_span!("turn", turn = number, generation);
                }
                if begun.step > 1 {
                    // A turn whose steps answer at once must not keep its thread from everybody else:
                    // from a stop of this very turn, too.
                    tokio::task::yield_now().await;
                }
                let step = tracing::info_span!(parent: &turn, "step", step = begun.step);
                let context = context(agent, begun);
                ended = Some(run_step(agent, &context).instrument(step).await);
            }
            Next::Turn => tokio::task::yield_now().await,
            Next::Rest => {
                tracing::debug!(agent = %agent.id(), "idle");
                return ControlFlow::Continue(());
            }
            Next::End => return ControlFlow::Break(()),
        }
    }
}

/// Sleeps until a turn is opened. Breaks when there will be none any more.
async fn next_turn(agent: &Agent) -> ControlFlow<()> {
    let mut slept = false;
    std::future::poll_fn(|cx| {
        if !std::mem::replace(&mut slept, true) {
            // It is parked, and woken if a turn was opened meanwhile.
            return Poll::Pending;
        }
        let mut state = agent.lock();
        if state.machine.is_running() {
            Poll::Ready(ControlFlow::Continue(()))
        } else if state.park(cx.waker()) {
            Poll::Pending
        } else {
            Poll::Ready(ControlFlow::Break(()))
        }
    })
    .await
}

/// An agent that has a drive. A drive that is dropped before its end (its runtime shuts down, or is gone
/// when it is spawned) must not leave a running agent behind.
struct Driven(Option<Agent>);

impl Drop for Driven {
    fn drop(&mut self) {
        let Some(agent) = self.0.take() else { return };
        let drive = agent.commit(|state, inner| {
            if state.machine.is_running() {
                let _ = state.run(inner, Repair);
                let _ = state.run(inner, Rest);
            }
            std::mem::replace(&mut state.drive, Drive::None)
        });
        drop(drive);
    }
}

/// What a drive does next.
enum Next {
    Step(Begun),
    /// The next turn was opened.
    Turn,
    /// Nothing runs until the drive is woken.
    Rest,
    /// Nothing runs any more.
    End,
}

/// Begins the next step; or ends the turn, and in the same critical section decides what is next: the
/// next turn, or rest.
fn go_on(state: &mut State, inner: &Inner, ended: Option<StepEnded>, waker: &Waker) -> Next {
    state.follow_scope(inner);
    let after = match ended {
        Some(ended) => state.run(inner, ended).0,
        None => After::Step,
    };
    let end = match after {
        After::End(end) => end,
        After::Step => match state.run(inner, BeginStep) {
            (Some(begun), Ok(())) => return Next::Step(begun),
            (None, _) => TurnEnded::new(TurnEndReason::Aborted),
            (Some(_), Err(error)) => TurnEnded::error(error.to_string()),
        },
    };
    let reason = end.reason;
    if let ((), Err(error)) = state.run(inner, EndTurn(end)) {
        tracing::error!(agent = %inner.id, %error, "the end of a turn could not be written");
    }
    match state.run(inner, NextTurn(reason)) {
        (true, Ok(())) => return Next::Turn,
        (true, Err(_)) => {
            // A log that cannot be written opens no turn: what waits stays parked.
            let _ = state.run(inner, Rest);
        }
        (false, _) => {}
    }
    match state.park(waker) {
        true => Next::Rest,
        false => Next::End,
    }
}

fn context(agent: &Agent, begun: Begun) -> StepContext {
    let key = StepKey {
        session: agent.id().clone(),
        activation: agent.0.activation,
        turn: begun.turn,
        step: begun.step,
        attempt: 1,
    };
    StepContext::new(agent.clone(), key, begun.generation)
}

/// Runs the driver on one step.
async fn run_step(agent: &Agent, context: &StepContext) -> StepEnded {
    let driver = &*agent.kit().driver;
    // Made inside the future: a panic before the first await is the step's as well.
    let work = AssertUnwindSafe(async { driver.step(context).await }).catch_unwind();
    let mut work = std::pin::pin!(Some(work));
    let Some(mut going) = work.as_mut().as_pin_mut() else {
        return StepEnded::Dropped;
    };
    let result = match std::future::poll_fn(|cx| Poll::Ready(going.as_mut().poll(cx))).await {
        Poll::Ready(result) => Some(result),
        // Boxed, so that the drive stays small; a step that waits can afford it.
        Poll::Pending => Box::pin(wait_for(agent, context, going.as_mut())).await,
    };
    // What the step held is dropped here, and may panic in its turn.
    let dropped = std::panic::catch_unwind(AssertUnwindSafe(|| work.set(None)));
    let panic = match (result, dropped) {
        (None, _) => return StepEnded::Dropped,
        (Some(Ok(Ok(outcome))), Ok(())) => return StepEnded::Came(outcome),
        (Some(Ok(Err(error))), Ok(())) => return StepEnded::Failed(error.message),
        (Some(Err(panic)), _) | (Some(Ok(_)), Err(panic)) => panic,
    };
    let message = text::panic_message(&*panic);
    StepEnded::Failed(format!("the driver panicked: {message}"))
}

/// Waits for a step that did not return at once; `None` when it did not within the grace after a
/// cancel.
async fn wait_for<F: Future>(
    agent: &Agent,
    context: &StepContext,
    mut going: Pin<&mut F>,
) -> Option<F::Output> {
    let grace = agent.host().settings.cancel_grace;
    let result = tokio::select! {
        biased;
        result = &mut going => Some(result),
        () = context.cancelled() => tokio::time::timeout(grace, &mut going).await.ok(),
    };
    if result.is_none() {
        tracing::warn!(agent = %agent.id(), "a cancelled step was dropped");
        let mut state = agent.lock();
        if state.machine.closing().is_some() {
            let StepKey { turn, step, .. } = context.key();
            let dropped = format!(
                "turn {turn}, step {step} did not end within {grace:?} of its cancellation"
            );
            state.ending().dropped = Some(dropped);
        }
    }
    result
}
