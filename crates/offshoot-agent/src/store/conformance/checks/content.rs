//! What is stored is read back as it was.

use super::ground::{ensure, events, holds, message, open, session, start, stored};
use crate::store::conformance::{Checked, Medium};
use crate::{Event, Extension, StoredEvent};

pub(super) fn large_events(medium: &dyn Medium) -> Checked {
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

pub(super) fn any_text(medium: &dyn Medium) -> Checked {
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

pub(super) fn ignorable_events(medium: &dyn Medium) -> Checked {
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
