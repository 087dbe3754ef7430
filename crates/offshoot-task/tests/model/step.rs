//! What may happen to a registry.

use proptest::prelude::*;

use crate::OWNERS;

/// Small numbers choose among what there is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Start {
        owner: usize,
        streams: bool,
        obeys: bool,
    },
    Refuse {
        owner: usize,
    },
    End {
        task: usize,
        how: usize,
    },
    Kill {
        by: usize,
        caller: usize,
        task: usize,
    },
    Write {
        task: usize,
        bytes: usize,
    },
    Wait {
        caller: usize,
        task: usize,
    },
    /// Looks at a wait that is under way; keeps what it found.
    Poll {
        wait: usize,
    },
    /// Goes away with a wait, or with what it found.
    Drop {
        wait: usize,
    },
    /// Shows what a wait has found.
    Commit {
        wait: usize,
    },
    Read {
        caller: usize,
        task: usize,
    },
    /// Ends a reading that is open.
    EndReading {
        reading: usize,
        commit: bool,
    },
    Close {
        owner: usize,
    },
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let n = 0..64usize;
    let who = 0..OWNERS;
    prop_oneof![
        6 => (who.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(owner, streams, obeys)| Step::Start { owner, streams, obeys }),
        1 => who.clone().prop_map(|owner| Step::Refuse { owner }),
        5 => (n.clone(), 0..3usize).prop_map(|(task, how)| Step::End { task, how }),
        3 => (0..2usize, who.clone(), n.clone())
            .prop_map(|(by, caller, task)| Step::Kill { by, caller, task }),
        4 => (n.clone(), 1..20usize).prop_map(|(task, bytes)| Step::Write { task, bytes }),
        4 => (who.clone(), n.clone()).prop_map(|(caller, task)| Step::Wait { caller, task }),
        4 => n.clone().prop_map(|wait| Step::Poll { wait }),
        2 => n.clone().prop_map(|wait| Step::Drop { wait }),
        3 => n.clone().prop_map(|wait| Step::Commit { wait }),
        4 => (who.clone(), n.clone()).prop_map(|(caller, task)| Step::Read { caller, task }),
        5 => (n, any::<bool>())
            .prop_map(|(reading, commit)| Step::EndReading { reading, commit }),
        1 => who.prop_map(|owner| Step::Close { owner }),
    ]
}
