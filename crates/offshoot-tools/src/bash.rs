//! `bash`: a shell command, waited for or in the background.

use std::time::Duration;

use crate::refusal::{Refusal, answer};
use futures::future::BoxFuture;
use offshoot_agent::{Deadline, Effects, Tool, ToolCall, ToolOutput};
use offshoot_core::{Scope, text};
use offshoot_shell::{
    Guardian, ProgramOutcome, ShellCommand, ShellConfig, ShellRun, ShellTask, SpillConfig,
    start_shell, task_outcome,
};
use offshoot_task::{OutputBuffer, StartError, TaskId, TaskRegistry};
use schemars::JsonSchema;
use serde_json::{Value, json};

use crate::arguments::Arguments;
use crate::fit::{Body, File, Room, fit};
use crate::kept_files::KeptFiles;
use crate::shape::Shape;
use crate::{BashSettings, schema, task_view};

/// The arguments of `bash`.
#[derive(JsonSchema)]
#[expect(
    dead_code,
    reason = "describes the schema; arguments are read leniently"
)]
struct BashArguments {
    /// The command line, as for sh -c.
    command: String,
    /// What the command does, in a few words.
    #[schemars(with = "String", default)]
    description: Option<String>,
    /// Start the command in the background and return its task id at once.
    #[schemars(with = "bool", default)]
    run_in_background: Option<bool>,
    /// In milliseconds. Waited for: how long to wait before the command goes on as a background task.
    /// In the background: when the command is stopped.
    #[schemars(with = "u64", range(min = 1), default)]
    timeout_ms: Option<u64>,
}

/// More than what a result has beside the output.
const STATUS_ROOM: usize = 1024;

/// The longest reason of a refusal.
const REASON_BYTES: usize = 300;

const BACKGROUND: &str = "run_in_background";

const DESCRIPTION: &str = "Run a shell command and return what it wrote, with its exit code on the \
last line. Standard input is empty. A command that takes longer than timeout_ms goes on as a \
background task whose id is returned. With run_in_background the task id is returned at once, you go \
on working, and you are told when the command has ended.";

const DESCRIPTION_FOREGROUND: &str = "Run a shell command and return what it wrote, with its exit \
code on the last line. Standard input is empty. A command that takes longer than timeout_ms is \
stopped.";

const TIMEOUT_FOREGROUND: &str = "How long the command may take, in milliseconds.";

pub(crate) struct Bash {
    tasks: TaskRegistry,
    settings: BashSettings,
    room: Room,
    shell: ShellConfig,
    files: KeptFiles,
    schema: Value,
}

impl Bash {
    pub(crate) const NAME: &'static str = "bash";

    pub(crate) fn new(tasks: TaskRegistry, settings: BashSettings, room: Room) -> Self {
        let mut schema = schema::of::<BashArguments>();
        if !settings.background {
            schema = schema::without(schema, BACKGROUND);
            schema = schema::describe(schema, "timeout_ms", TIMEOUT_FOREGROUND);
        }
        let shell = ShellConfig {
            stop_grace: settings.stop_grace,
            env: settings.env.clone(),
            spill: settings.spill.clone().map(|folder| {
                // Before any result has to leave something out, of its status line's length or so.
                SpillConfig::new(folder).beyond(room.bytes().saturating_sub(STATUS_ROOM))
            }),
            guardian: settings.guarded.then(Guardian::default),
            ..ShellConfig::default()
        };
        if let Some(Err(error)) = shell.spill.as_ref().map(SpillConfig::remove_stale) {
            tracing::warn!(%error, "old spill folders stay");
        }
        Self {
            tasks,
            settings,
            room,
            shell,
            files: KeptFiles::default(),
            schema,
        }
    }

    async fn run(&self, call: ToolCall) -> Result<ToolOutput, Refusal> {
        let args = Arguments::new(&call.args);
        let line = args.text("command", "a command line")?;
        let label = args.optional_text("description", "a text")?;
        let background = args.optional_flag(BACKGROUND)?.unwrap_or(false);
        let timeout = args.optional_millis("timeout_ms")?;
        if background && !self.settings.background {
            let message = "background commands are disabled here; leave run_in_background out";
            return Err(Refusal::new("BACKGROUND_DISABLED", message));
        }
        if call.cancel.is_cancelled() {
            return Err(Refusal::new(
                "ABORTED_BEFORE_DISPATCH",
                "aborted before it started",
            ));
        }
        let mut command = ShellCommand::new(line);
        if let Some(cwd) = &self.settings.cwd {
            command = command.cwd(cwd);
        }
        let task = ShellTask {
            label: label.map(str::to_owned),
            generation: call.generation,
            deadline: timeout.filter(|_| background),
        };
        if background {
            let scope = call.agent.scope();
            let id = start_shell(&self.tasks, scope, &command, &task, &self.shell)?;
            return Ok(started(&id));
        }
        self.wait(
            &call,
            &command,
            &task,
            timeout.unwrap_or(self.settings.timeout),
        )
        .await
    }

