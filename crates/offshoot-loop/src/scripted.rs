//! The model without a key: says what a script says, when the script says.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures::future::BoxFuture;
use offshoot_agent::{Agent, CallId, CallRequest, Finish, HistoryItem, Projection, Usage};
use serde_json::Value;

use crate::script::placeholders::{Lookup, expand, expand_json};
use crate::script::{self, CallArguments, Gates, Replies, Reply, Script, Speaker};
use crate::{Model, ModelError, ModelReply, ModelRequest, PartialText};

/// A [`Model`] whose replies are a script's.
#[derive(Clone, Debug)]
pub struct ScriptedModel {
    replies: Replies,
    gates: Gates,
}

impl ScriptedModel {
    /// A model that plays `script`, on `gates` that the host shares.
    #[must_use]
    pub fn new(script: &Script, gates: Gates) -> Self {
        Self {
            replies: Replies::new(script),
            gates,
        }
    }

    async fn answer(&self, request: ModelRequest) -> Result<ModelReply, ModelError> {
        let agent = request.agent.clone();
        let speaker = match agent.parent_id() {
            None => Speaker::Root,
            Some(_) => Speaker::Child(agent.label()),
        };
        let reply = self
            .replies
            .next(agent.id().as_str(), speaker)
            .ok_or_else(|| ModelError::new("script exhausted"))?;
        for gate in &reply.open {
            self.gates.open(gate);
        }
        if reply.hang {
            std::future::pending::<()>().await;
        }
        if reply.delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(reply.delay_ms)).await;
        }
        for gate in &reply.await_ {
            self.gates.wait(gate).await;
        }
        if let Some(awaited) = &reply.await_inbox {
            agent
                .until_projection(|p| has_arrived(p, awaited).then_some(()))
                .await;
        }
        compose(&agent, &reply, &request.partial)
    }
}

