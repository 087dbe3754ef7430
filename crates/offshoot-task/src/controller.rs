//! Who is able to look after tasks: nothing is started that nobody could read or stop.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use offshoot_core::{Scope, ScopeId};

use crate::error::StartError;
use crate::shards::Shards;

/// How many controllers there are, and for whom.
#[derive(Debug, Default)]
pub(crate) struct Controllers {
    everywhere: usize,
    within: HashMap<ScopeId, usize>,
}

impl Controllers {
    fn attach(&mut self, scope: Option<ScopeId>) {
        match scope {
            None => self.everywhere += 1,
            Some(scope) => *self.within.entry(scope).or_default() += 1,
        }
    }

    fn detach(&mut self, scope: Option<ScopeId>) {
        let Some(scope) = scope else {
            self.everywhere -= 1;
            return;
        };
        if let Some(count) = self.within.get_mut(&scope) {
            *count -= 1;
            if *count == 0 {
                self.within.remove(&scope);
            }
        }
    }

    /// Whether one serves `owner`: one for everybody, or one of its scope or of a scope around it.
    fn serve(&self, owner: Option<&Scope>) -> bool {
        let mut scopes = std::iter::successors(owner, |scope| scope.parent());
        self.everywhere > 0 || scopes.any(|scope| self.within.contains_key(&scope.id()))
    }
}

/// Says that somebody is able to read and stop tasks, until it is dropped. Tasks that run go on.
///
/// It matters where [`TaskConfig::require_controller`](crate::TaskConfig::require_controller) is set:
/// there a start is refused unless a controller serves its owner.
///
/// ```
/// use offshoot_core::Scope;
/// use offshoot_task::{TaskConfig, TaskRegistry};
///
/// let config = TaskConfig { require_controller: true, ..TaskConfig::default() };
/// let registry = TaskRegistry::new(config);
/// // The tools of one agent can look after its tasks, and after those of scopes within it.
/// let agent = Scope::root("agent");
/// let controller = registry.attach_controller_within(&agent);
/// # drop(controller);
/// ```
#[must_use = "dropping it detaches the controller"]
pub struct Controller {
    shards: Arc<Shards>,
    scope: Option<ScopeId>,
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.shards.controllers().detach(self.scope);
    }
}

impl Shards {
    pub(crate) fn attach_controller(self: &Arc<Self>, scope: Option<ScopeId>) -> Controller {
        self.controllers().attach(scope);
        Controller {
            shards: Arc::clone(self),
            scope,
        }
    }

    /// The first check of every start.
    pub(crate) fn check_controller(&self, owner: Option<&Scope>) -> Result<(), StartError> {
        if !self.config().require_controller || self.controllers().serve(owner) {
            return Ok(());
        }
        Err(StartError::NoController)
    }
}
