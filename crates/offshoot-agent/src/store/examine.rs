//! What an agent that goes on with a session asks of its log: the same for one that is resumed and for who
//! only looks.

pub(crate) mod order;
pub(crate) mod rule;

use super::{StoreError, Visit};
use crate::agent::{AgentHost, OpenError};
use crate::{AgentId, Event, Extension, Projection, StoredEvent};
use rule::EventCheck;

/// Folds a log, and keeps the first thing that a later event cannot mend.
pub(crate) struct Examination<'a> {
    host: &'a AgentHost,
    id: &'a AgentId,
    projection: Projection,
    checks: Vec<EventCheck>,
    fault: Option<StoreError>,
}

impl<'a> Examination<'a> {
    pub(crate) fn of(host: &'a AgentHost, id: &'a AgentId) -> Self {
        Self {
            host,
            id,
            projection: host.projection(),
            checks: checks(host, id),
            fault: None,
        }
    }

    pub(crate) fn see(&mut self, stored: &StoredEvent) {
        if self.fault.is_some() {
            return;
        }
        self.fault = self.fault_of(stored);
        if self.fault.is_some() {
            return;
        }
        if let Event::SessionStart(start) = &stored.event
            && start.inherited.is_some()
        {
            self.checks = checks(self.host, self.id);
        }
        self.projection.apply(stored);
    }

    fn fault_of(&mut self, stored: &StoredEvent) -> Option<StoreError> {
        let place = format_args!("session {}, event {}", self.id, stored.seq);
        let what = match &stored.event {
            Event::Extension(extension) if !self.host.knows(extension) => {
                return Some(StoreError::UnknownEvent {
                    place: place.to_string(),
                    kind: extension.kind.clone(),
                });
            }
            Event::Extension(extension) if extension.is_ignorable() => return None,
            Event::Extension(extension) => order::fault(&self.projection, stored)
                .or_else(|| first_fault(&mut self.checks, extension)),
            _ => order::fault(&self.projection, stored),
        };
        what.map(|what| StoreError::Corrupt {
            place: place.to_string(),
            what,
        })
    }

    pub(crate) fn end(self) -> Result<Projection, StoreError> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let start = self.projection.start();
        let ring = start.and_then(|start| order::lineage(self.id, start, |id| self.parent_of(id)));
        match ring {
            Some(what) => Err(StoreError::Corrupt {
                place: format!("session {}", self.id),
                what,
            }),
            None => Ok(self.projection),
        }
    }

    /// A session above may be gone, or damaged itself: that is its own fault.
    fn parent_of(&self, id: &AgentId) -> Option<AgentId> {
        match self.host.store.first(id).ok()??.event {
            Event::SessionStart(start) => start.parent.clone(),
            _ => None,
        }
    }
}

fn checks(host: &AgentHost, id: &AgentId) -> Vec<EventCheck> {
    host.event_rules.iter().map(|rule| rule.check(id)).collect()
}

fn first_fault(checks: &mut [EventCheck], extension: &Extension) -> Option<String> {
    checks.iter_mut().find_map(|check| check(extension).err())
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
