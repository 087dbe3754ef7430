//! What a provider wants to have back with a call and the history does not keep: the signature of the
//! thought behind it (Gemini), the reasoning before it (DeepSeek).
//!
//! It is kept in memory, bounded, the oldest is forgotten first. Without it a request still works: Gemini
//! is told to do without, and DeepSeek only wants what belongs to the present turn.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use offshoot_agent::AgentId;

const MAX_BYTES: usize = 16 * 1024 * 1024;

/// What belongs to one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) signatures: Vec<String>,
    pub(crate) reasoning: Option<String>,
}

impl Memory {
    fn bytes(&self) -> usize {
        let signatures: usize = self.signatures.iter().map(String::len).sum();
        signatures + self.reasoning.as_ref().map_or(0, String::len)
    }
}

type Key = (AgentId, String);

#[derive(Debug, Default)]
struct Inner {
    known: HashMap<Key, Memory>,
    order: VecDeque<Key>,
    bytes: usize,
}

/// The memories of all agents that ask one model.
#[derive(Debug, Default)]
pub(crate) struct Recall(Mutex<Inner>);

impl Recall {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn keep(&self, agent: &AgentId, call: &str, memory: Memory) {
        let bytes = memory.bytes();
        if bytes == 0 || bytes > MAX_BYTES {
            return;
        }
        let mut inner = self.inner();
        let key = (agent.clone(), call.to_owned());
        if let Some(old) = inner.known.insert(key.clone(), memory) {
            inner.bytes -= old.bytes();
        } else {
            inner.order.push_back(key);
        }
        inner.bytes += bytes;
        while inner.bytes > MAX_BYTES {
            let Some(oldest) = inner.order.pop_front() else {
                break;
            };
            if let Some(forgotten) = inner.known.remove(&oldest) {
                inner.bytes -= forgotten.bytes();
            }
        }
    }

    pub(crate) fn of(&self, agent: &AgentId, call: &str) -> Memory {
        let key = (agent.clone(), call.to_owned());
        self.inner().known.get(&key).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(bytes: usize) -> Memory {
        Memory {
            signatures: vec!["s".repeat(bytes)],
            reasoning: None,
        }
    }

    #[test]
    fn the_oldest_is_forgotten_first() {
        let recall = Recall::default();
        let agent = AgentId::fresh();
        for call in ["a", "b", "c"] {
            recall.keep(&agent, call, memory(MAX_BYTES / 2));
        }
        assert_eq!(recall.of(&agent, "a"), Memory::default());
        assert_eq!(recall.of(&agent, "c"), memory(MAX_BYTES / 2));
        assert_eq!(recall.of(&AgentId::fresh(), "c"), Memory::default());
        recall.keep(&agent, "c", memory(1));
        assert_eq!(recall.inner().bytes, MAX_BYTES / 2 + 1);
    }
}
