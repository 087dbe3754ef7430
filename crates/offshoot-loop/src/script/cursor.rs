//! Which reply is next: a position per session in the list of its agent.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::{ANY, ROOT, Repeat, Reply, Script};

/// Who asks for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker<'a> {
    /// The root agent, whose list is `root`.
    Root,
    /// A child that was started with this description: the list of that name, else `*`. The list
    /// `root` is the root agent's alone.
    Child(&'a str),
}

/// The replies of a script while it runs. Clones share the positions.
///
/// Each session gets its own copy of its agent's list, which lasts as long as the run: a child that is
/// resumed goes on where it was.
#[derive(Clone)]
pub struct Replies {
    lists: Arc<HashMap<String, Box<[Reply]>>>,
    positions: Arc<Mutex<HashMap<String, Position>>>,
}

#[derive(Clone, Copy, Default)]
struct Position {
    index: usize,
    /// How often the reply at `index` was used.
    used: u64,
}

impl Replies {
    /// The replies of `script`, unused.
    #[must_use]
    pub fn new(script: &Script) -> Self {
        let lists = script.agents.iter();
        let lists = lists.map(|(label, list)| (label.clone(), list.clone().into_boxed_slice()));
        Self {
            lists: Arc::new(lists.collect()),
            positions: Arc::default(),
        }
    }

    /// Uses up one reply of a session; `None` when the script is exhausted, also when it has no list
    /// for this agent.
    #[must_use = "the reply is used up"]
    pub fn next(&self, session_id: &str, speaker: Speaker<'_>) -> Option<Reply> {
        let list = match speaker {
            Speaker::Root => self.lists.get(ROOT)?,
            Speaker::Child(ROOT) => self.lists.get(ANY)?,
            Speaker::Child(label) => self.lists.get(label).or_else(|| self.lists.get(ANY))?,
        };
        let mut positions = self
            .positions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let position = positions.entry(session_id.to_owned()).or_default();
        let reply = list.get(position.index)?;
        position.used = position.used.saturating_add(1);
        let times = match reply.repeat {
            Repeat::Once => 1,
            Repeat::Times(times) => times,
            Repeat::Forever => return Some(reply.clone()),
        };
        if position.used >= times {
            *position = Position {
                index: position.index + 1,
                used: 0,
            };
        }
        Some(reply.clone())
    }
}

impl fmt::Debug for Replies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replies").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replies(text: &str) -> Replies {
        Replies::new(&Script::parse(text, "test.json").expect("a good script"))
    }

    fn texts(
        replies: &Replies,
        session: &str,
        speaker: Speaker<'_>,
        requests: usize,
    ) -> Vec<String> {
        let answer = |_| match replies.next(session, speaker) {
            Some(reply) => reply.text,
            None => "exhausted".to_owned(),
        };
        (0..requests).map(answer).collect()
    }

    #[test]
    fn each_session_gets_its_own_copy_of_its_list() {
        let replies = replies(
            r#"{"agents": {"root": [{"text": "r"}], "a": [{"text": "a1"}, {"text": "a2"}], "*": [{"text": "any"}]}}"#,
        );
        assert_eq!(texts(&replies, "s0", Speaker::Root, 2), ["r", "exhausted"]);
        assert_eq!(texts(&replies, "s1", Speaker::Child("a"), 1), ["a1"]);
        assert_eq!(
            texts(&replies, "s2", Speaker::Child("a"), 3),
            ["a1", "a2", "exhausted"]
        );
        assert_eq!(
            texts(&replies.clone(), "s1", Speaker::Child("a"), 1),
            ["a2"]
        );
        assert_eq!(
            texts(&replies, "s3", Speaker::Child("b"), 2),
            ["any", "exhausted"]
        );
        assert_eq!(texts(&replies, "s4", Speaker::Child("root"), 1), ["any"]);
    }

    #[test]
    fn repeats_are_counted() {
        let replies = replies(
            r#"{"agents": {"root": [{"text": "two", "repeat": 2}, {"text": "one"}, {"text": "on", "repeat": "forever"}, {"text": "never"}]}}"#,
        );
        assert_eq!(
            texts(&replies, "s", Speaker::Root, 6),
            ["two", "two", "one", "on", "on", "on"]
        );
    }

    #[test]
    fn an_agent_without_a_list_is_exhausted_at_once() {
        let replies = replies(r#"{"agents": {"root": []}}"#);
        assert_eq!(replies.next("s", Speaker::Root), None);
        assert_eq!(replies.next("t", Speaker::Child("a")), None);
    }
}
