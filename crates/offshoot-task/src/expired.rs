//! Which ids of an owner were given up: they are answered otherwise than those that it never had.

use std::collections::VecDeque;

use crate::kinds::KindKey;

/// How many spans are remembered for an owner. Alone it needs few; of one among many owners, whose ids
/// alternate, each span has what it gave up among 64 ids that follow each other.
const SPANS: usize = 1024;

/// How many of the last spans a number is looked for in: ids are given up in about their order.
const NEAR: usize = 8;

/// Numbers of one kind, in blocks of 64: all of `full` blocks from `first` on, and some of the next one.
#[derive(Debug)]
struct Span {
    kind: KindKey,
    first: u64,
    full: u64,
    bits: u64,
}

/// The block of a number, and its bit there. Numbers begin at 1.
fn place(n: u64) -> (u64, u64) {
    let n = n.saturating_sub(1);
    (n / 64, 1 << (n % 64))
}

impl Span {
    /// Adds a number to the block that is not full; false when it is not in there.
    fn note(&mut self, kind: KindKey, n: u64) -> bool {
        let (block, bit) = place(n);
        let near = self.kind == kind && self.first + self.full == block;
        if near {
            self.bits |= bit;
            if self.bits == u64::MAX {
                (self.full, self.bits) = (self.full + 1, 0);
            }
        }
        near
    }

    fn contains(&self, kind: KindKey, n: u64) -> bool {
        let (block, bit) = place(n);
        let end = self.first + self.full;
        let has = (self.first..end).contains(&block) || (block == end && self.bits & bit != 0);
        has && self.kind == kind
    }
}

/// Ids whose records were given up, bounded, the oldest forgotten first.
#[derive(Debug, Default)]
pub(crate) struct Expired(VecDeque<Span>);

impl Expired {
    pub(crate) fn note(&mut self, kind: KindKey, n: u64) {
        let mut near = self.0.iter_mut().rev().take(NEAR);
        if near.any(|span| span.note(kind, n)) {
            return;
        }
        if self.0.len() == SPANS {
            self.0.pop_front();
        }
        let (first, bits) = place(n);
        let full = 0;
        self.0.push_back(Span {
            kind,
            first,
            full,
            bits,
        });
    }

    pub(crate) fn contains(&self, kind: KindKey, n: u64) -> bool {
        self.0.iter().any(|span| span.contains(kind, n))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kind::TaskKind;
    use crate::kinds::Kinds;

    fn kinds() -> [KindKey; 2] {
        let mut kinds = Kinds::default();
        ["a", "b"].map(|name| kinds.intern(TaskKind::new(name).unwrap()))
    }

    #[test]
    fn an_owner_alone_takes_next_to_no_room() {
        let [kind, other] = kinds();
        let mut expired = Expired::default();
        (1..=1_000_000).for_each(|n| expired.note(kind, n));
        assert_eq!(expired.0.len(), 1);
        assert!(expired.contains(kind, 1) && expired.contains(kind, 1_000_000));
        assert!(!expired.contains(kind, 1_000_001) && !expired.contains(other, 1));
    }

    #[test]
    fn of_every_second_id_the_last_32_000_are_remembered() {
        let [kind, _] = kinds();
        let mut expired = Expired::default();
        (1..=100_000).for_each(|n| expired.note(kind, 2 * n));
        assert_eq!(expired.0.len(), SPANS);
        for n in 100_000 - 32_000..=100_000 {
            assert!(expired.contains(kind, 2 * n) && !expired.contains(kind, 2 * n - 1));
        }
    }

    proptest! {
        #[test]
        fn it_has_what_was_noted_and_nothing_else(
            notes in proptest::collection::vec((0..2usize, 1..500u64), 0..300),
        ) {
            let kinds = kinds();
            let mut expired = Expired::default();
            for (kind, n) in &notes {
                expired.note(kinds[*kind], *n);
            }
            for n in 1..510 {
                for (at, kind) in kinds.iter().enumerate() {
                    let noted = notes.contains(&(at, n));
                    prop_assert_eq!(expired.contains(*kind, n), noted, "{} {}", at, n);
                }
            }
        }
    }
}
