//! What an agent has said in its turn.

use std::collections::BTreeMap;

use offshoot_core::process::TailText;
use serde_json::Value;

/// How many kinds of left out content are told apart.
const KINDS: usize = 8;

/// The answer so far. Whatever else an agent reports about its work is not part of it.
#[derive(Debug)]
pub(crate) struct Turn {
    session: Option<String>,
    text: TailText,
    /// Content of its answer that is no text, by kind.
    left_out: BTreeMap<String, u64>,
    /// How often it was denied what it asked for.
    pub(crate) denied: u64,
    /// It was asked to end its turn.
    pub(crate) cut: bool,
}

impl Turn {
    pub(crate) fn new(max_answer: usize) -> Self {
        Self {
            session: None,
            text: TailText::new(max_answer),
            left_out: BTreeMap::new(),
            denied: 0,
            cut: false,
        }
    }

    pub(crate) fn begin(&mut self, session: &str) {
        self.session = Some(session.to_owned());
    }

    /// Whether a message with these parameters is about the session of the run.
    pub(crate) fn is_of_session(&self, params: &Value) -> bool {
        let session = params.get("sessionId").and_then(Value::as_str);
        session.is_some() && session == self.session.as_deref()
    }

    /// Takes the parameters of a `session/update`.
    pub(crate) fn update(&mut self, params: &Value) {
        let kind = params.pointer("/update/sessionUpdate");
        if !self.is_of_session(params)
            || kind.and_then(Value::as_str) != Some("agent_message_chunk")
        {
            return;
        }
        let Some(content) = params.pointer("/update/content") else {
            return;
        };
        let kind = content.get("type").and_then(Value::as_str);
        match (kind, content.get("text").and_then(Value::as_str)) {
            (Some("text"), Some(text)) => self.text.push(text.as_bytes()),
            (kind, _) => {
                let kind = kind.unwrap_or("untyped");
                let known = self.left_out.len() < KINDS || self.left_out.contains_key(kind);
                let kind = if known && kind.len() < 40 {
                    kind
                } else {
                    "other"
                };
                *self.left_out.entry(kind.to_owned()).or_default() += 1;
            }
        }
    }

    /// The answer, and then what is missing from it: whoever shows only an end of it shows that too.
    pub(crate) fn answer(&self) -> String {
        let mut answer = self.text.text().to_owned();
        let dropped = match self.text.dropped() {
            0 => None,
            dropped => Some(format!(
                "[the first {dropped} bytes of this answer were not kept]"
            )),
        };
        let notes = dropped
            .into_iter()
            .chain(self.left_out())
            .chain(self.denials());
        for note in notes {
            if !answer.is_empty() && !answer.ends_with('\n') {
                answer.push('\n');
            }
            answer.push_str(&note);
        }
        answer
    }

    /// An agent that was denied something may end its turn without another word.
    fn denials(&self) -> Option<String> {
        match self.denied {
            0 => None,
            1 => Some("[it asked for a permission, which was denied]".to_owned()),
            n => Some(format!("[it asked for {n} permissions, which were denied]")),
        }
    }

    fn left_out(&self) -> Option<String> {
        if self.left_out.is_empty() {
            return None;
        }
        let kinds = self.left_out.iter().map(|(kind, n)| format!("{n} {kind}"));
        let kinds = kinds.collect::<Vec<_>>().join(", ");
        let kinds = offshoot_core::text::one_line(&kinds, 400);
        Some(format!("[left out of the answer: {kinds}]"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn chunk(session: &str, kind: &str, content: Value) -> Value {
        json!({ "sessionId": session, "update": { "sessionUpdate": kind, "content": content } })
    }

    #[test]
    fn s134_only_the_text_of_the_sessions_messages_is_the_answer_and_what_is_left_out_is_said() {
        let mut turn = Turn::new(100);
        let text = |text: &str| json!({ "type": "text", "text": text });
        turn.update(&chunk("s", "agent_message_chunk", text("too early")));
        turn.begin("s");
        for update in [
            chunk("s", "agent_message_chunk", text("")),
            chunk("s", "agent_message_chunk", text("one ")),
            chunk("s", "agent_thought_chunk", text("hm")),
            chunk("other", "agent_message_chunk", text("not mine")),
            json!({ "sessionId": "s", "update": { "sessionUpdate": "tool_call_update", "toolCallId": "never seen" } }),
            json!({ "sessionId": "s", "update": { "sessionUpdate": "of the future" } }),
            json!({ "sessionId": "s", "update": 5 }),
            json!([1]),
            chunk(
                "s",
                "agent_message_chunk",
                json!({ "type": "image", "data": "…" }),
            ),
            chunk(
                "s",
                "agent_message_chunk",
                json!({ "type": "image", "data": "…" }),
            ),
            chunk("s", "agent_message_chunk", json!({ "text": "no type" })),
            chunk("s", "agent_message_chunk", json!("no object")),
            chunk("s", "agent_message_chunk", text("two")),
        ] {
            turn.update(&update);
        }
        let answer = "one two\n[left out of the answer: 2 image, 2 untyped]";
        assert_eq!(turn.answer(), answer);
    }

    #[test]
    fn what_of_a_long_answer_was_not_kept_is_said_at_its_end() {
        let settings = crate::AcpSettings::new("a", "a");
        let mut turn = Turn::new(settings.max_answer);
        turn.begin("s");
        let long = "x".repeat(settings.max_answer);
        for text in ["before", &long] {
            let text = json!({ "type": "text", "text": text });
            turn.update(&chunk("s", "agent_message_chunk", text));
        }
        turn.denied = 2;
        let answer = turn.answer();
        let notes = "\n[the first 6 bytes of this answer were not kept]\n[it asked for 2 permissions, which were denied]";
        assert!(
            answer.ends_with(notes),
            "{}",
            answer.trim_start_matches('x')
        );
        let run = offshoot_subagent::RunResult::new(offshoot_subagent::Outcome::Completed, &answer);
        assert_eq!(run.text, answer, "nothing more is cut");
    }

    #[test]
    fn kinds_of_content_that_nobody_knows_take_bounded_memory() {
        let mut turn = Turn::new(10);
        turn.begin("s");
        for n in 0..100 {
            turn.update(&chunk(
                "s",
                "agent_message_chunk",
                json!({ "type": format!("kind{n}") }),
            ));
        }
        assert_eq!(turn.left_out.len(), KINDS + 1);
        assert_eq!(turn.left_out["other"], 100 - KINDS as u64);
    }
}
