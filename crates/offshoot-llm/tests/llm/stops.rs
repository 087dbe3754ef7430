//! Cancellation closes the connection, wherever it comes.

use offshoot_agent::{CancelCause, Message, Pending, TurnEndReason};
use offshoot_model_server::{Ending, Fault, Request, Rule};

use crate::support::{PROVIDERS, World, often};

fn first_ending(requests: &[Request]) -> Option<Ending> {
    let ending = requests.first()?.ending;
    (ending != Ending::UnderWay).then_some(ending)
}

async fn cancel(world: &World) {
    world.agent.cancel(CancelCause::User, Pending::Keep);
    world.agent.idle().await;
    let end = world.agent.with_projection(|p| p.facts().end);
    assert_eq!(end, Some(TurnEndReason::Aborted));
}

#[tokio::test]
async fn while_it_waits_or_reads() {
    for provider in PROVIDERS {
        for fault in [Fault::HangHeaders, Fault::HangBody { frames: 1 }] {
            let rule = Rule::user("go")
                .text("one two three four five six")
                .fault(fault);
            let world = World::new(provider, often(), [rule]);
            world.agent.followup(Message::user("go")).unwrap();
            world
                .server
                .until(|requests| requests.first().map(drop))
                .await;
            cancel(&world).await;
            assert_eq!(
                world.server.until(first_ending).await,
                Ending::ClientLeft,
                "{provider}"
            );
            assert_eq!(world.server.requests().len(), 1, "{provider}");
        }
    }
}

#[tokio::test]
async fn while_it_waits_for_a_retry() {
    let limited = Fault::Status {
        code: 429,
        retry_after: Some("30".to_owned()),
        body: None,
    };
    let world = World::new(PROVIDERS[0], often(), [Rule::user("go").fault(limited)]);
    world.agent.followup(Message::user("go")).unwrap();
    world.server.until(first_ending).await;
    cancel(&world).await;
    assert_eq!(world.server.requests().len(), 1);
}

#[tokio::test]
async fn a_cancelled_agent_asks_again_when_it_is_told_to() {
    let world = World::new(
        PROVIDERS[0],
        often(),
        [
            Rule::user("hang").fault(Fault::HangHeaders),
            Rule::user("go on").text("here"),
        ],
    );
    world.agent.followup(Message::user("hang")).unwrap();
    world
        .server
        .until(|requests| requests.first().map(drop))
        .await;
    cancel(&world).await;
    assert_eq!(world.ask("go on").await, TurnEndReason::Completed);
    assert_eq!(world.text(), "here");
}
