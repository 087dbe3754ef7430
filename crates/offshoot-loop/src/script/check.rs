//! What the parts of a script say about each other: gates, labels, placeholders.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::error::{Fault, ScriptErrorKind};
use super::input::{At, InputMode, Target};
use super::reply::{CallArguments, Reply};
use super::{ANY, Script, placeholders};

pub(super) fn script(script: &Script) -> Result<(), Fault> {
    gates(script)?;
    labels(script)?;
    texts(script)
}

/// Every reply, with its place.
fn replies(script: &Script) -> impl Iterator<Item = (String, &Reply)> {
    script.agents.iter().flat_map(|(label, replies)| {
        let place = move |i: usize| format!("agents.{label}[{i}]");
        replies.iter().enumerate().map(move |(i, r)| (place(i), r))
    })
}

/// Each gate that something waits for is opened by a reply, or by an input that can happen.
fn gates(script: &Script) -> Result<(), Fault> {
    let opened = gates_that_open(script);
    let known = |gate: &str, place: String| match opened.contains(gate) {
        true => Ok(()),
        false => Err(Fault::new(
            ScriptErrorKind::Gate,
            place,
            format_args!("expected a gate that a reply or an input opens, nothing opens `{gate}`"),
        )),
    };
    for (place, reply) in replies(script) {
        for (i, gate) in reply.await_.iter().enumerate() {
            known(gate, format!("{place}.await[{i}]"))?;
        }
    }
    for (i, input) in script.inputs.iter().enumerate() {
        if let At::Gate(gate) = &input.at {
            known(gate, format!("inputs[{i}].at"))?;
        }
    }
    Ok(())
}

fn gates_that_open(script: &Script) -> BTreeSet<&str> {
    let mut opened: BTreeSet<&str> = replies(script)
        .flat_map(|(_, reply)| reply.open.iter().map(String::as_str))
        .collect();
    // An input may open a gate at which another input opens a further one.
    loop {
        let before = opened.len();
        for input in &script.inputs {
            let happens = match &input.at {
                At::Gate(at) => opened.contains(at.as_str()),
                At::Idle(_) | At::Settled(_) => true,
            };
            if let (true, InputMode::Open { gate }) = (happens, &input.mode) {
                opened.insert(gate);
            }
        }
        if opened.len() == before {
            return opened;
        }
    }
}

/// A moment names an agent that can exist. The recipient of an input is not judged: one that never
/// started is refused when the input happens, on the record.
fn labels(script: &Script) -> Result<(), Fault> {
    for (i, input) in script.inputs.iter().enumerate() {
        let (field, target) = match &input.at {
            At::Gate(_) => continue,
            At::Idle(target) => ("idle", target),
            At::Settled(target) => ("settled", target),
        };
        let what = match target {
            Target::Root if field == "settled" => {
                "expected the label of a child, the root never settles".to_owned()
            }
            Target::Child(label) if !may_start(script, label) => {
                format!("expected the label of an agent, no agent can have `{label}`")
            }
            _ => continue,
        };
        let place = format_args!("inputs[{i}].at.{field}");
        return Err(Fault::new(ScriptErrorKind::Label, place, what));
    }
    Ok(())
}

/// Whether a child with this label could be: it has replies, or a call describes it so (its requests
/// then fail, and it settles).
fn may_start(script: &Script, label: &str) -> bool {
    let described = |reply: &Reply| {
        reply.calls.iter().any(|call| match &call.arguments {
            CallArguments::Raw(_) => true,
            CallArguments::Json(args) => match args.get("description") {
                Some(Value::String(text)) => text == label || text.contains("${"),
                Some(_) => false,
                // Arguments may come as a JSON string.
                None => args.is_string(),
            },
        })
    };
    script.agents.contains_key(label)
        || script.agents.contains_key(ANY)
        || replies(script).any(|(_, reply)| described(reply))
}

/// Every text that is filled in has only well-formed placeholders.
fn texts(script: &Script) -> Result<(), Fault> {
    for (place, reply) in replies(script) {
        text(&reply.text, format_args!("{place}.text"))?;
        for (i, call) in reply.calls.iter().enumerate() {
            match &call.arguments {
                CallArguments::Json(args) => value(args, &format!("{place}.calls[{i}].args"))?,
                CallArguments::Raw(raw) => text(raw, format_args!("{place}.calls[{i}].raw_args"))?,
            }
        }
    }
    for (i, input) in script.inputs.iter().enumerate() {
        match &input.mode {
            InputMode::Followup { text: message }
            | InputMode::Steer { text: message }
            | InputMode::Inject { text: message } => {
                text(message, format_args!("inputs[{i}].text"))?;
            }
            InputMode::KillTask { task } => text(task, format_args!("inputs[{i}].task"))?,
            _ => {}
        }
    }
    Ok(())
}

fn text(text: &str, place: impl fmt::Display) -> Result<(), Fault> {
    placeholders::check(text)
        .map_err(|error| Fault::new(ScriptErrorKind::Placeholder, place, error))
}

fn value(json: &Value, place: &str) -> Result<(), Fault> {
    match json {
        Value::String(string) => text(string, place),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(i, item)| value(item, &format!("{place}[{i}]"))),
        Value::Object(fields) => fields
            .iter()
            .try_for_each(|(key, field)| value(field, &format!("{place}.{key}"))),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}
