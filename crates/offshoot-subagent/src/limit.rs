//! How many children of one tree may be live at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use offshoot_core::{Scope, ScopeId};

use crate::StartError;

type Counts = Arc<Mutex<HashMap<ScopeId, usize>>>;

/// Counts live children by tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct TreeLimit {
    counts: Counts,
    max: usize,
}

/// A place for one live child; dropping it frees the place.
#[must_use = "dropping the place frees it"]
#[derive(Debug)]
pub(crate) struct Place {
    counts: Counts,
    tree: ScopeId,
}

impl TreeLimit {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            counts: Counts::default(),
            max,
        }
    }

    /// Takes a place in the tree that `scope` belongs to.
    pub(crate) fn take(&self, scope: &Scope) -> Result<Place, StartError> {
        let mut top = scope;
        while let Some(parent) = top.parent() {
            top = parent;
        }
        let tree = top.id();
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(tree).or_default();
        if *count >= self.max {
            return Err(StartError::TooMany { limit: self.max });
        }
        *count += 1;
        Ok(Place {
            counts: Arc::clone(&self.counts),
            tree,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.tree) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.tree);
            }
        }
    }
}
