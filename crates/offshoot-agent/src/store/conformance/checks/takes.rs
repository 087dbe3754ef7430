//! What [`take`](crate::SessionLog::take) promises beside what an append does: what it shows, and when.

use std::sync::mpsc;
use std::time::Duration;

use super::ground::{ensure, events, holds, id, open, session};
use crate::store::conformance::{Checked, Medium, Stop};
use crate::{AppendError, SessionLog, StoredEvent};

/// How long a store may take to read a log of a few events. Only one that never does takes so long.
const LONG: Duration = Duration::from_secs(10);

/// Takes events and gives what was shown of them.
fn taken(
    log: &mut dyn SessionLog,
    expected: u64,
    events: &[StoredEvent],
) -> (Result<(), AppendError>, Vec<StoredEvent>) {
    let mut shown = Vec::new();
    let taken = log.take(expected, events.to_vec(), &mut |event| {
        shown.push(event.clone());
    });
    (taken, shown)
}

pub(super) fn takes(medium: &dyn Medium) -> Checked {
    let id = id("a")?;
    let mut log = medium.store().create(&id, 0)?;
    let all = events(0, 7);
    // Beside appends, with large batches and with none.
    for (from, to) in [(0, 1), (1, 1), (1, 4)] {
        let batch = &all[from..to];
        let (result, shown) = taken(&mut *log, from as u64, batch);
        result?;
        ensure!(
            shown == batch,
            "{} events were taken, and {} were shown, or others, or not in order",
            batch.len(),
            shown.len()
        );
        holds(medium, &id, &all[..to])?;
    }
    log.append(4, &all[4..5])?;
    for at in [3, 4, 6] {
        let (result, shown) = taken(&mut *log, at, &events(at, 2));
        let is_conflict = matches!(
            result,
            Err(AppendError::Conflict { expected, found: 5 }) if expected == at
        );
        ensure!(
            is_conflict,
            "taking events at {at} of a log that ends at 5 is not a Conflict that says so: {result:?}"
        );
        ensure!(
            shown.is_empty(),
            "{} events were shown that were not taken",
            shown.len()
        );
        holds(medium, &id, &all[..5])?;
    }
    let (result, _) = taken(&mut *log, 5, &all[5..]);
    result?;
    drop(log);
    holds(medium, &id, &all)?;
    let (shown, _, _) = open(&*medium.store(), &id)?;
    ensure!(
        shown == all,
        "of {} events that were taken {} are there when the session is opened",
        all.len(),
        shown.len()
    );
    Ok(())
}

pub(super) fn takes_without_a_lock(medium: &dyn Medium) -> Checked {
    let other = session(medium, "other", &events(0, 2))?;
    let id = id("a")?;
    let store = medium.store();
    let mut log = store.create(&id, 0)?;
    log.append(0, &events(0, 1))?;
    let (done, is_done) = mpsc::channel();
    // On a thread of its own, which is left behind when it never ends.
    std::thread::spawn(move || {
        let mut read = Ok(());
        let taken = log.take(1, events(1, 2), &mut |_| {
            // Whether its own events are there already is not said.
            let looked = store.read(&id).and_then(|_| store.read(&other));
            let looked = looked.and_then(|_| store.sessions());
            read = looked.map(drop);
        });
        drop(log);
        // Nobody listens any more when it took too long.
        let _ = done.send((taken, read));
    });
    let Ok((taken, read)) = is_done.recv_timeout(LONG) else {
        let what = "what is shown what was taken cannot read the store: a lock is held meanwhile";
        return Err(Stop::Fail(what.to_owned()));
    };
    taken?;
    read?;
    Ok(())
}

pub(super) fn refused_takes(medium: &dyn Medium) -> Checked {
    let id = id("a")?;
    let all = events(0, 8);
    let mut log = medium.store().create(&id, 0)?;
    taken(&mut *log, 0, &all[..2]).0?;
    if !medium.fail(true) {
        return Err(Stop::Skip);
    }
    for _ in 0..2 {
        let (refused, shown) = taken(&mut *log, 2, &all[2..5]);
        ensure!(
            matches!(refused, Err(AppendError::Store(_))),
            "a failing medium is not an error: {refused:?}"
        );
        ensure!(
            shown.is_empty(),
            "{} events were shown that were not taken",
            shown.len()
        );
        // All or none.
        holds(medium, &id, &all[..2])?;
    }
    medium.fail(false);
    // Either it goes on where it was, or it takes nothing more.
    let (result, shown) = taken(&mut *log, 2, &all[2..5]);
    let kept = if result.is_ok() { 5 } else { 2 };
    ensure!(
        shown == all[2..kept],
        "{} events were shown, and {} were taken",
        shown.len(),
        kept - 2
    );
    holds(medium, &id, &all[..kept])?;
    drop(log);
    let (_, mut log, _) = open(&*medium.store(), &id)?;
    taken(&mut *log, kept as u64, &all[kept..]).0?;
    drop(log);
    holds(medium, &id, &all)
}
