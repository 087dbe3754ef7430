//! An event stream that is the same every time: session by session, with names for ids and without
//! times.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use crate::Scripted;

/// The stream as text: the events of each session in their order, sessions by depth and label, then
/// the result. Ids become names by first appearance; times and durations are left out.
///
/// The order between sessions is not in it: where it is certain, a test asserts it by itself.
#[must_use]
pub fn normalised(run: &Scripted) -> String {
    let mut sessions: Vec<(u64, String, String, Vec<&Value>)> = Vec::new();
    for line in &run.events {
        let session = line["session"].as_str().unwrap_or_default();
        match sessions.iter_mut().find(|(_, _, id, _)| id == session) {
            Some((.., lines)) => lines.push(line),
            None => sessions.push((
                line["depth"].as_u64().unwrap_or(0),
                line["label"].as_str().unwrap_or_default().to_owned(),
                session.to_owned(),
                vec![line],
            )),
        }
    }
    sessions.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    let mut names = Names::default();
    for (_, label, id, _) in &sessions {
        names.session(id, label);
    }
    let mut text = String::new();
    for (depth, label, id, lines) in sessions {
        let _ = writeln!(text, "=== {label} (depth {depth}, {})", names.of(&id));
        for line in lines {
            let seq = line["seq"]
                .as_u64()
                .map_or_else(|| "-".to_owned(), |seq| seq.to_string());
            let event = names.clean(&line["event"]);
            let _ = writeln!(text, "{seq:>3} {event}");
        }
    }
    if let Some(result) = &run.result {
        let _ = writeln!(text, "=== result\n    {}", names.clean(result));
    }
    let exit = run
        .exit
        .map_or_else(|| "none".to_owned(), |code| code.to_string());
    let _ = writeln!(text, "=== exit {exit}");
    text
}

/// Names for ids.
#[derive(Default)]
struct Names {
    known: BTreeMap<String, String>,
    counts: BTreeMap<&'static str, usize>,
}

impl Names {
    fn session(&mut self, id: &str, label: &str) {
        let taken = self
            .known
            .values()
            .filter(|name| name.starts_with(&format!("<{label}")))
            .count();
        let name = match taken {
            0 => format!("<{label}>"),
            n => format!("<{label} {}>", n + 1),
        };
        self.known.insert(id.to_owned(), name);
    }

    fn of<'a>(&'a self, id: &'a str) -> &'a str {
        self.known.get(id).map_or(id, String::as_str)
    }

    fn learn(&mut self, kind: &'static str, id: &str) {
        if !self.known.contains_key(id) {
            let count = self.counts.entry(kind).or_default();
            *count += 1;
            self.known
                .insert(id.to_owned(), format!("<{kind} {count}>"));
        }
    }

    fn clean(&mut self, event: &Value) -> String {
        let mut event = event.clone();
        self.walk(&mut event);
        let mut text = event.to_string();
        for (id, name) in &self.known {
            text = text.replace(id.as_str(), name);
        }
        text
    }

    fn walk(&mut self, value: &mut Value) {
        match value {
            Value::Object(object) => {
                for (key, value) in object.iter_mut() {
                    match (key.as_str(), value.as_str()) {
                        ("message_id", Some(id)) => self.learn("message", id),
                        ("run_id", Some(id)) => self.learn("run", id),
                        ("id", Some(id)) if is_ulid(id) => self.learn("message", id),
                        (
                            "wall_ms" | "total_wall_ms" | "elapsed_ms" | "started_at"
                            | "finished_at",
                            _,
                        ) => {
                            *value = "<time>".into();
                        }
                        _ => self.walk(value),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.walk(item)),
            _ => {}
        }
    }
}

fn is_ulid(text: &str) -> bool {
    text.len() == 26 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}
