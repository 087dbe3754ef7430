//! From the JSON's fields to a script's types: what one reply or one input says must make sense.

use std::fmt;

use serde_json::Value;

use super::Script;
use super::error::{Fault, ScriptErrorKind};
use super::format::{
    RawAt, RawAwaitInbox, RawCall, RawInput, RawMode, RawMoment, RawReply, RawScript, Strict,
};
use super::input::{At, Input, InputMode, Target};
use super::reply::{AwaitInbox, CallArguments, Repeat, Reply, ScriptCall, Usage};

pub(super) fn script(raw: RawScript) -> Result<Script, Fault> {
    let mut agents = std::collections::BTreeMap::new();
    for (label, replies) in raw.agents.0 {
        let replies = replies
            .into_iter()
            .enumerate()
            .map(|(i, Strict(raw))| reply(raw, &format!("agents.{label}[{i}]")))
            .collect::<Result<_, _>>()?;
        agents.insert(label, replies);
    }
    let inputs = raw
        .inputs
        .into_iter()
        .enumerate()
        .map(|(i, Strict(raw))| input(raw, &format!("inputs[{i}]")))
        .collect::<Result<_, _>>()?;
    Ok(Script {
        config: Value::Object(raw.config),
        prompt: raw.prompt,
        agents,
        inputs,
    })
}

fn reply(raw: RawReply, place: &str) -> Result<Reply, Fault> {
    if raw.hang {
        let answers = [
            ("text", !raw.text.is_empty()),
            ("calls", !raw.calls.is_empty()),
            ("finish", raw.finish.is_some()),
            ("error", raw.error.is_some()),
            ("usage", raw.usage.is_some()),
        ];
        if let Some((field, _)) = answers.iter().find(|(_, present)| *present) {
            return Err(contradiction(
                place,
                format_args!("`hang` never answers, so expected no `{field}` beside it"),
            ));
        }
    }
    if raw.error.is_some() {
        if !raw.calls.is_empty() {
            let what = "the request fails with `error`, so expected no `calls` beside it";
            return Err(contradiction(place, what));
        }
        if raw.finish.is_some_and(|f| f != super::Finish::Error) {
            let what =
                "the request fails with `error`, so expected `finish` to be `error` or absent";
            return Err(contradiction(place, what));
        }
    }
    if raw.repeat == Repeat::Times(0) {
        let what = "expected at least 1 or \"forever\", not 0";
        return Err(range(format_args!("{place}.repeat"), what));
    }
    let calls = raw
        .calls
        .into_iter()
        .enumerate()
        .map(|(i, Strict(raw))| call(raw, &format!("{place}.calls[{i}]")))
        .collect::<Result<_, _>>()?;
    let await_inbox = raw
        .await_inbox
        .map(|Strict(raw)| await_inbox(raw, place))
        .transpose()?;
    let usage = raw.usage.map_or_else(Usage::default, |Strict(raw)| Usage {
        input: raw.input,
        output: raw.output,
    });
    Ok(Reply {
        text: raw.text,
        calls,
        finish: raw.finish,
        error: raw.error,
        usage,
        delay_ms: raw.delay_ms,
        hang: raw.hang,
        open: raw.open,
        await_: raw.await_,
        await_inbox,
        repeat: raw.repeat,
    })
}

fn call(raw: RawCall, place: &str) -> Result<ScriptCall, Fault> {
    let arguments = match (raw.args, raw.raw_args) {
        (Some(_), Some(_)) => {
            let what = "expected one of `args` and `raw_args`, not both";
            return Err(contradiction(place, what));
        }
        (None, Some(text)) => CallArguments::Raw(text),
        (Some(value), None) => CallArguments::Json(value),
        (None, None) => CallArguments::Json(Value::Object(serde_json::Map::new())),
    };
    Ok(ScriptCall {
        id: raw.id,
        name: raw.name,
        arguments,
    })
}

fn await_inbox(raw: RawAwaitInbox, place: &str) -> Result<AwaitInbox, Fault> {
    if raw.count == 0 {
        let place = format_args!("{place}.await_inbox.count");
        return Err(range(place, "expected at least 1, not 0"));
    }
    Ok(AwaitInbox {
        source: raw.source,
        count: raw.count,
    })
}

fn input(raw: RawInput, place: &str) -> Result<Input, Fault> {
    let at = at(raw.at, place)?;
    let mode = mode(raw.mode, raw.text, raw.task, raw.gate, place)?;
    let to = match (raw.to, &mode) {
        (Some(to), _) => Target::parse(&to),
        (None, InputMode::KillTask { .. } | InputMode::Open { .. } | InputMode::Crash) => {
            Target::Root
        }
        (None, mode) => return Err(missing(place, "to", mode.name())),
    };
    Ok(Input { at, to, mode })
}

fn at(raw: RawAt, place: &str) -> Result<At, Fault> {
    match raw {
        RawAt::Gate(gate) => Ok(At::Gate(gate)),
        RawAt::Moment(RawMoment {
            idle: Some(agent),
            settled: None,
        }) => Ok(At::Idle(Target::parse(&agent))),
        RawAt::Moment(RawMoment {
            idle: None,
            settled: Some(child),
        }) => Ok(At::Settled(Target::parse(&child))),
        RawAt::Moment(_) => Err(contradiction(
            format_args!("{place}.at"),
            "expected exactly one of `idle` and `settled`",
        )),
    }
}

/// Each mode has the fields that it needs, and none of the others.
fn mode(
    mode: RawMode,
    text: Option<String>,
    task: Option<String>,
    gate: Option<String>,
    place: &str,
) -> Result<InputMode, Fault> {
    let mut given = [("text", text), ("task", task), ("gate", gate)];
    let mut take = |field: &str, mode: &str| {
        let value = given.iter_mut().find(|(name, _)| *name == field);
        let value = value.and_then(|(_, value)| value.take());
        value.ok_or_else(|| missing(place, field, mode))
    };
    let mode = match mode {
        RawMode::Followup => InputMode::Followup {
            text: take("text", "followup")?,
        },
        RawMode::Steer => InputMode::Steer {
            text: take("text", "steer")?,
        },
        RawMode::Inject => InputMode::Inject {
            text: take("text", "inject")?,
        },
        RawMode::Cancel => InputMode::Cancel,
        RawMode::CancelKeepInbox => InputMode::CancelKeepInbox,
        RawMode::Interrupt => InputMode::Interrupt,
        RawMode::Dispose => InputMode::Dispose,
        RawMode::KillTask => InputMode::KillTask {
            task: take("task", "kill_task")?,
        },
        RawMode::Open => InputMode::Open {
            gate: take("gate", "open")?,
        },
        RawMode::Crash => InputMode::Crash,
    };
    match given.iter().find(|(_, value)| value.is_some()) {
        Some((field, _)) => Err(contradiction(
            place,
            format_args!("expected no `{field}` with the mode `{}`", mode.name()),
        )),
        None => Ok(mode),
    }
}

fn missing(place: &str, field: &str, mode: &str) -> Fault {
    let what = format_args!("expected `{field}` with the mode `{mode}`");
    Fault::new(ScriptErrorKind::Shape, place, what)
}

fn contradiction(place: impl fmt::Display, what: impl fmt::Display) -> Fault {
    Fault::new(ScriptErrorKind::Contradiction, place, what)
}

fn range(place: impl fmt::Display, what: impl fmt::Display) -> Fault {
    Fault::new(ScriptErrorKind::Range, place, what)
}
