//! What each case does. Every case ends with the checks that hold of all of them: one start and one
//! end a run, nothing left, no panic, bounded results.

use std::sync::Arc;
use std::time::Duration;

use offshoot_agent::{Event, EventRecord, Message, Pending, Source};
use offshoot_subagent::{OneShotResult, Outcome, OutputSchema, RunResult, StartError};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::behaviour::{ANSWER, PARTIAL};
use crate::probe::Meddling;
use crate::world::World;
use crate::{Behaviour, Case, Subject, Verdict};

/// How long a child works before it is cancelled. Any time is right; this lets it get to work.
const A_WHILE: Duration = Duration::from_millis(100);

/// Runs one case.
pub(crate) async fn run(subject: &dyn Subject, case: Case) -> Verdict {
    let (behaviour, meddling) = setting(case);
    let Some(world) = World::new(subject, behaviour, meddling) else {
        return Verdict::Skipped;
    };
    if case == Case::StructuredOutput && !declares(&world, |it| it.structured_output) {
        let _ = world.end().await;
        return Verdict::Skipped;
    }
    match case {
        Case::Identity => identity(&world),
        Case::Answer => answer(&world).await,
        Case::Fail => fail(&world).await,
        Case::Crash => crash(&world).await,
        Case::CancelBeforeStart => cancel_before_start(&world).await,
        Case::CancelAtPublication => cancel_at_publication(&world).await,
        Case::CancelRunning | Case::Deaf => cancel_running(&world).await,
        Case::Flood => flood(&world).await,
        Case::DroppedStart => dropped_start(&world).await,
        Case::DroppedRun | Case::DisposeWhileRunning | Case::DroppedResult => {
            let result = completed_or_not(&world).await;
            expect_outcome(&world, result.as_ref(), Outcome::Error);
        }
        Case::PanicInDispose | Case::HangingDispose | Case::FailingDispose => {
            bad_dispose(&world).await;
        }
        Case::SlowDispose => slow_dispose(&world).await,
        Case::CallerGoes => caller_goes(&world).await,
        Case::ParentCloses => parent_closes(&world).await,
        Case::Siblings => siblings(&world).await,
        Case::Undeclared => undeclared(&world).await,
        Case::StructuredOutput => structured(&world).await,
        Case::StructuredOutputMissing => structured_missing(&world).await,
        Case::Seed => seed(&world).await,
    }
    match world.end().await {
        faults if faults.is_empty() => Verdict::Passed,
        faults => Verdict::Failed(faults),
    }
}

fn setting(case: Case) -> (Behaviour, Meddling) {
    use Behaviour as B;
    use Meddling as M;
    match case {
        Case::Identity | Case::Answer | Case::Undeclared => (B::Answer, M::None),
        Case::StructuredOutputMissing | Case::Seed => (B::Answer, M::None),
        Case::Fail => (B::Fail, M::None),
        Case::Crash => (B::Crash, M::None),
        Case::CancelBeforeStart => (B::Hang, M::CancelBeforeStart),
        Case::CancelAtPublication | Case::CancelRunning => (B::Hang, M::None),
        Case::CallerGoes | Case::ParentCloses | Case::Siblings => (B::Hang, M::None),
        Case::Deaf => (B::Deaf, M::None),
        Case::Flood => (B::Flood, M::None),
        Case::DroppedStart => (B::Hang, M::DropStart),
        Case::DroppedRun => (B::Hang, M::DropRun),
        Case::PanicInDispose => (B::Answer, M::PanicInDispose),
        Case::DisposeWhileRunning => (B::Hang, M::DisposeAtOnce),
        Case::DroppedResult => (B::Hang, M::DropResult),
        Case::SlowDispose => (B::Answer, M::SlowDispose(Duration::from_secs(1))),
        Case::HangingDispose => (B::Answer, M::HangInDispose),
        Case::FailingDispose => (B::Answer, M::FailDispose),
        Case::StructuredOutput => (B::Structured, M::None),
    }
}

fn declares(world: &World<'_>, what: impl Fn(offshoot_subagent::Capabilities) -> bool) -> bool {
    world.subagents.capabilities(&world.name).is_some_and(what)
}