    /// Waits for the command; past the time it goes on as a task.
    async fn wait(
        &self,
        call: &ToolCall,
        command: &ShellCommand,
        task: &ShellTask,
        timeout: Duration,
    ) -> Result<ToolOutput, Refusal> {
        let mut run = ShellRun::spawn(command, &self.shell)
            .map_err(|error| Refusal::new(error.code(), error))?;
        let output = run.output();
        let owner = call.agent.scope();
        let ended = tokio::select! {
            biased;
            outcome = run.wait() => Some(outcome),
            () = call.cancel.cancelled() => {
                let outcome = run.stop().await;
                return Ok(self.answer(owner, &output, outcome).into_error("ABORTED"));
            }
            () = tokio::time::sleep(timeout) => None,
        };
        if let Some(outcome) = ended {
            return Ok(self.answer(owner, &output, outcome));
        }
        let millis = timeout.as_millis();
        if !self.settings.background {
            let outcome = run.stop().await;
            let what = format!("Error: the command was stopped: it took longer than {millis} ms");
            let answer = self.answer_under(&what, owner, &output, outcome);
            return Ok(answer.into_error("TIMEOUT"));
        }
        Ok(self.promote(call, command, task, run, millis))
    }

    /// Makes a task of a command that runs already.
    fn promote(
        &self,
        call: &ToolCall,
        command: &ShellCommand,
        task: &ShellTask,
        run: ShellRun,
        millis: u128,
    ) -> ToolOutput {
        let output = run.output();
        let spec = task.spec(command).stream(output.clone());
        let scope = call.agent.scope();
        let begun = self
            .tasks
            .start(scope, spec, |context| Ok(run.into_task(context)));
        match begun {
            Ok(id) => {
                let text = format!(
                    "the command is still running after {millis} ms; it goes on as background task {id}"
                );
                ToolOutput::text(text)
                    .with_value(json!({ "kind": "promoted", "task_id": id.to_string() }))
            }
            // The run was dropped with the refused start, and its processes with it.
            Err(error) => self.not_promoted(scope, &output, &error, millis),
        }
    }

    fn not_promoted(
        &self,
        owner: &Scope,
        output: &OutputBuffer,
        error: &StartError,
        millis: u128,
    ) -> ToolOutput {
        let why = text::one_line(&error.to_string(), REASON_BYTES);
        let what = Shape::Stopped.line(format_args!(
            ": it took longer than {millis} ms and could not go on in the background: {why}]"
        ));
        ToolOutput::text(self.fit("", owner, output, &what)).into_error(error.code())
    }

    /// The result of a command that does not go on.
    fn fit(&self, heading: &str, owner: &Scope, output: &OutputBuffer, last: &str) -> String {
        let slice = output.read_at(0);
        let file = output.keep_overflow();
        let body = Body {
            heading,
            text: &slice.text,
            gap: slice.gap,
            replaced: output.replaced(),
            file: file.as_ref().map(|file| File {
                path: file.path(),
                missing: output.overflow_missing(),
            }),
            empty: Shape::NoOutput.head(),
            last,
        };
        let shown = fit(&body, self.room);
        if let Some(file) = file {
            self.files.keep(owner, file);
        }
        shown
    }

    fn answer(&self, owner: &Scope, output: &OutputBuffer, outcome: ProgramOutcome) -> ToolOutput {
        self.answer_under("", owner, output, outcome)
    }

    /// The answer under a heading of the runtime's.
    fn answer_under(
        &self,
        heading: &str,
        owner: &Scope,
        output: &OutputBuffer,
        outcome: ProgramOutcome,
    ) -> ToolOutput {
        let outcome = task_outcome(outcome);
        let detail = outcome.detail().unwrap_or_default();
        let last = task_view::status_of(outcome.status(), Some(detail));
        let value = json!({
            "kind": "foreground",
            "status": outcome.status().as_str(),
            "detail": detail,
            "output": text::tail(&output.read_at(0).text, self.room.bytes()),
        });
        ToolOutput::text(self.fit(heading, owner, output, &last)).with_value(value)
    }
}

fn started(id: &TaskId) -> ToolOutput {
    ToolOutput::text(format!("started background task {id}"))
        .with_value(json!({ "kind": "background", "task_id": id.to_string() }))
}

impl Tool for Bash {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn description(&self) -> &str {
        if self.settings.background {
            DESCRIPTION
        } else {
            DESCRIPTION_FOREGROUND
        }
    }

    fn input_schema(&self) -> &Value {
        &self.schema
    }

    /// A command may do anything.
    fn effects(&self) -> Effects {
        Effects::UNKNOWN
    }

    fn deadline(&self) -> Deadline {
        Deadline::Never
    }

    fn call(&self, call: ToolCall) -> BoxFuture<'_, ToolOutput> {
        Box::pin(async move { answer(self.run(call).await) })
    }
}
