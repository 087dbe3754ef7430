//! `subagent`: delegates work. One tool for each configured kind of delegation.
//!
//! | mode | omitted | true | false |
//! |---|---|---|---|
//! | continuable | child, id at once | same | one-shot run, waited for |
//! | one-shot | waited for | task, id at once | waited for |
//! | background disabled | waited for | error | waited for |

use crate::refusal::{Refusal, answer};
use futures::future::BoxFuture;
use offshoot_agent::{Agent, Deadline, Effects, Tool, ToolCall, ToolOutput};
use offshoot_core::text;
use offshoot_subagent::{
    ChildRequest, EndedRun, Mode, OneShotResult, Outcome, StartError, StopSignal, Subagents,
};
use offshoot_task::{TaskContext, TaskOutcome, TaskRegistry, TaskSpec};
use schemars::JsonSchema;
use serde_json::{Value, json};

use crate::arguments::Arguments;
use crate::fit::{Body, Room, fit};
use crate::notices::LOST;
use crate::send_message::SendMessage;
use crate::shape::Shape;
use crate::{SubagentToolSettings, schema, sections};

/// The arguments of a delegation tool.
#[derive(JsonSchema)]
#[expect(
    dead_code,
    reason = "describes the schema; arguments are read leniently"
)]
struct SubagentArguments {
    /// What the subagent is for, in 3 to 5 words.
    description: String,
    /// The whole task: what to do, what is known, what to report.
    prompt: String,
    /// Whether to go on at once instead of waiting for the answer.
    #[schemars(with = "bool", default)]
    run_in_background: Option<bool>,
}

const BACKGROUND: &str = "run_in_background";
/// The longest diagnostic, and the longest list of what ended with a run, that a result has.
const DIAGNOSTIC_BYTES: usize = 1000;
const STOPPED_BYTES: usize = 400;

/// That an answer is not whole.
fn partial() -> String {
    Shape::Partial.line(": the run did not complete]")
}

pub(crate) struct SubagentTool {
    subagents: Subagents,
    tasks: TaskRegistry,
    settings: SubagentToolSettings,
    room: Room,
    description: String,
    schema: Value,
}

/// What a call comes to.
enum Way {
    Foreground,
    Child,
    Task,
}

impl SubagentTool {
    pub(crate) fn new(
        subagents: Subagents,
        tasks: TaskRegistry,
        settings: SubagentToolSettings,
        room: Room,
    ) -> Self {
        let inherits = subagents
            .capabilities(&settings.provider)
            .is_some_and(|capabilities| capabilities.inherits_context);
        let description = sections::subagent_description(&settings, inherits);
        let mut schema = schema::of::<SubagentArguments>();
        schema = if settings.background {
            schema::describe(
                schema,
                BACKGROUND,
                sections::background_parameter(settings.mode),
            )
        } else {
            schema::without(schema, BACKGROUND)
        };
        Self {
            subagents,
            tasks,
            settings,
            room,
            description,
            schema,
        }
    }

    fn way(&self, background: Option<bool>) -> Result<Way, Refusal> {
        let default = self.settings.background && self.settings.mode == Mode::Continuable;
        match (
            background.unwrap_or(default),
            self.settings.background,
            self.settings.mode,
        ) {
            (true, false, _) => {
                let message =
                    "background runs are disabled for this tool; leave run_in_background out";
                Err(Refusal::new("BACKGROUND_DISABLED", message))
            }
            (false, ..) => Ok(Way::Foreground),
            (true, true, Mode::Continuable) => Ok(Way::Child),
            (true, true, Mode::OneShot) => Ok(Way::Task),
        }
    }

    async fn run(&self, call: ToolCall) -> Result<ToolOutput, Refusal> {
        let args = Arguments::new(&call.args);
        let label = args.text("description", "a few words")?;
        let prompt = args.text("prompt", "the task as a text")?;
        let background = args.optional_flag(BACKGROUND)?;
        let way = self.way(background)?;
        if call.cancel.is_cancelled() {
            return Err(Refusal::new(
                "ABORTED_BEFORE_DISPATCH",
                "aborted before it started",
            ));
        }
        let request = self.request(&call, label, prompt, &way);
        match way {
            Way::Child => tokio::select! {
                // Before the child is there nothing is left of a start that is dropped; after it
                // there is nothing to wait for.
                biased;
                () = call.cancel.cancelled() => Err(Refusal::new(
                    "ABORTED",
                    "aborted before the subagent was started",
                )),
                started = self.start_child(request) => started,
            },
            Way::Task => self.start_task(&call, request),
            Way::Foreground => self.wait(&call, request).await,
        }
    }

