//! What a medium may hold that no store wrote as a whole.

use serde_json::{Value, json};

use super::ground::{ensure, events, holds, id, open, session};
use crate::StoreError;
use crate::store::conformance::{Checked, Medium, Stop};

pub(super) fn torn_tail(medium: &dyn Medium) -> Checked {
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

pub(super) fn damage(medium: &dyn Medium) -> Checked {
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

pub(super) fn newer_version(medium: &dyn Medium) -> Checked {
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

pub(super) fn unknown_events(medium: &dyn Medium) -> Checked {
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
