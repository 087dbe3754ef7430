//! The tree of a run as a person sees it: agents, their tasks, what each is doing and for how long.
//!
//! Pure: it is told events and moments, and makes lines. It knows neither terminal nor clock.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use offshoot::agent::{Event, EventRecord, Extension, Status};
use offshoot::core::text;
use serde_json::Value;

use super::plain::plain;

/// The longest piece of somebody else's text in a row, in bytes.
const MAX_TEXT: usize = 120;

/// How a row is meant, for its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tone {
    Busy,
    Waiting,
    Good,
    Bad,
    Plain,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Self::Busy => "36",
            Self::Waiting => "33",
            Self::Good => "32",
            Self::Bad => "31",
            Self::Plain => "2",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Agent(Status),
    /// A child, after its parent was told: the outcome.
    Settled(String),
    TaskRunning,
    TaskStopping,
    /// The status and its detail.
    TaskEnded(String, Option<String>),
}

#[derive(Debug)]
struct Row {
    name: String,
    parent: Option<usize>,
    below: Vec<usize>,
    /// How many of the rows directly below are alive.
    live_below: usize,
    state: State,
    /// The call that an agent waits for, or what it said last.
    note: Option<String>,
    began: Instant,
    ended: Option<Instant>,
    /// The state that was last told as a line.
    told: Option<String>,
}

/// What a frame has to fit into.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) columns: usize,
    pub(super) rows: usize,
    pub(super) colour: bool,
}

/// The tree of one run.
#[derive(Debug)]
pub(super) struct Tree {
    began: Instant,
    rows: Vec<Row>,
    /// By session id, and by session id and task id.
    index: HashMap<String, usize>,
}

impl Tree {
    pub(super) fn new(began: Instant) -> Self {
        Self {
            began,
            rows: Vec::new(),
            index: HashMap::new(),
        }
    }

    /// Takes in one event. Returns the lines that tell what changed.
    pub(super) fn apply(&mut self, record: &EventRecord, now: Instant) -> Vec<String> {
        let session = record.session.as_str();
        let agent = self.index.get(session).copied();
        let mut lines = Vec::new();
        match (&record.event, agent) {
            (Event::SessionStart(start), _) => {
                let parent = start.parent.as_ref().map(|id| id.as_str());
                let parent = parent.and_then(|id| self.index.get(id).copied());
                let name = one_line(&record.label);
                self.begin(
                    session.to_owned(),
                    name,
                    parent,
                    State::Agent(Status::Idle),
                    now,
                );
            }
            (Event::AgentStatus { status }, Some(row)) => {
                if *status != Status::Running {
                    self.rows[row].note = None;
                }
                self.rows[row].state = State::Agent(*status);
                self.tell(row, now, &mut lines);
            }
            (Event::ToolCall { name, args, .. }, Some(row)) => {
                self.rows[row].note = Some(call(name, args));
            }
            (Event::ToolResult { .. }, Some(row)) => self.rows[row].note = None,
            (Event::MessageAssistant { message, .. }, Some(row))
                if !message.text.trim().is_empty() =>
            {
                let said = one_line(&message.text);
                lines.push(format!("{}: says {said}", self.prefix(row, now)));
                self.rows[row].note = Some(said);
            }
            (Event::Extension(event), Some(row)) => {
                self.apply_extension(session, row, event, now, &mut lines);
            }
            _ => {}
        }
        lines
    }

    fn apply_extension(
        &mut self,
        session: &str,
        agent: usize,
        event: &Extension,
        now: Instant,
        lines: &mut Vec<String>,
    ) {
        let task = event
            .field("task_id")
            .map(|id| (id, format!("{session}/{id}")));
        match (event.kind.as_str(), task) {
            ("task/started", Some((id, key))) => {
                let label = event.field("label").unwrap_or_default();
                let name = format!("{id} {}", one_line(label));
                let row = self.begin(key, name, Some(agent), State::TaskRunning, now);
                self.tell(row, now, lines);
            }
            ("task/stopping", Some((_, key))) => {
                if let Some(row) = self.index.get(&key).copied() {
                    self.rows[row].state = State::TaskStopping;
                    self.tell(row, now, lines);
                }
            }
            ("task/settled", Some((_, key))) => {
                if let Some(row) = self.index.get(&key).copied() {
                    let status = event.field("status").unwrap_or("ended").to_owned();
                    let detail = event.field("detail").map(one_line);
                    self.end(row, State::TaskEnded(status, detail), now);
                    self.tell(row, now, lines);
                }
            }
            ("subagent/settled", _) => {
                let child = event
                    .field("child")
                    .and_then(|id| self.index.get(id).copied());
                if let Some(row) = child {
                    let outcome = event.field("outcome").unwrap_or("ended").to_owned();
                    self.end(row, State::Settled(outcome), now);
                    self.tell(row, now, lines);
                }
            }
            _ => {}
        }
    }

