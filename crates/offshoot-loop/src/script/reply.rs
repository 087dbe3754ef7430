//! One reply of a scripted model.

/// What the model answers to one request, and what has to happen first.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Reply {
    /// The assistant's text, with placeholders.
    pub text: String,
    /// The tool calls, in order.
    pub calls: Vec<ScriptCall>,
    /// How the answer ends, where it is written; see [`Reply::finish`].
    pub finish: Option<Finish>,
    /// The request fails with this text.
    pub error: Option<String>,
    /// The tokens, where they are written; see [`Usage::resolve`].
    pub usage: Usage,
    /// How long to wait before answering, on the runtime's clock.
    pub delay_ms: u64,
    /// Never answers: only cancellation ends the request.
    pub hang: bool,
    /// The gates that open when the request arrives.
    pub open: Vec<String>,
    /// The gates to wait for before answering.
    pub await_: Vec<String>,
    /// The messages to wait for before answering.
    pub await_inbox: Option<AwaitInbox>,
    /// How many requests use this reply.
    pub repeat: Repeat,
}

impl Reply {
    /// How the answer ends: as written, else by content.
    #[must_use]
    pub fn finish(&self) -> Finish {
        match self.finish {
            Some(finish) => finish,
            None if self.error.is_some() => Finish::Error,
            None if self.calls.is_empty() => Finish::Stop,
            None => Finish::ToolCalls,
        }
    }
}

/// A tool call of a reply.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptCall {
    /// The call's id; without one the model makes one up.
    pub id: Option<String>,
    /// The tool's name, which need not exist.
    pub name: String,
    /// What the tool is called with.
    pub arguments: CallArguments,
}

/// The arguments of a scripted call, with placeholders.
#[derive(Clone, Debug, PartialEq)]
pub enum CallArguments {
    /// Any JSON; `{}` when the script has none.
    Json(serde_json::Value),
    /// The argument text as it is, valid JSON or not.
    Raw(String),
}

/// How an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model has nothing more to say.
    Stop,
    /// The model waits for the results of its calls.
    ToolCalls,
    /// The answer was cut at the token limit.
    MaxTokens,
    /// The model refused.
    Refusal,
    /// The request failed.
    Error,
}

/// The tokens of a reply, where they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the request.
    pub input: Option<u64>,
    /// Tokens of the answer.
    pub output: Option<u64>,
}

impl Usage {
    /// Input and output tokens of an answer with this text: as written, else 10 and the number of
    /// the text's characters.
    #[must_use]
    pub fn resolve(self, text: &str) -> (u64, u64) {
        let length = || u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
        (self.input.unwrap_or(10), self.output.unwrap_or_else(length))
    }
}

/// Messages that a reply waits for: in the agent's inbox, or claimed in the present turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitInbox {
    /// The kind of the messages' source, such as `settled`.
    pub source: String,
    /// How many there have to be, at least 1.
    pub count: usize,
}

/// How many requests use one reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repeat {
    /// One.
    #[default]
    Once,
    /// So many, at least 1.
    Times(u64),
    /// All that follow.
    Forever,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finish_follows_the_content_where_it_is_not_written() {
        let call = ScriptCall {
            id: None,
            name: "bash".to_owned(),
            arguments: CallArguments::Raw(String::new()),
        };
        let plain = Reply::default();
        let calling = Reply {
            calls: vec![call],
            ..Reply::default()
        };
        let failing = Reply {
            error: Some("no".to_owned()),
            ..Reply::default()
        };
        let cut = Reply {
            finish: Some(Finish::MaxTokens),
            ..calling.clone()
        };
        assert_eq!(plain.finish(), Finish::Stop);
        assert_eq!(calling.finish(), Finish::ToolCalls);
        assert_eq!(failing.finish(), Finish::Error);
        assert_eq!(cut.finish(), Finish::MaxTokens);
    }

    #[test]
    fn usage_defaults_to_ten_and_the_length_of_the_text() {
        let written = Usage {
            input: None,
            output: Some(7),
        };
        assert_eq!(Usage::default().resolve("a界b"), (10, 3));
        assert_eq!(written.resolve("a界b"), (10, 7));
    }
}
