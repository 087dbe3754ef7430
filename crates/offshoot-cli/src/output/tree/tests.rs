use super::*;
use offshoot::agent::{AgentId, Origin, SessionStart};

fn record(session: &str, label: &str, event: Event) -> EventRecord {
    EventRecord {
        session: session.parse().expect("an id"),
        label: label.into(),
        depth: 0,
        seq: None,
        time: offshoot::core::Timestamp::from_millis(0),
        event,
    }
}

fn start(session: &str, label: &str, parent: Option<&str>) -> EventRecord {
    let parent: Option<AgentId> = parent.map(|id| id.parse().expect("an id"));
    let event = Event::from(SessionStart {
        parent,
        label: Some(label.to_owned()),
        origin: Origin::Root,
        depth: 0,
        resumed: false,
        inherited: None,
        extra: serde_json::Map::new(),
    });
    record(session, label, event)
}

fn status(session: &str, status: Status) -> EventRecord {
    record(session, "", Event::AgentStatus { status })
}

fn extension(session: &str, kind: &str, fields: &[(&str, &str)]) -> EventRecord {
    let event = fields
        .iter()
        .fold(Extension::new(kind), |event, (key, value)| {
            event.with(key, *value)
        });
    record(session, "", event.into())
}

fn story() -> Vec<EventRecord> {
    vec![
        start("r", "root", None),
        status("r", Status::Running),
        start("c", "files\u{1b}[31m", Some("r")),
        status("c", Status::Running),
        extension(
            "c",
            "task/started",
            &[("task_id", "bash-1"), ("label", "count")],
        ),
        status("c", Status::Idle),
        status("r", Status::Idle),
        extension(
            "c",
            "task/settled",
            &[
                ("task_id", "bash-1"),
                ("status", "completed"),
                ("detail", "exit code: 0"),
            ],
        ),
        status("c", Status::Closing),
        status("c", Status::Closed),
        extension(
            "r",
            "subagent/settled",
            &[("child", "c"), ("outcome", "completed")],
        ),
    ]
}

#[test]
fn each_change_of_a_state_is_one_line() {
    let now = Instant::now();
    let mut tree = Tree::new(now);
    let told: Vec<String> = story()
        .iter()
        .flat_map(|record| tree.apply(record, now))
        .map(|line| line.trim_start().trim_start_matches("0.0s ").to_owned())
        .collect();
    let files = tree.rows[1].name.clone();
    assert_eq!(files, "files");
    let expected = [
        "root: running".to_owned(),
        format!("root / {files}: running"),
        format!("root / {files} / bash-1 count: running"),
        format!("root / {files}: waiting"),
        "root: waiting".to_owned(),
        format!("root / {files} / bash-1 count: completed, exit code: 0"),
        format!("root / {files}: idle"),
        format!("root / {files}: settling"),
        format!("root / {files}: settled, completed"),
        "root: idle".to_owned(),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_frame_is_never_wider_or_higher_than_the_terminal() {
    let now = Instant::now();
    for (columns, rows) in [(80, 24), (30, 24), (12, 4), (1, 1), (80, 3)] {
        let mut tree = Tree::new(now);
        for record in story() {
            tree.apply(&record, now);
            let frame = Frame {
                columns,
                rows,
                colour: false,
            };
            let lines = tree.draw(frame, now);
            assert!(lines.len() < rows.max(2), "{rows}: {lines:?}");
            for line in lines {
                assert!(line.chars().count() <= columns, "{columns}: {line}");
            }
        }
    }
}

#[test]
fn a_frame_shows_the_tree() {
    let now = Instant::now();
    let mut tree = Tree::new(now);
    for record in story().iter().take(7) {
        tree.apply(record, now);
    }
    tree.rows[1].name = "files".to_owned();
    let frame = Frame {
        columns: 80,
        rows: 24,
        colour: false,
    };
    let expected = [
        "root                  0.0s  waiting",
        "└─ files              0.0s  waiting",
        "   └─ bash-1 count    0.0s  running",
    ];
    assert_eq!(tree.draw(frame, now), expected);
}

#[test]
fn what_works_and_what_is_newest_is_shown_when_there_is_not_room_for_all() {
    let now = Instant::now();
    let mut tree = Tree::new(now);
    tree.apply(&start("r", "root", None), now);
    for n in 0..30 {
        let id = format!("c{n}");
        tree.apply(&start(&id, &format!("child {n}"), Some("r")), now);
        // The first ten have settled, the next ones wait for a message, the last ten work.
        if n == 3 || n >= 20 {
            tree.apply(&status(&id, Status::Running), now);
        }
        if n < 10 && n != 3 {
            let fields = [("child", id.as_str()), ("outcome", "completed")];
            tree.apply(&extension("r", "subagent/settled", &fields), now);
        }
    }
    let task = [("task_id", "bash-1"), ("label", "look")];
    tree.apply(&extension("c12", "task/started", &task), now);
    let names = |rows: usize| -> Vec<String> {
        let frame = Frame {
            columns: 80,
            rows,
            colour: false,
        };
        let lines = tree.draw(frame, now).into_iter();
        lines
            .map(|line| {
                line.split("  0.0s")
                    .next()
                    .unwrap_or(&line)
                    .trim()
                    .to_owned()
            })
            .collect()
    };
    let few = [
        "root",
        "├─ child 12",
        "│  └─ bash-1 look",
        "├─ child 28",
        "└─ child 29",
        "... and 27 more",
    ];
    assert_eq!(names(8), few);
    let more = names(20).join("\n");
    for shown in ["child 3\n", "child 12\n", "child 20\n", "child 29\n"] {
        assert!(more.contains(shown), "{shown}: {more}");
    }
    assert!(!more.contains("child 9\n"), "{more}");
    assert_eq!(names(34).len(), 32);
}
