//! Both providers pass the checks that every provider has to.

use std::sync::Arc;

use offshoot_inprocess::{Fork, Spawn};
use offshoot_provider_conformance::{Behaviour, check};
use offshoot_subagent::Provider;

#[tokio::test(start_paused = true)]
async fn spawn_conforms() {
    let subject = |_: Behaviour| Some(Arc::new(Spawn) as Arc<dyn Provider>);
    check(&subject).await.assert_conforms(&[]);
}

#[tokio::test(start_paused = true)]
async fn fork_conforms() {
    let subject = |_: Behaviour| Some(Arc::new(Fork) as Arc<dyn Provider>);
    check(&subject).await.assert_conforms(&[]);
}
