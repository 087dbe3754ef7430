//! What an agent that goes on with a session asks of its log: the same for one that is resumed and for who
//! only looks.

use super::{StoreError, Visit};
use crate::agent::{AgentHost, OpenError};
use crate::{AgentId, Event, Projection, StoredEvent};

/// From here on a number cannot be counted on from.
const IMPOSSIBLE: u64 = 1 << 63;

/// Folds a log, and keeps the first thing that a later event cannot mend.
pub(crate) struct Examination<'a> {
    host: &'a AgentHost,
    id: &'a AgentId,
    projection: Projection,
    fault: Option<StoreError>,
}

impl<'a> Examination<'a> {
    pub(crate) fn of(host: &'a AgentHost, id: &'a AgentId) -> Self {
        Self {
            host,
            id,
            projection: Projection::default(),
            fault: None,
        }
    }

    pub(crate) fn see(&mut self, stored: &StoredEvent) {
        if self.fault.is_some() {
            return;
        }
        self.fault = self.fault_of(stored);
        if self.fault.is_none() {
            self.projection.apply(stored);
        }
    }

    fn fault_of(&self, stored: &StoredEvent) -> Option<StoreError> {
        let place = || format!("session {}, event {}", self.id, stored.seq);
        match &stored.event {
            Event::Extension(extension) if !self.host.knows(extension) => {
                Some(StoreError::UnknownEvent {
                    place: place(),
                    kind: extension.kind.clone(),
                })
            }
            event if greatest_number(event) >= IMPOSSIBLE => Some(StoreError::Corrupt {
                place: place(),
                what: format!("impossible number {}", greatest_number(event)),
            }),
            _ => None,
        }
    }

    pub(crate) fn end(self) -> Result<Projection, StoreError> {
        self.fault.map_or(Ok(self.projection), Err)
    }
}

/// The greatest of the numbers of an event that a later one is counted on from.
fn greatest_number(event: &Event) -> u64 {
    match event {
        Event::TurnStart { turn, generation } => *turn.max(generation),
        Event::StepStart { turn, step } => *turn.max(step),
        Event::InboxInserted { message, .. } | Event::MessageUser { message, .. } => {
            message.source.generation
        }
        _ => 0,
    }
}

impl AgentHost {
    /// Reads a session as an agent that goes on with it would, and refuses what it would refuse, without
    /// becoming its writer and without changing it. `visit` sees each event.
    ///
    /// # Errors
    ///
    /// [`OpenError::Empty`], or [`OpenError::Store`]; never [`StoreError::Locked`]. `visit` may have seen
    /// a part of the log then.
    pub fn examine(&self, id: &AgentId, visit: Visit<'_>) -> Result<Projection, OpenError> {
        if self.store.first(id)?.is_none() {
            return Err(OpenError::Empty(id.clone()));
        }
        let mut examination = Examination::of(self, id);
        self.store.scan(id, &mut |stored| {
            examination.see(stored);
            visit(stored);
        })?;
        let projection = examination.end()?;
        match projection.start() {
            Some(_) => Ok(projection),
            None => Err(OpenError::Empty(id.clone())),
        }
    }
}
