//! Placeholders: `${name}` in a reply's text and arguments, filled in when the reply is used.
//!
//! The names are `self`, `parent`, `child`, `child:LABEL`, `task`, `task:N` (from 1), `last_result`,
//! `last_notice` and `last_message`. Any other `${…}` is not a placeholder and stays as it is, since a
//! shell command may well contain `${HOME}`. What is filled in is not looked at again.

use std::fmt;

use serde_json::Value;

/// What the placeholders of one agent stand for at this moment; `None` where there is nothing.
///
/// # Implementing
///
/// Methods are called only for the placeholders that a text contains, in the order of the text.
pub trait Lookup {
    /// The agent's own id.
    fn self_id(&self) -> Option<String>;
    /// The id of the agent's parent.
    fn parent(&self) -> Option<String>;
    /// The id of the last child that the agent started, or of the last one with this label.
    fn child(&self, label: Option<&str>) -> Option<String>;
    /// The id of the last task that the agent started, or of its `n`-th one, from 1.
    fn task(&self, n: Option<usize>) -> Option<String>;
    /// The text of the last tool result.
    fn last_result(&self) -> Option<String>;
    /// The text of the last notice that the agent claimed.
    fn last_notice(&self) -> Option<String>;
    /// The text of the last message with the user role.
    fn last_message(&self) -> Option<String>;
}

/// Why a text could not be filled in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceholderError {
    /// A known name with a part that makes no sense.
    #[error("malformed placeholder `{placeholder}`, expected {expected}")]
    Malformed {
        /// The placeholder, as it is written.
        placeholder: String,
        /// How it is written rightly.
        expected: &'static str,
    },
    /// There is nothing that the placeholder stands for.
    #[error("unresolvable placeholder `{placeholder}`")]
    Unresolvable {
        /// The placeholder, as it is written.
        placeholder: String,
    },
}

impl PlaceholderError {
    /// A stable name of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Malformed { .. } => "PLACEHOLDER_MALFORMED",
            Self::Unresolvable { .. } => "PLACEHOLDER_UNRESOLVABLE",
        }
    }
}

/// `text` with its placeholders filled in.
///
/// # Errors
///
/// [`PlaceholderError`] for the first placeholder that is malformed or stands for nothing.
pub fn expand(text: &str, lookup: &dyn Lookup) -> Result<String, PlaceholderError> {
    let mut expanded = String::with_capacity(text.len());
    for piece in pieces(text) {
        match piece? {
            Piece::Text(text) => expanded.push_str(text),
            Piece::Placeholder(placeholder) => {
                let value = placeholder.look_up(lookup);
                let value = value.ok_or_else(|| PlaceholderError::Unresolvable {
                    placeholder: placeholder.to_string(),
                })?;
                expanded.push_str(&value);
            }
        }
    }
    Ok(expanded)
}

/// `json` with the placeholders in every string inside it filled in; keys stay as they are.
///
/// # Errors
///
/// As for [`expand`].
pub fn expand_json(json: &Value, lookup: &dyn Lookup) -> Result<Value, PlaceholderError> {
    Ok(match json {
        Value::String(text) => Value::String(expand(text, lookup)?),
        Value::Array(items) => {
            let items = items.iter().map(|item| expand_json(item, lookup));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(key, field)| Ok((key.clone(), expand_json(field, lookup)?)));
            Value::Object(fields.collect::<Result<_, _>>()?)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => json.clone(),
    })
}

/// Whether every placeholder in `text` is well formed.
///
/// # Errors
///
/// [`PlaceholderError::Malformed`] for the first one that is not.
pub fn check(text: &str) -> Result<(), PlaceholderError> {
    pieces(text).try_for_each(|piece| piece.map(drop))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placeholder<'a> {
    SelfId,
    Parent,
    LastChild,
    Child(&'a str),
    LastTask,
    Task(usize),
    LastResult,
    LastNotice,
    LastMessage,
}

impl<'a> Placeholder<'a> {
    /// Reads what is between the braces; `None` when it is not one of ours.
    fn parse(name: &'a str) -> Option<Result<Self, PlaceholderError>> {
        let malformed = |expected| {
            Some(Err(PlaceholderError::Malformed {
                placeholder: format!("${{{name}}}"),
                expected,
            }))
        };
        let known = match name.split_once(':') {
            None => match name {
                "self" => Self::SelfId,
                "parent" => Self::Parent,
                "child" => Self::LastChild,
                "task" => Self::LastTask,
                "last_result" => Self::LastResult,
                "last_notice" => Self::LastNotice,
                "last_message" => Self::LastMessage,
                _ => return None,
            },
            Some(("child", "")) => return malformed("`${child:LABEL}`"),
            Some(("child", label)) => Self::Child(label),
            Some(("task", n)) => match n.parse() {
                Ok(n) if n > 0 => Self::Task(n),
                _ => return malformed("`${task:N}` with N from 1"),
            },
            Some(_) => return None,
        };
        Some(Ok(known))
    }

    fn look_up(self, lookup: &dyn Lookup) -> Option<String> {
        match self {
            Self::SelfId => lookup.self_id(),
            Self::Parent => lookup.parent(),
            Self::LastChild => lookup.child(None),
            Self::Child(label) => lookup.child(Some(label)),
            Self::LastTask => lookup.task(None),
            Self::Task(n) => lookup.task(Some(n)),
            Self::LastResult => lookup.last_result(),
            Self::LastNotice => lookup.last_notice(),
            Self::LastMessage => lookup.last_message(),
        }
    }
}

impl fmt::Display for Placeholder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SelfId => f.write_str("${self}"),
            Self::Parent => f.write_str("${parent}"),
            Self::LastChild => f.write_str("${child}"),
            Self::Child(label) => write!(f, "${{child:{label}}}"),
            Self::LastTask => f.write_str("${task}"),
            Self::Task(n) => write!(f, "${{task:{n}}}"),
            Self::LastResult => f.write_str("${last_result}"),
            Self::LastNotice => f.write_str("${last_notice}"),
            Self::LastMessage => f.write_str("${last_message}"),
        }
    }
}

enum Piece<'a> {
    Text(&'a str),
    Placeholder(Placeholder<'a>),
}

/// `text`, cut at its placeholders.
fn pieces(text: &str) -> impl Iterator<Item = Result<Piece<'_>, PlaceholderError>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some(after) = rest.strip_prefix("${") else {
            let end = rest.find("${").unwrap_or(rest.len());
            return Some(Ok(Piece::Text(cut(&mut rest, end))));
        };
        let found = after
            .split_once('}')
            .and_then(|(name, tail)| Some((Placeholder::parse(name)?, tail)));
        let Some((placeholder, tail)) = found else {
            return Some(Ok(Piece::Text(cut(&mut rest, 2))));
        };
        rest = tail;
        Some(placeholder.map(Piece::Placeholder))
    })
}

fn cut<'a>(rest: &mut &'a str, end: usize) -> &'a str {
    let (piece, tail) = rest.split_at(end);
    *rest = tail;
    piece
}

#[cfg(test)]
mod tests;
