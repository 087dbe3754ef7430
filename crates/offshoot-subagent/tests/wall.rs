//! How long runs took: of each residency by itself, summed over the tree, and over the residencies of
//! a session, also of one whose process died.

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use offshoot_agent::{Agent, Extension, JsonlStore};
use offshoot_subagent::{Outcome, SubagentSettings, TreeUsage};
use serde_json::Value;
use support::{Act, Fault, Gate, Odd, World, request, soon};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Says "done" after so many seconds.
fn takes(seconds: u64) -> Act {
    let nap = move |_: Agent| sleep(Duration::from_secs(seconds));
    Act::work(nap, Act::Say("done"))
}

fn usage(settled: &Extension) -> TreeUsage {
    serde_json::from_value(settled.fields["usage"].clone()).expect("a usage")
}

fn times(usage: TreeUsage) -> (u64, u64) {
    (usage.wall_ms, usage.total_wall_ms)
}

#[tokio::test(start_paused = true)]
async fn t20_times_add_up_over_a_tree_of_three_levels() {
    let world = World::new();
    let root = world.root();
    let (run, child) = world.child(&root, "child", [takes(10)]).await;
    let (middle_run, middle) = world.child(&child, "middle", [takes(1)]).await;
    let (low_run, _) = world.child(&middle, "low", [takes(3)]).await;
    let low = world.settled(&middle, &low_run).await;
    assert_eq!(times(usage(&low)), (3_000, 3_000));
    // It waited for its child, longer than its own turn took.
    let settled = world.settled(&child, &middle_run).await;
    assert_eq!(times(usage(&settled)), (3_000, 6_000));
    let listed = world.subagents.list(&root, true);
    let listed: Vec<_> = listed.iter().map(|agent| times(agent.usage)).collect();
    assert_eq!(listed, [(3_000, 9_000), (3_000, 6_000), (3_000, 3_000)]);
    // They ran at the same time: the sum is more than the ten seconds that went by.
    let settled = world.settled(&root, &run).await;
    assert_eq!(times(usage(&settled)), (10_000, 16_000));
    let notices = world.accepted(root.id(), "settled");
    let notice = serde_json::to_value(&notices[0].source).expect("JSON");
    assert_eq!(
        notice["usage"], settled.fields["usage"],
        "the notice says it"
    );
    soon("rest", root.rest()).await;
    sleep(Duration::from_secs(5)).await;
    world.close(&root).await;
    let end = TreeUsage::of(&root);
    assert_eq!(times(end), (15_000, 31_000));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(TreeUsage::of(&root), end, "it has ended");
}

#[tokio::test(start_paused = true)]
async fn a_resumed_child_goes_on_counting_and_rests_for_nothing() {
    let world = World::new();
    let root = world.root();
    let acts = [takes(2), takes(3)];
    let (run, child) = world.child(&root, "child", acts).await;
    let first = world.settled(&root, &run).await;
    assert_eq!(times(usage(&first)), (2_000, 2_000));
    sleep(Duration::from_secs(100)).await;
    let sent = world.subagents.send(&root, child.id().as_str(), "go on", 0);
    sent.await.expect("delivered");
    sleep(Duration::from_secs(1)).await;
    let listed = world.subagents.list(&root, false);
    assert_eq!(times(listed[0].usage), (3_000, 3_000), "so far");
    soon("rest", root.rest()).await;
    let settled = world.extensions(root.id(), "subagent/settled");
    assert_eq!(times(usage(&settled[1])), (3_000, 3_000), "its second one");
    let listed = world.subagents.list(&root, false);
    assert_eq!(times(listed[0].usage), (5_000, 5_000));
    assert_eq!((listed[0].usage.input, listed[0].usage.output), (20, 8));
    let (own, total) = root.wall();
    assert_eq!(total.saturating_sub(own), Duration::from_secs(5));
    world.close(&root).await;
}