    fn begin(
        &mut self,
        key: String,
        name: String,
        parent: Option<usize>,
        state: State,
        now: Instant,
    ) -> usize {
        if let Some(row) = self.index.get(&key).copied() {
            // A child that is resumed is the same row again.
            if self.rows[row].ended.take().is_some() {
                self.live_below(row, 1);
                self.rows[row].began = now;
            }
            self.rows[row].state = state;
            return row;
        }
        let row = self.rows.len();
        self.rows.push(Row {
            name,
            parent,
            below: Vec::new(),
            live_below: 0,
            state,
            note: None,
            began: now,
            ended: None,
            told: None,
        });
        self.index.insert(key, row);
        if let Some(parent) = parent {
            self.rows[parent].below.push(row);
        }
        self.live_below(row, 1);
        row
    }

    fn end(&mut self, row: usize, state: State, now: Instant) {
        self.rows[row].state = state;
        self.rows[row].note = None;
        if self.rows[row].ended.is_none() {
            self.rows[row].ended = Some(now);
            self.live_below(row, -1);
        }
    }

    fn live_below(&mut self, row: usize, change: isize) {
        if let Some(parent) = self.rows[row].parent {
            let live = &mut self.rows[parent].live_below;
            *live = live.saturating_add_signed(change);
        }
    }

    /// Tells the states of a row and of those above it that are not what was told last.
    fn tell(&mut self, row: usize, now: Instant, lines: &mut Vec<String>) {
        let mut at = Some(row);
        while let Some(row) = at {
            let (state, _) = self.state(row);
            if self.rows[row].told.as_ref() != Some(&state) {
                lines.push(format!("{}: {state}", self.prefix(row, now)));
                self.rows[row].told = Some(state);
            }
            at = self.rows[row].parent;
        }
    }

    fn prefix(&self, row: usize, now: Instant) -> String {
        let mut names = vec![self.rows[row].name.as_str()];
        let mut at = self.rows[row].parent;
        while let Some(row) = at {
            names.push(&self.rows[row].name);
            at = self.rows[row].parent;
        }
        names.reverse();
        let elapsed = seconds(now.saturating_duration_since(self.began));
        format!("{elapsed:>6} {}", names.join(" / "))
    }

    fn state(&self, row: usize) -> (String, Tone) {
        let row = &self.rows[row];
        match &row.state {
            State::Agent(Status::Running) => ("running".to_owned(), Tone::Busy),
            State::Agent(Status::Idle) if row.live_below > 0 => {
                ("waiting".to_owned(), Tone::Waiting)
            }
            State::Agent(Status::Idle) => ("idle".to_owned(), Tone::Plain),
            State::Agent(Status::Closing | Status::Closed) => match row.parent {
                Some(_) => ("settling".to_owned(), Tone::Plain),
                None => ("done".to_owned(), Tone::Plain),
            },
            State::Settled(outcome) => {
                let tone = if outcome == "completed" {
                    Tone::Good
                } else {
                    Tone::Bad
                };
                (format!("settled, {outcome}"), tone)
            }
            State::TaskRunning => ("running".to_owned(), Tone::Busy),
            State::TaskStopping => ("stopping".to_owned(), Tone::Waiting),
            State::TaskEnded(status, detail) => {
                let tone = if status == "completed" {
                    Tone::Good
                } else {
                    Tone::Bad
                };
                match detail {
                    Some(detail) => (format!("{status}, {detail}"), tone),
                    None => (status.clone(), tone),
                }
            }
        }
    }

