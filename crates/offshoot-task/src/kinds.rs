//! The counters of ids, and which record an id names.

use std::collections::HashMap;

use crate::id::TaskId;
use crate::index::Index;
use crate::kind::TaskKind;
use crate::slab::Key;

/// Numbers above this are never issued, so that a counter cannot wrap.
const LAST_NUMBER: u64 = u64::MAX - u32::MAX as u64;

#[derive(Debug)]
struct Kind {
    name: TaskKind,
    index: Index,
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
            index: Index::default(),
        });
        key
    }

    pub(crate) fn name(&self, key: KindKey) -> TaskKind {
        self.kind(key).name
    }

    /// Whether ids of this kind can still be issued.
    pub(crate) fn is_exhausted(&self, key: KindKey) -> bool {
        self.kind(key).index.last() >= LAST_NUMBER
    }

    /// Issues the next number to the record at `record`.
    pub(crate) fn issue(&mut self, key: KindKey, record: Key) -> u64 {
        self.kind_mut(key).index.push(record)
    }

    /// Gives a number that was issued elsewhere to a record. False when it is in use.
    pub(crate) fn adopt(&mut self, key: KindKey, n: u64, record: Key) -> bool {
        self.kind_mut(key).index.adopt(n, record)
    }

    pub(crate) fn reserve_through(&mut self, name: TaskKind, n: u64) {
        let key = self.intern(name);
        self.kind_mut(key).index.skip_through(n);
    }

    /// The record that an id names.
    pub(crate) fn find(&self, id: &TaskId) -> Option<Key> {
        let kind = self.lookup(id.task_kind())?;
        self.kind(kind).index.get(id.number())
    }

    pub(crate) fn kind_of(&self, id: &TaskId) -> Option<KindKey> {
        self.lookup(id.task_kind())
    }

    pub(crate) fn forget(&mut self, key: KindKey, n: u64) {
        self.kind_mut(key).index.remove(n);
    }
}