async fn completed_or_not(world: &World<'_>) -> Option<OneShotResult> {
    match world.run(world.request(), CancellationToken::new()).await? {
        Ok(result) => Some(result),
        Err(error) => {
            world.notes.fault(format!("the run never began: {error}"));
            None
        }
    }
}

fn expect_outcome(world: &World<'_>, result: Option<&OneShotResult>, outcome: Outcome) {
    let Some(result) = result else { return };
    if result.outcome != outcome {
        let said = result.diagnostic.as_deref().unwrap_or("nothing");
        world.notes.fault(format!(
            "the run ended as {} (it said: {said}), expected {outcome}",
            result.outcome
        ));
    }
}

fn expect_text(world: &World<'_>, result: Option<&OneShotResult>, text: &str) {
    let Some(result) = result else { return };
    if !result.text.contains(text) {
        let end = offshoot_core::text::tail(&result.text, 200);
        world
            .notes
            .fault(format!("the text is {end:?}, expected it to have {text:?}"));
    }
}

fn expect_diagnostic(world: &World<'_>, result: Option<&OneShotResult>) {
    let Some(result) = result else { return };
    if result.diagnostic.is_none() {
        world
            .notes
            .fault("there is no diagnostic of what went wrong".to_owned());
    }
    if result.text.contains("conformance fault") {
        world
            .notes
            .fault("what went wrong is in the text, not in the diagnostic".to_owned());
    }
}

fn identity(world: &World<'_>) {
    let again = (world.subagents.capabilities(&world.name), &world.name);
    if world.name.trim().is_empty() {
        world.notes.fault("the name is empty".to_owned());
    }
    if again.0 != world.subagents.capabilities(again.1) || again.0.is_none() {
        world.notes.fault("name or capabilities change".to_owned());
    }
}

async fn answer(world: &World<'_>) {
    let result = completed_or_not(world).await;
    expect_outcome(world, result.as_ref(), Outcome::Completed);
    expect_text(world, result.as_ref(), ANSWER);
    let Some(result) = result else { return };
    if let Some(error) = &result.dispose_error {
        world.notes.fault(format!("the disposal failed: {error}"));
    }
    if world.notes.children() != [result.child] {
        world
            .notes
            .fault("the result names another child".to_owned());
    }
    // The same provider, once more: a run leaves nothing in it.
    let again = completed_or_not(world).await;
    expect_outcome(world, again.as_ref(), Outcome::Completed);
}

async fn fail(world: &World<'_>) {
    let result = completed_or_not(world).await;
    expect_outcome(world, result.as_ref(), Outcome::Error);
    expect_text(world, result.as_ref(), PARTIAL);
    expect_diagnostic(world, result.as_ref());
}

async fn crash(world: &World<'_>) {
    let result = completed_or_not(world).await;
    expect_outcome(world, result.as_ref(), Outcome::Error);
    expect_diagnostic(world, result.as_ref());
}

async fn cancel_before_start(world: &World<'_>) {
    let cancelled = world.run(world.request(), CancellationToken::new()).await;
    match cancelled {
        Some(Ok(result)) => expect_outcome(world, Some(&result), Outcome::Aborted),
        Some(Err(StartError::Cancelled)) | None => {}
        Some(Err(error)) => world
            .notes
            .fault(format!("a start that was cancelled failed: {error}")),
    }
}

async fn cancel_at_publication(world: &World<'_>) {
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let guard = world
        .subagents
        .host()
        .hub
        .observe(Arc::new(move |record: &EventRecord| {
            if let Event::Extension(event) = &record.event
                && event.kind == "subagent/started"
            {
                stop.cancel();
            }
        }));
    let result = world.run(world.request(), cancel).await;
    drop(guard);
    match result {
        Some(Ok(result)) => expect_outcome(world, Some(&result), Outcome::Aborted),
        Some(Err(error)) => world
            .notes
            .fault(format!("a run that was published never began: {error}")),
        None => {}
    }
}

async fn cancel_running(world: &World<'_>) {
    let cancel = CancellationToken::new();
    let run = world.begin(&cancel);
    if !world.started(1).await {
        cancel.cancel();
        return;
    }
    tokio::time::sleep(A_WHILE).await;
    cancel.cancel();
    ends_as_aborted(world, run).await;
}

