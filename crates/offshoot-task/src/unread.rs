//! What of an output the owner has read, and what somebody is reading for it just now.
//!
//! A plain value over offsets: no text, no lock. Two readings that are open at the same time never
//! have a byte in common, and a reading that comes to nothing leaves its bytes to the next one.

use std::mem;
use std::ops::Range;

// Invariants (see `check`)
// 1. Everything below `read` was read. `ahead` has disjoint ranges beyond it, in order.
// 2. A range that was read never touches `read`: it would have joined it.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    read: u64,
    /// Empty while nothing is open, as it nearly always is.
    ahead: Vec<Ahead>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Ahead {
    range: Range<u64>,
    /// Else it is being read.
    read: bool,
}

/// What a reading takes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// In order, and none empty: whatever is neither read nor being read.
    pub(crate) ranges: Vec<Range<u64>>,
    /// Bytes that others are reading.
    pub(crate) elsewhere: u64,
}

impl Unread {
    /// How many of `end` bytes were not read, those that are being read included.
    pub(crate) fn bytes(&self, end: u64) -> u64 {
        let ahead = self.ahead.iter();
        let read = ahead.filter(|one| one.read).map(|one| length(&one.range));
        end.saturating_sub(self.read)
            .saturating_sub(read.sum::<u64>())
    }

    /// Takes everything below `end` that was not read and that nobody reads. Each range must come
    /// back, to [`commit`](Self::commit) or to [`release`](Self::release).
    pub(crate) fn take(&mut self, end: u64) -> Taken {
        let mut taken = Taken::default();
        let mut all = Vec::new();
        let mut at = self.read;
        let mut free = |range: Range<u64>, all: &mut Vec<Ahead>| {
            if range.start < range.end {
                taken.ranges.push(range.clone());
                all.push(Ahead { range, read: false });
            }
        };
        for one in mem::take(&mut self.ahead) {
            free(at..one.range.start, &mut all);
            at = one.range.end;
            if !one.read {
                taken.elsewhere += length(&one.range);
            }
            all.push(one);
        }
        free(at..end, &mut all);
        self.ahead = all;
        taken
    }

    /// What was taken was shown.
    pub(crate) fn commit(&mut self, ranges: &[Range<u64>]) {
        for one in &mut self.ahead {
            one.read |= ranges.contains(&one.range);
        }
        self.settle();
    }

    /// What was taken was not shown.
    pub(crate) fn release(&mut self, ranges: &[Range<u64>]) {
        self.ahead
            .retain(|one| one.read || !ranges.contains(&one.range));
        self.settle();
    }

    /// What was shown did not arrive: it was not read after all.
    pub(crate) fn revoke(&mut self, ranges: &[Range<u64>]) {
        let read = Ahead {
            range: 0..mem::take(&mut self.read),
            read: true,
        };
        let (mut kept, mut all) = (Vec::new(), mem::take(&mut self.ahead));
        all.insert(0, read);
        for mut one in all {
            if !one.read {
                kept.push(one);
                continue;
            }
            for gone in ranges {
                // In order, so what is left of this one is behind those before.
                if gone.start >= one.range.end || gone.end <= one.range.start {
                    continue;
                }
                let range = one.range.start..gone.start;
                kept.push(Ahead { range, read: true });
                one.range.start = gone.end.min(one.range.end);
            }
            kept.push(one);
        }
        kept.retain(|one| one.range.start < one.range.end);
        self.ahead = kept;
        self.settle();
    }

    /// Lets what was read join `read`, and neighbours that were read each other.
    fn settle(&mut self) {
        let mut joined = 0;
        for one in &self.ahead {
            if !one.read || one.range.start != self.read {
                break;
            }
            self.read = one.range.end;
            joined += 1;
        }
        self.ahead.drain(..joined);
        self.ahead.dedup_by(|next, one| {
            let joins = one.read && next.read && one.range.end == next.range.start;
            if joins {
                one.range.end = next.range.end;
            }
            joins
        });
        if cfg!(debug_assertions) {
            self.check();
        }
    }

    /// Panics when an invariant does not hold.
    fn check(&self) {
        let mut at = self.read;
        for one in &self.ahead {
            assert!(
                at <= one.range.start && one.range.start < one.range.end,
                "{self:?}"
            );
            assert!(!(one.read && one.range.start == self.read), "{self:?}");
            at = one.range.end;
        }
    }
}

fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_second_reading_takes_what_the_first_does_not_have() {
        let mut unread = Unread::default();
        let taken = |range, elsewhere| Taken {
            ranges: Vec::from([range]),
            elsewhere,
        };
        let first = unread.take(10);
        assert_eq!(first, taken(0..10, 0));
        let second = unread.take(15);
        assert_eq!(second, taken(10..15, 10));
        assert_eq!(unread.take(15).ranges, []);
        assert_eq!(unread.bytes(15), 15, "nothing was shown yet");
        unread.commit(&second.ranges);
        assert_eq!(unread.bytes(20), 15);
        unread.release(&first.ranges);
        let third = unread.take(20);
        assert_eq!(third.ranges, [0..10, 15..20]);
        unread.commit(&third.ranges);
        assert_eq!((unread.bytes(20), unread.ahead.is_empty()), (0, true));
    }

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Byte {
        Unread,
        Held(usize),
        Read,
    }

    proptest! {
        /// Against one flag a byte.
        #[test]
        fn every_byte_is_unread_held_once_or_read(
            steps in proptest::collection::vec((0..5u8, 0..8usize), 1..100),
        ) {
            let (mut unread, mut bytes) = (Unread::default(), Vec::new());
            let mut open: Vec<(usize, Taken)> = Vec::new();
            let mut committed: Vec<Taken> = Vec::new();
            for (n, (step, value)) in steps.into_iter().enumerate() {
                match step {
                    0 => bytes.extend(std::iter::repeat_n(Byte::Unread, value)),
                    1 => {
                        let taken = unread.take(bytes.len() as u64);
                        let held = |byte: &&Byte| matches!(byte, Byte::Held(_));
                        prop_assert_eq!(taken.elsewhere, bytes.iter().filter(held).count() as u64);
                        let mut got: Vec<_> = taken.ranges.iter().cloned().flatten().collect();
                        for (at, byte) in bytes.iter_mut().enumerate() {
                            if *byte == Byte::Unread {
                                *byte = Byte::Held(n);
                                prop_assert_eq!(got.remove(0), at as u64);
                            }
                        }
                        prop_assert!(got.is_empty());
                        open.push((n, taken));
                    }
                    2 if !committed.is_empty() => {
                        let taken = committed.swap_remove(value % committed.len());
                        unread.revoke(&taken.ranges);
                        for at in taken.ranges.into_iter().flatten() {
                            bytes[usize::try_from(at).unwrap()] = Byte::Unread;
                        }
                    }
                    _ if open.is_empty() => {}
                    _ => {
                        let (reader, taken) = open.swap_remove(value % open.len());
                        let after = if step == 3 {
                            unread.commit(&taken.ranges);
                            committed.push(taken);
                            Byte::Read
                        } else {
                            unread.release(&taken.ranges);
                            Byte::Unread
                        };
                        for byte in &mut bytes {
                            if *byte == Byte::Held(reader) {
                                *byte = after;
                            }
                        }
                    }
                }
                unread.check();
                let left = bytes.iter().filter(|byte| **byte != Byte::Read).count();
                prop_assert_eq!(unread.bytes(bytes.len() as u64), left as u64);
            }
        }
    }
}
