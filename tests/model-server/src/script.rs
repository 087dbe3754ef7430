//! What the server answers: rules, the first fitting one wins.

use serde::Deserialize;
use serde_json::Value;

/// A script: rules in order.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The rules; of those that fit a request the first one answers it.
    pub rules: Vec<Rule>,
}

impl Script {
    /// A script of these rules.
    #[must_use]
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        let rules = rules.into_iter().collect();
        Self { rules }
    }
}

/// When to answer, and what.
///
/// A request is judged by its *last user text*: the last text of a user that is no tool result and does
/// not begin with `<system-reminder>`; and by the number of tool results after that text.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rule {
    /// The last user text contains this; absent: any.
    pub user: Option<String>,
    /// So many tool results come after it; absent: any number.
    pub results: Option<usize>,
    /// The system prompt contains this; absent: any.
    pub system: Option<String>,
    /// The rule answers so many requests and then no longer fits; absent: for ever.
    pub times: Option<usize>,
    /// Gates that open when the request arrives.
    pub open: Vec<String>,
    /// Gates that have to be open before it is answered.
    #[serde(rename = "await")]
    pub await_: Vec<String>,
    /// The text of the answer. In it and in the arguments of calls, `${user}` is the last user text,
    /// `${result}` the last tool result, and `${result|A|B}` what stands in that between `A` and `B`.
    pub text: String,
    /// What the model thinks before it, in the formats that show it: chat completions and `generateContent`.
    pub reasoning: Option<String>,
    /// The signature of the thought behind each call, in `generateContent`.
    pub signature: Option<String>,
    /// The tool calls of the answer.
    pub calls: Vec<Call>,
    /// Why the answer ends; by content when absent.
    pub finish: Option<Finish>,
    /// The tokens that it reports.
    pub usage: Usage,
    /// How many characters a delta has.
    pub piece: Option<usize>,
    /// Whether the deltas of several calls come in turns, where the format allows it.
    pub interleave: bool,
    /// What goes wrong.
    pub fault: Option<Fault>,
}

impl Rule {
    /// A rule for a last user text that contains `user`.
    #[must_use]
    pub fn user(user: impl Into<String>) -> Self {
        Self {
            user: Some(user.into()),
            ..Self::default()
        }
    }

    /// A rule that always fits.
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    /// Only after so many tool results.
    #[must_use]
    pub fn results(mut self, results: usize) -> Self {
        self.results = Some(results);
        self
    }

    /// Only so many times.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = Some(times);
        self
    }

    /// Answers with this text.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.text = text.into();
        self
    }

    /// Answers with one more call.
    #[must_use]
    pub fn call(mut self, name: impl Into<String>, args: Value) -> Self {
        self.calls.push(Call {
            name: name.into(),
            args: Some(args),
            ..Call::default()
        });
        self
    }

    /// Thinks this before it answers.
    #[must_use]
    pub fn reasoning(mut self, reasoning: impl Into<String>) -> Self {
        self.reasoning = Some(reasoning.into());
        self
    }

    /// Signs the thoughts behind the calls with this.
    #[must_use]
    pub fn signature(mut self, signature: impl Into<String>) -> Self {
        self.signature = Some(signature.into());
        self
    }

    /// Goes wrong like this.
    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// Ends like this.
    #[must_use]
    pub fn finish(mut self, finish: Finish) -> Self {
        self.finish = Some(finish);
        self
    }

    /// Reports these tokens.
    #[must_use]
    pub fn usage(mut self, input: u64, output: u64) -> Self {
        self.usage = Usage { input, output };
        self
    }

    /// Opens this gate when the request arrives.
    #[must_use]
    pub fn open(mut self, gate: impl Into<String>) -> Self {
        self.open.push(gate.into());
        self
    }

    /// Waits for this gate before answering.
    #[must_use]
    pub fn wait_for(mut self, gate: impl Into<String>) -> Self {
        self.await_.push(gate.into());
        self
    }

    pub(crate) fn finish_or_default(&self) -> Finish {
        self.finish.unwrap_or(if self.calls.is_empty() {
            Finish::Stop
        } else {
            Finish::ToolCalls
        })
    }
}

/// One tool call of an answer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Call {
    /// Its id; made up when absent.
    pub id: Option<String>,
    /// The tool.
    pub name: String,
    /// The arguments.
    pub args: Option<Value>,
    /// The argument text as it is, valid JSON or not.
    pub raw_args: Option<String>,
    /// The `namespace` of the call, in the responses format.
    pub namespace: Option<String>,
}

/// Why an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// It is complete.
    Stop,
    /// It has calls.
    ToolCalls,
    /// It is too long.
    MaxTokens,
    /// It is declined.
    Refusal,
}

/// The tokens of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Of the request.
    pub input: u64,
    /// Of the answer.
    pub output: u64,
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            input: 10,
            output: 5,
        }
    }
}

/// What goes wrong with an answer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Fault {
    /// Another status than 200.
    Status {
        /// The status.
        code: u16,
        /// The header `retry-after`.
        #[serde(default)]
        retry_after: Option<String>,
        /// The body; an error object by default.
        #[serde(default)]
        body: Option<String>,
    },
    /// A redirect to another place.
    Redirect {
        /// Where to.
        location: String,
    },
    /// The connection closes without a byte of an answer.
    Drop,
    /// Nothing is ever sent.
    HangHeaders,
    /// Nothing more is sent after so many frames.
    HangBody {
        /// How many.
        #[serde(default)]
        frames: usize,
    },
    /// The connection breaks after so many frames.
    Cut {
        /// How many.
        frames: usize,
    },
    /// The body ends as if it were whole, without what ends an answer.
    NoEnd,
    /// The frame of this number is not what the format says.
    Malformed {
        /// The number, from 0.
        frame: usize,
    },
    /// So many bytes at once, and a pause after each.
    Slow {
        /// How many bytes.
        bytes: usize,
        /// The pause in milliseconds.
        delay_ms: u64,
    },
    /// Text without end.
    Endless,
    /// A line without end.
    EndlessLine,
    /// An error in the middle of the answer, after so many frames.
    ErrorEvent {
        /// How many.
        frames: usize,
    },
    /// A success that is no stream: this body.
    Body {
        /// The body.
        text: String,
        /// Its type.
        content_type: String,
    },
}
