//! The event stream: the order of commit, observers that call back, that panic, that go.

mod support;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use offshoot_agent::{
    Agent, AgentHost, AgentId, AgentSettings, Event, EventHub, EventObserver, EventRecord,
    MemoryStore, Pending, Status,
};
use support::{World, soon, user};

fn lines(world: &World, id: &AgentId) -> Vec<String> {
    let records = world.records.lock().expect("no panic");
    records
        .iter()
        .filter(|record| record.session == *id)
        .map(|record| support::line(&record.event))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn everything_is_seen_in_the_order_of_commit() {
    let mut world = World::new();
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    world.stage.next().await.complete();
    support::soon("idle", agent.idle()).await;
    let id = agent.id().clone();
    agent.close(Pending::Keep).await;
    assert_eq!(
        lines(&world, &id),
        [
            "session resumed=false",
            "insert a next_turn",
            "status running",
            "turn 1 g0",
            "claim a 1/1",
            "step 1/1",
            "read a",
            "end step 1/1",
            "end turn 1 completed",
            "status idle",
            "status closing",
            "status closed",
        ]
    );
    let seqs: Vec<_> = world
        .records
        .lock()
        .expect("no panic")
        .iter()
        .filter_map(|record| record.seq)
        .collect();
    assert_eq!(seqs, (0..8).collect::<Vec<_>>());
    soon("a drained hub", world.host.hub.drained()).await;
}

/// What an observer sends is committed at once and seen after the event that it reacted to.
#[tokio::test(start_paused = true)]
async fn an_observer_may_send_cancel_and_close() {
    let world = World::new();
    let agent = world.agent();
    let (target, seen) = (agent.clone(), Arc::new(Mutex::new(Vec::new())));
    let sink = Arc::clone(&seen);
    let _guard = world
        .host
        .hub
        .observe(Arc::new(move |record: &EventRecord| {
            sink.lock()
                .expect("no panic")
                .push(support::line(&record.event));
            match &record.event {
                Event::InboxInserted { message, .. } if message.id.as_str() == "a" => {
                    target.steer(user("b")).expect("accepted");
                    target.withdraw(&"b".parse().expect("an id"), "changed");
                }
                Event::TurnStart { .. } => {
                    target.cancel(offshoot_agent::CancelCause::Parent, Pending::Discard);
                }
                Event::TurnEnd { .. } => {
                    target.begin_close(Pending::Keep);
                }
                _ => {}
            }
        }));
    agent.followup(user("a")).expect("accepted");
    soon("the end", agent.closing()).await;
    soon("idle", agent.idle()).await;
    let seen = seen.lock().expect("no panic").clone();
    assert_eq!(
        seen[..6],
        [
            "insert a next_turn",
            "status running",
            "turn 1 g0",
            "claim a 1/1",
            "insert b next_step",
            "discard b changed",
        ]
    );
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_one_observer_is_contained() {
    let mut world = World::new();
    let _guard = world
        .host
        .hub
        .observe(Arc::new(|_: &EventRecord| panic!("an observer")));
    let after = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&after);
    let _second = world.host.hub.observe(Arc::new(move |_: &EventRecord| {
        counter.fetch_add(1, Ordering::SeqCst);
    }));
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    world.stage.next().await.complete();
    support::soon("idle", agent.idle()).await;
    assert_eq!(after.load(Ordering::SeqCst), 10, "the others are called");
    world.finish(agent).await;
}

struct Dropped(Arc<AtomicUsize>, AgentHost);

impl EventObserver for Dropped {
    fn on_event(&self, _: &EventRecord) {}
}

impl Drop for Dropped {
    fn drop(&mut self) {
        // The hub and the registry are free for use while an observer goes.
        assert!(self.1.hub.is_drained());
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_removed_observer_sees_nothing_more_and_is_dropped() {
    let world = World::new();
    let dropped = Arc::new(AtomicUsize::new(0));
    let observer = Arc::new(Dropped(Arc::clone(&dropped), world.host.clone()));
    let guard = world.host.hub.observe(observer);
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let counting = world.host.hub.observe(Arc::new(move |_: &EventRecord| {
        counter.fetch_add(1, Ordering::SeqCst);
    }));
    let agent = world.agent();
    drop(guard);
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    let before = count.load(Ordering::SeqCst);
    assert_eq!(before, 1);
    drop(counting);
    agent.inject(user("a")).expect("accepted");
    assert_eq!(count.load(Ordering::SeqCst), before);
    world.finish(agent).await;
}

#[tokio::test(start_paused = true)]
async fn an_event_is_in_the_log_when_it_is_seen() {
    let mut world = World::new();
    let (store, checked) = (world.host.store.clone(), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&checked);
    let _guard = world
        .host
        .hub
        .observe(Arc::new(move |record: &EventRecord| {
            if let Some(seq) = record.seq {
                let log = store.read(&record.session).expect("the log");
                let stored = log.iter().find(|stored| stored.seq == seq);
                assert_eq!(stored.map(|stored| &stored.event), Some(&record.event));
                counter.fetch_add(1, Ordering::SeqCst);
            }
        }));
    let agent = world.agent();
    agent.followup(user("a")).expect("accepted");
    world.stage.next().await.complete();
    support::soon("idle", agent.idle()).await;
    assert_eq!(checked.load(Ordering::SeqCst), 8);
    world.finish(agent).await;
}

/// Many agents at once: each session's events come in its own order, without a gap.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_sessions_are_each_in_order() {
    let host = AgentHost::new(Arc::new(MemoryStore::default()), AgentSettings::default());
    let last: Arc<Mutex<HashMap<AgentId, u64>>> = Arc::default();
    let inside = Arc::new(AtomicUsize::new(0));
    let (sink, at_once) = (Arc::clone(&last), Arc::clone(&inside));
    let _guard = host.hub.observe(Arc::new(move |record: &EventRecord| {
        assert_eq!(at_once.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
        if let Some(seq) = record.seq {
            let mut last = sink.lock().expect("no panic");
            let expected = last.get(&record.session).map_or(0, |seq| seq + 1);
            assert_eq!(seq, expected, "{}", record.session);
            last.insert(record.session.clone(), seq);
        }
        at_once.fetch_sub(1, Ordering::SeqCst);
    }));
    let (driver, stage) = support::stage(support::Manner::Polite);
    drop(stage);
    let kit = support::kit(Arc::new(driver));
    let agents: Vec<_> = (0..8)
        .map(|_| {
            let spec = offshoot_agent::AgentSpec::root(kit.clone());
            let agent = Agent::create(&host, None, spec)
                .expect("an agent")
                .into_agent();
            agent.start();
            agent
        })
        .collect();
    let senders: Vec<_> = agents
        .iter()
        .map(|agent| {
            let agent = agent.clone();
            tokio::spawn(async move {
                for n in 0..200 {
                    agent.steer(user(&format!("m{n}"))).expect("accepted");
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for sender in senders {
        sender.await.expect("no panic");
    }
    for agent in &agents {
        agent.rest().await;
        assert_eq!(agent.status(), Status::Idle);
        agent.close(Pending::Keep).await;
    }
    host.hub.drained().await;
    let last = last.lock().expect("no panic").clone();
    for agent in &agents {
        let log = host.store.read(agent.id()).expect("the log");
        support::check_closed(&log);
        assert_eq!(last.get(agent.id()), Some(&(log.len() as u64 - 1)));
    }
}

fn record(n: u64) -> EventRecord {
    EventRecord {
        session: AgentId::fresh(),
        label: "test".into(),
        depth: 0,
        seq: Some(n),
        time: offshoot_core::Timestamp::from_millis(n),
        event: Event::TurnStart {
            turn: n,
            generation: 0,
        },
    }
}

/// Several threads commit without a break, and handing out is slower: each of them pays for about its
/// own share, and the queue does not grow with what they commit.
#[test]
fn nobody_hands_out_for_others_without_end() {
    const THREADS: usize = 3;
    const EACH: usize = 20_000;
    let hub = EventHub::default();
    let handed_out: Arc<Mutex<HashMap<std::thread::ThreadId, usize>>> = Arc::default();
    let (seen, committed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let behind = Arc::new(AtomicUsize::new(0));
    let observer = {
        let (handed_out, seen, committed, behind) = (
            Arc::clone(&handed_out),
            Arc::clone(&seen),
            Arc::clone(&committed),
            Arc::clone(&behind),
        );
        hub.observe(Arc::new(move |_: &EventRecord| {
            let mut handed_out = handed_out.lock().expect("no panic");
            *handed_out.entry(std::thread::current().id()).or_default() += 1;
            let seen = seen.fetch_add(1, Ordering::Relaxed);
            let committed = committed.load(Ordering::Relaxed);
            behind.fetch_max(committed.saturating_sub(seen), Ordering::Relaxed);
            // The others commit meanwhile.
            std::thread::yield_now();
        }))
    };
    let most = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for _ in 0..THREADS {
            threads.spawn(|| {
                let own = std::thread::current().id();
                let mine = || {
                    let handed_out = handed_out.lock().expect("no panic");
                    handed_out.get(&own).copied().unwrap_or_default()
                };
                for n in 0..EACH {
                    let before = mine();
                    committed.fetch_add(1, Ordering::Relaxed);
                    hub.announce(record(n as u64));
                    most.fetch_max(mine() - before, Ordering::Relaxed);
                }
            });
        }
    });
    assert!(hub.is_drained());
    assert_eq!(seen.load(Ordering::Relaxed), THREADS * EACH, "each once");
    let (most, behind) = (most.into_inner(), behind.load(Ordering::Relaxed));
    assert!(most <= 3 * 1024, "one commit handed out {most}");
    assert!(behind <= 1024 + 2 * THREADS, "{behind} events waited");
    drop(observer);
}

/// What an observer commits itself waits for nobody, however much is queued.
#[test]
fn an_observer_may_commit_more_than_the_queue_holds() {
    let hub = EventHub::default();
    let seen = Arc::new(AtomicUsize::new(0));
    let observer = {
        let (hub, seen) = (hub.clone(), Arc::clone(&seen));
        move |record: &EventRecord| {
            seen.fetch_add(1, Ordering::Relaxed);
            if record.seq == Some(0) {
                for n in 1..=5000 {
                    hub.announce(self::record(n));
                }
            }
        }
    };
    let guard = hub.observe(Arc::new(observer));
    hub.announce(record(0));
    assert_eq!(seen.load(Ordering::Relaxed), 5001);
    assert!(hub.is_drained());
    drop(guard);
}

/// An observer that removes itself, and whose drop panics.
struct Bomb(Arc<Mutex<Option<offshoot_agent::ObserverGuard>>>);

impl EventObserver for Bomb {
    fn on_event(&self, _: &EventRecord) {
        drop(self.0.lock().expect("no panic").take());
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the drop of an observer");
    }
}

#[test]
fn an_observer_whose_drop_panics_stops_nobody() {
    let hub = EventHub::default();
    let place = Arc::new(Mutex::new(None));
    let guard = hub.observe(Arc::new(Bomb(Arc::clone(&place))));
    *place.lock().expect("no panic") = Some(guard);
    hub.announce(record(1));
    assert!(place.lock().expect("no panic").is_none() && hub.is_drained());
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    let guard = hub.observe(Arc::new(move |_: &EventRecord| {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    hub.announce(record(2));
    assert_eq!(seen.load(Ordering::Relaxed), 1);
    drop(guard);
}

#[test]
fn observers_that_commit_to_each_others_streams_do_not_wait_for_each_other() {
    const MORE: u64 = 3000;
    let hubs = [EventHub::default(), EventHub::default()];
    let met = Arc::new(std::sync::Barrier::new(2));
    let seen = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let guards = [0, 1].map(|n| {
        let (other, met, seen) = (hubs[1 - n].clone(), Arc::clone(&met), Arc::clone(&seen[n]));
        hubs[n].observe(Arc::new(move |record: &EventRecord| {
            seen.fetch_add(1, Ordering::Relaxed);
            if record.seq == Some(0) {
                met.wait();
                for n in 1..=MORE {
                    other.announce(self::record(n));
                }
            }
        }))
    });
    let (done, both) = std::sync::mpsc::channel();
    for hub in hubs.clone() {
        let done = done.clone();
        std::thread::spawn(move || {
            hub.announce(record(0));
            done.send(()).expect("the test waits");
        });
    }
    for _ in 0..2 {
        let ended = both.recv_timeout(std::time::Duration::from_secs(60));
        assert!(ended.is_ok(), "they wait for each other");
    }
    for (hub, seen) in hubs.iter().zip(&seen) {
        assert!(hub.is_drained());
        assert_eq!(seen.load(Ordering::Relaxed) as u64, MORE + 1);
    }
    drop(guards);
}
