//! How many children of one tree may be live at once.

use std::sync::{Arc, Mutex, PoisonError};

use offshoot_core::{Scope, ScopeId};

use crate::StartError;
use crate::state::capacity::{Capacity, Command, Reply};

type Trees = Arc<Mutex<Capacity<ScopeId>>>;

/// Counts live children by tree.
#[derive(Clone, Debug)]
pub(crate) struct TreeLimit(Trees);

/// A place for one live child; dropping it frees the place.
#[must_use = "dropping the place frees it"]
#[derive(Debug)]
pub(crate) struct Place {
    trees: Trees,
    tree: ScopeId,
}

impl TreeLimit {
    pub(crate) fn new(max: usize) -> Self {
        Self(Arc::new(Mutex::new(Capacity::new(max))))
    }

    /// Takes a place in the tree that `scope` belongs to.
    pub(crate) fn take(&self, scope: &Scope) -> Result<Place, StartError> {
        let mut top = scope;
        while let Some(parent) = top.parent() {
            top = parent;
        }
        let tree = top.id();
        let mut trees = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match trees.apply(Command::Take(tree)) {
            Reply::Taken => Ok(Place {
                trees: Arc::clone(&self.0),
                tree,
            }),
            _ => Err(StartError::TooMany { limit: trees.max() }),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut trees = self.trees.lock().unwrap_or_else(PoisonError::into_inner);
        trees.apply(Command::Free(self.tree));
    }
}
