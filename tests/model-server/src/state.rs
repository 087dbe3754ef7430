//! What the server knows: which requests came, which rules are used up, which gates are open.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::watch;

use crate::conversation::Conversation;
use crate::script::{Rule, Script};

/// A request that came.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its method.
    pub method: String,
    /// Its path with the query.
    pub path: String,
    /// Its headers; names are in lower case.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Value,
    /// What it says, if it is a request to a model.
    pub conversation: Option<Conversation>,
    /// The number of the rule that answers it, from 0.
    pub rule: Option<usize>,
    /// How it ended.
    pub ending: Ending,
}

impl Request {
    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It has not.
    UnderWay,
    /// All of the answer was sent, as far as the script has one.
    Answered,
    /// The client closed the connection first.
    ClientLeft,
}

#[derive(Debug, Default)]
struct Inner {
    requests: Vec<Request>,
    used: Vec<usize>,
    open: HashSet<String>,
}

#[derive(Debug)]
pub(crate) struct State {
    script: Script,
    inner: Mutex<Inner>,
    changed: watch::Sender<u64>,
}

impl State {
    pub(crate) fn new(script: Script) -> Self {
        let used = vec![0; script.rules.len()];
        Self {
            script,
            inner: Mutex::new(Inner {
                used,
                ..Inner::default()
            }),
            changed: watch::Sender::new(0),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announce(&self) {
        self.changed.send_modify(|version| *version += 1);
    }

    /// Takes a request down and chooses its rule, in one step. Its number is from 0.
    pub(crate) fn arrived(&self, mut request: Request) -> (usize, Option<Rule>) {
        let mut inner = self.inner();
        let chosen = request.conversation.as_ref().and_then(|said| {
            let mut rules = self.script.rules.iter().enumerate();
            rules.find(|(number, rule)| fits(rule, said, inner.used[*number]))
        });
        let rule = chosen.map(|(number, rule)| {
            inner.used[number] += 1;
            request.rule = Some(number);
            inner.open.extend(rule.open.iter().cloned());
            rule.clone()
        });
        inner.requests.push(request);
        let number = inner.requests.len() - 1;
        drop(inner);
        self.announce();
        (number, rule)
    }

    pub(crate) fn ended(&self, number: usize, ending: Ending) {
        if let Some(request) = self.inner().requests.get_mut(number) {
            request.ending = ending;
        }
        self.announce();
    }

    pub(crate) fn open(&self, gate: &str) {
        self.inner().open.insert(gate.to_owned());
        self.announce();
    }

    /// Waits until a gate is open.
    pub(crate) async fn gate(&self, gate: &str) {
        self.until(|inner| inner.open.contains(gate).then_some(()))
            .await;
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.inner().requests.clone()
    }

    /// Waits until `found` finds something in the requests.
    pub(crate) async fn until_requests<T>(&self, found: impl Fn(&[Request]) -> Option<T>) -> T {
        self.until(|inner| found(&inner.requests)).await
    }

    async fn until<T>(&self, found: impl Fn(&Inner) -> Option<T>) -> T {
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            if let Some(found) = found(&self.inner()) {
                return found;
            }
            if changed.changed().await.is_err() {
                // The sender is in `self`.
                std::future::pending::<()>().await;
            }
        }
    }
}

fn fits(rule: &Rule, said: &Conversation, used: usize) -> bool {
    let within = |wanted: &Option<String>, text: &str| {
        wanted.as_deref().is_none_or(|wanted| text.contains(wanted))
    };
    within(&rule.user, &said.last_user)
        && within(&rule.system, &said.system)
        && rule.results.is_none_or(|count| count == said.results.len())
        && rule.times.is_none_or(|times| used < times)
}
