//! `offshoot demo`: delegation on the current folder, without a key and without a network.
//!
//! The script says who is asked what and which commands they run; what they find is real. The one
//! thing that a script cannot do is answer from several notices, so the parent's model does that
//! itself, from its history.

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

use offshoot::agent::{EventRule, Finish, HistoryItem, Usage};
use offshoot::config::ConfigLayers;
use offshoot::driver::script::{Gates, Script};
use offshoot::driver::{Model, ModelError, ModelReply, ModelRequest, ScriptedModel};

use crate::args::DemoArgs;
use crate::fault::Fault;
use crate::output::progress::Style;
use crate::run::{Limits, Plan, Show, conduct};
use crate::setup;

const SCRIPT: &str = include_str!("demo/script.json");
const NAME: &str = "the demo's script";

/// `offshoot demo`.
pub(crate) fn demo(args: DemoArgs) -> Result<ExitCode, Fault> {
    let script = Script::parse(SCRIPT, NAME).map_err(Fault::usage)?;
    let config = ConfigLayers::new().script(NAME, script.config.clone());
    let config = config.build_available().map_err(Fault::usage)?;
    let gates = Gates::new();
    let model = DemoModel(ScriptedModel::new(&script, gates.clone()));
    conduct(Plan {
        config,
        gates,
        model: Arc::new(model),
        inputs: script.inputs,
        prompt: script.prompt,
        store: None,
        resume: None,
        cwd: setup::cwd(args.cwd.as_deref())?,
        limits: Limits::default(),
        show: Show::Text(if args.quiet {
            Style::Nothing
        } else {
            Style::of_stderr()
        }),
    })
}

/// Plays the script, until the parent has notices to answer from.
struct DemoModel(ScriptedModel);

type Reply<'a> = Pin<Box<dyn Future<Output = Result<ModelReply, ModelError>> + Send + 'a>>;

impl Model for DemoModel {
    fn event_rules(&self) -> Vec<Arc<dyn EventRule>> {
        self.0.event_rules()
    }

    fn request(&self, request: ModelRequest) -> Reply<'_> {
        let notices = notices(&request.history);
        if request.agent.depth() > 0 || notices.is_empty() {
            return Box::pin(async move {
                let mut reply = self.0.request(request).await?;
                reply.text = essence(&reply.text);
                Ok(reply)
            });
        }
        let text = answer(&notices, delegations(&request.history));
        Box::pin(async move {
            Ok(ModelReply {
                usage: Usage {
                    input: 10,
                    output: text.chars().count() as u64,
                },
                text,
                calls: Vec::new(),
                finish: Finish::Stop,
            })
        })
    }
}

/// The texts of the settlement notices that the agent was given.
fn notices(history: &[HistoryItem]) -> Vec<String> {
    let notices = history.iter().filter_map(|item| match item {
        HistoryItem::User(message) if message.source.kind == "settled" => Some(message.to_text()),
        _ => None,
    });
    notices.collect()
}

/// How many children the agent has started.
fn delegations(history: &[HistoryItem]) -> usize {
    let calls = history.iter().filter_map(|item| match item {
        HistoryItem::Assistant(message) => Some(&message.calls),
        _ => None,
    });
    calls
        .flatten()
        .filter(|call| call.name == "subagent")
        .count()
}

/// What the parent says to the notices that it has so far.
fn answer(notices: &[String], expected: usize) -> String {
    if notices.len() < expected {
        return format!("{} of {expected} have reported.", notices.len());
    }
    let mut parts = vec![format!("This is what the {expected} found:")];
    parts.extend(notices.iter().map(|notice| finding(notice)));
    parts.join("\n\n")
}

/// A result without what was put around it: how the command ended, when it ended well, and the
/// heading of a notice.
fn essence(text: &str) -> String {
    let frame = |line: &&str| {
        let ended_well = line.ends_with("[status: completed, exit code: 0]");
        let heading = line.starts_with("background task ") || line.starts_with('[');
        !(*line == "Output:" || ended_well && heading)
    };
    // A notice quotes what a command printed.
    let quoted = text.starts_with("background task ");
    let lines = text.lines().filter(frame).map(|line| match quoted {
        true => line.strip_prefix("> ").unwrap_or(line),
        false => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A notice names the child in its first line and closes with the child's own words.
fn finding(notice: &str) -> String {
    const HEADING: &str = "Its closing message:";
    let who = notice
        .lines()
        .next()
        .and_then(|line| Some(line.split_once('(')?.1.split_once(')')?.0));
    let words = notice.split_once(HEADING).map(|(_, words)| words.trim());
    match (who, words) {
        (Some(who), Some(words)) => {
            let lines: Vec<String> = words.lines().map(|line| format!("  {line}")).collect();
            format!("{who}:\n{}", lines.join("\n"))
        }
        // Not what was expected: the whole notice says what happened.
        _ => notice.trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_said_without_its_frame_unless_it_failed() {
        let notice = "background task bash-1 (bash: x) finished [status: completed, exit code: 0]\nOutput:\n> a\n";
        assert_eq!(essence(notice), "a");
        assert_eq!(essence("> b"), "> b");
        assert_eq!(essence("b\n[status: completed, exit code: 0]"), "b");
        let failed = "c\n[status: completed, exit code: 2]";
        assert_eq!(essence(failed), failed);
    }

    #[test]
    fn the_answer_waits_for_every_notice_and_has_what_each_says() {
        let notice = |who: &str, words: &str| {
            format!("Agent x ({who}) finished. It is idle.\n\nIts closing message:\n\n{words}\n")
        };
        let one = vec![notice("count files", "12 files")];
        assert_eq!(answer(&one, 2), "1 of 2 have reported.");
        let failed = "Agent y (measure) failed: script exhausted".to_owned();
        let both = vec![notice("count files", "12 files\nin all"), failed];
        assert_eq!(
            answer(&both, 2),
            "This is what the 2 found:\n\ncount files:\n  12 files\n  in all\n\nAgent y (measure) failed: script exhausted"
        );
    }
}
