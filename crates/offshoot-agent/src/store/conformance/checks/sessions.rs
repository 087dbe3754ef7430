//! How sessions come to be, are listed, and are opened again.

use super::ground::{ensure, events, forked, holds, id, message, open, session, start};
use crate::store::conformance::{Checked, Medium, Stop};
use crate::{AgentId, StoreError};

pub(super) fn unknown_session(medium: &dyn Medium) -> Checked {
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

pub(super) fn one_session_an_id(medium: &dyn Medium) -> Checked {
    let all = events(0, 2);
    let id = session(medium, "a", &all)?;
    ensure!(
        matches!(medium.store().create(&id, 0), Err(StoreError::Exists(_))),
        "a second session of one id is not refused with Exists"
    );
    holds(medium, &id, &all)
}

pub(super) fn reopen(medium: &dyn Medium) -> Checked {
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

pub(super) fn abandon(medium: &dyn Medium) -> Checked {
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

pub(super) fn listing(medium: &dyn Medium) -> Checked {
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

pub(super) fn first_event(medium: &dyn Medium) -> Checked {
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

pub(super) fn unborn_fork(medium: &dyn Medium) -> Checked {
    let fork = id("fork")?;
    let mut log = medium.store().create(&fork, 3)?;
    log.append(0, &events(0, 3))?;
    drop(log);
    holds(medium, &fork, &[])?;
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
