//! Notices travel with results: what waits in the connection's inbox is added to the next result of a
//! tool, and taken out of the inbox, on the record, when that result is on its way.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use offshoot_agent::{Agent, MessageId};

/// The most bytes of notices in one result; what is left waits for the next one.
const MAX_BYTES: usize = 32 * 1024;

/// Why a notice that was shown leaves the inbox.
const CAUSE: &str = "delivered";

/// The notices that results on their way carry: two calls that end at once do not both tell them.
#[derive(Debug, Default)]
pub(crate) struct Shown(Mutex<HashSet<MessageId>>);

impl Shown {
    fn ids(&self) -> MutexGuard<'_, HashSet<MessageId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what waits and nobody else has taken.
    pub(crate) fn take<'a>(&'a self, agent: &'a Agent) -> Notices<'a> {
        let waiting: Vec<(MessageId, String)> = agent.with_projection(|projection| {
            let entries = projection.inbox().entries();
            entries
                .map(|entry| (entry.message.id.clone(), entry.message.to_text()))
                .collect()
        });
        let mut ids = self.ids();
        let mut notices = Notices {
            shown: self,
            agent,
            texts: Vec::new(),
            taken: Vec::new(),
        };
        let mut bytes = 0;
        for (id, text) in waiting {
            if ids.contains(&id) {
                continue;
            }
            bytes += text.len();
            if bytes > MAX_BYTES && !notices.taken.is_empty() {
                break;
            }
            ids.insert(id.clone());
            notices.taken.push(id);
            notices.texts.push(text);
        }
        drop(ids);
        notices
    }
}

/// Notices that one result carries. Dropped undelivered, they wait for the next one.
#[must_use = "dropping it leaves the notices where they were"]
pub(crate) struct Notices<'a> {
    shown: &'a Shown,
    agent: &'a Agent,
    texts: Vec<String>,
    taken: Vec<MessageId>,
}

impl Notices<'_> {
    pub(crate) fn texts(&self) -> &[String] {
        &self.texts
    }

    /// They are on their way: out of the inbox.
    pub(crate) fn deliver(self) {
        for id in &self.taken {
            self.agent.withdraw(id, CAUSE);
        }
    }
}

impl Drop for Notices<'_> {
    fn drop(&mut self) {
        let mut ids = self.shown.ids();
        for id in &self.taken {
            ids.remove(id);
        }
    }
}
