//! What the checks are made of: sessions, events, and comparing them.

use std::sync::Arc;

use offshoot_core::Timestamp;

use crate::store::conformance::{Checked, Medium, Stop};
use crate::{
    AgentId, Event, Extension, Inherited, Message, Origin, SessionLog, SessionStart, SessionStore,
    Source, StoredEvent, Target,
};

macro_rules! ensure {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err($crate::store::conformance::Stop::Fail(format!($($what)+)));
        }
    };
}

pub(super) fn id(name: &str) -> Result<AgentId, Stop> {
    Ok(name.parse::<AgentId>()?)
}

pub(super) fn stored(seq: u64, event: Event) -> StoredEvent {
    StoredEvent {
        seq,
        time: Timestamp::from_millis(1_700_000_000_000 + seq),
        event,
    }
}

/// A message: the same one each time.
pub(super) fn message(seq: u64, text: &str) -> StoredEvent {
    let mut message = Message::text(Source::new("user", 0), text);
    if let Ok(id) = format!("m{seq}").parse() {
        message.id = id;
    }
    stored(
        seq,
        Event::InboxInserted {
            target: Target::NextTurn,
            wake: true,
            before: None,
            passive: false,
            message: message.into(),
        },
    )
}

/// Events of different kinds, numbered from `from`.
pub(super) fn events(from: u64, count: u64) -> Vec<StoredEvent> {
    (from..from + count)
        .map(|seq| match seq % 4 {
            0 => stored(
                seq,
                Event::TurnStart {
                    turn: seq,
                    generation: 0,
                },
            ),
            1 => message(seq, "hello"),
            2 => stored(seq, Event::StepStart { turn: 1, step: seq }),
            _ => stored(seq, Extension::new("build/started").with("n", seq).into()),
        })
        .collect()
}

pub(super) fn start(seq: u64) -> StoredEvent {
    let start = SessionStart {
        parent: None,
        label: Some("label".to_owned()),
        origin: Origin::Root,
        depth: 0,
        resumed: false,
        inherited: None,
        extra: Default::default(),
    };
    stored(seq, start.into())
}

/// The beginning of a session behind so many events of another one.
pub(super) fn forked(seq: u64) -> StoredEvent {
    let mut beginning = start(seq);
    if let Event::SessionStart(start) = &mut beginning.event {
        Arc::make_mut(start).inherited = Some(Inherited {
            events: seq,
            turns: 1,
        });
    }
    beginning
}

pub(super) type Opened = (Vec<StoredEvent>, Box<dyn SessionLog>, u64);

/// Opens a session; what it was shown, the log, and how many bytes were cut off.
pub(super) fn open(store: &dyn SessionStore, id: &AgentId) -> Result<Opened, Stop> {
    let mut shown = Vec::new();
    let opened = store.open(id, &mut |event| shown.push(event.clone()))?;
    let expected = shown.last().map_or(0, |last: &StoredEvent| last.seq + 1);
    ensure!(
        opened.next_seq >= expected,
        "next_seq is {}, and event {} was shown",
        opened.next_seq,
        expected - 1
    );
    Ok((shown, opened.log, opened.torn_bytes))
}

/// A new session with these events, whose writer is gone.
pub(super) fn session(
    medium: &dyn Medium,
    name: &str,
    events: &[StoredEvent],
) -> Result<AgentId, Stop> {
    let id = id(name)?;
    let mut log = medium.store().create(&id, 0)?;
    log.append(0, events)?;
    Ok(id)
}

/// Compares the events of a session as another process reads them.
pub(super) fn holds(medium: &dyn Medium, id: &AgentId, expected: &[StoredEvent]) -> Checked {
    let read = medium.store().read(id)?;
    let same = read
        .iter()
        .zip(expected)
        .take_while(|(is, should)| is == should);
    let same = same.count();
    ensure!(
        same == expected.len() && same == read.len(),
        "of {} events {} are there, and the first {same} are as they were appended",
        expected.len(),
        read.len()
    );
    Ok(())
}

pub(super) use ensure;
