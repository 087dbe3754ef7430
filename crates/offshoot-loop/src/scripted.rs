//! The model without a key: says what a script says, when the script says.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use offshoot_agent::{
    Agent, AgentId, CallId, CallRequest, EventCheck, EventFold, EventRule, Extension, Finish, Fold,
    HistoryItem, Projection, Usage,
};
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

    fn event_rules(&self) -> Vec<Arc<dyn EventRule>> {
        vec![Arc::new(ScriptRule)]
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
    named: Named,
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
                named: projection.fold::<Named>().into_owned(),
                last_result: projection.last_result().map(str::to_owned),
                last_notice: notice.map(|message| message.to_text()),
                last_message: users().next().map(|message| message.to_text()),
            }
        })
    }
}

/// What a session started, as far as placeholders may name it: every task, and the last child of each label.
#[derive(Clone, Debug, Default)]
struct Named {
    /// By label.
    children: HashMap<String, String>,
    last_child: Option<String>,
    /// The children that may be resumed, which makes no new ones of them.
    continuable: HashSet<String>,
    kinds: Vec<Kind>,
    /// The place of each task's kind, in the order in which the tasks were announced.
    tasks: Vec<u32>,
}

/// The numbers of the tasks of one kind, in their order.
#[derive(Clone, Debug)]
struct Kind {
    name: String,
    numbers: Vec<u64>,
}

impl EventFold for Named {
    /// They are others' events.
    const CLAIMS: &'static [&'static str] = &[];

    fn apply(&mut self, event: &Extension) {
        match event.kind.as_str() {
            "subagent/started" => self.add_child(event),
            "task/started" => {
                if let Some((kind, number)) = event.field("task_id").and_then(parts) {
                    self.add_task(kind, number);
                }
            }
            _ => {}
        }
    }
}

impl Named {
    fn add_child(&mut self, event: &Extension) {
        let Some(id) = event.field("child") else {
            return;
        };
        let is_new =
            event.field("mode") != Some("continuable") || self.continuable.insert(id.to_owned());
        if is_new {
            let label = event.field("label").unwrap_or_default().to_owned();
            self.children.insert(label, id.to_owned());
            self.last_child = Some(id.to_owned());
        }
    }

    fn add_task(&mut self, kind: &str, number: u64) {
        let known = self.kinds.iter().position(|known| known.name == kind);
        let place = known.unwrap_or_else(|| {
            self.kinds.push(Kind {
                name: kind.to_owned(),
                numbers: Vec::new(),
            });
            self.kinds.len() - 1
        });
        let numbers = &mut self.kinds[place].numbers;
        let at = numbers.partition_point(|before| *before < number);
        numbers.insert(at, number);
        self.tasks.extend(u32::try_from(place));
    }

    /// The task at this place. Tasks that were started side by side may be announced in another order than
    /// their numbers were given: the numbers of each kind stand in their order, where that kind's ids are.
    fn task(&self, place: usize) -> Option<String> {
        let of = *self.tasks.get(place)?;
        let before = self.tasks[..place].iter().filter(|it| **it == of).count();
        let kind = self.kinds.get(usize::try_from(of).ok()?)?;
        Some(format!("{}-{}", kind.name, kind.numbers.get(before)?))
    }
}

/// Keeps what a script's placeholders may name of a session, whose events others may not keep:
/// [`ScriptedModel`] needs it on a host that has rules of those crates.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScriptRule;

impl EventRule for ScriptRule {
    fn check(&self, _: &AgentId) -> EventCheck {
        Box::new(|_| Ok(()))
    }

    fn fold(&self) -> Option<Fold> {
        Some(Fold::of::<Named>())
    }
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
        match label {
            Some(label) => self.named.children.get(label).cloned(),
            None => self.named.last_child.clone(),
        }
    }

    fn task(&self, n: Option<usize>) -> Option<String> {
        let n = n.unwrap_or(self.named.tasks.len());
        self.named.task(n.checked_sub(1)?)
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
