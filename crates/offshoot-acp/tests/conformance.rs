//! The provider passes the checks that every provider has to, with an agent that behaves as its prompt
//! says.

mod support;

use std::sync::Arc;

use offshoot_acp::AcpProvider;
use offshoot_provider_conformance::{Behaviour, Case, check};
use offshoot_subagent::Provider;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_external_agent_conforms() {
    let subject = |behaviour: Behaviour| {
        let plays = behaviour != Behaviour::Structured;
        let agent = || AcpProvider::new(support::fake(&["act"]));
        plays.then(|| Arc::new(agent()) as Arc<dyn Provider>)
    };
    check(&subject)
        .await
        .assert_conforms(&[Case::StructuredOutput]);
}
