//! The spans that the work of an agent is in, and the names of their fields.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use offshoot_agent::Pending;
use serde_json::json;
use support::{World, calls};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

/// Each span as `parent>name{field=value}`.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<String>>>);

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        if !span.metadata().target().starts_with("offshoot") {
            return;
        }
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let fields: Vec<_> = fields.0.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let parent = span.parent().map_or("", |parent| parent.name());
        let line = format!("{parent}>{}{{{}}}", span.name(), fields.join(" "));
        self.0.lock().unwrap().push(line);
    }
}

#[tokio::test(start_paused = true)]
async fn work_is_in_spans_of_agent_turn_step_and_tool() {
    let spans = Spans::default();
    let subscriber = tracing_subscriber::registry().with(spans.clone());
    let _guard = tracing::subscriber::set_default(subscriber);
    let outer = tracing::info_span!("sender");
    let world = World::replies([calls([
        ("a", "slow", json!({"ms": 10})),
        ("b", "alone", json!({})),
    ])]);
    {
        let _inside = outer.enter();
        world
            .agent
            .followup(offshoot_agent::Message::user("go"))
            .unwrap();
    }
    world.agent.idle().await;
    world.turn().await;
    let id = world.agent.id().to_string();
    world.agent.close(Pending::Keep).await;
    let agent = format!(">agent{{agent={id} depth=0 label=root}}");
    assert_eq!(
        *spans.0.lock().unwrap(),
        [
            agent.as_str(),
            "agent>turn{generation=0 turn=1}",
            "turn>step{step=1}",
            "step>tool{call_id=a tool=slow}",
            "step>tool{call_id=b tool=alone}",
            "turn>step{step=2}",
            agent.as_str(),
            "agent>turn{generation=0 turn=2}",
            "turn>step{step=1}",
        ]
    );
}
