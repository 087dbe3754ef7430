//! The checks, one a promise.

mod appends;
mod content;
mod damage;
mod ground;
mod sessions;
mod takes;
mod writers;

use super::{Checked, Medium};

type Check = fn(&dyn Medium) -> Checked;

/// In the order in which a new store is best built.
pub(super) const ALL: &[(&str, Check)] = &[
    ("read back", appends::read_back),
    ("unknown session", sessions::unknown_session),
    ("one session an id", sessions::one_session_an_id),
    ("expected sequence", appends::expected_sequence),
    ("reopen", sessions::reopen),
    ("takes", takes::takes),
    ("one writer", writers::one_writer),
    ("racing writers", writers::racing_writers),
    (
        "writers of many sessions",
        writers::writers_of_many_sessions,
    ),
    ("abandon", sessions::abandon),
    ("listing", sessions::listing),
    ("first event", sessions::first_event),
    ("unborn fork", sessions::unborn_fork),
    ("large events", content::large_events),
    ("any text", content::any_text),
    ("ignorable events", content::ignorable_events),
    ("flush", appends::flush),
    ("torn tail", damage::torn_tail),
    ("damage", damage::damage),
    ("newer version", damage::newer_version),
    ("unknown events", damage::unknown_events),
    ("takes without a lock", takes::takes_without_a_lock),
    ("refused appends", appends::refused_appends),
    ("refused takes", takes::refused_takes),
];
