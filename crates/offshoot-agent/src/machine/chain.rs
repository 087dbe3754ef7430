//! How long the chain of automatic wakes behind a turn is: its generation.
//!
//! A turn has the generation of what opened it: the least one among the messages of its first batch that
//! may wake. What rode along quietly opened nothing, above all a notice that was quiet because its chain is
//! too long: it must not lend the turn its generation, or independent work would be at the limit as well.
//! A message that may wake and is read in the middle of the turn would have opened one of its generation
//! by itself: from that step on the turn has it, if it is less. It never grows.
//!
//! Chains stay bounded. What a turn of generation g causes by itself, a notice, has the generation g + 1;
//! one beyond the limit wakes nothing. So a turn, or the part of one from a step on, has a generation g > 0
//! only by a message of just that generation which it has read, and each message is read once: there are
//! no more of them than messages of generation g, and these come from turns of generation g - 1. A chain
//! cannot begin anew by riding on its own messages, since none of those has a lesser generation than the
//! turn that caused it. Generation 0 needs a message that no chain sent.

/// The generation of a turn, of the messages that it claims at its beginning.
#[derive(Debug, Default)]
pub(super) struct Opened {
    waking: Option<u64>,
    all: Option<u64>,
}

impl Opened {
    pub(super) fn by(&mut self, generation: u64, wake: bool) {
        let least = |least: Option<u64>| Some(least.map_or(generation, |l| l.min(generation)));
        self.all = least(self.all);
        if wake {
            self.waking = least(self.waking);
        }
    }

    /// Of a turn that nothing woke, as one that reads what was left over, the least of all.
    pub(super) fn generation(&self) -> u64 {
        self.waking.or(self.all).unwrap_or(0)
    }
}
