//! What is examined.

use std::sync::Arc;

use offshoot_subagent::Provider;

use crate::Behaviour;

/// A provider whose children behave as they are told: what its author writes.
///
/// # Implementing
///
/// - A provider whose children are agents of this process returns the same provider for every
///   behaviour: its children get their parent's driver, and the one of the cases behaves.
/// - A provider of programs starts a program that reads its prompt
///   ([`Behaviour::of_prompt`]), or passes the behaviour as an argument.
/// - Times that the provider takes in ending a child may be set short.
///
/// A closure is a subject of which nothing can be left outside the runtime.
pub trait Subject: Send + Sync {
    /// A provider whose children behave like this; `None` when it cannot have such children: the
    /// cases that need them are skipped, and the report says so. A fresh one for each case.
    fn provider(&self, behaviour: Behaviour) -> Option<Arc<dyn Provider>>;

    /// What is left of the children of all cases so far, such as processes, each as one line. Asked
    /// after each case until there is nothing, or the time is over.
    fn left(&self) -> Vec<String> {
        Vec::new()
    }
}

impl<F> Subject for F
where
    F: Fn(Behaviour) -> Option<Arc<dyn Provider>> + Send + Sync,
{
    fn provider(&self, behaviour: Behaviour) -> Option<Arc<dyn Provider>> {
        self(behaviour)
    }
}
