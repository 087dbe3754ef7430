//! The counters of ids, and which record an id names.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::id::TaskId;
use crate::kind::TaskKind;
use crate::slab::Key;

/// Numbers above this are never issued, so that a counter cannot wrap.
const LAST_NUMBER: u64 = u64::MAX - u32::MAX as u64;

/// Spreads counters, which nobody outside chooses freely, over a hash map.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CounterHasher(u64);

impl Hasher for CounterHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_isize(&mut self, n: isize) {
        self.write_u64(n as u64);
    }

    fn write_u64(&mut self, n: u64) {
        let mixed = (self.0.rotate_left(5) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

pub(crate) type CounterMap<K, V> = HashMap<K, V, BuildHasherDefault<CounterHasher>>;

#[derive(Debug)]
struct Kind {
    name: TaskKind,
    last: u64,
    index: CounterMap<u64, Key>,
}

/// Which kind, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KindKey(u32);

#[derive(Debug, Default)]
pub(crate) struct Kinds {
    kinds: Vec<Kind>,
    places: HashMap<TaskKind, KindKey>,
}

impl Kinds {
    /// The place of a kind; programs use few, so the first ones are compared before hashing.
    fn lookup(&self, name: TaskKind) -> Option<KindKey> {
        const FIRST: usize = 4;
        let at = self.kinds.iter().take(FIRST).position(|k| k.name == name);
        match at.and_then(|at| u32::try_from(at).ok()) {
            Some(at) => Some(KindKey(at)),
            None if self.kinds.len() > FIRST => self.places.get(&name).copied(),
            None => None,
        }
    }

    fn kind(&self, key: KindKey) -> &Kind {
        &self.kinds[key.0 as usize]
    }

    fn kind_mut(&mut self, key: KindKey) -> &mut Kind {
        &mut self.kinds[key.0 as usize]
    }

    /// The place of a kind, made when it is new.
    pub(crate) fn intern(&mut self, name: TaskKind) -> KindKey {
        if let Some(key) = self.lookup(name) {
            return key;
        }
        let key = KindKey(u32::try_from(self.kinds.len()).expect("fewer than 2^32 kinds"));
        self.places.insert(name, key);
        self.kinds.push(Kind {
            name,
            last: 0,
            index: CounterMap::default(),
        });
        key
    }

    pub(crate) fn name(&self, key: KindKey) -> TaskKind {
        self.kind(key).name
    }

    /// Whether ids of this kind can still be issued.
    pub(crate) fn is_exhausted(&self, key: KindKey) -> bool {
        self.kind(key).last >= LAST_NUMBER
    }

    /// Issues the next number to the record at `record`.
    pub(crate) fn issue(&mut self, key: KindKey, record: Key) -> u64 {
        let kind = self.kind_mut(key);
        kind.last += 1;
        kind.index.insert(kind.last, record);
        kind.last
    }

    /// Gives a number that was issued elsewhere to a record. False when it is in use.
    pub(crate) fn adopt(&mut self, key: KindKey, n: u64, record: Key) -> bool {
        let kind = self.kind_mut(key);
        if kind.index.contains_key(&n) {
            return false;
        }
        kind.index.insert(n, record);
        kind.last = kind.last.max(n);
        true
    }

    pub(crate) fn reserve_through(&mut self, name: TaskKind, n: u64) {
        let key = self.intern(name);
        let kind = self.kind_mut(key);
        kind.last = kind.last.max(n);
    }

    /// The record that an id names.
    pub(crate) fn find(&self, id: &TaskId) -> Option<Key> {
        let kind = self.lookup(id.task_kind())?;
        self.kind(kind).index.get(&id.number()).copied()
    }

    pub(crate) fn kind_of(&self, id: &TaskId) -> Option<KindKey> {
        self.lookup(id.task_kind())
    }

    pub(crate) fn forget(&mut self, key: KindKey, n: u64) {
        let index = &mut self.kind_mut(key).index;
        index.remove(&n);
        // A map does not shrink by itself; after a burst it would keep its greatest size.
        if index.capacity() > 1024 && index.len() < index.capacity() / 8 {
            index.shrink_to(index.len() * 2);
        }
    }
}
