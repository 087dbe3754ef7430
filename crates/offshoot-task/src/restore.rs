//! Tasks that ended in an earlier process, or were lost with it.

use std::sync::Arc;

use offshoot_core::{Scope, Timestamp};

use crate::config::TaskConfig;
use crate::error::StartError;
use crate::id::TaskId;
use crate::lifecycle::Lifecycle;
use crate::record::{Ended, FinalOutput, Links, OpenReadings, Output, Record, Stage};
use crate::shard::Shard;
use crate::shards::Shards;
use crate::spec::{detail_line, label_line};
use crate::status::{TaskOutcome, TaskStatus};
use crate::sync::lock;
use crate::table::After;

/// A task of the past, made ready outside every lock.
struct Past {
    id: TaskId,
    label: Arc<str>,
    generation: u64,
    status: TaskStatus,
    detail: Option<Arc<str>>,
    output: Output,
    at: Timestamp,
}

impl Past {
    fn new(
        config: &TaskConfig,
        id: TaskId,
        label: &str,
        generation: u64,
        outcome: TaskOutcome,
    ) -> Result<Self, StartError> {
        let TaskOutcome {
            status,
            detail,
            output,
            frame,
        } = outcome;
        let output = output.or_else(|| frame.as_ref().map(|_| String::new()));
        let output = output.map_or(Output::None, |full| Output::Final {
            output: Arc::new(FinalOutput::bounded(&full, config.output_window, frame)),
            read: false,
            open: OpenReadings::default(),
        });
        Ok(Self {
            id,
            label: label_line(label).ok_or(StartError::EmptyLabel)?,
            generation,
            status,
            detail: detail.as_deref().and_then(detail_line).map(Into::into),
            output,
            at: config.clock.now(),
        })
    }
}

impl Shards {
    /// See `TaskRegistry::restore`.
    pub(crate) fn restore(
        &self,
        scope: &Scope,
        id: TaskId,
        label: &str,
        generation: u64,
        outcome: TaskOutcome,
    ) -> Result<(), StartError> {
        let past = Past::new(self.config(), id, label, generation, outcome)?;
        let own = self.of(Some(scope.id()));
        let mut after = After::default();
        let restored = {
            let _alone = lock(self.adopting());
            if self.is_taken(&past.id, own) {
                Err(StartError::IdInUse { id: past.id })
            } else {
                own.register_past(scope, past, &mut after)
            }
        };
        own.perform(after);
        restored
    }
}

impl Shard {
    /// Registers it, if its id is not in use in this shard.
    fn register_past(
        self: &Arc<Self>,
        scope: &Scope,
        past: Past,
        after: &mut After,
    ) -> Result<(), StartError> {
        let mut table = self.table();
        if table.closing {
            return Err(StartError::RegistryClosing);
        }
        let owner = table.enrol(self, Some(scope))?;
        let known = table.owners.get(owner);
        if known.is_none_or(|owner| owner.closing.is_some()) {
            return Err(StartError::OwnerClosing);
        }
        let kind = table.kinds.intern(past.id.task_kind());
        let key = table.records.insert(Record {
            life: Lifecycle::ended(past.status),
            kind,
            n: past.id.number(),
            owner,
            owner_id: Some(scope.id()),
            sequence: 0,
            links: Links::default(),
            label: past.label,
            generation: past.generation,
            started_at: past.at,
            stage: Stage::Ended(Ended {
                ran: 0,
                detail: past.detail,
            }),
            output: past.output,
            stop: None,
            report: None,
            hold: None,
            ticket: false,
            retired: false,
        });
        if table.kinds.adopt(kind, past.id.number(), key) {
            table.link(key);
            table.follow_up(key, after);
            Ok(())
        } else {
            table.records.discard(key);
            Err(StartError::IdInUse { id: past.id })
        }
    }
}