    /// The tree as lines that fit the frame: all of it, or what is most worth seeing.
    pub(super) fn draw(&self, frame: Frame, now: Instant) -> Vec<String> {
        let room = frame.rows.saturating_sub(2).max(1);
        let shown = match self.rows.len() > room {
            true => self.choose(room.saturating_sub(1)),
            false => vec![true; self.rows.len()],
        };
        let hidden = shown.iter().filter(|shown| !**shown).count();
        let mut order = Vec::new();
        for (row, _) in self
            .rows
            .iter()
            .enumerate()
            .filter(|(at, row)| row.parent.is_none() && shown[*at])
        {
            self.walk(row, String::new(), String::new(), &shown, &mut order);
        }
        let widest = order
            .iter()
            .map(|(row, branch)| branch.chars().count() + self.rows[*row].name.chars().count())
            .max()
            .unwrap_or(0);
        let width = widest.min(frame.columns * 2 / 5).max(8);
        let lines = order
            .iter()
            .map(|(row, branch)| self.line(*row, branch, width, frame, now));
        let mut lines: Vec<String> = lines.collect();
        if hidden > 0 {
            lines.push(cut(&format!("... and {hidden} more"), frame.columns));
        }
        lines
    }

    /// Which rows are shown when there is room for so many: what works before what waits before what
    /// has ended, the newest first, each with what it is below of.
    fn choose(&self, room: usize) -> Vec<bool> {
        let mut ranked: Vec<usize> = (0..self.rows.len()).collect();
        ranked.sort_by_key(|at| {
            let row = &self.rows[*at];
            let rank = match row.state {
                _ if row.ended.is_some() => 2,
                State::Agent(Status::Running) | State::TaskRunning | State::TaskStopping => 0,
                _ => 1,
            };
            (rank, Reverse(row.began), Reverse(*at))
        });
        let mut shown = vec![false; self.rows.len()];
        let mut left = room;
        for row in ranked {
            let path: Vec<usize> = std::iter::successors(Some(row), |at| self.rows[*at].parent)
                .take_while(|at| !shown[*at])
                .collect();
            if path.len() <= left {
                left -= path.len();
                path.into_iter().for_each(|at| shown[at] = true);
            }
        }
        shown
    }

    fn walk(
        &self,
        row: usize,
        branch: String,
        below: String,
        shown: &[bool],
        order: &mut Vec<(usize, String)>,
    ) {
        order.push((row, branch));
        let children = self.rows[row].below.iter().filter(|at| shown[**at]);
        let children: Vec<usize> = children.copied().collect();
        for (at, child) in children.iter().enumerate() {
            let (here, on) = match at + 1 == children.len() {
                true => ("└─ ", "   "),
                false => ("├─ ", "│  "),
            };
            self.walk(
                *child,
                format!("{below}{here}"),
                format!("{below}{on}"),
                shown,
                order,
            );
        }
    }

    fn line(&self, row: usize, branch: &str, width: usize, frame: Frame, now: Instant) -> String {
        let (state, tone) = self.state(row);
        let row = &self.rows[row];
        let end = row.ended.unwrap_or(now);
        let elapsed = seconds(end.saturating_duration_since(row.began));
        let name = cut(&format!("{branch}{}", row.name), width);
        let head = format!("{name:<width$}  {elapsed:>6}  ");
        let room = frame.columns.saturating_sub(head.chars().count());
        let shown = cut(&state, room);
        let note = match &row.note {
            Some(note) if room > shown.chars().count() + 4 => {
                let note = cut(note, room - shown.chars().count() - 2);
                format!("  {note}")
            }
            _ => String::new(),
        };
        if frame.colour {
            format!(
                "{head}\x1b[{}m{shown}\x1b[0m\x1b[2m{note}\x1b[0m",
                tone.code()
            )
        } else {
            cut(&format!("{head}{shown}{note}"), frame.columns)
        }
    }
}

fn seconds(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..100 => format!("{s}.{}s", time.subsec_millis() / 100),
        s => format!("{}m{:02}s", s / 60, s % 60),
    }
}

/// What a call is, in a few words.
fn call(name: &str, args: &Value) -> String {
    let about = ["description", "command", "task_id", "agent_id"]
        .iter()
        .find_map(|key| args.get(key).and_then(Value::as_str));
    match about {
        Some(about) => format!("{name}: {}", one_line(about)),
        None => name.to_owned(),
    }
}

/// Somebody else's text as one line that a terminal may be given.
fn one_line(text: &str) -> String {
    text::one_line(&plain(text), MAX_TEXT)
}

/// At most `columns` characters; what is cut off is marked.
fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let mut kept: String = text.chars().take(columns.saturating_sub(1)).collect();
    if columns > 0 {
        kept.push('…');
    }
    kept
}

#[cfg(test)]
mod tests;
