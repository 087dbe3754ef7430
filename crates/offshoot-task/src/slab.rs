//! A generational slab: values in place, addressed by keys that go stale when the value leaves.
//!
//! It knows nothing of what it stores. Values live in chunks, so that growing never moves them and
//! never needs twice the memory.

use std::num::NonZeroU32;

/// Addresses one value. A key whose value was removed finds nothing, even when the place is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    index: u32,
    // Not zero, so that an optional key is no larger than a key.
    generation: NonZeroU32,
}

#[derive(Debug)]
enum Content<T> {
    Free { next: Option<u32> },
    Used(T),
}

#[derive(Debug)]
struct Slot<T> {
    generation: NonZeroU32,
    content: Content<T>,
}

const CHUNK: usize = 256;

#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Vec<Slot<T>>>,
    free: Option<u32>,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            free: None,
            len: 0,
        }
    }
}

impl<T> Slab<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        let index = index as usize;
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)
    }

    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<T>> {
        let index = index as usize;
        self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)
    }

    /// # Panics
    ///
    /// When it would hold more than 2³² values.
    pub(crate) fn insert(&mut self, value: T) -> Key {
        self.len += 1;
        if let Some(index) = self.free {
            let slot = self.slot_mut(index).expect("a free place exists");
            let Content::Free { next } = slot.content else {
                unreachable!("the free list holds only free places")
            };
            slot.content = Content::Used(value);
            let generation = slot.generation;
            self.free = next;
            return Key { index, generation };
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            // The first chunk grows as it is needed: many a slab stays small.
            let room = if self.chunks.is_empty() { 0 } else { CHUNK };
            self.chunks.push(Vec::with_capacity(room));
        }
        let chunks = self.chunks.len();
        let chunk = self.chunks.last_mut().expect("one was pushed");
        let index = (chunks - 1) * CHUNK + chunk.len();
        let index = u32::try_from(index).expect("fewer than 2^32 values");
        chunk.push(Slot {
            generation: NonZeroU32::MIN,
            content: Content::Used(value),
        });
        Key {
            index,
            generation: NonZeroU32::MIN,
        }
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        match self.slot(key.index)? {
            Slot {
                generation,
                content: Content::Used(value),
            } if *generation == key.generation => Some(value),
            _ => None,
        }
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        match self.slot_mut(key.index)? {
            Slot {
                generation,
                content: Content::Used(value),
            } if *generation == key.generation => Some(value),
            _ => None,
        }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let next = self.free;
        let slot = self.slot_mut(key.index)?;
        if slot.generation != key.generation || matches!(slot.content, Content::Free { .. }) {
            return None;
        }
        slot.generation = slot.generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
        let content = std::mem::replace(&mut slot.content, Content::Free { next });
        self.free = Some(key.index);
        self.len -= 1;
        match content {
            Content::Used(value) => Some(value),
            Content::Free { .. } => None,
        }
    }

    /// Drops a value where it is, without moving it.
    pub(crate) fn discard(&mut self, key: Key) {
        let next = self.free;
        if let Some(slot) = self.slot_mut(key.index)
            && slot.generation == key.generation
            && matches!(slot.content, Content::Used(_))
        {
            slot.generation = slot.generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
            slot.content = Content::Free { next };
            self.free = Some(key.index);
            self.len -= 1;
        }
    }

    /// Takes every value out, in the order of their places. All keys go stale.
    pub(crate) fn into_values(self) -> impl Iterator<Item = T> {
        self.chunks
            .into_iter()
            .flatten()
            .filter_map(|slot| match slot.content {
                Content::Used(value) => Some(value),
                Content::Free { .. } => None,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_key_finds_nothing_even_after_its_place_was_used_again() {
        let mut slab = Slab::default();
        let first = slab.insert("a");
        assert_eq!(slab.remove(first), Some("a"));
        let second = slab.insert("b");
        assert_eq!(second.index, first.index);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&"b"));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn places_are_used_again_across_chunks() {
        let mut slab = Slab::default();
        let keys: Vec<_> = (0..1000).map(|n| slab.insert(n)).collect();
        for key in &keys[100..900] {
            slab.remove(*key);
        }
        for n in 0..800 {
            slab.insert(n);
        }
        assert_eq!(slab.len(), 1000);
        assert_eq!(slab.chunks.len(), 4);
        assert_eq!(slab.into_values().count(), 1000);
    }
}
