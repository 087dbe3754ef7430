//! The checks, one a promise.

use std::sync::{Arc, Barrier};

use offshoot_core::Timestamp;
use serde_json::{Value, json};

use super::{Checked, Medium, Stop};
use crate::{
    AgentId, AppendError, Event, Extension, Inherited, Message, Origin, SessionLog, SessionStart,
    SessionStore, Source, StoreError, StoredEvent, Target,
};

type Check = fn(&dyn Medium) -> Checked;

/// In the order in which a new store is best built.
pub(super) const ALL: &[(&str, Check)] = &[
    ("read back", read_back),
    ("unknown session", unknown_session),
    ("one session an id", one_session_an_id),
    ("expected sequence", expected_sequence),
    ("reopen", reopen),
    ("one writer", one_writer),
    ("racing writers", racing_writers),
    ("writers of many sessions", writers_of_many_sessions),
    ("abandon", abandon),
    ("listing", listing),
    ("first event", first_event),
    ("unborn fork", unborn_fork),
    ("large events", large_events),
    ("any text", any_text),
    ("ignorable events", ignorable_events),
    ("flush", flush),
    ("torn tail", torn_tail),
    ("damage", damage),
    ("newer version", newer_version),
    ("unknown events", unknown_events),
    ("refused appends", refused_appends),
];

macro_rules! ensure {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err(Stop::Fail(format!($($what)+)));
        }
    };
}

fn id(name: &str) -> Result<AgentId, Stop> {
    Ok(name.parse::<AgentId>()?)
}

fn stored(seq: u64, event: Event) -> StoredEvent {
    StoredEvent {
        seq,
        time: Timestamp::from_millis(1_700_000_000_000 + seq),
        event,
    }
}

/// A message: the same one each time.
fn message(seq: u64, text: &str) -> StoredEvent {
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
            message: message.into(),
        },
    )
}

