//! How a child becomes resident: with its first message, or not at all.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use offshoot_agent::{Agent, Delivered, Message, Pending};
use offshoot_core::text;

use crate::event::RunRecord;
use crate::host::{HostError, OpenChild, Report, Session};
use crate::resident::{Resident, With};
use crate::state::activation::Command;
use crate::{StartError, Subagents, Verb, settle};

/// A residency that is being made: it is in the table, and nobody else makes one of this child. Dropped
/// before it began, it leaves nothing.
pub(crate) struct Opening {
    service: Subagents,
    resident: Arc<Resident>,
}

impl Drop for Opening {
    fn drop(&mut self) {
        // Without effect once it was made.
        let lost = Report::Settled(settle::lost("its making was given up".to_owned()));
        let with = With::Report(&lost);
        self.service.tell(&self.resident, Command::Failed, &with);
    }
}

/// A child did not become resident.
#[derive(Debug)]
pub(crate) enum OpenFault {
    /// Its parent refuses.
    Parent(StartError),
    /// Its host could not make it.
    Host(HostError),
    /// Its first message was refused.
    First(HostError),
}

impl Opening {
    /// `None` when the child is resident, or somebody else makes it so.
    pub(crate) fn enter(service: &Subagents, parent: &Agent, run: RunRecord) -> Option<Self> {
        let resident = Resident::new(parent, run);
        service.enter(&resident).then(|| Self {
            service: service.clone(),
            resident,
        })
    }

    /// Takes what a live child needs of its parent: a hold, and a place in its tree.
    pub(crate) fn tie(&self) -> Result<(), StartError> {
        let parent = self.resident.parent.scope();
        let hold = parent.hold().map_err(|_| StartError::ParentClosing)?;
        let place = self.service.0.limit.take(parent)?;
        let mut ties = self.resident.ties();
        (ties.hold, ties.place) = (Some(hold), Some(place));
        Ok(())
    }

    /// Makes the child resident and gives it its first message. When that is refused, what it has to
    /// read stays or goes by `unread`.
    ///
    /// Goes on to its end when it is dropped: a child is either wholly there or not at all.
    pub(crate) async fn complete(
        self,
        session: Session,
        first: Message,
        verb: Verb,
        unread: Pending,
    ) -> Result<Delivered, OpenFault> {
        let mut work = self.make(session, first, verb, unread).boxed();
        // In this process nothing is waited for, and no task is needed.
        if let Some(done) = (&mut work).now_or_never() {
            return done;
        }
        let done = tokio::spawn(work).await;
        done.unwrap_or_else(|error| Err(OpenFault::Host(HostError::Failed(error.to_string()))))
    }

    async fn make(
        self,
        session: Session,
        first: Message,
        verb: Verb,
        unread: Pending,
    ) -> Result<Delivered, OpenFault> {
        let (service, resident) = (&self.service, &self.resident);
        self.attach().map_err(OpenFault::Parent)?;
        let asked = OpenChild {
            residency: resident.residency.clone(),
            parent: resident.parent.clone(),
            session,
        };
        let opened = contain(|| service.children().open(asked)).await;
        let reports = opened.map_err(OpenFault::Host)?.reports;
        if let Err(error) = resident.parent.record(resident.run.started()) {
            let refused = Command::Refused(Pending::Discard);
            service.tell(resident, refused, &With::Nothing);
            service.watch(resident, reports);
            resident.settled().await;
            return Err(OpenFault::Parent(error.into()));
        }
        service.tell(resident, Command::Recorded, &With::Nothing);
        let children = service.children();
        let first = contain(|| children.deliver(&resident.residency, first, verb)).await;
        let command = match &first {
            Ok(_) => Command::Begun,
            Err(_) => Command::Refused(unread),
        };
        service.tell(resident, command, &With::Nothing);
        service.watch(resident, reports);
        first.map_err(|error| match resident.parent.scope().is_closing() {
            true if error.is_over() => OpenFault::Parent(StartError::ParentClosing),
            _ => OpenFault::First(error),
        })
    }

    /// The parent's closing closes the child, and waits for it.
    fn attach(&self) -> Result<(), StartError> {
        let (service, resident) = (self.service.clone(), Arc::clone(&self.resident));
        let parent = resident.parent.scope().clone();
        let name = format!("subagent {}", resident.child());
        let cleanup = parent.on_close(name, async move || {
            let close = Command::Close(Pending::Keep);
            service.tell(&resident, close, &With::Nothing);
            resident.settled().await;
            Ok(())
        });
        let cleanup = cleanup.map_err(|_| StartError::ParentClosing)?;
        self.resident.ties().cleanup = Some(cleanup);
        Ok(())
    }
}

/// Calls a host; its panic becomes an error, whether it comes with the call or in its future.
pub(crate) async fn contain<'a, T>(
    call: impl FnOnce() -> BoxFuture<'a, Result<T, HostError>>,
) -> Result<T, HostError> {
    let called = AssertUnwindSafe(async { call().await }).catch_unwind();
    called.await.unwrap_or_else(|panic| {
        let message = text::panic_message(&*panic);
        Err(HostError::Failed(format!("the host panicked: {message}")))
    })
}

impl OpenFault {
    /// What a start is refused with.
    pub(crate) fn into_start_error(self) -> StartError {
        match self {
            Self::Parent(error) => error,
            Self::Host(HostError::Open(error)) => error.into(),
            Self::Host(HostError::Send(error)) | Self::First(HostError::Send(error)) => {
                error.into()
            }
            Self::Host(error) | Self::First(error) => StartError::Host(error),
        }
    }
}