async fn ends_as_aborted(
    world: &World<'_>,
    run: tokio::task::JoinHandle<Result<OneShotResult, StartError>>,
) {
    match world.soon("the cancelled run to end", run).await {
        Some(Ok(Ok(result))) => expect_outcome(world, Some(&result), Outcome::Aborted),
        Some(Ok(Err(error))) => world.notes.fault(format!("the run never began: {error}")),
        Some(Err(error)) => world.notes.fault(format!("the run was lost: {error}")),
        None => {}
    }
}

async fn flood(world: &World<'_>) {
    let result = completed_or_not(world).await;
    expect_outcome(world, result.as_ref(), Outcome::Completed);
    let Some(result) = result else { return };
    // What was not kept may be said after it, on a line of its own.
    let text = result.text.trim_end();
    let said = match text.rsplit_once('\n') {
        Some((said, last)) if last.starts_with('[') && last.ends_with(']') => said.trim_end(),
        _ => text,
    };
    if !said.ends_with(ANSWER) {
        world
            .notes
            .fault("the end of what it said was not kept".to_owned());
    }
}

async fn dropped_start(world: &World<'_>) {
    // Whether it had published is its own affair: then the end is on the record, too.
    if let Some(Ok(result)) = world.run(world.request(), CancellationToken::new()).await {
        world
            .notes
            .fault(format!("a dropped start gave a run: {:?}", result.outcome));
    }
}

async fn bad_dispose(world: &World<'_>) {
    let result = completed_or_not(world).await;
    expect_outcome(world, result.as_ref(), Outcome::Completed);
    expect_text(world, result.as_ref(), ANSWER);
    if result.is_some_and(|result| result.dispose_error.is_none()) {
        world
            .notes
            .fault("the disposal failed, and nobody was told".to_owned());
    }
}

async fn slow_dispose(world: &World<'_>) {
    let before = Instant::now();
    let result = completed_or_not(world).await;
    expect_outcome(world, result.as_ref(), Outcome::Completed);
    if before.elapsed() < Duration::from_secs(1) {
        world
            .notes
            .fault("the run was told to have ended before it was disposed".to_owned());
    }
}

async fn caller_goes(world: &World<'_>) {
    let run = world
        .subagents
        .run(world.request(), CancellationToken::new());
    {
        let mut run = std::pin::pin!(run);
        tokio::select! {
            _ = &mut run => world.notes.fault("a child that hangs ended by itself".to_owned()),
            _ = world.started(1) => {}
        }
    }
    let settled = world.root.until_projection(|p| {
        let mut settled = p.extensions().filter(|it| it.kind == "subagent/settled");
        settled
            .next()
            .map(|it| it.field("outcome").map(str::to_owned))
    });
    let outcome = world.soon("the end of the run", settled).await.flatten();
    if outcome
        .as_deref()
        .is_some_and(|outcome| outcome != "aborted")
    {
        world
            .notes
            .fault(format!("the run ended as {outcome:?}, expected aborted"));
    }
}

async fn parent_closes(world: &World<'_>) {
    let run = world.begin(&CancellationToken::new());
    if !world.started(1).await {
        return;
    }
    let close = world.root.close(Pending::Keep);
    world.soon("the end of the parent", close).await;
    ends_as_aborted(world, run).await;
}

async fn siblings(world: &World<'_>) {
    let (first, second) = (CancellationToken::new(), CancellationToken::new());
    let (one, mut other) = (world.begin(&first), world.begin(&second));
    if !world.started(2).await {
        first.cancel();
        second.cancel();
        return;
    }
    first.cancel();
    ends_as_aborted(world, one).await;
    if tokio::time::timeout(A_WHILE, &mut other).await.is_ok() {
        world
            .notes
            .fault("the cancel of one run ended another".to_owned());
        return;
    }
    second.cancel();
    ends_as_aborted(world, other).await;
    let children = world.notes.children();
    if children.len() == 2 && children[0] == children[1] {
        world.notes.fault("two runs have one child".to_owned());
    }
}

