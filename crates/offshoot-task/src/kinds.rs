//! The kinds that a shard has met, and which of its records an id names.

use std::collections::HashMap;
use std::sync::Arc;

use crate::counters::{Counter, Counters};
use crate::id::TaskId;
use crate::index::Index;
use crate::kind::TaskKind;
use crate::slab::Key;

#[derive(Debug)]
struct Kind {
    name: TaskKind,
    counter: Arc<Counter>,
    index: Index,
}

/// Which kind, by its place in one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KindKey(u32);

#[derive(Debug, Default)]
pub(crate) struct Kinds {
    kinds: Vec<Kind>,
    places: HashMap<TaskKind, KindKey>,
    counters: Arc<Counters>,
}

impl Kinds {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        Self {
            counters,
            ..Self::default()
        }
    }

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
            counter: self.counters.of(name),
            index: Index::default(),
        });
        key
    }

    pub(crate) fn name(&self, key: KindKey) -> TaskKind {
        self.kind(key).name
    }

    /// Whether ids of this kind can still be issued.
    pub(crate) fn is_exhausted(&self, key: KindKey) -> bool {
        self.kind(key).counter.is_exhausted()
    }

    /// Issues the next number to the record at `record`.
    pub(crate) fn issue(&mut self, key: KindKey, record: Key) -> u64 {
        let kind = self.kind_mut(key);
        let n = kind.counter.next();
        kind.index.push(n, record);
        n
    }

    /// Gives a number that was issued elsewhere to a record. False when it is in use here.
    pub(crate) fn adopt(&mut self, key: KindKey, n: u64, record: Key) -> bool {
        self.kind_mut(key).index.adopt(n, record)
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
