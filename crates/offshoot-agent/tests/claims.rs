//! A boundary that claims several messages, and a process that dies while it is written.

mod support;

use std::sync::Arc;

use offshoot_agent::{
    Agent, AgentHost, AgentId, AgentSettings, HistoryItem, MemoryStore, SessionStore, StoredEvent,
};
use support::{Fate, Manner, World, soon, user};

/// A log of which the last turn claims three messages, two of them quiet.
async fn log() -> (Vec<StoredEvent>, Vec<String>) {
    let mut world = World::new();
    let agent = world.agent();
    for name in ["a", "b"] {
        agent.inject(user(name)).expect("accepted");
    }
    agent.steer(user("c")).expect("accepted");
    let step = world.stage.next().await;
    assert_eq!(step.read(), ["a", "b", "c"]);
    (world.log(&agent), world.trace(&agent))
}

fn shown(step: &support::Step) -> Vec<String> {
    let history = step.context.history();
    let messages = history.iter().filter_map(|item| match item {
        HistoryItem::User(message) => Some(message.id.to_string()),
        _ => None,
    });
    messages.collect()
}

/// A274: wherever the boundary's events are cut, the first request after the restart shows the whole
/// batch, in its order and once.
#[tokio::test(start_paused = true)]
async fn a274_a_claim_that_was_cut_anywhere_is_one_batch_for_the_model() {
    let (log, trace) = log().await;
    assert_eq!(
        trace[2..],
        [
            "insert c next_step",
            "turn 1 g0",
            "claim a 1/1",
            "claim b 1/1",
            "claim c 1/1",
            "step 1/1",
            "read a",
            "read b",
            "read c",
        ]
    );
    // The session's first event is not in the trace.
    for kept in 4..log.len() {
        let store = MemoryStore::default();
        let id: AgentId = "s".parse().expect("an id");
        let mut writer = store.create(&id, 0).expect("a session");
        writer.append(0, &log[..kept]).expect("an append");
        drop(writer);
        let host = AgentHost::new(Arc::new(store), AgentSettings::default());
        let (driver, mut stage) = support::stage(Manner::Polite);
        let kit = support::kit(Arc::new(driver));
        let agent = Agent::resume(&host, None, &id, Default::default(), kit)
            .expect("the session")
            .into_agent();
        agent.start();
        let step = stage.next().await;
        assert_eq!(shown(&step), ["a", "b", "c"], "{kept} events were kept");
        step.complete();
        soon("idle", agent.idle()).await;
        // A284: none of them is taken a second time, by whichever process.
        let again = agent.steer(user("b")).expect_err("it is in the log");
        assert_eq!(again.code(), "DUPLICATE_MESSAGE");
        agent.close(offshoot_agent::Pending::Keep).await;
        assert!(stage.ready().is_none(), "{kept} events: one turn");
        let ledger = support::check_closed(&host.store.read(&id).expect("the log"));
        assert_eq!(ledger.all(Fate::Read), ["a", "b", "c"]);
    }
}
