//! One run of the program.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use offshoot_agent::AgentId;
use offshoot_core::process::{Program, ProgramEnd, ProgramOutcome, ProgramRun, TailText};
use offshoot_core::text;
use offshoot_subagent::{Outcome, ProviderError, Run, RunRequest, RunResult, TreeUsage};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::answer::Answer;
use crate::settings::ProcessSettings;

/// How much of the standard error a diagnostic has.
const STDERR_TAIL: usize = 1024;

/// How long the pipes are still read after the program's processes are gone, when one that left the
/// group holds them open.
const DRAIN_LIMIT: Duration = Duration::from_millis(250);

struct ProcessRun {
    child: AgentId,
    settings: Arc<ProcessSettings>,
    program: Program,
    running: ProgramRun,
    prompt: String,
    deadline: Option<Instant>,
    cancel: CancellationToken,
}

/// Publishes the run, then starts the program. The order matters: the program may have its prompt from
/// the first moment.
pub(crate) fn start(
    settings: &Arc<ProcessSettings>,
    mut request: RunRequest,
) -> Result<Box<dyn Run>, ProviderError> {
    if request.cancel.is_cancelled() {
        return Err(ProviderError::new("cancelled before the start"));
    }
    let child = AgentId::fresh();
    request.publish(&child)?;
    let program = settings.program(&request.child.prompt, request.child.parent.depth());
    let running = ProgramRun::spawn(&program, &settings.run)
        .map_err(|error| ProviderError::new(settings.describe(&error, &request.child.prompt)))?;
    tracing::debug!(%child, provider = settings.name, "the program of a subagent was started");
    Ok(Box::new(ProcessRun {
        child,
        settings: Arc::clone(settings),
        program,
        running,
        prompt: request.child.prompt,
        deadline: settings.deadline.map(|limit| Instant::now() + limit),
        cancel: request.cancel,
    }))
}

/// Why the program is not let go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Cancel,
    Deadline,
}

impl ProcessRun {
    /// Waits for the program's end, whatever ends it, while its pipes are read and written.
    async fn end(
        &mut self,
        answer: &mut Answer,
        stderr: &mut TailText,
    ) -> (ProgramOutcome, Option<Cut>) {
        let stdin = self.running.take_stdin();
        let (out, err) = (self.running.take_stdout(), self.running.take_stderr());
        let prompt = self.prompt.as_bytes();
        let mut pipes = pin!(async {
            tokio::join!(feed(stdin, prompt), read(out, answer), keep(err, stderr));
        });
        let mut open = true;
        let cut = {
            let deadline = async {
                match self.deadline {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // A cancel that came before the first poll is seen first.
                biased;
                () = self.cancel.cancelled() => Some(Cut::Cancel),
                () = deadline => Some(Cut::Deadline),
                _ = gone(&mut self.running, pipes.as_mut(), &mut open) => None,
            }
        };
        if cut.is_some() {
            self.running.request_stop();
        }
        let outcome = gone(&mut self.running, pipes.as_mut(), &mut open).await;
        if open {
            let _ = timeout(DRAIN_LIMIT, pipes).await;
        }
        // What had ended by itself was not cut.
        (outcome, cut.filter(|_| outcome.stopped))
    }

    fn conclude(
        &self,
        outcome: ProgramOutcome,
        cut: Option<Cut>,
        answer: &Answer,
        stderr: &TailText,
    ) -> RunResult {
        let usage = answer.usage();
        let (end, why) = match (cut, outcome.end) {
            (Some(Cut::Cancel), _) => (Outcome::Aborted, Some("it was stopped".to_owned())),
            (Some(Cut::Deadline), _) => {
                let limit = self.settings.deadline.unwrap_or_default().as_secs_f64();
                (
                    Outcome::Error,
                    Some(format!("deadline exceeded ({limit} s)")),
                )
            }
            (None, ProgramEnd::Exited(code)) => match self.settings.exit_codes.get(&code) {
                Some(Outcome::Completed) => match answer.missing() {
                    None => (Outcome::Completed, None),
                    Some(missing) => (Outcome::Error, Some(missing)),
                },
                Some(other) => (*other, None),
                None => (Outcome::Error, None),
            },
            (None, _) => (Outcome::Error, None),
        };
        let diagnostic = (end != Outcome::Completed).then(|| {
            let said = self.program.redacted(stderr.text(), &self.settings.run.env);
            let said = text::one_line(text::tail(&said, STDERR_TAIL), STDERR_TAIL);
            let said = (!said.is_empty()).then(|| format!("stderr: {said}"));
            let parts = [why, Some(outcome.to_string()), said];
            parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
        });
        let result = RunResult::new(end, answer.text()).with_usage(TreeUsage::new(usage, usage));
        match diagnostic {
            Some(diagnostic) => result.with_diagnostic(diagnostic),
            None => result,
        }
    }
}

/// Waits until the program and what it started are gone. `open` says whether the pipes may still have
/// something.
async fn gone(
    running: &mut ProgramRun,
    mut pipes: Pin<&mut impl Future<Output = ()>>,
    open: &mut bool,
) -> ProgramOutcome {
    let mut ended = pin!(running.wait());
    loop {
        tokio::select! {
            outcome = &mut ended => return outcome,
            () = pipes.as_mut(), if *open => *open = false,
        }
    }
}

/// Writes the prompt and closes the pipe. A program need not read it.
async fn feed(stdin: Option<ChildStdin>, prompt: &[u8]) {
    if let Some(mut stdin) = stdin
        && let Err(error) = stdin.write_all(prompt).await
    {
        tracing::debug!(%error, "a program did not read its prompt");
    }
}

async fn read(stdout: Option<ChildStdout>, answer: &mut Answer) {
    if let Some(stdout) = stdout {
        answer.read(stdout).await;
    }
}

async fn keep(stderr: Option<ChildStderr>, tail: &mut TailText) {
    let Some(mut stderr) = stderr else { return };
    let mut chunk = [0; 4096];
    while let Ok(read) = stderr.read(&mut chunk).await
        && read > 0
    {
        tail.push(&chunk[..read]);
    }
    tail.finish();
}

impl Run for ProcessRun {
    fn child(&self) -> &AgentId {
        &self.child
    }

    fn result(&mut self) -> BoxFuture<'_, Result<RunResult, ProviderError>> {
        Box::pin(async move {
            let mut answer = Answer::new(&self.settings);
            let mut stderr = TailText::new(4 * STDERR_TAIL);
            let (outcome, cut) = self.end(&mut answer, &mut stderr).await;
            Ok(self.conclude(outcome, cut, &answer, &stderr))
        })
    }

    fn dispose(mut self: Box<Self>) -> BoxFuture<'static, Result<(), ProviderError>> {
        Box::pin(async move {
            if self.running.stop().await.group_gone {
                return Ok(());
            }
            let what = "some processes of the subagent could not be killed";
            Err(ProviderError::new(what))
        })
    }
}