/// Events of different kinds, numbered from `from`.
fn events(from: u64, count: u64) -> Vec<StoredEvent> {
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

fn start(seq: u64) -> StoredEvent {
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
fn forked(seq: u64) -> StoredEvent {
    let mut beginning = start(seq);
    if let Event::SessionStart(start) = &mut beginning.event {
        Arc::make_mut(start).inherited = Some(Inherited {
            events: seq,
            turns: 1,
        });
    }
    beginning
}

type Opened = (Vec<StoredEvent>, Box<dyn SessionLog>, u64);

/// Opens a session; what it was shown, the log, and how many bytes were cut off.
fn open(store: &dyn SessionStore, id: &AgentId) -> Result<Opened, Stop> {
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
fn session(medium: &dyn Medium, name: &str, events: &[StoredEvent]) -> Result<AgentId, Stop> {
    let id = id(name)?;
    let mut log = medium.store().create(&id, 0)?;
    log.append(0, events)?;
    Ok(id)
}

/// Compares the events of a session as another process reads them.
fn holds(medium: &dyn Medium, id: &AgentId, expected: &[StoredEvent]) -> Checked {
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

fn read_back(medium: &dyn Medium) -> Checked {
    let store = medium.store();
    let id = id("a")?;
    let mut log = store.create(&id, 0)?;
    holds(medium, &id, &[])?;
    let all = events(0, 9);
    log.append(0, &all[..1])?;
    // Seen at once, while the writer goes on.
    holds(medium, &id, &all[..1])?;
    log.append(1, &all[1..])?;
    log.append(9, &[])?;
    holds(medium, &id, &all)?;
    drop(log);
    holds(medium, &id, &all)
}

fn unknown_session(medium: &dyn Medium) -> Checked {
    let store = medium.store();
    let id = id("nobody")?;
    ensure!(
        matches!(store.read(&id), Err(StoreError::NotFound(_))),
        "reading a session that is not there is not NotFound"
    );
    ensure!(
        matches!(store.open(&id, &mut |_| {}), Err(StoreError::NotFound(_))),
        "opening a session that is not there is not NotFound"
    );
    ensure!(
        matches!(store.first(&id), Err(StoreError::NotFound(_))),
        "the first event of a session that is not there is not NotFound"
    );
    ensure!(store.sessions()?.is_empty(), "asking made a session");
    Ok(())
}

fn one_session_an_id(medium: &dyn Medium) -> Checked {
    let all = events(0, 2);
    let id = session(medium, "a", &all)?;
    ensure!(
        matches!(medium.store().create(&id, 0), Err(StoreError::Exists(_))),
        "a second session of one id is not refused with Exists"
    );
    holds(medium, &id, &all)
}

fn expected_sequence(medium: &dyn Medium) -> Checked {
    let id = id("a")?;
    let mut log = medium.store().create(&id, 0)?;
    let all = events(0, 4);
    let refused = |result: Result<(), AppendError>, at: u64, end: u64| match result {
        Err(AppendError::Conflict { expected, found }) if (expected, found) == (at, end) => Ok(()),
        other => Err(Stop::Fail(format!(
            "an append at {at} to a log that ends at {end} is not a Conflict that says so: {other:?}"
        ))),
    };
    refused(log.append(1, &all[1..2]), 1, 0)?;
    log.append(0, &all[..2])?;
    refused(log.append(0, &all[..1]), 0, 2)?;
    refused(log.append(1, &all[1..2]), 1, 2)?;
    refused(log.append(3, &all[3..]), 3, 2)?;
    // Who was in time goes on.
    log.append(2, &all[2..])?;
    holds(medium, &id, &all)
}

fn reopen(medium: &dyn Medium) -> Checked {
    let all = events(0, 12);
    let id = id("a")?;
    drop(medium.store().create(&id, 0)?);
    for (length, event) in (0..).zip(&all) {
        let (shown, mut log, torn) = open(&*medium.store(), &id)?;
        ensure!(
            shown == all[..length],
            "a session of {length} events was opened with {}",
            shown.len()
        );
        ensure!(torn == 0, "{torn} bytes are torn after an orderly end");
        log.append(length as u64, std::slice::from_ref(event))?;
    }
    holds(medium, &id, &all)
}

fn one_writer(medium: &dyn Medium) -> Checked {
    let (one, other) = (medium.store(), medium.store());
    let id = id("a")?;
    let mut log = one.create(&id, 0)?;
    let all = events(0, 3);
    log.append(0, &all[..1])?;
    for store in [&one, &other] {
        ensure!(
            matches!(store.open(&id, &mut |_| {}), Err(StoreError::Locked(_))),
            "a session that has a writer is opened by a second one"
        );
    }
    // Reading needs no writer's place.
    holds(medium, &id, &all[..1])?;
    log.append(1, &all[1..2])?;
    drop(log);
    let (_, mut log, _) = open(&*other, &id)?;
    ensure!(
        matches!(one.open(&id, &mut |_| {}), Err(StoreError::Locked(_))),
        "a session that was opened again is opened by a second writer"
    );
    log.append(2, &all[2..])?;
    drop(log);
    drop(open(&*one, &id)?);
    holds(medium, &id, &all)
}

/// Calls `work` on several threads that begin at the same time.
fn at_once<R: Send>(work: impl Fn(u64) -> R + Sync) -> Vec<R> {
    const THREADS: u64 = 8;
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        let threads = (0..THREADS).map(|n| {
            let (barrier, work) = (&barrier, &work);
            scope.spawn(move || {
                barrier.wait();
                work(n)
            })
        });
        let threads: Vec<_> = threads.collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.filter_map(Result::ok).collect()
    })
}

fn racing_writers(medium: &dyn Medium) -> Checked {
    let new = id("new")?;
    let logs = at_once(|_| medium.store().create(&new, 0));
    let made = logs.iter().filter(|log| log.is_ok()).count();
    ensure!(made == 1, "{made} of {} made one session", logs.len());
    let refusals = logs.iter().filter_map(|log| log.as_ref().err());
    let typed = |error: &StoreError| matches!(error, StoreError::Exists(_) | StoreError::Locked(_));
    for refusal in refusals {
        ensure!(typed(refusal), "a maker that came too late got {refusal}");
    }
    drop(logs);
    // Whoever wins goes on; everyone tries to append at the place that it saw.
    let won = at_once(|n| {
        let opened = medium.store().open(&new, &mut |_| {});
        let Ok(mut opened) = opened else {
            return (0, opened.err());
        };
        let next = opened.next_seq;
        let appended = opened.log.append(next, &[message(next, &n.to_string())]);
        (usize::from(appended.is_ok()), None)
    });
    let count: usize = won.iter().map(|(won, _)| won).sum();
    for (_, refusal) in &won {
        if let Some(refusal) = refusal {
            let locked = matches!(refusal, StoreError::Locked(_));
            ensure!(locked, "a writer that came too late got {refusal}");
        }
    }
    let read = medium.store().read(&new)?;
    ensure!(count >= 1, "nobody could open the session");
    ensure!(
        read.len() == count && (0..).zip(&read).all(|(seq, event)| event.seq == seq),
        "{count} appends succeeded, and the log holds {} events",
        read.len()
    );
    Ok(())
}

fn writers_of_many_sessions(medium: &dyn Medium) -> Checked {
    let all = events(0, 40);
    let written = at_once(|n| -> Checked {
        let mut log = medium.store().create(&id(&format!("s{n}"))?, 0)?;
        for (seq, event) in (0..).zip(&all) {
            log.append(seq, std::slice::from_ref(event))?;
        }
        Ok(())
    });
    let count = written.len();
    ensure!(count == 8, "a writer panicked");
    written.into_iter().collect::<Checked>()?;
    for n in 0..count {
        holds(medium, &id(&format!("s{n}"))?, &all)?;
    }
    ensure!(
        medium.store().sessions()?.len() == count,
        "sessions are missing in the list"
    );
    Ok(())
}

fn abandon(medium: &dyn Medium) -> Checked {
    let store = medium.store();
    let id = id("a")?;
    let mut log = store.create(&id, 0)?;
    log.append(0, &events(0, 1))?;
    log.abandon();
    match store.read(&id) {
        // The default of the trait leaves a session that was let go.
        Ok(_) => drop(open(&*store, &id)?),
        Err(StoreError::NotFound(_)) => drop(store.create(&id, 0)?),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

fn listing(medium: &dyn Medium) -> Checked {
    let store = medium.store();
    ensure!(
        store.sessions()?.is_empty(),
        "an empty store lists sessions"
    );
    // In order by age and by name: ids of agents are.
    let ids = (0..20).map(|n| id(&format!("s{n:02}")));
    let ids = ids.collect::<Result<Vec<AgentId>, Stop>>()?;
    let mut logs = Vec::new();
    for id in &ids {
        logs.push(store.create(id, 0)?);
    }
    // Open ones too, oldest first, for every handle.
    for store in [&store, &medium.store()] {
        ensure!(
            store.sessions()? == ids,
            "the list is not all sessions, oldest first"
        );
    }
    drop(logs);
    ensure!(
        medium.store().sessions()? == ids,
        "a session without a writer is not listed"
    );
    Ok(())
}

fn first_event(medium: &dyn Medium) -> Checked {
    let store = medium.store();
    let (plain, fork) = (id("plain")?, id("fork")?);
    let mut log = store.create(&plain, 0)?;
    ensure!(
        store.first(&plain)?.is_none(),
        "an empty session has a first event"
    );
    log.append(0, &events(0, 3))?;
    ensure!(
        store.first(&plain)? == Some(events(0, 1).remove(0)),
        "the first event is another one"
    );
    let mut log = store.create(&fork, 3)?;
    log.append(0, &events(0, 3))?;
    ensure!(
        store.first(&fork)?.is_none(),
        "another session's past has a first event of its own"
    );
    log.append(3, &[forked(3), message(4, "x")])?;
    ensure!(
        medium.store().first(&fork)? == Some(forked(3)),
        "the first event of a session that begins with another one's past is not its own"
    );
    Ok(())
}

fn unborn_fork(medium: &dyn Medium) -> Checked {
    let fork = id("fork")?;
    let mut log = medium.store().create(&fork, 3)?;
    log.append(0, &events(0, 3))?;
    drop(log);
    let (shown, mut log, _) = open(&*medium.store(), &fork)?;
    ensure!(
        shown.is_empty(),
        "another session's past, without an event of its own, is shown as a session"
    );
    log.append(0, &[start(0)])?;
    drop(log);
    holds(medium, &fork, &[start(0)])?;
    ensure!(
        medium.store().first(&fork)? == Some(start(0)),
        "its first event is another one"
    );
    Ok(())
}

fn large_events(medium: &dyn Medium) -> Checked {
    let text = "0123456789abcde\n".repeat(300_000);
    let all: Vec<_> = (0..3)
        .map(|seq| message(seq, &text))
        .chain(events(3, 1))
        .collect();
    let id = session(medium, "a", &all[..2])?;
    let (shown, mut log, _) = open(&*medium.store(), &id)?;
    ensure!(shown == all[..2], "large events are not what they were");
    log.append(2, &all[2..])?;
    drop(log);
    holds(medium, &id, &all)
}

fn any_text(medium: &dyn Medium) -> Checked {
    let texts = [
        "",
        "\n",
        "a\r\nb\0c\u{7f}\u{85}\u{2028}\u{feff}",
        "\"}\n{\"seq\":0}",
        "😀\u{10ffff}é",
    ];
    let all: Vec<_> = (0..)
        .zip(texts)
        .map(|(seq, text)| message(seq, text))
        .collect();
    let id = session(medium, "a", &all)?;
    holds(medium, &id, &all)
}

fn ignorable_events(medium: &dyn Medium) -> Checked {
    let chunk = |seq| {
        let large = "x".repeat(2000);
        let event = Extension::new("later/chunk")
            .with("text", large)
            .ignorable();
        stored(seq, event.into())
    };
    let all = vec![start(0), chunk(1), message(2, "a"), chunk(3), chunk(4)];
    let id = session(medium, "a", &all)?;
    // Kept for whoever reads all of it,
    holds(medium, &id, &all)?;
    let mut shown = Vec::new();
    let mut opened = medium
        .store()
        .open(&id, &mut |event| shown.push(event.clone()))?;
    // shown or not to who goes on, and counted.
    let is_needed = |event: &&StoredEvent| !matches!(&event.event, Event::Extension(extension) if extension.is_ignorable());
    let needed: Vec<_> = shown.iter().filter(is_needed).cloned().collect();
    ensure!(
        needed == [start(0), all[2].clone()],
        "an event that counts was not shown"
    );
    ensure!(
        opened.next_seq == 5,
        "next_seq is {} and not 5",
        opened.next_seq
    );
    opened.log.append(5, &[message(5, "b")])?;
    drop(opened);
    let all: Vec<_> = all.into_iter().chain([message(5, "b")]).collect();
    holds(medium, &id, &all)
}

fn flush(medium: &dyn Medium) -> Checked {
    let all = events(0, 4);
    let id = id("a")?;
    let mut log = medium.store().create(&id, 0)?;
    log.flush()?;
    log.append(0, &all[..2])?;
    let first = log.flush()?;
    holds(medium, &id, &all[..2])?;
    log.append(2, &all[2..])?;
    ensure!(
        log.flush()? == first,
        "one flush was durable and the other was not"
    );
    log.finish()?;
    drop(log);
    holds(medium, &id, &all)
}

fn torn_tail(medium: &dyn Medium) -> Checked {
    let all = events(0, 5);
    let mut sizes = Vec::new();
    let probe = id("probe")?;
    let mut log = medium.store().create(&probe, 0)?;
    sizes.push(medium.size(&probe).ok_or(Stop::Skip)?);
    for (seq, event) in (0..).zip(&all) {
        log.append(seq, std::slice::from_ref(event))?;
        sizes.push(medium.size(&probe).ok_or(Stop::Skip)?);
    }
    drop(log);
    let whole = *sizes.last().unwrap_or(&0);
    // Every byte of the last two events, and each end of an event.
    let tail = sizes[sizes.len() - 3];
    let cuts = sizes.iter().copied().chain(tail..=whole);
    for (n, cut) in cuts.enumerate() {
        // Ids of one length: the sizes are the same.
        let id = session(medium, &format!("t{n:04}"), &all)?;
        let shift = medium.size(&id).ok_or(Stop::Skip)? as i64 - whole as i64;
        let cut = cut as i64 + shift;
        if !medium.tear(&id, usize::try_from(cut)?) {
            return Err(Stop::Skip);
        }
        let kept = sizes[1..]
            .iter()
            .filter(|size| **size as i64 + shift <= cut)
            .count();
        let read = medium.store().read(&id)?;
        ensure!(
            read == all[..kept],
            "torn at byte {cut}: {kept} events are whole, and {} are read",
            read.len()
        );
        let (shown, mut log, torn) = open(&*medium.store(), &id)?;
        ensure!(
            shown == all[..kept],
            "torn at byte {cut}: {kept} events are whole, and {} are shown",
            shown.len()
        );
        let is_torn = !sizes.iter().any(|size| *size as i64 + shift == cut);
        ensure!(
            (torn > 0) == is_torn,
            "torn at byte {cut}: {torn} torn bytes are reported"
        );
        log.append(kept as u64, &events(kept as u64, 2))?;
        drop(log);
        holds(medium, &id, &events(0, kept as u64 + 2))?;
        let (_, _, torn) = open(&*medium.store(), &id)?;
        ensure!(
            torn == 0,
            "torn at byte {cut}: what was cut off is reported twice"
        );
    }
    Ok(())
}

fn damage(medium: &dyn Medium) -> Checked {
    let id = session(medium, "a", &events(0, 5))?;
    let other = session(medium, "b", &events(0, 5))?;
    if !medium.damage(&id, 2) {
        return Err(Stop::Skip);
    }
    let size = medium.size(&id);
    let store = medium.store();
    // Twice: a refusal leaves the session as it is, and without a writer.
    for _ in 0..2 {
        for refusal in [store.read(&id).err(), store.open(&id, &mut |_| {}).err()] {
            match refusal {
                Some(StoreError::Corrupt { place, what }) => {
                    ensure!(
                        !place.is_empty() && !what.is_empty(),
                        "the error does not say where and what"
                    );
                }
                other => {
                    return Err(Stop::Fail(format!(
                        "a damaged event is not Corrupt: {other:?}"
                    )));
                }
            }
        }
    }
    ensure!(
        medium.size(&id) == size,
        "a session that was refused was changed"
    );
    ensure!(
        store.sessions()?.len() == 2,
        "a damaged session is not listed"
    );
    holds(medium, &other, &events(0, 5))
}

fn newer_version(medium: &dyn Medium) -> Checked {
    let id = session(medium, "a", &events(0, 3))?;
    if !medium.make_newer(&id) {
        return Err(Stop::Skip);
    }
    let size = medium.size(&id);
    let refusals = [
        medium.store().read(&id).err(),
        medium.store().open(&id, &mut |_| {}).err(),
        medium.store().first(&id).err(),
    ];
    for refusal in refusals {
        let typed = matches!(refusal, Some(StoreError::Corrupt { .. }));
        ensure!(
            typed,
            "a session of a newer version is not refused as Corrupt: {refusal:?}"
        );
    }
    ensure!(
        medium.size(&id) == size,
        "a session that was refused was changed"
    );
    Ok(())
}

/// An event of this crate's own vocabulary that this version does not have.
fn planted(seq: u64, ignorable: bool) -> String {
    let mut event = json!({"type": "turn/paused", "turn": 1});
    if ignorable {
        event["ignorable"] = Value::Bool(true);
    }
    json!({"seq": seq, "time": "2026-01-01T00:00:00.000Z", "event": event}).to_string()
}

fn unknown_events(medium: &dyn Medium) -> Checked {
    let marked = session(medium, "marked", &events(0, 2))?;
    if !medium.plant(&marked, &planted(2, true)) {
        return Err(Stop::Skip);
    }
    let read = medium.store().read(&marked)?;
    ensure!(
        read.len() == 3,
        "an unknown event that may be passed over is not kept"
    );
    let (_, mut log, _) = open(&*medium.store(), &marked)?;
    log.append(3, &events(3, 1))?;
    drop(log);
    ensure!(
        medium.store().read(&marked)?.len() == 4,
        "a session with an unknown event cannot go on"
    );

    let unmarked = session(medium, "unmarked", &events(0, 2))?;
    if !medium.plant(&unmarked, &planted(2, false)) {
        return Err(Stop::Skip);
    }
    let size = medium.size(&unmarked);
    for _ in 0..2 {
        match medium.store().open(&unmarked, &mut |_| {}) {
            Err(StoreError::UnknownEvent { kind, .. }) => {
                ensure!(kind == "turn/paused", "the error names {kind}");
            }
            other => {
                let what = "an unknown event that may not be passed over is not UnknownEvent";
                return Err(Stop::Fail(format!("{what}: {other:?}")));
            }
        }
    }
    ensure!(
        medium.size(&unmarked) == size,
        "a session that was refused was changed"
    );
    Ok(())
}

fn refused_appends(medium: &dyn Medium) -> Checked {
    let id = id("a")?;
    let all = events(0, 8);
    let mut log = medium.store().create(&id, 0)?;
    log.append(0, &all[..2])?;
    if !medium.fail(true) {
        return Err(Stop::Skip);
    }
    for _ in 0..2 {
        let refused = log.append(2, &all[2..5]);
        ensure!(
            matches!(refused, Err(AppendError::Store(_))),
            "a failing medium is not an error: {refused:?}"
        );
        // All or none.
        holds(medium, &id, &all[..2])?;
    }
    medium.fail(false);
    // Either it goes on where it was, or it takes nothing more: what it has is whole in any case.
    let kept = match log.append(2, &all[2..5]) {
        Ok(()) => 5,
        Err(_) => 2,
    };
    holds(medium, &id, &all[..kept])?;
    drop(log);
    let (shown, mut log, _) = open(&*medium.store(), &id)?;
    ensure!(
        shown == all[..kept],
        "after a refused append the session is opened with {} events",
        shown.len()
    );
    log.append(kept as u64, &all[kept..])?;
    drop(log);
    holds(medium, &id, &all)
}
