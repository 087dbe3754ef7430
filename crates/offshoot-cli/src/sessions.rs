//! `offshoot sessions`: what a store holds, as a tree. Reads only; a damaged session is shown as such.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use offshoot::agent::{
    AgentHost, AgentId, AgentSettings, Event, JsonlStore, OpenError, Projection, SessionStart,
    SessionStore, StoredEvent, TurnEndReason, Usage,
};
use offshoot::core::text::one_line;
use offshoot::subagent::{TreeUsage, open_runs};
use offshoot::tools::open_tasks;
use serde::Serialize;

use crate::args::SessionsArgs;
use crate::fault::Fault;
use crate::output;

/// One stored session.
///
/// `status` is `running` (a process has it open), `damaged`, `interrupted` (its process ended in the
/// middle of a turn, or before something that it had started had ended), `pending` (a message waits
/// that would start a turn), `new` (no turn yet), else how its last turn ended.
#[derive(Debug, Serialize)]
struct Session {
    id: AgentId,
    parent: Option<AgentId>,
    label: String,
    depth: u32,
    /// `root`, or what the subagent is; `null` when the log does not say, because it is damaged.
    mode: Option<String>,
    status: &'static str,
    turns: u64,
    usage: TreeUsage,
    /// When its last event was committed.
    last_activity: Option<String>,
    /// How large its log is.
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// What is cut off when the session is resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    torn_bytes: Option<u64>,
    /// The files with what was cut off the log when it was gone on with, and may have been events.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kept: Vec<String>,
}

