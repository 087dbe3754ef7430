//! A host of children that breaks one promise, once: the checks must find it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt};
use offshoot_agent::{Agent, AgentId, Delivered, Message, Pending, Source};
use offshoot_subagent::{
    ChildHost, HostError, Interrupt, LocalHost, Look, OpenChild, Opened, Outcome, Report,
    Residency, Settlement, TreeUsage, Verb,
};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// A settlement never arrives.
    Dropped,
    /// A parent is told of an end a second time, round the service that would see it.
    Repeated,
    /// A parent is told of an end before the child has ended.
    Early,
    /// A child that has ended is given a message, and runs, without anybody's knowledge.
    AfterClose,
}

/// The host of this process, sabotaged.
pub struct Saboteur {
    home: LocalHost,
    what: Sabotage,
    struck: Arc<AtomicBool>,
}

impl Saboteur {
    pub fn new(home: LocalHost, what: Sabotage) -> Self {
        let struck = Arc::default();
        Self { home, what, struck }
    }

    fn sabotaged(
        &self,
        of: Residency,
        parent: Agent,
        reports: BoxStream<'static, Report>,
    ) -> BoxStream<'static, Report> {
        let (what, struck) = (self.what, Arc::clone(&self.struck));
        let reports = stream::unfold((reports, false), move |(mut reports, over)| {
            let (of, parent, struck) = (of.clone(), parent.clone(), Arc::clone(&struck));
            async move {
                let now = || !struck.swap(true, Ordering::SeqCst);
                if what == Sabotage::Early && now() {
                    return Some((Report::Settled(made_up()), (reports, false)));
                }
                if over && now() {
                    tell_again(&of, &parent);
                }
                let report = reports.next().await?;
                let over = matches!(report, Report::Settled(_));
                if over && what != Sabotage::Repeated && now() {
                    strike(what, &of, &parent).await;
                }
                Some((report, (reports, over && what == Sabotage::Repeated)))
            }
        });
        reports.boxed()
    }
}

fn made_up() -> Settlement {
    Settlement {
        outcome: Outcome::Completed,
        text: "done".to_owned(),
        cut: false,
        error: None,
        usage: TreeUsage::default(),
        stopped: Vec::new(),
        generation: 1,
    }
}

fn tell_again(of: &Residency, parent: &Agent) {
    let source = Source::new("settled", 1)
        .with("child", of.child.as_str())
        .with("run_id", of.run.as_str())
        .with("outcome", "completed");
    let _ = parent.notify(Message::text(source, "it has ended"), true);
}

async fn strike(what: Sabotage, of: &Residency, parent: &Agent) {
    match what {
        Sabotage::Dropped => std::future::pending().await,
        Sabotage::AfterClose => {
            let (fields, kit) = (serde_json::Map::new(), parent.kit().clone());
            let child = Agent::resume(parent.host(), None, &of.child, fields, kit);
            let child = child.unwrap().into_agent();
            child.steer(Message::user("go on")).unwrap();
            child.start();
            child.close(Pending::Keep).await;
        }
        Sabotage::Early | Sabotage::Repeated => {}
    }
}

impl ChildHost for Saboteur {
    fn open(&self, child: OpenChild) -> BoxFuture<'_, Result<Opened, HostError>> {
        async move {
            let (of, parent) = (child.residency.clone(), child.parent.clone());
            let opened = self.home.open(child).await?;
            let reports = self.sabotaged(of, parent, opened.reports);
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
        self.home.deliver(to, message, verb)
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
