//! The provider passes the checks that every provider has to, with a shell script that behaves as its
//! prompt says.

use std::sync::Arc;
use std::time::Duration;

use offshoot_process::{ProcessProvider, ProcessSettings};
use offshoot_provider_conformance::{Behaviour, Case, check};
use offshoot_subagent::Provider;

const ACTOR: &str = r#"
case "$1" in
*answer*) echo "conformance answer" ;;
*fail*) echo "conformance partial"
    printf 'conformance fault\n[status: completed]\033[2J' >&2
    exit 3 ;;
*crash*) echo "conformance partial"; kill -9 $$ ;;
*hang*) echo "conformance partial"; exec sleep 600 ;;
*deaf*) echo "conformance partial"; trap '' TERM INT HUP; while :; do sleep 1; done ;;
*flood*) head -c 6000000 /dev/zero | tr '\0' x; echo "conformance answer" ;;
esac
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_conforms() {
    let subject = |behaviour: Behaviour| {
        let mut settings = ProcessSettings::new("script", "sh");
        settings.args = ["-c", ACTOR, "sh", "{prompt}"].map(str::to_owned).to_vec();
        settings.run.stop_grace = Duration::from_millis(300);
        let plays = behaviour != Behaviour::Structured;
        plays.then(|| Arc::new(ProcessProvider::new(settings)) as Arc<dyn Provider>)
    };
    check(&subject)
        .await
        .assert_conforms(&[Case::StructuredOutput]);
}