    fn request(&self, call: &ToolCall, label: &str, prompt: &str, way: &Way) -> ChildRequest {
        let guidance = match way {
            Way::Child => self
                .can_answer(&call.agent)
                .then(|| sections::return_guidance(&call.agent)),
            Way::Task | Way::Foreground => Some(match self.settings.output_schema {
                None => sections::ONE_SHOT_GUIDANCE.to_owned(),
                Some(_) => sections::STRUCTURED_GUIDANCE.to_owned(),
            }),
        };
        ChildRequest {
            parent: call.agent.clone(),
            provider: self.settings.provider.clone(),
            label: label.to_owned(),
            prompt: prompt.to_owned(),
            persona: self.settings.persona.clone(),
            tool_filter: self.settings.tool_filter.clone(),
            output_schema: self.settings.output_schema.clone(),
            generation: call.generation,
            task_id: None,
            call_id: matches!(way, Way::Foreground).then(|| call.call_id.clone()),
            guidance,
        }
    }

    /// Whether the child will see the tool that it would answer with.
    fn can_answer(&self, parent: &Agent) -> bool {
        let tools = parent.kit().tools.inherited();
        match &self.settings.tool_filter {
            Some(filter) => tools
                .restrict(filter)
                .is_ok_and(|t| t.get(SendMessage::NAME).is_some()),
            None => tools.get(SendMessage::NAME).is_some(),
        }
    }

    async fn start_child(&self, request: ChildRequest) -> Result<ToolOutput, Refusal> {
        let started = self.subagents.start(request).await?;
        let value = json!({
            "kind": "continuable",
            "agent_id": started.child.as_str(),
            "message_id": started.message_id.as_str(),
        });
        Ok(ToolOutput::text(format!("started subagent {}", started.child)).with_value(value))
    }

    fn start_task(&self, call: &ToolCall, request: ChildRequest) -> Result<ToolOutput, Refusal> {
        let spec = TaskSpec::new("subagent", &request.label).generation(call.generation);
        let subagents = self.subagents.clone();
        let id = self.tasks.start(call.agent.scope(), spec, |context| {
            Ok(carry(subagents, request, context))
        })?;
        Ok(
            ToolOutput::text(format!("started background subagent task {id}"))
                .with_value(json!({ "kind": "background", "task_id": id.to_string() })),
        )
    }

    async fn wait(&self, call: &ToolCall, request: ChildRequest) -> Result<ToolOutput, Refusal> {
        let result = self.subagents.run(request, call.cancel.clone()).await?;
        let mut value = json!({
            "kind": "foreground",
            "run_id": result.run_id.as_str(),
            "outcome": result.outcome.as_str(),
            "output": result.text,
            "usage": result.usage,
        });
        if let Some(answer) = &result.structured {
            value["structured"] = answer.clone();
        }
        let answer = self.foreground_answer(&result);
        Ok(answer.with_value(value))
    }

    fn foreground_answer(&self, result: &OneShotResult) -> ToolOutput {
        let completed = result.outcome == Outcome::Completed && result.dispose_error.is_none();
        let (said, stopped) = (answer_of(result), stopped_note(result));
        if completed {
            let body = Body {
                text: &said,
                empty: Shape::NoMessage.head(),
                last: &stopped,
                ..Body::default()
            };
            return ToolOutput::text(fit(&body, self.room));
        }
        let headline = match result.outcome {
            Outcome::Completed => "the subagent completed, but could not be closed",
            Outcome::Aborted => "the subagent was stopped before it finished",
            Outcome::MaxTokens => "the subagent ran out of tokens",
            Outcome::Refusal => "the subagent declined the work",
            _ => "the subagent failed",
        };
        let diagnostic = diagnostic(result).map(|text| {
            let text = text::one_line(&text, DIAGNOSTIC_BYTES);
            format!("Diagnostic: {text}")
        });
        let under = match (said.trim(), result.outcome) {
            ("", _) => String::new(),
            (_, Outcome::Completed) => "Its answer:".to_owned(),
            _ => partial(),
        };
        let heading = join([
            format!("Error: {headline}"),
            diagnostic.unwrap_or_default(),
            stopped,
            under,
        ]);
        let body = Body {
            heading: &heading,
            text: if said.trim().is_empty() { "" } else { &said },
            ..Body::default()
        };
        let code = match result.outcome {
            Outcome::Aborted => "SUBAGENT_ABORTED",
            Outcome::MaxTokens => "SUBAGENT_MAX_TOKENS",
            Outcome::Refusal => "SUBAGENT_REFUSED",
            _ => "SUBAGENT_FAILED",
        };
        ToolOutput::text(fit(&body, self.room)).into_error(code)
    }
}

