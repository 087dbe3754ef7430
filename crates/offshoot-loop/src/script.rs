//! Scripts: what a model without a key says, and when.
//!
//! A [`Script`] is pure data, read strictly from JSON by [`Script::parse`]. Around it are the pieces
//! that a scripted model runs on: [`Replies`] (whose turn it is to use which reply), [`Gates`] (what
//! makes an order certain) and [`placeholders`] (what is filled in when a reply is used).
//!
//! Nothing here knows an agent, a session or a request.

mod check;
mod convert;
mod cursor;
mod error;
mod format;
mod gates;
mod input;
pub mod placeholders;
mod reply;

use std::collections::BTreeMap;

pub use cursor::{Replies, Speaker};
pub use error::{ScriptError, ScriptErrorKind};
pub use gates::Gates;
pub use input::{At, Input, InputMode, Target};
pub use reply::{AwaitInbox, CallArguments, Finish, Repeat, Reply, ScriptCall, Usage};

/// The key of `agents` whose list is the root agent's.
pub const ROOT: &str = "root";

/// The key of `agents` whose list is that of every child without one of its own.
pub const ANY: &str = "*";

/// What the agents of one run say, what a host does meanwhile, and under which configuration.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Script {
    /// Configuration of the run: always an object, not looked into here.
    pub config: serde_json::Value,
    /// The first message to the root agent.
    pub prompt: Option<String>,
    /// The replies of each agent: [`ROOT`], a child's label, or [`ANY`].
    pub agents: BTreeMap<String, Vec<Reply>>,
    /// What happens from outside, in list order.
    pub inputs: Vec<Input>,
}

impl Script {
    /// Reads a script. `file_name` is only named in the error.
    ///
    /// ```
    /// use offshoot_loop::script::Script;
    ///
    /// let error = Script::parse(r#"{"agents": {"root": [{"txt": "hi"}]}}"#, "a.json").unwrap_err();
    /// assert!(error.to_string().starts_with("a.json: agents.root[0].txt: unknown field `txt`"));
    /// ```
    ///
    /// # Errors
    ///
    /// [`ScriptError`], one line, for the first fault found: text that is not JSON, an unknown
    /// field, a wrong type, a reply that contradicts itself, an input without what its mode needs, a
    /// gate that nothing opens, a label that no agent can have, a malformed placeholder.
    pub fn parse(text: &str, file_name: &str) -> Result<Self, ScriptError> {
        let read = || {
            let script = convert::script(format::read(text)?)?;
            check::script(&script)?;
            Ok(script)
        };
        read().map_err(|fault: error::Fault| fault.in_file(file_name))
    }
}

#[cfg(test)]
mod tests;
