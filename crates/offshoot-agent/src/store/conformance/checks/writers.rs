//! A session has one writer, and writers of different sessions do not meet.

use std::sync::Barrier;

use super::ground::{ensure, events, holds, id, message, open};
use crate::StoreError;
use crate::store::conformance::{Checked, Medium};

pub(super) fn one_writer(medium: &dyn Medium) -> Checked {
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

pub(super) fn racing_writers(medium: &dyn Medium) -> Checked {
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

pub(super) fn writers_of_many_sessions(medium: &dyn Medium) -> Checked {
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