/// The work of a task that carries a one-shot run: a stop of the task cancels the run.
async fn carry(
    subagents: Subagents,
    mut request: ChildRequest,
    context: TaskContext,
) -> TaskOutcome {
    request.task_id = context.id().map(|id| id.to_string());
    let stop = StopSignal::default();
    let mut run = std::pin::pin!(subagents.run_until(request, stop.clone()));
    let result = tokio::select! {
        biased;
        () = context.cancelled() => {
            let request = context.stop_request();
            stop.stop(request.as_ref().and_then(|request| request.reason.as_deref()));
            run.await
        }
        result = &mut run => result,
    };
    match result {
        Ok(result) => outcome_of_task(&result),
        // Nothing began: the stop, or the owner's end, came before. Any other failure is told, also
        // after a stop, since something may be left of it.
        Err(StartError::ParentClosing | StartError::Cancelled) => TaskOutcome::killed(),
        Err(error) => TaskOutcome::failed(error.to_string()),
    }
}

/// What a task comes to whose run an earlier process carried: what the run's session says.
pub(crate) fn outcome_of_ended(run: &EndedRun) -> TaskOutcome {
    let outcome = match run.outcome {
        Outcome::Completed => TaskOutcome::completed(),
        Outcome::Aborted => TaskOutcome::killed(),
        Outcome::Lost => TaskOutcome::failed(LOST),
        other => failed(other, run.error.as_deref()),
    };
    match (run.text.as_deref().unwrap_or_default(), run.outcome) {
        (text, _) if text.trim().is_empty() => outcome,
        (text, Outcome::Completed) => outcome.with_output(text),
        (text, _) => outcome.with_output(text).with_heading(partial()),
    }
}

fn failed(outcome: Outcome, diagnostic: Option<&str>) -> TaskOutcome {
    let reason = outcome.as_str().replace('_', "-");
    TaskOutcome::failed(match diagnostic {
        Some(text) => format!("{reason}; diagnostic: {text}"),
        None => reason,
    })
}

fn outcome_of_task(result: &OneShotResult) -> TaskOutcome {
    let diagnostic = diagnostic(result);
    let said = answer_of(result);
    let outcome = match (result.outcome, &result.dispose_error) {
        (Outcome::Completed, None) => TaskOutcome::completed(),
        (Outcome::Aborted, None) => match diagnostic.filter(|_| result.gave_up) {
            Some(why) => TaskOutcome::killed().with_detail(why),
            None => TaskOutcome::killed(),
        },
        (other, _) => failed(other, diagnostic.as_deref()),
    };
    let outcome = match stopped_note(result) {
        none if none.is_empty() => outcome,
        stopped => outcome.with_note(stopped),
    };
    if said.trim().is_empty() {
        return outcome;
    }
    match result.outcome {
        Outcome::Completed => outcome.with_output(said),
        _ => outcome.with_output(said).with_heading(partial()),
    }
}

/// What the run came to, as text: the structured answer where one was asked for.
fn answer_of(result: &OneShotResult) -> String {
    match &result.structured {
        Some(answer) => answer.to_string(),
        None => result.text.clone(),
    }
}

/// Why the run did not complete, and why it could not be closed: neither hides the other.
fn diagnostic(result: &OneShotResult) -> Option<String> {
    let failed = result
        .dispose_error
        .as_ref()
        .map(|error| format!("dispose failed: {error}"));
    let parts: Vec<_> = result.diagnostic.iter().cloned().chain(failed).collect();
    (!parts.is_empty()).then(|| text::one_line(&parts.join("; "), 4096))
}

fn stopped_note(result: &OneShotResult) -> String {
    match result.stopped.as_slice() {
        [] => String::new(),
        works => {
            let works = text::one_line(&works.join("; "), STOPPED_BYTES);
            Shape::StoppedWith.line(format_args!(": {works}]"))
        }
    }
}

fn join<const N: usize>(parts: [String; N]) -> String {
    let said: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    said.join("\n")
}

impl Tool for SubagentTool {
    fn name(&self) -> &str {
        &self.settings.tool_name
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn input_schema(&self) -> &Value {
        &self.schema
    }

    fn is_parallel_safe(&self, _: &Value) -> bool {
        true
    }

    /// The subagent may do whatever its own tools can.
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
