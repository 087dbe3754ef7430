//! Messages against settlement on real threads, in this process.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use offshoot_subagent::Destination;
use support::{World, request, soon};

/// Messages race with settlement on two workers: each is read exactly once, and a child is never
/// resident twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_races_with_settlement_is_never_lost() {
    let world = World::new();
    let root = world.root();
    let run = world
        .subagents
        .start(request(&root, "child"))
        .await
        .unwrap();
    world.settled(&root, &run).await;
    let id = run.child.clone();
    let senders = (0..2).map(|lane| {
        let (service, root, id) = (world.subagents.clone(), root.clone(), id.clone());
        tokio::spawn(async move {
            let (mut resumed, mut sent) = (0, 0);
            for n in 0..750 {
                let to = service
                    .send(&root, id.as_str(), &format!("{lane}/{n}"), 0)
                    .await;
                let to = to.expect("every message is accepted");
                resumed += u32::from(to.destination == Destination::Resumed);
                sent += 1;
                if n % 7 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            (sent, resumed)
        })
    });
    let (mut sent, mut resumed) = (0, 0);
    for sender in senders {
        let done = soon("the sender", sender).await.expect("no panic");
        (sent, resumed) = (sent + done.0, resumed + done.1);
    }
    soon("rest", root.rest()).await;
    soon("the stream", world.host.hub.drained()).await;
    assert_eq!(sent, 1500);
    assert_eq!(world.count("child inbox/inserted agent"), 1500);
    assert_eq!(world.count("child message/user agent"), 1500);
    let trace = world.trace();
    let mut resident = 0;
    let mut residencies = 0;
    for line in &trace {
        match line.as_str() {
            "child session/start" | "child session/start resumed" => {
                resident += 1;
                residencies += 1;
                assert_eq!(resident, 1, "resident twice");
            }
            "child agent/status Closed" => resident -= 1,
            _ => {}
        }
    }
    assert_eq!(residencies, resumed + 1);
    assert_eq!(
        world.extensions(root.id(), "subagent/settled").len(),
        residencies as usize
    );
    assert_eq!(
        world.accepted(root.id(), "settled").len(),
        residencies as usize
    );
    world.close(&root).await;
}
