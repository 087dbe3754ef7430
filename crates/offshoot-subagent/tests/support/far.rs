//! A host far away: the host of this process behind a connection that delays, repeats and loses.
//!
//! Everything that is asked arrives late and may arrive again: at once, because the answer was lost in a
//! crash and it was asked again, or much later. Reports come late and again, too. What comes twice must be
//! told apart and have no second effect; each time that it is not is a fault, which
//! [`check`](Far::check) tells.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use offshoot_agent::{AgentId, Delivered, Message, Pending};
use offshoot_subagent::{
    ChildHost, HostError, Interrupt, LocalHost, Look, OpenChild, Opened, Report, Residency, Verb,
};
use tokio::sync::mpsc;

#[derive(Clone)]
pub struct Far {
    home: LocalHost,
    dice: Arc<AtomicU64>,
    repeated: Arc<AtomicUsize>,
    faults: Arc<Mutex<Vec<String>>>,
}

impl Far {
    pub fn new(home: LocalHost, seed: u64) -> Self {
        Self {
            home,
            dice: Arc::new(AtomicU64::new(seed)),
            repeated: Arc::default(),
            faults: Arc::default(),
        }
    }

    fn below(&self, n: u64) -> u64 {
        let step = 0x9e37_79b9_7f4a_7c15;
        let mut x = self.dice.fetch_add(step, Ordering::Relaxed);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % n
    }

    /// On its way; now and then hardly any time passes.
    async fn travel(&self) {
        match self.below(3) {
            0 => tokio::task::yield_now().await,
            _ => tokio::time::sleep(Duration::from_millis(1 + self.below(3))).await,
        }
    }

    /// Much later, when nobody thinks of it any more.
    async fn stray(&self) {
        tokio::time::sleep(Duration::from_millis(1 + self.below(40))).await;
    }

    fn again(&self, what: &str, taken: bool) {
        self.repeated.fetch_add(1, Ordering::Relaxed);
        if taken {
            let fault = format!("{what} had an effect a second time");
            self.faults.lock().unwrap().push(fault);
        }
    }

    /// How many things came again. None of them had an effect.
    pub fn check(&self) -> usize {
        let faults = self.faults.lock().unwrap();
        assert!(faults.is_empty(), "{faults:?}");
        self.repeated.load(Ordering::Relaxed)
    }

    async fn reopen(&self, child: OpenChild) {
        let again = self.home.open(child).await;
        self.again("an opening", again.is_ok());
    }

    async fn redeliver(&self, to: Residency, message: Message, verb: Verb) {
        let again = self.home.deliver(&to, message, verb).await;
        self.again("a delivery", again.is_ok());
    }

    /// Brings reports here: late, in order, and some of them again.
    async fn bring(
        self,
        mut reports: futures::stream::BoxStream<'static, Report>,
        to: mpsc::Sender<Report>,
    ) {
        while let Some(report) = reports.next().await {
            for _ in 0..=self.below(3) {
                self.travel().await;
                if to.send(report.clone()).await.is_err() {
                    return;
                }
            }
        }
    }
}

impl ChildHost for Far {
    fn open(&self, child: OpenChild) -> BoxFuture<'_, Result<Opened, HostError>> {
        async move {
            self.travel().await;
            let opened = self.home.open(child.clone()).await?;
            if self.below(2) == 0 {
                // It crashed before it answered, and is asked again.
                self.reopen(child.clone()).await;
            }
            if self.below(2) == 0 {
                let far = self.clone();
                tokio::spawn(async move {
                    far.stray().await;
                    far.reopen(child).await;
                });
            }
            let (to, mut reports) = mpsc::channel(1);
            tokio::spawn(self.clone().bring(opened.reports, to));
            self.travel().await;
            let reports = futures::stream::poll_fn(move |cx| reports.poll_recv(cx)).boxed();
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
            self.travel().await;
            let delivered = self.home.deliver(to, message.clone(), verb).await?;
            if self.below(2) == 0 {
                self.redeliver(to.clone(), message.clone(), verb).await;
            }
            if self.below(2) == 0 {
                let (far, to) = (self.clone(), to.clone());
                tokio::spawn(async move {
                    far.stray().await;
                    far.redeliver(to, message, verb).await;
                });
            }
            self.travel().await;
            Ok(delivered)
        }
        .boxed()
    }

    fn interrupt(&self, child: &Residency, interrupt: Interrupt) {
        let (far, child) = (self.clone(), child.clone());
        tokio::spawn(async move {
            far.travel().await;
            far.home.interrupt(&child, interrupt);
            // Whether it stops anything a second time is seen in the child's stream.
            far.stray().await;
            far.home.interrupt(&child, interrupt);
        });
    }

    fn close(&self, child: &Residency, pending: Pending) {
        let (far, child) = (self.clone(), child.clone());
        tokio::spawn(async move {
            far.travel().await;
            far.home.close(&child, pending);
            far.stray().await;
            far.home.close(&child, pending);
        });
    }

    fn retract(&self, child: &Residency) {
        self.home.retract(child);
    }

    fn look(&self, child: &AgentId) -> Option<Look> {
        self.home.look(child)
    }
}
