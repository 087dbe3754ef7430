//! What a peer's guard promises, without any peer.

use std::time::Duration;

use offshoot_peers::Home;

const WHILE: Duration = Duration::from_secs(30);

#[test]
fn a_peer_sees_nothing_of_the_environment_of_the_test() {
    let home = Home::new();
    let seen = home.command("/usr/bin/env").env("MORE", "1").run(WHILE);
    let seen = seen.success();
    let mut names: Vec<_> = seen
        .lines()
        .filter_map(|line| line.split('=').next())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["HOME", "LANG", "MORE", "PATH", "TERM", "TMPDIR"]);
    assert!(seen.contains(&format!("HOME={}", home.folder().display())));
}

#[test]
fn a_guard_ends_the_whole_group() {
    let home = Home::new();
    let mut peer = home
        .command("/bin/sh")
        .args(["-c", "sleep 1000 & echo started; wait"])
        .spawn();
    assert_eq!(peer.line(WHILE).as_deref(), Some("started"));
    assert!(home.processes().len() >= 2, "{:?}", home.processes());
    drop(peer);
    home.assert_no_process_left();
}

#[test]
fn lines_go_in_and_out() {
    let home = Home::new();
    let mut peer = home.command("/bin/cat").spawn();
    peer.send("one");
    assert_eq!(peer.line(WHILE).as_deref(), Some("one"));
    peer.close_input();
    assert_eq!(peer.line(WHILE), None);
    assert!(peer.ended(WHILE).success());
}
