//! The words that tell a parent of its child. The one place that writes them.

use offshoot_agent::{Agent, AgentId, Message, Source};
use offshoot_core::text;

use crate::event::RunRecord;
use crate::{Outcome, TreeUsage};

/// The most of a child's closing message that goes into a notice, in bytes; the end is kept.
const CLOSING_BYTES: usize = 32 * 1024;
const WORDS_BYTES: usize = 4 * 1024;
const ERROR_BYTES: usize = 500;

/// How one run of a child ended, as its parent is told.
#[derive(Clone, Debug)]
pub(crate) struct Settlement {
    pub(crate) outcome: Outcome,
    pub(crate) text: String,
    /// Whether the token limit cut `text` off.
    pub(crate) cut: bool,
    pub(crate) error: Option<String>,
    pub(crate) usage: TreeUsage,
    /// What had to be stopped with it, each as one line.
    pub(crate) stopped: Vec<String>,
    /// The generation of the notice.
    pub(crate) generation: u64,
}

impl Settlement {
    pub(crate) fn message(&self, run: &RunRecord) -> Message {
        let source = Source::new("settled", self.generation)
            .with("child", run.child.as_str())
            .with("run_id", run.run_id.as_str())
            .with("outcome", self.outcome.as_str())
            .with(
                "usage",
                serde_json::to_value(self.usage).unwrap_or_default(),
            );
        Message::text(
            source,
            format!(
                "{}{}\n\n{}",
                self.summary(run),
                self.stopped_note(),
                self.closing()
            ),
        )
    }

    fn stopped_note(&self) -> String {
        match self.stopped.as_slice() {
            [] => String::new(),
            works => format!(" Stopped with it: {}.", works.join("; ")),
        }
    }

    fn summary(&self, run: &RunRecord) -> String {
        let who = name(&run.child, &run.label);
        match self.outcome {
            Outcome::Completed => {
                format!("{who} finished. It is idle until it is sent another message.")
            }
            Outcome::Aborted => format!("{who} was stopped before it finished."),
            Outcome::MaxTokens => format!("{who} ran out of tokens before it finished."),
            Outcome::Refusal => format!("{who} declined the work."),
            Outcome::Error => match &self.error {
                Some(error) => format!("{who} failed: {}", text::one_line(error, ERROR_BYTES)),
                None => format!("{who} failed."),
            },
            Outcome::Lost => {
                format!(
                    "{who} was lost: the program ended while it ran. It can be sent another message."
                )
            }
        }
    }

    fn closing(&self) -> String {
        if self.text.trim().is_empty() {
            return "It left no closing message.".to_owned();
        }
        let heading = match self.outcome {
            Outcome::Completed => "Its closing message:",
            _ => "Its last message before that (the work is not complete):",
        };
        let cut = if self.cut {
            "\n[cut off by the token limit]"
        } else {
            ""
        };
        format!(
            "{heading}\n\n{}{cut}",
            text::marked_tail(&self.text, CLOSING_BYTES)
        )
    }
}

/// Tells a parent that its child is quiet and waits for what it started.
pub(crate) fn waiting(child: &Agent, works: &[String], generation: u64) -> Message {
    let source = Source::new("waiting", generation).with("child", child.id().as_str());
    let words = child.with_projection(|p| p.facts().text.clone());
    let parked = child.with_projection(|p| p.inbox().len());
    let waits_for = match (works, parked) {
        ([], 0) => "work that it started".to_owned(),
        ([], parked) => format!(
            "another message: it was interrupted, and reads the {parked} that wait for it with the next one"
        ),
        (works, _) => works.join("; "),
    };
    let words = if words.trim().is_empty() {
        "It has said nothing yet.".to_owned()
    } else {
        format!(
            "Its last message so far:\n\n{}",
            text::marked_tail(&words, WORDS_BYTES)
        )
    };
    let who = name(child.id(), child.label());
    let text =
        format!("{who} ended its turn and is not finished: it waits for {waits_for}.\n\n{words}");
    Message::text(source, text)
}

/// What goes around a message of one agent to another: a line of the runtime's own, then the
/// message as a block of its own, so that nothing in it can pass for the runtime's.
pub(crate) fn framed(from: &AgentId, generation: u64, message: &str) -> Message {
    let source = Source::agent(from, generation);
    Message::text(source, format!("Agent {from} sent a message:")).and_text(message)
}

fn name(id: &AgentId, label: &str) -> String {
    if label.is_empty() {
        format!("Agent {id}")
    } else {
        format!("Agent {id} ({label})")
    }
}
