//! A host that fails where it is told to, and otherwise is the one of this process.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use offshoot_agent::{AgentId, Delivered, Message, Pending};
use offshoot_subagent::{
    ChildHost, HostError, Interrupt, LocalHost, Look, OpenChild, Opened, Report, Residency, Verb,
};

use super::Gate;

/// Where the host fails, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Break {
    #[default]
    Nothing,
    OpenFails,
    OpenPanics,
    DeliverFails,
    DeliverPanics,
    /// The reports end at once.
    ReportsEnd,
    ReportsPanic,
}

#[derive(Clone)]
pub struct Broken {
    home: LocalHost,
    at: Arc<Mutex<Break>>,
    /// Opened when an opening has arrived.
    pub arrived: Gate,
    /// Waited for when a child has been opened, before that is answered.
    answer: Option<Gate>,
    /// What was opened last.
    last: Arc<Mutex<Option<OpenChild>>>,
}

impl Broken {
    pub fn new(home: LocalHost, answer: Option<Gate>) -> Self {
        Self {
            home,
            at: Arc::default(),
            arrived: Gate::default(),
            answer,
            last: Arc::default(),
        }
    }

    pub fn breaks(&self, at: Break) {
        *self.at.lock().unwrap() = at;
    }

    /// What was opened last is opened again, as when the answer was lost on its way.
    pub async fn reopen(&self) -> Result<Opened, HostError> {
        let last = self.last.lock().unwrap().clone();
        self.home.open(last.unwrap()).await
    }

    fn at(&self) -> Break {
        *self.at.lock().unwrap()
    }
}

impl ChildHost for Broken {
    fn open(&self, child: OpenChild) -> BoxFuture<'_, Result<Opened, HostError>> {
        async move {
            let at = self.at();
            assert_ne!(at, Break::OpenPanics, "open panicked");
            if at == Break::OpenFails {
                return Err(HostError::Failed("no such machine".to_owned()));
            }
            self.arrived.open();
            *self.last.lock().unwrap() = Some(child.clone());
            let opened = self.home.open(child).await?;
            if let Some(answer) = &self.answer {
                answer.opened().await;
            }
            let reports = match at {
                Break::ReportsEnd => futures::stream::empty().boxed(),
                Break::ReportsPanic => {
                    futures::stream::once(async { panic!("the reports panicked") })
                        .map(|(): ()| -> Report { unreachable!() })
                        .boxed()
                }
                _ => opened.reports,
            };
            Ok(Opened { reports })
        }
        .boxed()
    }

    fn deliver<'a>(
        &'a self,
        to: &'a Residency,
        message: Message,
        verb: Verb,
    ) -> BoxFuture<'a, Result<Delivered, HostError>> {
        async move {
            assert_ne!(self.at(), Break::DeliverPanics, "deliver panicked");
            if self.at() == Break::DeliverFails {
                return Err(HostError::Failed("the line is cut".to_owned()));
            }
            self.home.deliver(to, message, verb).await
        }
        .boxed()
    }

    fn interrupt(&self, child: &Residency, interrupt: Interrupt) {
        self.home.interrupt(child, interrupt);
    }

    fn close(&self, child: &Residency, pending: Pending) {
        self.home.close(child, pending);
    }

    fn retract(&self, child: &Residency) {
        self.home.retract(child);
    }

    fn look(&self, child: &AgentId) -> Option<Look> {
        self.home.look(child)
    }
}