/// `offshoot sessions`.
pub(crate) fn sessions(args: SessionsArgs) -> Result<ExitCode, Fault> {
    let fault = |error: offshoot::agent::StoreError| {
        Fault::usage(format_args!(
            "--store: {error}; expected a folder of sessions"
        ))
    };
    let store = JsonlStore::existing(&args.store).map_err(fault)?;
    let ids = store.sessions().map_err(fault)?;
    let open = open_elsewhere(&args.store);
    let host = examiner(Arc::new(store.clone()));
    let sessions = ids
        .into_iter()
        .map(|id| {
            let is_open = open.contains(&id);
            let sizes = store.size(&id);
            let kept = store.kept_aside(&id).unwrap_or_default();
            let mut session = read(&store, &host, id, is_open);
            let names = kept.iter().filter_map(|path| path.file_name());
            session.kept = names
                .map(|name| name.to_string_lossy().into_owned())
                .collect();
            if let Ok((bytes, torn)) = sizes {
                session.bytes = bytes;
                // Who has it open may be in the middle of a line.
                let is_torn = torn > 0 && !is_open && session.error.is_none();
                session.torn_bytes = is_torn.then_some(torn);
            }
            session
        })
        .collect();
    let sessions = in_tree_order(sessions);
    if args.json {
        output::json_result(&sessions)?;
    } else if !sessions.is_empty() {
        output::result(&listing(&sessions).context("the sessions")?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A host that reads sessions as a runtime would.
pub(crate) fn examiner(store: Arc<dyn SessionStore>) -> AgentHost {
    let mut host = AgentHost::new(store, AgentSettings::default());
    host.event_types = Some(Arc::new(offshoot::event_types()));
    host.event_rules = offshoot::event_rules().into();
    host
}

/// What a listing says of a log, gathered while it is read.
#[derive(Default)]
struct Reading {
    projection: Projection,
    turns: u64,
    end: Option<TurnEndReason>,
    last: Option<StoredEvent>,
}

impl Reading {
    fn see(&mut self, stored: &StoredEvent) {
        match &stored.event {
            // What came before is another session's.
            Event::SessionStart(start) if start.inherited.is_some() => {
                self.turns = 0;
                self.end = None;
            }
            Event::TurnStart { .. } => self.turns += 1,
            Event::TurnEnd { reason, .. } => self.end = Some(*reason),
            _ => {}
        }
        self.last = Some(stored.clone());
    }
}

/// By the same check as a resumption: what is shown as whole can be gone on with.
fn read(store: &JsonlStore, host: &AgentHost, id: AgentId, is_open: bool) -> Session {
    let mut reading = Reading::default();
    match host.examine(&id, &mut |stored| reading.see(stored)) {
        Ok(projection) => reading.projection = projection,
        // Its writer has not begun it yet.
        Err(OpenError::Empty(_)) if is_open => {}
        Err(error) => return damaged(store, id, &error),
    }
    Session {
        status: if is_open { "running" } else { status(&reading) },
        turns: reading.turns,
        usage: TreeUsage::alone(reading.projection.usage(), reading.projection.wall()),
        last_activity: reading.last.as_ref().map(StoredEvent::time_text),
        ..described(id, reading.projection.start())
    }
}

fn damaged(store: &JsonlStore, id: AgentId, error: &OpenError) -> Session {
    let first = store.first(&id).ok().flatten();
    let start = match first.as_ref().map(|stored| &stored.event) {
        Some(Event::SessionStart(start)) => Some(&**start),
        _ => None,
    };
    Session {
        status: "damaged",
        error: Some(one_line(&error.to_string(), 500)),
        ..described(id, start)
    }
}

fn described(id: AgentId, start: Option<&SessionStart>) -> Session {
    Session {
        id,
        parent: start.and_then(|start| start.parent.clone()),
        label: start
            .and_then(|start| start.label.clone())
            .unwrap_or_default(),
        depth: start.map_or(0, |start| start.depth),
        mode: start.and_then(mode).map(str::to_owned),
        status: "new",
        turns: 0,
        usage: TreeUsage::default(),
        last_activity: None,
        bytes: 0,
        error: None,
        torn_bytes: None,
        kept: Vec::new(),
    }
}

fn mode(start: &SessionStart) -> Option<&str> {
    match (&start.parent, start.extra("mode")) {
        (_, Some(mode)) => Some(mode),
        (None, None) => Some("root"),
        (Some(_), None) => None,
    }
}

fn status(reading: &Reading) -> &'static str {
    let projection = &reading.projection;
    if projection.open_turn().is_some()
        || !open_runs(projection).is_empty()
        || !open_tasks(projection).is_empty()
    {
        return "interrupted";
    }
    if projection.inbox().has_waking() {
        return "pending";
    }
    match reading.end {
        None => "new",
        Some(TurnEndReason::Completed) => "completed",
        Some(TurnEndReason::MaxTokens) => "max_tokens",
        Some(TurnEndReason::Refusal) => "refusal",
        Some(TurnEndReason::Aborted) => "aborted",
        Some(TurnEndReason::Interrupted) => "interrupted",
        Some(TurnEndReason::StepLimit) => "step_limit",
        Some(_) => "error",
    }
}

/// Each session after its parent, and the usage of each with that of everything below it. A session
/// whose parent is not in the store, or is its own descendant, stands at the top.
fn in_tree_order(sessions: Vec<Session>) -> Vec<Session> {
    let place: HashMap<AgentId, usize> = sessions
        .iter()
        .enumerate()
        .map(|(at, session)| (session.id.clone(), at))
        .collect();
    let mut below: Vec<Vec<usize>> = vec![Vec::new(); sessions.len()];
    let mut tops = Vec::new();
    for (at, session) in sessions.iter().enumerate() {
        match session.parent.as_ref().and_then(|parent| place.get(parent)) {
            Some(parent) => below[*parent].push(at),
            None => tops.push(at),
        }
    }
    let mut order = Vec::new();
    let mut seen = vec![false; sessions.len()];
    // A ring of parents in damaged sessions has no top: what is left over is one.
    for top in tops.into_iter().chain(0..sessions.len()) {
        let mut stack = vec![top];
        while let Some(at) = stack.pop() {
            if !std::mem::replace(&mut seen[at], true) {
                order.push(at);
                stack.extend(below[at].iter().rev());
            }
        }
    }
    let mut slots: Vec<Option<Session>> = sessions.into_iter().map(Some).collect();
    let rank: HashMap<usize, usize> = order.iter().enumerate().map(|(n, at)| (*at, n)).collect();
    let mut ordered: Vec<Session> = order.iter().filter_map(|at| slots[*at].take()).collect();
    // From the leaves up: a parent stands before its children.
    for n in (0..ordered.len()).rev() {
        let parent = ordered[n].parent.as_ref().and_then(|id| place.get(id));
        let parent = parent.and_then(|at| rank.get(at)).copied();
        if let Some(parent) = parent.filter(|parent| *parent < n) {
            let usage = ordered[n].usage;
            ordered[parent].usage.add_below(usage);
        }
    }
    ordered
}

fn listing(sessions: &[Session]) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut depths: HashMap<&AgentId, usize> = HashMap::new();
    for session in sessions {
        let above = session
            .parent
            .as_ref()
            .and_then(|parent| depths.get(parent));
        let depth = above.map_or(0, |depth| depth + 1);
        depths.insert(&session.id, depth);
        let indent = "  ".repeat(depth);
        let label = one_line(&session.label, 60);
        let mode = session.mode.as_deref().unwrap_or("-");
        let Usage { input, output } = session.usage.total();
        write!(
            text,
            "{indent}{}  {label}  {mode}  {}  turns: {}  tokens: {input} in, {output} out  {}",
            session.id,
            session.status,
            session.turns,
            size(session.bytes)
        )?;
        if let Some(time) = &session.last_activity {
            write!(text, "  {time}")?;
        }
        if let Some(error) = &session.error {
            write!(text, "  ({error})")?;
        }
        if let Some(torn) = session.torn_bytes {
            write!(text, "  (its last line is torn: {torn} bytes)")?;
        }
        for kept in &session.kept {
            write!(text, "  (cut off and kept: {kept})")?;
        }
        writeln!(text)?;
    }
    Ok(text)
}

/// A size for people: in the largest unit of which there is at least one.
fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes / 1024),
        _ => format!("{}.{} MiB", bytes >> 20, ((bytes & 0xf_ffff) * 10) >> 20),
    }
}

/// The sessions of a folder that a process has open for writing, as far as the system tells. Looking
/// takes no lock, so that no writer is turned away by it.
fn open_elsewhere(folder: &Path) -> HashSet<AgentId> {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(locks) = std::fs::read_to_string("/proc/locks") else {
        return HashSet::new();
    };
    // For example: `12: FLOCK  ADVISORY  WRITE 4711 fe:01:131 0 EOF`.
    let locked: HashSet<&str> = locks
        .lines()
        .filter(|line| line.contains("FLOCK") && line.contains("WRITE"))
        .filter_map(|line| {
            line.split_whitespace()
                .find(|part| part.matches(':').count() == 2)
        })
        .filter_map(|place| place.rsplit(':').next())
        .collect();
    let Ok(files) = std::fs::read_dir(folder) else {
        return HashSet::new();
    };
    let files = files.filter_map(Result::ok).filter(|file| {
        let inode = file.metadata().map(|data| data.ino().to_string());
        inode.is_ok_and(|inode| locked.contains(inode.as_str()))
    });
    files
        .filter_map(|file| {
            let name = file.file_name().into_string().ok()?;
            name.strip_suffix(".jsonl")?.parse().ok()
        })
        .collect()
}