#[tokio::test(start_paused = true)]
async fn a_one_shot_run_is_timed_until_its_disposal_whoever_provides_it() {
    let world = World::new();
    let root = world.root();
    world.cast.plays("run", [takes(4)]);
    let run = world
        .subagents
        .run(request(&root, "run"), CancellationToken::new());
    let result = run.await.expect("a run");
    assert_eq!(times(result.usage), (4_000, 4_000));
    let (answer, disposal) = (Gate::default(), Gate::default());
    let mut odd = Odd::new(Fault::None);
    odd.slow_result = Some(answer.clone());
    odd.slow_dispose = Some(disposal.clone());
    world.odd(&odd);
    let mut asked = request(&root, "run");
    asked.provider = "odd".to_owned();
    let run = world.subagents.run(asked, CancellationToken::new());
    let (result, ()) = tokio::join!(run, async {
        sleep(Duration::from_secs(2)).await;
        answer.open();
        sleep(Duration::from_secs(1)).await;
        disposal.open();
    });
    let result = result.expect("a run");
    assert_eq!(result.outcome, Outcome::Completed);
    assert_eq!(times(result.usage), (3_000, 3_000));
    let settled = world.extensions(root.id(), "subagent/settled");
    assert_eq!(usage(&settled[1]), result.usage, "the record says the same");
    world.close(&root).await;
}

/// Makes each event of a stored session a second later than the one before; says how long that is.
fn stretch(folder: &Path, session: &Agent) -> u64 {
    let path = folder.join(format!("{}.jsonl", session.id()));
    let log = std::fs::read_to_string(&path).expect("the log");
    let mut last = 0;
    let mut text = String::new();
    for line in log.lines() {
        let mut line: Value = serde_json::from_str(line).expect("JSON");
        if let Some(seq) = line["seq"].as_u64() {
            line["time"] = format!("2026-01-01T00:00:{seq:02}.000Z").into();
            last = seq;
        }
        text += &format!("{line}\n");
    }
    std::fs::write(&path, text).expect("the log");
    last * 1000
}

#[tokio::test(start_paused = true)]
async fn a_lost_child_is_timed_by_its_log_and_goes_on_from_there() {
    let over = |folder: &Path| {
        let store = JsonlStore::open_folder(folder).expect("a store");
        World::over(Arc::new(store), SubagentSettings::default())
    };
    let folder = tempfile::tempdir().expect("a folder");
    let before = over(folder.path());
    let root = before.root();
    let act = || Act::at(&Gate::default(), &Gate::default(), Act::Hang);
    let (_, child) = before.child(&root, "child", [act()]).await;
    let (arrived, gate) = (Gate::default(), Gate::default());
    let low = [Act::at(&arrived, &gate, Act::Hang)];
    let (_, below) = before.child(&child, "below", low).await;
    arrived.opened().await;
    // The folder as a process that is killed now would leave it.
    let copy = tempfile::tempdir().expect("a folder");
    for entry in std::fs::read_dir(folder.path()).expect("a folder") {
        let entry = entry.expect("a file");
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("a copy");
    }
    let lasted = (stretch(copy.path(), &child), stretch(copy.path(), &below));
    assert!(lasted.0 >= 2_000 && lasted.1 >= 2_000, "{lasted:?}");
    let after = over(copy.path());
    let began = Instant::now();
    let resumed = after.resume_root(root.id());
    soon("rest", resumed.rest()).await;
    assert_eq!(began.elapsed(), Duration::ZERO, "only the log has a time");
    let settled = after.extensions(root.id(), "subagent/settled");
    let lost = (lasted.0, lasted.0 + lasted.1);
    assert_eq!(times(usage(&settled[0])), lost);
    after.cast.plays("child", [takes(7)]);
    let id = child.id().as_str();
    let sent = after.subagents.send(&resumed, id, "go on", 0).await;
    sent.expect("delivered");
    soon("rest", resumed.rest()).await;
    let listed = after.subagents.list(&resumed, false);
    // Its own child was told to it as lost when it went on, and is not counted a second time.
    assert_eq!(after.count("child subagent/settled below lost"), 1);
    let total = lost.1 + 7_000;
    assert_eq!(times(listed[0].usage), (lost.0 + 7_000, total));
    after.close(&resumed).await;
    before.close(&root).await;
}