impl Model for ScriptedModel {
    fn request(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelReply, ModelError>> {
        Box::pin(self.answer(request))
    }
}

fn has_arrived(projection: &Projection, awaited: &script::AwaitInbox) -> bool {
    let waiting = projection.inbox().entries().map(|entry| &entry.message);
    let claimed = projection
        .open_turn()
        .into_iter()
        .flat_map(|open| open.claimed());
    waiting
        .chain(claimed)
        .filter(|message| message.source.kind == awaited.source)
        .count()
        >= awaited.count
}

fn compose(agent: &Agent, reply: &Reply, partial: &PartialText) -> Result<ModelReply, ModelError> {
    // Reading the whole log costs what the log is long: only for those who ask.
    let lookup = if has_placeholders(reply) {
        Facts::of(agent)
    } else {
        Facts::default()
    };
    let fail = |error: script::placeholders::PlaceholderError| ModelError::new(error.to_string());
    let text = expand(&reply.text, &lookup).map_err(fail)?;
    let (input, output) = reply.usage.resolve(&text);
    let usage = Usage { input, output };
    if reply.finish() == script::Finish::Error {
        let message = reply.error.as_deref().unwrap_or("the model failed");
        partial.push(&text);
        return Err(ModelError {
            message: message.to_owned(),
            usage,
        });
    }
    let mut calls = Vec::with_capacity(reply.calls.len());
    for call in &reply.calls {
        let args = match &call.arguments {
            CallArguments::Json(json) => expand_json(json, &lookup).map_err(fail)?,
            CallArguments::Raw(raw) => {
                let raw = expand(raw, &lookup).map_err(fail)?;
                serde_json::from_str(&raw).unwrap_or(Value::String(raw))
            }
        };
        let id = CallId(call.id.clone().unwrap_or_default());
        calls.push(CallRequest {
            id,
            name: call.name.clone(),
            args,
        });
    }
    let finish = match reply.finish() {
        script::Finish::Stop => Finish::Stop,
        script::Finish::ToolCalls => Finish::ToolCalls,
        script::Finish::MaxTokens => Finish::MaxTokens,
        script::Finish::Refusal => Finish::Refusal,
        script::Finish::Error => Finish::Error,
    };
    Ok(ModelReply {
        text,
        calls,
        finish,
        usage,
    })
}

fn has_placeholders(reply: &Reply) -> bool {
    let marked = |text: &str| text.contains("${");
    let calls = reply.calls.iter().any(|call| match &call.arguments {
        CallArguments::Json(json) => marked(&json.to_string()),
        CallArguments::Raw(raw) => marked(raw),
    });
    calls || marked(&reply.text)
}

/// What the placeholders of one agent stand for now.
#[derive(Debug, Default)]
pub struct Facts {
    self_id: String,
    parent: Option<String>,
    children: Vec<(String, String)>,
    tasks: Vec<String>,
    last_result: Option<String>,
    last_notice: Option<String>,
    last_message: Option<String>,
}

impl Facts {
    /// Reads them from the agent's log.
    #[must_use]
    pub fn of(agent: &Agent) -> Self {
        agent.with_projection(|projection| {
            let users = || {
                projection
                    .history()
                    .iter()
                    .rev()
                    .filter_map(|item| match item {
                        HistoryItem::User(message) => Some(message),
                        _ => None,
                    })
            };
            let notice = users().find(|m| !matches!(m.source.kind.as_str(), "user" | "agent"));
            Self {
                self_id: agent.id().to_string(),
                parent: agent.parent_id().map(ToString::to_string),
                children: children(projection),
                tasks: tasks(projection),
                last_result: projection.last_result().map(str::to_owned),
                last_notice: notice.map(|message| message.to_text()),
                last_message: users().next().map(|message| message.to_text()),
            }
        })
    }
}

/// The children that the agent started, as (label, id), in order; a resumed one is not a new one.
fn children(projection: &Projection) -> Vec<(String, String)> {
    let mut seen = HashSet::new();
    let started = projection
        .extensions()
        .filter(|event| event.kind == "subagent/started");
    started
        .filter_map(|event| {
            let id = event.field("child")?.to_owned();
            let label = event.field("label").unwrap_or_default().to_owned();
            seen.insert(id.clone()).then_some((label, id))
        })
        .collect()
}

/// The tasks that the agent registered, in the order of their ids: tasks that were started side by
/// side may be announced in another order than their numbers were given.
fn tasks(projection: &Projection) -> Vec<String> {
    let started = projection
        .extensions()
        .filter(|event| event.kind == "task/started");
    let ids: Vec<_> = started.filter_map(|event| event.field("task_id")).collect();
    // The numbers of each kind in order, put where that kind's ids are.
    let mut numbers: HashMap<&str, Vec<u64>> = HashMap::new();
    for (kind, number) in ids.iter().filter_map(|id| parts(id)) {
        numbers.entry(kind).or_default().push(number);
    }
    for numbers in numbers.values_mut() {
        numbers.sort_unstable_by(|a, b| b.cmp(a));
    }
    let ordered = ids.into_iter().map(|id| {
        let next = parts(id).and_then(|(kind, _)| Some((kind, numbers.get_mut(kind)?.pop()?)));
        next.map_or_else(
            || id.to_owned(),
            |(kind, number)| format!("{kind}-{number}"),
        )
    });
    ordered.collect()
}

fn parts(id: &str) -> Option<(&str, u64)> {
    let (kind, number) = id.rsplit_once('-')?;
    Some((kind, number.parse().ok()?))
}

impl Lookup for Facts {
    fn self_id(&self) -> Option<String> {
        Some(self.self_id.clone())
    }

    fn parent(&self) -> Option<String> {
        self.parent.clone()
    }

    fn child(&self, label: Option<&str>) -> Option<String> {
        let wanted = |(name, _): &&(String, String)| label.is_none_or(|label| label == name);
        self.children
            .iter()
            .rev()
            .find(wanted)
            .map(|(_, id)| id.clone())
    }

    fn task(&self, n: Option<usize>) -> Option<String> {
        match n {
            None => self.tasks.last().cloned(),
            Some(n) => self.tasks.get(n.checked_sub(1)?).cloned(),
        }
    }

    fn last_result(&self) -> Option<String> {
        self.last_result.clone()
    }

    fn last_notice(&self) -> Option<String> {
        self.last_notice.clone()
    }

    fn last_message(&self) -> Option<String> {
        self.last_message.clone()
    }
}
