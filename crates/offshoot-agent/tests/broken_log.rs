//! A log that refuses: what is done in spite of it, and what it leaves when it is well again.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use offshoot_agent::{
    AgentId, AgentSettings, AppendError, CancelCause, MemoryStore, OpenedSession, Pending,
    SessionLog, SessionStore, StoreError, StoredEvent, Visit,
};
use support::{Fate, Manner, World, soon, user};

/// A store whose logs refuse while its disk is full.
struct Disk(MemoryStore, Arc<AtomicBool>);

struct Log(Box<dyn SessionLog>, Arc<AtomicBool>);

impl SessionLog for Log {
    fn append(&mut self, expected: u64, events: &[StoredEvent]) -> Result<(), AppendError> {
        if self.1.load(Ordering::SeqCst) {
            return Err(AppendError::Store(StoreError::Io {
                place: "the disk".to_owned(),
                error: std::io::Error::other("it is full"),
            }));
        }
        self.0.append(expected, events)
    }

    fn flush(&mut self) -> Result<offshoot_agent::Flushed, StoreError> {
        self.0.flush()
    }

    fn finish(&mut self) -> Result<(), StoreError> {
        self.0.finish()
    }

    fn abandon(self: Box<Self>) {
        self.0.abandon();
    }
}

impl SessionStore for Disk {
    fn create(&self, id: &AgentId, inherited: u64) -> Result<Box<dyn SessionLog>, StoreError> {
        let log = self.0.create(id, inherited)?;
        Ok(Box::new(Log(log, Arc::clone(&self.1))))
    }

    fn open(&self, id: &AgentId, visit: Visit<'_>) -> Result<OpenedSession, StoreError> {
        self.0.open(id, visit)
    }

    fn scan(&self, id: &AgentId, visit: Visit<'_>) -> Result<(), StoreError> {
        self.0.scan(id, visit)
    }

    fn first(&self, id: &AgentId) -> Result<Option<StoredEvent>, StoreError> {
        self.0.first(id)
    }

    fn sessions(&self) -> Result<Vec<AgentId>, StoreError> {
        self.0.sessions()
    }
}

/// A264: a stop does not wait for the log, whatever it was to discard.
#[tokio::test(start_paused = true)]
async fn a264_a_stop_is_a_stop_though_the_log_refuses_it() {
    for pending in [Pending::Keep, Pending::Discard] {
        let full = Arc::new(AtomicBool::new(false));
        let disk = Disk(MemoryStore::default(), Arc::clone(&full));
        let settings = AgentSettings::default();
        let mut world = World::over(Arc::new(disk), Manner::Polite, settings);
        let agent = world.agent();
        agent.followup(user("a")).expect("accepted");
        // It waits for its cancellation; to ask for that here would be a second one who does.
        let _step = world.stage.next().await;
        agent.followup(user("queued")).expect("accepted");
        full.store(true, Ordering::SeqCst);
        assert!(agent.cancel(CancelCause::User, pending), "a turn ran");
        soon("idle", agent.idle()).await;
        assert!(world.stage.ready().is_none(), "nothing runs after it");
        assert!(agent.failure().is_some_and(|why| why.contains("full")));
        full.store(false, Ordering::SeqCst);
        // What the log did not take is not so: the message waits, and its turn is ended on the record.
        agent.followup(user("b")).expect("accepted");
        for name in ["queued", "b"] {
            let step = world.stage.next().await;
            assert_eq!(step.read(), [name]);
            step.complete();
        }
        soon("idle", agent.idle()).await;
        let ledger = world.finish(agent).await;
        assert_eq!(ledger.all(Fate::Read), ["a", "b", "queued"]);
    }
}
