//! The words that tell a parent of its child. The one place that writes them.

use offshoot_agent::{AgentId, ContentBlock, Message, Source};
use offshoot_core::text;

use crate::event::RunRecord;
use crate::host::{Settlement, Waiting};
use crate::{Mode, Outcome};

/// The most of a child's closing message that goes into a notice, in bytes; the end is kept.
const CLOSING_BYTES: usize = 32 * 1024;
const WORDS_BYTES: usize = 4 * 1024;
const ERROR_BYTES: usize = 500;

/// What follows for whoever started a run that has ended.
const ONE_SHOT: &str = "It was a one-shot run and cannot be sent messages.";

/// Tells a parent how a run of its child ended.
pub(crate) fn settled(settlement: &Settlement, run: &RunRecord) -> Message {
    let source = Source::new("settled", settlement.generation)
        .with("child", run.child.as_str())
        .with("run_id", run.run_id.as_str())
        .with("outcome", settlement.outcome.as_str())
        .with(
            "usage",
            serde_json::to_value(settlement.usage).unwrap_or_default(),
        );
    let (summary, closing) = (settlement.summary(run), settlement.closing());
    let stopped = settlement.stopped_note();
    Message::text(source, format!("{summary}{stopped}\n\n{closing}"))
}

/// As [`settled`], of a run that an earlier process left behind: told under the id of the run, so that it
/// cannot be told twice. Without a session nobody knows what it said.
pub(crate) fn left_behind(settlement: &Settlement, run: &RunRecord, known: bool) -> Message {
    let mut notice = settled(settlement, run);
    if let Ok(id) = run.run_id.as_str().parse() {
        notice.id = id;
    }
    if !known && let Some(ContentBlock::Text { text }) = notice.content.first_mut() {
        let summary = settlement.summary(run);
        *text = format!("{summary}\n\nWhat it said went with the program.");
    }
    notice
}

impl Settlement {
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
                let after = match run.mode {
                    Mode::Continuable => "It is idle until it is sent another message.",
                    Mode::OneShot => ONE_SHOT,
                };
                format!("{who} finished. {after}")
            }
            Outcome::Aborted => format!("{who} was stopped before it finished."),
            Outcome::MaxTokens => format!("{who} ran out of tokens before it finished."),
            Outcome::Refusal => format!("{who} declined the work."),
            Outcome::Error => match &self.error {
                Some(error) => format!("{who} failed: {}", text::one_line(error, ERROR_BYTES)),
                None => format!("{who} failed."),
            },
            Outcome::Lost => {
                let after = match run.mode {
                    Mode::Continuable => "It can be sent another message.",
                    Mode::OneShot => ONE_SHOT,
                };
                format!("{who} was lost: the program ended while it ran. {after}")
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
pub(crate) fn waiting(run: &RunRecord, waiting: &Waiting) -> Message {
    let source = Source::new("waiting", waiting.generation).with("child", run.child.as_str());
    let waits_for = match (waiting.works.as_slice(), waiting.parked) {
        ([], 0) => "work that it started".to_owned(),
        ([], parked) => format!(
            "another message: it was interrupted, and reads the {parked} that wait for it with the next one"
        ),
        (works, _) => works.join("; "),
    };
    let words = if waiting.text.trim().is_empty() {
        "It has said nothing yet.".to_owned()
    } else {
        format!(
            "Its last message so far:\n\n{}",
            text::marked_tail(&waiting.text, WORDS_BYTES)
        )
    };
    let who = name(&run.child, &run.label);
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