/// A schema of an object with a number called `answer`, and nothing else.
fn schema(world: &World<'_>) -> Option<OutputSchema> {
    let schema = json!({
        "type": "object",
        "properties": { "answer": { "type": "integer" } },
        "required": ["answer"],
        "additionalProperties": false,
    });
    let schema = OutputSchema::new(schema);
    if let Err(error) = &schema {
        world
            .notes
            .fault(format!("the schema of the check: {error}"));
    }
    schema.ok()
}

async fn undeclared(world: &World<'_>) {
    let filter = offshoot_agent::ToolFilter {
        allow: Some(Vec::new()),
        deny: None,
    };
    let mut asked = Vec::new();
    if !declares(world, |it| it.persona) {
        let mut request = world.request();
        request.persona = Some("somebody".to_owned());
        asked.push(request);
    }
    if !declares(world, |it| it.tool_filter) {
        let mut request = world.request();
        request.tool_filter = Some(filter);
        asked.push(request);
    }
    if !declares(world, |it| it.structured_output) {
        let mut request = world.request();
        request.output_schema = schema(world);
        asked.push(request);
    }
    for request in asked {
        match world.run(request, CancellationToken::new()).await {
            Some(Err(StartError::Unsupported { .. })) | None => {}
            Some(Err(error)) => world.notes.fault(format!("refused, but as: {error}")),
            Some(Ok(_)) => world.notes.fault("what is not declared was run".to_owned()),
        }
    }
    if !declares(world, |it| it.continuable) {
        match world.subagents.start(world.request()).await {
            Err(StartError::Unsupported { .. }) => {}
            Err(error) => world.notes.fault(format!("refused, but as: {error}")),
            Ok(_) => world
                .notes
                .fault("what is not declared was started".to_owned()),
        }
    }
    if world.notes.starts() != 0 {
        world
            .notes
            .fault("the provider was asked for what it does not declare".to_owned());
    }
}

async fn structured(world: &World<'_>) {
    let mut request = world.request();
    request.output_schema = schema(world);
    let Some(result) = world.run(request, CancellationToken::new()).await else {
        return;
    };
    match result {
        Ok(result) => {
            expect_outcome(world, Some(&result), Outcome::Completed);
            if result.structured != Some(json!({ "answer": 42 })) {
                world
                    .notes
                    .fault(format!("the answer is {:?}", result.structured));
            }
        }
        Err(error) => world.notes.fault(format!("the run never began: {error}")),
    }
}

async fn structured_missing(world: &World<'_>) {
    if !declares(world, |it| it.structured_output) {
        return;
    }
    let mut request = world.request();
    request.output_schema = schema(world);
    if let Some(Ok(result)) = world.run(request, CancellationToken::new()).await {
        expect_outcome(world, Some(&result), Outcome::Error);
        expect_diagnostic(world, Some(&result));
    }
    let lied = |result: &RunResult| result.outcome == Outcome::Completed;
    if world.notes.results().iter().any(lied) {
        world
            .notes
            .fault("a run without the answer it was asked for claims to have completed".to_owned());
    }
}

async fn seed(world: &World<'_>) {
    if !declares(world, |it| it.continuable) {
        return;
    }
    // Of a parent without a past, and of one that has finished a turn.
    for turn in 0..2 {
        if turn > 0 {
            let message = Message::text(Source::user(), "note this");
            if let Err(error) = world.root.followup(message) {
                world.notes.fault(format!("the parent refused: {error}"));
            }
            world.soon("the parent to be idle", world.root.idle()).await;
        }
        match world.subagents.start(world.request()).await {
            Ok(_) => {
                let released = world.root.scope().unheld();
                world.soon("the child to settle", released).await;
            }
            Err(error) => world
                .notes
                .fault(format!("a continuable child was not started: {error}")),
        }
    }
    let settled = world.records("subagent/settled");
    let completed = |it: &&offshoot_agent::Extension| it.field("outcome") == Some("completed");
    if settled.iter().filter(completed).count() != 2 {
        world.notes.fault(format!(
            "2 continuable children did not complete: {settled:?}"
        ));
    }
}
