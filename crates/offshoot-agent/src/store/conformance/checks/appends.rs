//! What an append promises.

use super::ground::{ensure, events, holds, id, open};
use crate::AppendError;
use crate::store::conformance::{Checked, Medium, Stop};

pub(super) fn read_back(medium: &dyn Medium) -> Checked {
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

pub(super) fn expected_sequence(medium: &dyn Medium) -> Checked {
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

pub(super) fn flush(medium: &dyn Medium) -> Checked {
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

pub(super) fn refused_appends(medium: &dyn Medium) -> Checked {
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
